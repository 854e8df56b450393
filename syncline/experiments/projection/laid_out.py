"""What workers of a replica of several send and hold: gradients inside it, the method's messages between replicas.

A method works on what a worker has: its message to the other replicas is about the worker's own part of the model, and
of those who have the same part each sends its share, which they gather inside the replica afterwards. What is averaged
in every step inside a replica is the gradient, by an all-reduce, or shared out as `syncline.costmodel.traffic.sharded`
has it. So data parallelism is a sum inside and a sum of shares between replicas; a replica of DiLoCo is a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import Exchange, ModelShape, call_bytes, model_memory
from syncline.costmodel.arrays import Indices
from syncline.costmodel.compute.memory import MODEL_BYTES
from syncline.costmodel.layouts.layout import Layout
from syncline.costmodel.layouts.own_tensors import OwnTensors, own_activation_bytes
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.traffic.overlap import Bucket, bytes_per_gradient, gradient_buckets
from syncline.costmodel.traffic.sharded import SHARDINGS, after_micro_batches, sharded_exchanges
from syncline.experiments.projection.held import Held, Room, held
from syncline.experiments.projection.memory import sends_together
from syncline.experiments.projection.once import once_each
from syncline.experiments.projection.traffic import Traffic, kept_of, traffic_of
from syncline.methods import MethodBase
from syncline.methods.base import BYTES_PER_ELEMENT
from syncline.specs import ProjectSpec


class Copied(NamedTuple):
    """Parameters of which so many workers of a replica have a copy.

    Attributes:
        elements: of one worker.
        group: the first of those who have a copy.
    """

    elements: int
    group: range


def parts_of(own: OwnTensors, layout: Layout) -> list[Copied]:
    """A worker's parameters by who has copies: those of experts apart."""
    experts = own.expert_elements
    if layout.expert == 1 or not experts:
        return [Copied(own.elements, layout.gradient_group)]
    copies = range(0, layout.tensor * layout.sharers, layout.tensor * layout.expert)
    return [Copied(own.elements - experts, layout.gradient_group), Copied(experts, copies)]


