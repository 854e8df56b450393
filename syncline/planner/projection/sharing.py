"""Traffic and memory plan of a method whose replicas are single workers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import Exchange, ModelShape, TensorShape, largest_call_bytes, model_memory
from syncline.costmodel.layouts.memory import MODEL_BYTES
from syncline.costmodel.numerics.arrays import Indices
from syncline.costmodel.traffic.overlap import Bucket, bytes_per_gradient, gradient_buckets
from syncline.costmodel.traffic.sharded import SHARDINGS, after_micro_batches, sharded_exchanges
from syncline.methods import MethodBase
from syncline.methods.parts.method_spec import BYTES_PER_ELEMENT, elements
from syncline.planner.projection.memory import sends_together
from syncline.planner.projection.memory_plan import MemoryBudget, MemoryPlan, plan_memory
from syncline.planner.projection.traffic import Traffic, state_numbers, traffic_of
from syncline.specs import ProjectSpec


def traffic_and_memory(
    specs: Sequence[ProjectSpec],
    method: MethodBase,
    tensors: Sequence[TensorShape],
    workers: Indices,
    mask: NDArray[np.bool_],
    budget: MemoryBudget,
) -> tuple[list[Traffic], MemoryPlan]:
    """Return the traffic of a method in each setting, and its memory plan.

    Args:
        specs: specs of the settings.
        method: the method, in the settings' precision.
        tensors: the parameters' shapes.
        workers: ``(S,)``: P, the number of workers.
        mask: ``(S,)``: mask of the settings that include the method.
        budget: memory budget of each setting.

    Raises:
        SpecError: the method cannot serve so many workers.
    """
    spec = specs[0]
    number_format, counts = spec.number_format, [tensor.elements for tensor in tensors]
    sent = traffic_of(method, tensors, workers, mask, spec.steps)
    kept_numbers = state_numbers(method, tensors, workers, mask)
    wire = np.zeros(len(specs))
    for traffic in sent:
        selected = traffic.settings
        wire[selected] = largest_call_bytes(traffic.patterns, workers[selected], sends_together(method))
    precision = spec.memory.memory_precision(number_format)
    memory = model_memory(elements(tensors), kept_numbers.state, kept_numbers.errors, precision, wire)
    units = _units(spec, counts)
    parameter_bytes = MODEL_BYTES[precision] * elements(tensors)
    unit_bytes = max(unit.share for unit in units) * parameter_bytes
    memory_plan = plan_memory(spec.memory, budget, memory, workers, method.shares_out, unit_bytes, precision)
    if not any(exchange.in_backward for traffic in sent for exchange in traffic.exchanges):
        return sent, memory_plan
    buckets = gradient_buckets(counts, spec.bucket_size, element_bytes=bytes_per_gradient(number_format))
    split_traffics: list[Traffic] = []
    for sharding, micro in sorted(
        {*zip(memory_plan.sharding[mask].tolist(), memory_plan.micro_batches[mask].tolist(), strict=True)}
    ):
        selected = mask & (memory_plan.sharding == sharding) & (memory_plan.micro_batches == micro)
        if not sharding:
            later = after_micro_batches(buckets, micro)
            masked = [group._replace(place=np.where(selected, group.place, -1), buckets=later) for group in sent]
            split_traffics += [group for group in masked if group.settings.size]
            continue

        def exchanges(count: int, sharding: int = sharding, micro: int = micro) -> list[Exchange]:
            return sharded_exchanges(
                BYTES_PER_ELEMENT[method.travels_as] * elements(tensors),
                parameter_bytes,
                count,
                SHARDINGS[sharding],
                units,
                micro,
                overlapped=spec.overlap != "none",
            )

        split_traffics += traffic_of(method, tensors, workers, selected, spec.steps, exchanges)
    return split_traffics, memory_plan


def _units(spec: ProjectSpec, counts: Sequence[int]) -> tuple[Bucket, ...]:
    """Return the units of parameters that are gathered at once: about a layer of a transformer, else a bucket."""
    if not isinstance(spec.model, ModelShape):
        return gradient_buckets(counts, spec.bucket_size)
    return gradient_buckets(counts, max(1.0, sum(counts) / spec.model.layers), element_bytes=1)
