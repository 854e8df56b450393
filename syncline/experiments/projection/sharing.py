"""What a method sends, and how workers hold it: their memory decides between micro-batches, and what is shared out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import Exchange, ModelShape, TensorShape, largest_call_bytes, model_memory
from syncline.costmodel.arrays import Indices
from syncline.costmodel.compute.memory import MODEL_BYTES
from syncline.costmodel.traffic.overlap import Bucket, bytes_per_gradient, gradient_buckets
from syncline.costmodel.traffic.sharded import SHARDINGS, after_micro_batches, sharded_exchanges
from syncline.experiments.projection.held import Held, Room, held
from syncline.experiments.projection.memory import sends_together
from syncline.experiments.projection.traffic import Traffic, kept_of, traffic_of
from syncline.methods import MethodBase
from syncline.methods.base import BYTES_PER_ELEMENT, elements
from syncline.specs import ProjectSpec


def carried_and_held(
    specs: Sequence[ProjectSpec],
    method: MethodBase,
    tensors: Sequence[TensorShape],
    workers: Indices,
    able: NDArray[np.bool_],
    room: Room,
) -> tuple[list[Traffic], Held]:
    """What a method sends in each setting, and how a worker holds it.

    Args:
        specs: of the settings.
        method: it, in their precision.
        tensors: the parameters' shapes.
        workers: ``(S,)``: P.
        able: ``(S,)``: whether it is asked for.
        room: for activations, in each setting.

    Raises:
        SpecError: it cannot serve so many workers.
    """
    spec = specs[0]
    number_format, counts = spec.number_format, [tensor.elements for tensor in tensors]
    sent = traffic_of(method, tensors, workers, able, spec.steps)
    kept = kept_of(method, tensors, workers, able)
    wire = np.zeros(len(specs))
    for traffic in sent:
        here = traffic.settings
        wire[here] = largest_call_bytes(traffic.patterns, workers[here], sends_together(method))
    counted = spec.memory.counted_in(number_format)
    whole = model_memory(elements(tensors), kept.state, kept.errors, counted, wire)
    units = _units(spec, counts)
    parameter_bytes = MODEL_BYTES[counted] * elements(tensors)
    unit_bytes = max(unit.share for unit in units) * parameter_bytes
    how = held(spec.memory, room, whole, workers, method.shares_out, unit_bytes)
    if not any(one.in_backward for traffic in sent for one in traffic.exchanges):
        return sent, how
    buckets = gradient_buckets(counts, spec.bucket, element_bytes=bytes_per_gradient(number_format))
    gradient_bytes = BYTES_PER_ELEMENT[method.travels_as] * elements(tensors)
    parted: list[Traffic] = []
    for sharding, micro in sorted({*zip(how.sharding[able].tolist(), how.micro_batches[able].tolist(), strict=True)}):
        here = able & (how.sharding == sharding) & (how.micro_batches == micro)
        if not sharding:
            later = after_micro_batches(buckets, micro)
            masked = [one._replace(place=np.where(here, one.place, -1), buckets=later) for one in sent]
            parted += [one for one in masked if one.settings.size]
            continue

        def exchanges(count: int, sharding: int = sharding, micro: int = micro) -> list[Exchange]:
            return sharded_exchanges(
                gradient_bytes, parameter_bytes, count, SHARDINGS[sharding], units, micro, beside=spec.overlap != "none"
            )

        parted += traffic_of(method, tensors, workers, here, spec.steps, exchanges)
    return parted, how


def _units(spec: ProjectSpec, counts: Sequence[int]) -> tuple[Bucket, ...]:
    """What is gathered at once: about a layer of a transformer, a bucket of anything else."""
    if not isinstance(spec.model, ModelShape):
        return gradient_buckets(counts, spec.bucket)
    return gradient_buckets(counts, max(1.0, sum(counts) / spec.model.layers), element_bytes=1)