def laid_out(
    specs: Sequence[ProjectSpec],
    method: MethodBase,
    own: OwnTensors,
    layout: Layout,
    workers: Indices,
    able: NDArray[np.bool_],
) -> tuple[list[Traffic], Held]:
    """What a worker sends in each setting, and how it holds its part of a replica.

    Args:
        specs: of the settings, of one model and layout.
        method: in their precision.
        own: what of the model a worker has.
        layout: of a replica.
        workers: ``(S,)``: P, all of them.
        able: ``(S,)``: whether it is asked for.

    Raises:
        SpecError: the method cannot serve so many replicas.
    """
    spec, tensors = specs[0], list(own.tensors)
    parts, replicas = parts_of(own, layout), workers // layout.workers
    counts = [one.elements for one in tensors]
    number_format = spec.number_format
    counted = spec.memory.counted_in(number_format)
    share = sum(part.elements / len(part.group) for part in parts) / own.elements

    def between(count: int) -> list[Exchange]:
        if count == layout.workers:
            return []
        return list(_between(method, tensors, count // layout.workers, layout, share))

    sent = traffic_of(method, tensors, workers, able, spec.steps, between)
    wire = np.zeros(len(specs))
    for traffic in sent:
        here = traffic.settings
        sizes = [
            [call_bytes(one, len(one.group) if one.group else replicas[here]) for one in pattern.calls]
            for pattern in traffic.patterns
        ]
        together = [[sum(of)] if sends_together(method) else of for of in sizes if of]
        for size in (each for of in together for each in of):
            wire[here] = np.maximum(wire[here], size)
    kept = kept_of(method, tensors, replicas, able)
    whole = model_memory(own.elements, kept.state, kept.errors, counted, wire)
    units = gradient_buckets(counts, max(1.0, sum(counts) / _layers(spec, layout)), element_bytes=1)
    parameter_bytes = MODEL_BYTES[counted]
    unit_bytes = max(unit.share for unit in units) * parameter_bytes * own.elements
    inside = layout.sharers > 1
    sharers = np.full(len(specs), 1 / share) if inside else replicas
    room, asked = _room(specs, layout, own), spec.memory
    if layout.pipeline > 1 and asked.micro_batches is None:
        asked = asked.model_copy(update={"micro_batches": max(1, int(room.sequences[0]))})
    # Beside a pipeline nobody scatters gradients, or gathers weights, for each of its many micro-batches.
    choices = SHARDINGS[:2] if layout.pipeline > 1 else SHARDINGS
    how = held(asked, room, whole, sharers, inside or method.shares_out, unit_bytes, choices)
    gradient_bytes = bytes_per_gradient(number_format)
    buckets = gradient_buckets(counts, spec.bucket, element_bytes=gradient_bytes)
    averaged_bytes = BYTES_PER_ELEMENT[method.travels_as] if method.sends_in_backward else gradient_bytes
    parted: list[Traffic] = []
    for sharding, micro in sorted({*zip(how.sharding[able].tolist(), how.micro_batches[able].tolist(), strict=True)}):
        here = able & (how.sharding == sharding) & (how.micro_batches == micro)

        def exchanges(count: int, sharding: int = sharding, micro: int = micro) -> list[Exchange]:
            kind, beside = SHARDINGS[sharding], spec.overlap != "none"
            if not inside and sharding:
                n, w = averaged_bytes * own.elements, parameter_bytes * own.elements
                return sharded_exchanges(n, w, count // layout.workers, kind, units, micro, beside=beside)
            out: list[Exchange] = []
            for part in parts if inside else ():
                if len(part.group) > 1:
                    sizes = (averaged_bytes * part.elements, parameter_bytes * part.elements)
                    out += _inside(part.group, *sizes, kind, units, micro, beside)
            return [*out, *between(count)]

        made = traffic_of(method, tensors, workers, here, spec.steps, exchanges)
        parted += [one._replace(buckets=after_micro_batches(buckets, micro)) for one in made]
    return parted, how


def _layers(spec: ProjectSpec, layout: Layout) -> int:
    assert isinstance(spec.model, ModelShape)
    return -(-spec.model.layers // layout.pipeline)


@lru_cache(maxsize=32)
def _inside(
    group: range, gradient_bytes: float, parameter_bytes: float, kind: str, units: tuple[Bucket, ...], micro: int,
    beside: bool,
) -> list[Exchange]:  # fmt: skip
    """What those who have the same parameters in a replica send in every step."""
    if kind == "none":
        return [Exchange(gradient_bytes, label="gradient inside", in_backward=True, part=group)]
    sent = sharded_exchanges(gradient_bytes, parameter_bytes, len(group), kind, units, micro, beside=beside)
    return [replace(one, part=group) for one in sent]


def _between(
    method: MethodBase, tensors: Sequence[object], replicas: int, layout: Layout, share: float
) -> Iterator[Exchange]:
    """What a worker sends to its like in other replicas, and then gathers inside its own."""
    for one in method.exchanges(tensors, replicas):  # type: ignore[arg-type]
        size = share * one.payload_bytes
        part = one.part
        if part is not None:
            each = layout.workers
            part = range(part.start * each, part.stop * each, part.step * each)
        yield replace(one, payload_bytes=size, encoded_bytes=share * one.encoded_bytes, part=part)
        if layout.sharers > 1 and not method.sends_in_backward:
            come = {"all_gather": replicas, "gather": replicas, "reduce_scatter": 1 / replicas}
            yield replace(
                one,
                payload_bytes=size * come.get(one.collective, 1.0),
                encoded_bytes=0.0,
                collective="all_gather",
                label=f"{one.label} inside".strip(),
                part=layout.gradient_group,
            )


def _room(specs: Sequence[ProjectSpec], layout: Layout, own: OwnTensors) -> Room:
    """What each setting offers to a worker: `Room.activations_bytes` over the micro-batches are what it keeps."""
    ways = layout.workers // layout.data

    def asked(spec: ProjectSpec) -> tuple[float, float, float]:
        model, machine, counted = spec.model, spec.memory_machine, spec.memory
        assert isinstance(model, ModelShape)
        sequences = ways * spec.tokens_per_worker / model.sequence
        limit = machine.memory_bytes if machine else None
        activations = 0.0
        if counted.activations is not None:
            micro = counted.micro_batches or (max(1, int(sequences)) if layout.pipeline > 1 else 1)
            width = 2 if counted.counted_in(spec.number_format) == "mixed" else 4
            one = own_activation_bytes(model, layout, sequences, micro, counted.activations, width)
            activations = micro * one
        return np.inf if limit is None else limit, sequences, activations

    told: Floats = np.array(once_each(specs, asked), dtype=np.float64)
    return Room(*told.T)
