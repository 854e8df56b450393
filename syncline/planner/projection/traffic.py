"""Traffic and states of a method for many numbers of workers at once, as exchanges whose bytes are arrays.

Traffic and memory of workers in replicas of one or more workers: gradients inside, messages of the method between.

A method works on the parameters of a worker. Its message to the other replicas is about the worker's part of the model.
Workers with the same part each send a share of it, and gather the shares inside the replica afterwards. In every step,
gradients are averaged inside a replica by an all-reduce, or sharded as in `syncline.costmodel.traffic.sharded`. So data
parallelism is a sum inside and a sum of shares between replicas; a replica of DiLoCo is a cluster. Without a layout
each worker is a replica; data parallelism then is what it is inside one replica of all P workers, ``data=P``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import (
    Callable,
    Iterator,
    Sequence,
)
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import (
    Exchange,
    ModelShape,
    Network,
    TensorShape,
    call_bytes,
    calls_by_step,
    model_memory,
)
from syncline.costmodel.compute.kernel_rates import bytes_per_number
from syncline.costmodel.compute.transformer_operations import EIGHT_BITS
from syncline.costmodel.layouts.layout import Layout
from syncline.costmodel.layouts.memory import FP32_BYTES, MODEL_BYTES, Storage, usable_bytes, worker_activation_bytes
from syncline.costmodel.layouts.partition import WorkerTensors
from syncline.costmodel.numerics.arrays import Indices, IntOrArray
from syncline.costmodel.traffic.exchanges import CallPattern
from syncline.costmodel.traffic.overlap import (
    BUCKET_BYTES,
    WHOLE,
    Bucket,
    buckets_on,
    gradient_buckets,
)
from syncline.costmodel.traffic.sharded import (
    SHARDINGS,
    WeightMessages,
    after_micro_batches,
    sharded_exchanges,
    update_broadcasts,
    update_gathers,
)
from syncline.methods import (
    MethodBase,
    tensors_of,
)
from syncline.methods.parts.method_spec import BYTES_PER_ELEMENT
from syncline.planner.projection.memory_plan import (
    MemoryBudget,
    MemoryPlan,
    budget_of_columns,
    plan_memory,
    sends_together,
)
from syncline.specs import ProjectSpec

SIZES = ("payload_bytes", "encoded_bytes")
"""Fields of an exchange that may differ between numbers of workers; any other difference makes separate traffic."""


class Traffic(NamedTuple):
    """The traffic of some settings: exchanges that are due at the same steps.

    Attributes:
        place: ``(S,)``: index of each setting in arrays of sizes; -1 if the setting has other traffic.
        exchanges: exchanges whose sizes are numbers, or arrays with one entry per index.
        patterns: call patterns of `calls_by_step`.
        buckets: buckets of gradients that travel during the backward pass.
    """

    place: Indices
    exchanges: list[Exchange]
    patterns: list[CallPattern]
    buckets: tuple[Bucket, ...] = WHOLE

    @property
    def settings(self) -> Indices:
        """Return the indices of the settings with this traffic, in order."""
        return np.flatnonzero(self.place >= 0)

    def on(self, network: Network) -> Traffic:
        """Return the traffic with the buckets of `buckets_on`."""
        return self._replace(buckets=tuple(buckets_on(network, self.buckets)))


class KeptNumbers(NamedTuple):
    """Numbers that a worker keeps beyond its parameters, one for all settings or one for each."""

    state: IntOrArray
    errors: IntOrArray


def traffic_of(
    method: MethodBase,
    tensors: Sequence[TensorShape],
    workers: Indices,
    mask: NDArray[np.bool_],
    steps: int,
    exchanges_of: Callable[[int], list[Exchange]] | None = None,
) -> list[Traffic]:
    """Return the traffic of a method in S settings, one item for all settings with exchanges of one structure.

    Args:
        method: the method.
        tensors: the parameters' shapes.
        workers: ``(S,)``: P, the number of workers.
        mask: ``(S,)``: mask of the settings that include the method.
        steps: T, the number of steps.
        exchanges_of: returns the exchanges among a number of workers, in place of the method's own.

    Raises:
        SpecError: the method cannot serve so many workers.
    """
    counts = distinct(workers[mask])
    several = [count for count in counts if count > 1]
    if exchanges_of is None:
        sent = _by_count(several, method, lambda p: method.exchanges(tensors, p))
    else:
        sent = {count: exchanges_of(count) for count in several}
    counts_by_structure: dict[Any, list[int]] = {}
    for count in counts:
        counts_by_structure.setdefault(_structure(sent.get(count, [])), []).append(count)
    traffics = []
    for members in counts_by_structure.values():
        index = np.minimum(np.searchsorted(members, workers), len(members) - 1)
        row = np.where(mask & (np.array(members)[index] == workers), index, -1)
        settings = np.flatnonzero(row >= 0)
        place = np.full(len(workers), -1)
        place[settings] = np.arange(len(settings))
        exchanges = _joined([sent.get(count, []) for count in members], row[settings])
        traffics.append(Traffic(place, exchanges, calls_by_step(exchanges, steps) if exchanges else []))
    return traffics


def distinct(counts: Indices) -> list[int]:
    """Return the distinct counts, in order.

    ``np.unique`` would import masked arrays, which takes as long as a projection.
    """
    return sorted(set(counts.tolist()))


def state_numbers(
    method: MethodBase, tensors: Sequence[TensorShape], workers: Indices, mask: NDArray[np.bool_]
) -> KeptNumbers:
    """Return the numbers that a method keeps in each setting; in settings outside ``mask`` they are arbitrary."""
    counts = distinct(workers[mask])

    def per_setting(ask: Callable[[int], int]) -> IntOrArray:
        by_count = _by_count(counts, method, ask)
        if len(set(by_count.values())) <= 1:
            return next(iter(by_count.values()), 0)
        column = np.zeros(len(workers), dtype=np.int64)
        for count, number in by_count.items():
            column[workers == count] = number
        return column

    errors = per_setting(lambda p: method.error_feedback_elements(tensors, p))
    return KeptNumbers(per_setting(lambda p: method.kept_elements(tensors, p)) - errors, errors)


def _by_count(counts: Sequence[int], method: MethodBase, ask: Callable[[int], Any]) -> dict[int, Any]:
    """Return the answer for each number of workers; if it is the same for all, ask only for the first and the last."""
    if len(counts) > 2 and method.same_for_any_group and (answer := ask(counts[0])) == ask(counts[-1]):
        return dict.fromkeys(counts, answer)
    return {count: ask(count) for count in counts}


_names = [field.name for field in dataclasses.fields(Exchange) if field.name not in SIZES]


def _structure(exchanges: Sequence[Exchange]) -> tuple[Any, ...]:
    """Return the key that determines when calls are due, and which calls join."""
    return tuple(tuple(getattr(exchange, name) for name in _names) for exchange in exchanges)


def _joined(alike: Sequence[list[Exchange]], row: Indices) -> list[Exchange]:
    """Return exchanges of several numbers of workers as one list, with a size for each setting if sizes differ."""
    exchanges = []
    for several in zip(*alike, strict=True):
        sizes: dict[str, Any] = {}
        for name in SIZES:
            values = [getattr(exchange, name) for exchange in several]
            if any(value != values[0] for value in values):
                sizes[name] = np.array(values, dtype=np.float64)[row]
        exchanges.append(dataclasses.replace(several[0], **sizes) if sizes else several[0])
    return exchanges


class ParameterShard(NamedTuple):
    """Parameters that a group of workers of a replica has copies of.

    Attributes:
        tensors: number of elements of each tensor of one worker.
        group: the first group of workers with copies.
        sharers: workers over which sharded states are spread, neighbours in the group; a divisor of its size.
    """

    tensors: tuple[int, ...]
    group: range
    sharers: int

    @property
    def elements(self) -> int:
        """Return the number of parameters of one worker."""
        return sum(self.tensors)

    @property
    def sharing_group(self) -> range:
        """Return the ranks of the first workers that share one copy of the states."""
        return self.group[: self.sharers]

    @property
    def copies_group(self) -> range:
        """Return the ranks of the first workers with the same shard, one for each copy of the states."""
        return self.group[:: self.sharers]


def parameter_shards(worker_tensors: WorkerTensors, layout: Layout) -> list[ParameterShard]:
    """Return a worker's parameters by the group with copies of them; experts are a separate part."""
    elements = [tensor.elements for tensor in worker_tensors.tensors]
    group, sharers = layout.gradient_group, layout.sharers // layout.copies
    if layout.expert == 1 or not any(worker_tensors.experts):
        return [ParameterShard(tuple(elements), group, sharers)]
    expert_group = group[:: layout.expert]
    expert_sharers = math.gcd(len(expert_group), max(1, sharers // layout.expert))
    outside, experts = (
        tuple(count for count, is_expert in zip(elements, worker_tensors.experts, strict=True) if is_expert == wanted)
        for wanted in (False, True)
    )
    return [ParameterShard(outside, group, sharers), ParameterShard(experts, expert_group, expert_sharers)]


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
    gradient_bytes = bytes_per_number(number_format)
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
    memory = model_memory(
        worker_tensors.elements, kept_numbers.state, kept_numbers.errors, precision, wire,
        gradient_bytes=2 if spec.memory.gradients == "bf16" else FP32_BYTES,
    )  # fmt: skip
    units = _units(spec, layout, counts)
    parameter_bytes = MODEL_BYTES[precision]
    unit_bytes = max(unit.share for unit in units) * parameter_bytes * worker_tensors.elements
    state_share = sum(part.elements / part.sharers for part in parts) / worker_tensors.elements
    sharers = np.full(len(specs), 1 / state_share) if inside else replicas
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
            kind, everybody = SHARDINGS[sharding], range(count // layout.workers)
            options = kind, memory_spec.weights, spec.overlap != "none"
            sent_units = units if kind == "full" or spec.bucket_size == BUCKET_BYTES else buckets
            shards = parts if inside else [ParameterShard(tuple(counts), everybody, len(everybody))]
            among = [
                exchange
                for shard in shards
                if len(shard.group) > 1
                for exchange in _among(shard, averaged_bytes, parameter_bytes, options, sent_units, micro)
            ]
            return [*among, *between(count)] if inside else [replace(exchange, part=None) for exchange in among]

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
def _among(
    shard: ParameterShard, gradient_width: float, parameter_width: float, options: tuple[str, WeightMessages, bool],
    units: tuple[Bucket, ...], micro: int,
) -> list[Exchange]:  # fmt: skip
    """Return the exchanges of every step between the workers that have the same parameters.

    Args:
        shard: the parameters.
        gradient_width: bytes of a gradient on its way.
        parameter_width: bytes of a parameter on its way.
        options: the sharding, how updated weights travel, and whether collectives overlap with computing.
        units: units of parameters.
        micro: number of micro-batches.
    """
    kind, weights, overlapped = options
    n, w = gradient_width * shard.elements, parameter_width * shard.elements
    out: list[Exchange] = []
    by_broadcasts = kind == "optimizer" and weights == "broadcasts"
    if kind == "none" or by_broadcasts:
        out.append(Exchange(n, label="gradient inside", in_backward=True, part=shard.group))
    if by_broadcasts and shard.sharers > 1:
        sent = update_broadcasts(parameter_width, shard.sharers, shard.tensors)
        out += [replace(exchange, part=shard.sharing_group) for exchange in sent]
    if out:
        return out
    after = update_gathers(w, shard.sharers, units) if weights == "gathers" else None
    for exchange in sharded_exchanges(n, w, shard.sharers, kind, units, micro, overlapped=overlapped, weights=after):
        if shard.sharers > 1:
            out.append(replace(exchange, part=shard.sharing_group))
        if exchange.collective == "reduce_scatter" and len(shard.copies_group) > 1:
            nbytes = exchange.payload_bytes / shard.sharers
            summed = replace(exchange, payload_bytes=nbytes, collective="all_reduce", label="gradient of copies")
            out.append(replace(summed, part=shard.copies_group))
    return out


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


def activation_storage(spec: ProjectSpec) -> Storage:
    """Return how the training's software stores activations."""
    width = MODEL_BYTES[spec.memory.memory_precision(spec.number_format)]
    eight_bits = spec.product_format in EIGHT_BITS and spec.compute.kernels.compiled
    return Storage(width, 1 if eight_bits else None, spec.compute.kernels.compiled)


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
        storage = activation_storage(spec)
        activations = [
            0.0 if policy is None else micro * worker_activation_bytes(model, layout, sequences, micro, policy, storage)
            for policy in memory_spec.policies
        ]
        return usable_bytes(spec.memory_machine), sequences, *activations

    return budget_of_columns(specs, budget_fields)
