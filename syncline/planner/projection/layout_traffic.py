"""Traffic and memory of workers in replicas of one or more workers: gradients inside, messages of the method between.

A method works on the parameters of a worker. Its message to the other replicas is about the worker's part of the model.
Workers with the same part each send a share of it, and gather the shares inside the replica afterwards. In every step,
gradients are averaged inside a replica by an all-reduce, or sharded as in `syncline.costmodel.traffic.sharded`. So data
parallelism is a sum inside and a sum of shares between replicas; a replica of DiLoCo is a cluster. Without a layout
each worker is a replica; data parallelism then is what it is inside one replica of all P workers, ``data=P``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import Exchange, ModelShape, call_bytes, model_memory
from syncline.costmodel.layouts.activations import worker_activation_bytes
from syncline.costmodel.layouts.layout import Layout
from syncline.costmodel.layouts.memory import MODEL_BYTES, usable_bytes
from syncline.costmodel.layouts.own_tensors import WorkerTensors
from syncline.costmodel.numerics.arrays import Indices
from syncline.costmodel.traffic.overlap import Bucket, bytes_per_gradient, gradient_buckets
from syncline.costmodel.traffic.sharded import SHARDINGS, after_micro_batches, sharded_exchanges
from syncline.methods import MethodBase, tensors_of
from syncline.methods.parts.method_spec import BYTES_PER_ELEMENT
from syncline.planner.projection.memory import sends_together
from syncline.planner.projection.memory_plan import MemoryBudget, MemoryPlan, budget_of_columns, plan_memory
from syncline.planner.projection.traffic import Traffic, state_numbers, traffic_of
from syncline.specs import ProjectSpec


class ParameterShard(NamedTuple):
    """Parameters that a group of workers of a replica has copies of.

    Attributes:
        elements: number of parameters of one worker.
        group: the first group of workers with copies.
    """

    elements: int
    group: range


def parameter_shards(worker_tensors: WorkerTensors, layout: Layout) -> list[ParameterShard]:
    """Return a worker's parameters by the group with copies of them; experts are a separate part."""
    experts = worker_tensors.expert_elements
    if layout.expert == 1 or not experts:
        return [ParameterShard(worker_tensors.elements, layout.gradient_group)]
    copies = range(0, layout.tensor * layout.sharers, layout.tensor * layout.expert)
    return [ParameterShard(worker_tensors.elements - experts, layout.gradient_group), ParameterShard(experts, copies)]


def traffic_and_memory(
    specs: Sequence[ProjectSpec],
    method: MethodBase,
    worker_tensors: WorkerTensors,
    layout: Layout,
    workers: Indices,
    mask: NDArray[np.bool_],
) -> tuple[list[Traffic], MemoryPlan]:
    """Return the traffic of a worker in each setting, and its memory plan.

    Args:
        specs: specs of the settings, which share model and layout.
        method: the method, in the settings' precision.
        worker_tensors: a worker's part of the model.
        layout: layout of a replica.
        workers: ``(S,)``: P, all workers.
        mask: ``(S,)``: mask of the settings that include the method.

    Raises:
        SpecError: the method cannot serve so many replicas.
    """
    spec, tensors = specs[0], tensors_of(worker_tensors.tensors)
    parts, replicas = parameter_shards(worker_tensors, layout), workers // layout.workers
    counts = [tensor.elements for tensor in tensors]
    number_format = spec.number_format
    precision = spec.memory.memory_precision(number_format)
    share = sum(part.elements / len(part.group) for part in parts) / worker_tensors.elements

    @cache
    def between(count: int) -> list[Exchange]:
        if count == layout.workers:
            return []
        return list(_between(method, tensors, count // layout.workers, layout, share))

    inside = layout.sharers > 1
    sent = traffic_of(method, tensors, workers, mask, spec.steps, None if layout.workers == 1 else between)
    gradient_bytes = bytes_per_gradient(number_format)
    averaged_bytes = BYTES_PER_ELEMENT[method.travels_as] if method.sends_in_backward else gradient_bytes
    wire = np.full(len(specs), max(averaged_bytes * part.elements for part in parts) if inside else 0.0)
    for traffic in sent:
        selected = traffic.settings
        sizes = [
            [call_bytes(call, len(call.group) if call.group else replicas[selected]) for call in pattern.calls]
            for pattern in traffic.patterns
        ]
        together = [[sum(call_sizes)] if sends_together(method) else call_sizes for call_sizes in sizes if call_sizes]
        for size in (nbytes for call_sizes in together for nbytes in call_sizes):
            wire[selected] = np.maximum(wire[selected], size)
    kept_numbers = state_numbers(method, tensors, replicas, mask)
    memory = model_memory(worker_tensors.elements, kept_numbers.state, kept_numbers.errors, precision, wire)
    units = _units(spec, layout, counts)
    parameter_bytes = MODEL_BYTES[precision]
    unit_bytes = max(unit.share for unit in units) * parameter_bytes * worker_tensors.elements
    sharers = np.full(len(specs), 1 / share) if inside else replicas
    budget, memory_spec = _memory_budget(specs, layout), spec.memory
    if layout.pipeline > 1 and memory_spec.micro_batches is None:
        memory_spec = memory_spec.model_copy(update={"micro_batches": max(1, int(budget.sequences[0]))})
    # In a pipeline, practitioners do not scatter gradients, or gather weights, for each of the many micro-batches.
    choices = SHARDINGS[:2] if layout.pipeline > 1 else SHARDINGS
    memory_plan = plan_memory(
        memory_spec, budget, memory, sharers, inside or method.shares_out, unit_bytes, precision, choices
    )
    if not inside and not any(exchange.in_backward for traffic in sent for exchange in traffic.exchanges):
        return sent, memory_plan
    buckets = gradient_buckets(counts, spec.bucket_size, element_bytes=gradient_bytes)
    split_traffics: list[Traffic] = []
    for sharding, micro in sorted(
        {*zip(memory_plan.sharding[mask].tolist(), memory_plan.micro_batches[mask].tolist(), strict=True)}
    ):
        selected = mask & (memory_plan.sharding == sharding) & (memory_plan.micro_batches == micro)
        later = after_micro_batches(buckets, micro)
        if not inside and not sharding:
            masked = [group._replace(place=np.where(selected, group.place, -1), buckets=later) for group in sent]
            split_traffics += [group for group in masked if group.settings.size]
            continue

        def exchanges(count: int, sharding: int = sharding, micro: int = micro) -> list[Exchange]:
            kind, overlapped = SHARDINGS[sharding], spec.overlap != "none"
            if not inside and sharding:
                n, w = averaged_bytes * worker_tensors.elements, parameter_bytes * worker_tensors.elements
                return sharded_exchanges(n, w, count // layout.workers, kind, units, micro, overlapped=overlapped)
            out: list[Exchange] = []
            for part in parts if inside else ():
                if len(part.group) > 1:
                    sizes = (averaged_bytes * part.elements, parameter_bytes * part.elements)
                    out += _inside(part.group, *sizes, kind, units, micro, overlapped)
            return [*out, *between(count)]

        traffics = traffic_of(method, tensors, workers, selected, spec.steps, exchanges)
        split_traffics += [group_traffic._replace(buckets=later) for group_traffic in traffics]
    return split_traffics, memory_plan


def _units(spec: ProjectSpec, layout: Layout, counts: Sequence[int]) -> tuple[Bucket, ...]:
    """Return the units of parameters that are gathered at once: about a layer of a transformer, else a bucket."""
    if not isinstance(spec.model, ModelShape):
        return gradient_buckets(counts, spec.bucket_size)
    layers = -(-spec.model.layers // layout.pipeline)
    return gradient_buckets(counts, max(1.0, sum(counts) / layers), element_bytes=1)


@lru_cache(maxsize=32)
def _inside(
    group: range, gradient_bytes: float, parameter_bytes: float, kind: str, units: tuple[Bucket, ...], micro: int,
    overlapped: bool,
) -> list[Exchange]:  # fmt: skip
    """Return the exchanges of every step between the workers of a replica that have the same parameters."""
    if kind == "none":
        return [Exchange(gradient_bytes, label="gradient inside", in_backward=True, part=group)]
    sent = sharded_exchanges(gradient_bytes, parameter_bytes, len(group), kind, units, micro, overlapped=overlapped)
    return [replace(exchange, part=group) for exchange in sent]


def _between(
    method: MethodBase, tensors: Sequence[object], replicas: int, layout: Layout, share: float
) -> Iterator[Exchange]:
    """Yield a worker's exchanges with its counterparts in other replicas, each before a gather inside the replica."""
    for exchange in method.exchanges(tensors, replicas):  # type: ignore[arg-type]
        size = share * exchange.payload_bytes
        part = exchange.part
        if part is not None:
            stride = layout.workers
            part = range(part.start * stride, part.stop * stride, part.step * stride)
        yield replace(exchange, payload_bytes=size, encoded_bytes=share * exchange.encoded_bytes, part=part)
        if layout.sharers > 1 and not method.sends_in_backward:
            growth = {"all_gather": replicas, "gather": replicas, "reduce_scatter": 1 / replicas}
            yield replace(
                exchange,
                payload_bytes=size * growth.get(exchange.collective, 1.0),
                encoded_bytes=0.0,
                collective="all_gather",
                label=f"{exchange.label} inside".strip(),
                part=layout.gradient_group,
            )


def _memory_budget(specs: Sequence[ProjectSpec], layout: Layout) -> MemoryBudget:
    """Return a worker's memory budget in each setting.

    A worker keeps `MemoryBudget.activations_bytes` divided by the number of micro-batches.
    """
    model_parallel = layout.workers // layout.data

    def budget_fields(spec: ProjectSpec) -> tuple[float, ...]:
        model, memory_spec = spec.model, spec.memory
        if not isinstance(model, ModelShape):
            return usable_bytes(spec.memory_machine), 1.0, *[0.0 for _ in memory_spec.policies]
        sequences = model_parallel * spec.worker_tokens / model.sequence
        micro = memory_spec.micro_batches or (max(1, int(sequences)) if layout.pipeline > 1 else 1)
        width = MODEL_BYTES[memory_spec.memory_precision(spec.number_format)]
        activations = [
            0.0 if policy is None else micro * worker_activation_bytes(model, layout, sequences, micro, policy, width)
            for policy in memory_spec.policies
        ]
        return usable_bytes(spec.memory_machine), sequences, *activations

    return budget_of_columns(specs, budget_fields)
