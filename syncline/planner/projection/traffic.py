"""Traffic and memory of a method's workers in many settings at once, as exchanges whose bytes are arrays.

A method works on the parameters of a worker. Its message to the other replicas is about the worker's part of the model.
Workers with the same part each send a share of it, and gather the shares inside the replica afterwards. In every step,
gradients are averaged inside a replica by an all-reduce, or sharded as in `syncline.costmodel.traffic.sharded`. So data
parallelism is a sum inside and a sum of shares between replicas; a replica of DiLoCo is a cluster. Without a layout
each worker is a replica; data parallelism then is what it is inside one replica of all P workers, ``data=P``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import cache, lru_cache, partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import Exchange, ModelShape, Network, TensorShape, call_bytes, calls_by_step, model_memory
from syncline.costmodel.compute.kernel_rates import bytes_per_number
from syncline.costmodel.layouts.layout import Layout
from syncline.costmodel.layouts.memory import (
    FP32_BYTES,
    MODEL_BYTES,
    ActivationPolicy,
    usable_bytes,
    worker_activation_bytes,
)
from syncline.costmodel.layouts.partition import WorkerTensors
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.numerics.arrays import Indices, IntOrArray
from syncline.costmodel.traffic.call import Call
from syncline.costmodel.traffic.exchanges import CallPattern
from syncline.costmodel.traffic.overlap import BUCKET_BYTES, WHOLE, Bucket, buckets_on, gradient_buckets
from syncline.costmodel.traffic.sharded import (
    SHARDINGS,
    WeightMessages,
    after_micro_batches,
    sharded_exchanges,
    update_broadcasts,
    update_gathers,
)
from syncline.methods import MethodBase, tensors_of
from syncline.methods.parts.method_spec import BYTES_PER_ELEMENT
from syncline.planner.projection.memory_plan import MemoryBudget, MemoryPlan, plan_memory, sends_together
from syncline.planner.projection.pricing import value_per_spec
from syncline.specs import ProjectSpec


class Traffic(NamedTuple):
    """The exchanges of all settings that exchange at the same steps, with arrays for sizes that differ.

    Attributes:
        row_of_setting: ``(S,)``: index of each setting in arrays of sizes; -1 if the setting has other traffic.
        exchanges: exchanges whose sizes are numbers, or arrays with one entry per setting with this traffic.
        patterns: call patterns of `calls_by_step`.
        buckets: buckets of gradients that travel during the backward pass.
    """

    row_of_setting: Indices
    exchanges: list[Exchange]
    patterns: list[CallPattern]
    buckets: tuple[Bucket, ...] = WHOLE

    @property
    def settings(self) -> Indices:
        """Return the indices of the settings with this traffic, in order."""
        return np.flatnonzero(self.row_of_setting >= 0)

    @property
    def calls(self) -> list[Call]:
        """Return the collective calls of all patterns."""
        return [call for pattern in self.patterns for call in pattern.calls]

    def on(self, network: Network) -> Traffic:
        """Return the traffic with the buckets in which the network's library sends gradients, see `buckets_on`."""
        return self._replace(buckets=tuple(buckets_on(network, self.buckets)))


def traffic_of(
    method: MethodBase,
    workers: Indices,
    mask: NDArray[np.bool_],
    steps: int,
    exchanges_among: Callable[[int], list[Exchange]],
    same_for_all: bool = False,
) -> list[Traffic]:
    """Return the exchanges of a method in S settings; settings whose exchanges differ only in sizes are one item.

    Args:
        method: the method.
        workers: ``(S,)``: P, the number of workers.
        mask: ``(S,)``: whether the setting includes the method.
        steps: T, the number of steps.
        exchanges_among: function that returns the exchanges among a number of workers.
        same_for_all: whether these exchanges do not depend on the number if the method's do not.

    Raises:
        SpecError: the method cannot serve so many workers.
    """
    counts = sorted(set(workers[mask].tolist()))
    group_counts = [count for count in counts if count > 1]
    exchanges_by_count = _value_by_count(group_counts, exchanges_among, same_for_all and method.same_for_any_group)
    exchanges_by_count[1] = []  # a single worker has no other to exchange with
    counts_by_structure: dict[Any, list[int]] = {}
    for count in counts:
        structure = tuple(map(_STRUCTURE, exchanges_by_count[count]))
        counts_by_structure.setdefault(structure, []).append(count)
    traffics = []
    for alike_counts in counts_by_structure.values():
        # The index of each setting's number of workers; the next line drops settings with any other number.
        count_index = np.minimum(np.searchsorted(alike_counts, workers), len(alike_counts) - 1)
        settings = np.flatnonzero(mask & (np.array(alike_counts)[count_index] == workers))
        row_of_setting = np.full(len(workers), -1)
        row_of_setting[settings] = np.arange(len(settings))
        exchanges = _join_exchanges([exchanges_by_count[count] for count in alike_counts], count_index[settings])
        traffics.append(Traffic(row_of_setting, exchanges, calls_by_step(exchanges, steps) if exchanges else []))
    return traffics


def _value_by_count(counts: Sequence[int], value_of: Callable[[int], Any], same_for_all: bool) -> dict[int, Any]:
    """Return the value for each number of workers; ``same_for_all`` values are computed for the first and last only."""
    if len(counts) > 2 and same_for_all:
        first_value = value_of(counts[0])
        if first_value == value_of(counts[-1]):
            return dict.fromkeys(counts, first_value)
    return {count: value_of(count) for count in counts}


def _value_per_setting(
    value_of: Callable[[int], int], method: MethodBase, workers: Indices, mask: NDArray[np.bool_]
) -> IntOrArray:
    """Return a value of each setting by its number of workers, or one number if all settings in the mask agree."""
    counts = sorted(set(workers[mask].tolist()))
    value_by_count = _value_by_count(counts, value_of, method.same_for_any_group)
    different_values = set(value_by_count.values())
    if len(different_values) <= 1:
        return different_values.pop() if different_values else 0
    setting_values = np.zeros(len(workers), dtype=np.int64)
    for count, value in value_by_count.items():
        setting_values[workers == count] = value
    return setting_values


SIZES = ("payload_bytes", "encoded_bytes")
"""Fields of an exchange that may differ between numbers of workers; any other difference makes separate traffic."""

_STRUCTURE = attrgetter(*(field.name for field in fields(Exchange) if field.name not in SIZES))
"""Function to all other fields of an exchange, which decide the steps of its calls."""


def _join_exchanges(exchange_lists: Sequence[list[Exchange]], list_index: Indices) -> list[Exchange]:
    """Return the exchanges of several numbers of workers as one list, with an array for sizes that differ.

    Args:
        exchange_lists: exchanges that differ only in sizes, a list for each number of workers.
        list_index: index of the list of each setting.
    """
    joined_exchanges = []
    for counterparts in zip(*exchange_lists, strict=True):
        size_arrays: dict[str, Any] = {}
        for name in SIZES:
            sizes = [getattr(exchange, name) for exchange in counterparts]
            if any(size != sizes[0] for size in sizes):
                size_arrays[name] = np.array(sizes, dtype=np.float64)[list_index]
        joined_exchanges.append(replace(counterparts[0], **size_arrays) if size_arrays else counterparts[0])
    return joined_exchanges


class ParameterShard(NamedTuple):
    """The parameters of a worker that the same group of workers of its replica has copies of.

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
        """Return the ranks of the first group of workers that store a copy of the states together."""
        return self.group[: self.sharers]

    @property
    def copies_group(self) -> range:
        """Return the ranks of the first workers with the same shard, one for each copy of the states."""
        return self.group[:: self.sharers]


def parameter_shards(worker_tensors: WorkerTensors, layout: Layout) -> list[ParameterShard]:
    """Divide a worker's parameters into those that one group of workers has copies of, and experts of another group."""
    group, sharers = layout.gradient_group, layout.sharers // layout.copies
    expert_group = layout.expert_gradient_group
    if expert_group == group or not any(worker_tensors.experts):
        return [ParameterShard(tuple(tensor.elements for tensor in worker_tensors.tensors), group, sharers)]
    copies_of_experts = sharers * layout.tensor // (layout.expert_ways * layout.expert)
    expert_sharers = math.gcd(len(expert_group), max(1, copies_of_experts))
    other_elements: list[int] = []
    expert_elements: list[int] = []
    for tensor, is_expert in zip(worker_tensors.tensors, worker_tensors.experts, strict=True):
        (expert_elements if is_expert else other_elements).append(tensor.elements)
    return [
        ParameterShard(tuple(other_elements), group, sharers),
        ParameterShard(tuple(expert_elements), expert_group, expert_sharers),
    ]


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
        mask: ``(S,)``: whether the setting includes the method.

    Raises:
        SpecError: the method cannot serve so many replicas.
    """
    spec, tensors = specs[0], tensors_of(worker_tensors.tensors)
    shards = parameter_shards(worker_tensors, layout)
    counts = [tensor.elements for tensor in tensors]
    # The share of its parameters that a worker sends to other replicas itself: workers with copies divide them.
    share = sum(shard.elements / len(shard.group) for shard in shards) / worker_tensors.elements
    has_sharers = layout.sharers > 1

    @cache
    def exchanges_between_replicas(count: int) -> list[Exchange]:
        """Return a worker's exchanges with other replicas, among ``count`` workers."""
        if layout.workers == 1:
            return list(method.exchanges(tensors, count))
        if count == layout.workers:  # a single replica
            return []
        return list(_exchanges_between(method, tensors, replicas=count // layout.workers, layout=layout, share=share))

    traffic_between = traffic_of(
        method, workers, mask, spec.steps, exchanges_between_replicas, same_for_all=layout.workers == 1
    )
    gradient_bytes = bytes_per_number(spec.number_format)
    wire_width = BYTES_PER_ELEMENT[method.wire_format] if method.sends_in_backward else gradient_bytes
    parameter_width = MODEL_BYTES[spec.memory.memory_precision(spec.number_format)]
    units = _gathered_units(spec, layout, counts)
    buffer_bytes = np.full(len(specs), max(wire_width * shard.elements for shard in shards) if has_sharers else 0.0)
    _add_call_buffers(
        buffer_bytes, traffic_between, replicas=workers // layout.workers, together=sends_together(method)
    )
    memory_plan = _memory_plan(specs, method, worker_tensors, layout, workers, mask, shards, buffer_bytes)
    sends_in_backward = any(exchange.in_backward for traffic in traffic_between for exchange in traffic.exchanges)
    if not has_sharers and not sends_in_backward:
        return traffic_between, memory_plan

    # Gradients travel in buckets, which depend on the kind of sharding and the number of micro-batches.
    buckets = gradient_buckets(counts, spec.bucket_size, element_bytes=gradient_bytes)
    split_traffic: list[Traffic] = []
    plans = set(zip(memory_plan.sharding[mask].tolist(), memory_plan.micro_batches[mask].tolist(), strict=True))
    for sharding, micro_batches in sorted(plans):
        selected = mask & (memory_plan.sharding == sharding) & (memory_plan.micro_batches == micro_batches)
        last_buckets = after_micro_batches(buckets, micro_batches)
        if not has_sharers and not sharding:  # nothing is added inside replicas; only the buckets are still missing
            for traffic in traffic_between:
                row_of_setting = np.where(selected, traffic.row_of_setting, -1)
                if (row_of_setting >= 0).any():
                    split_traffic.append(traffic._replace(row_of_setting=row_of_setting, buckets=last_buckets))
            continue
        kind = SHARDINGS[sharding]
        # A bucket size that the spec sets replaces layers as units, except where whole layers of weights are gathered.
        options = _StepOptions(
            kind, spec.memory.weights, overlapped=spec.overlap != "none", micro_batches=micro_batches,
            gradient_width=wire_width, parameter_width=parameter_width,
            units=units if kind == "full" or spec.bucket_size == BUCKET_BYTES else buckets,
        )  # fmt: skip
        exchanges_among = partial(
            _exchanges_of_worker, options=options, shards=shards, counts=counts, layout=layout,
            exchanges_between_replicas=exchanges_between_replicas,
        )  # fmt: skip
        traffics = traffic_of(method, workers, mask=selected, steps=spec.steps, exchanges_among=exchanges_among)
        split_traffic += [traffic._replace(buckets=last_buckets) for traffic in traffics]
    return split_traffic, memory_plan


def _exchanges_of_worker(
    count: int,
    *,
    options: _StepOptions,
    shards: Sequence[ParameterShard],
    counts: Sequence[int],
    layout: Layout,
    exchanges_between_replicas: Callable[[int], list[Exchange]],
) -> list[Exchange]:
    """Return all exchanges of a worker among ``count`` workers, inside its replica and between replicas."""
    if layout.sharers > 1:
        inside = [exchange for shard in shards for exchange in _exchanges_inside(shard, options)]
        return inside + exchanges_between_replicas(count)
    # Without a layout, all workers share one shard; ``first_group=None`` stands for all workers.
    replicas = range(count // layout.workers)
    shard = ParameterShard(tuple(counts), replicas, len(replicas))
    return [replace(exchange, first_group=None) for exchange in _exchanges_inside(shard, options)]


def _add_call_buffers(buffer_bytes: Floats, traffics: Sequence[Traffic], replicas: Indices, together: bool) -> None:
    """Enlarge each setting's message buffer, in bytes ``(S,)``, to hold the largest call.

    Args:
        buffer_bytes: ``(S,)``, bytes that are changed in place.
        traffics: traffic between replicas.
        replicas: ``(S,)``, number of replicas.
        together: whether all calls of a step are in flight at once, so that their sum counts.
    """
    for traffic in traffics:
        selected = traffic.settings
        for pattern in traffic.patterns:
            sizes = [call_bytes(call, len(call.group) if call.group else replicas[selected]) for call in pattern.calls]
            if together and sizes:
                sizes = [sum(sizes)]
            for nbytes in sizes:
                buffer_bytes[selected] = np.maximum(buffer_bytes[selected], nbytes)


def _memory_plan(
    specs: Sequence[ProjectSpec],
    method: MethodBase,
    worker_tensors: WorkerTensors,
    layout: Layout,
    workers: Indices,
    mask: NDArray[np.bool_],
    shards: Sequence[ParameterShard],
    buffer_bytes: Floats,
) -> MemoryPlan:
    """Choose sharding, micro-batches and recomputation such that a worker's step fits into memory, in each setting.

    Args:
        specs: specs of the settings, which share model and layout.
        method: the method; its optimizer states are part of the plan.
        worker_tensors: a worker's part of the model.
        layout: layout of a replica.
        workers: ``(S,)``: P, all workers.
        mask: ``(S,)``: whether the setting includes the method.
        shards: the worker's parameters, divided by which other workers hold a copy of them.
        buffer_bytes: ``(S,)``: bytes of the message buffer.
    """
    spec, replicas, has_sharers = specs[0], workers // layout.workers, layout.sharers > 1
    tensors, elements = tensors_of(worker_tensors.tensors), worker_tensors.elements
    precision = spec.memory.memory_precision(spec.number_format)
    errors = _value_per_setting(partial(method.error_feedback_elements, tensors), method, workers=replicas, mask=mask)
    states = _value_per_setting(partial(method.kept_elements, tensors), method, workers=replicas, mask=mask)
    memory = model_memory(
        elements, states - errors, errors, precision, buffer_bytes,
        gradient_bytes=2 if spec.memory.gradients == "bf16" else FP32_BYTES,
    )  # fmt: skip
    memory = replace(memory, weights_bytes=memory.weights_bytes + MODEL_BYTES[precision] * worker_tensors.frozen)
    units = _gathered_units(spec, layout, [tensor.elements for tensor in tensors])
    unit_bytes = max(unit.share for unit in units) * MODEL_BYTES[precision] * elements
    state_share = sum(shard.elements / shard.sharers for shard in shards) / elements
    sharers = np.full(len(specs), 1 / state_share) if has_sharers else replicas  # over which states are sharded
    budget, options = _memory_budget(specs, layout), spec.memory
    if layout.pipeline > 1 and options.micro_batches is None:
        # A pipeline has micro-batches of one sequence, so that its stages are idle for the least time.
        options = options.model_copy(update={"micro_batches": max(1, int(budget.sequences[0]))})
    # In a pipeline, practitioners do not scatter gradients, or gather weights, for each of the many micro-batches;
    # frozen weights are not sharded.
    choices = SHARDINGS[:2] if layout.pipeline > 1 or spec.lora is not None else SHARDINGS
    return plan_memory(
        options, budget, unsharded=memory, workers=sharers, shares=has_sharers or method.can_shard_states,
        unit_bytes=unit_bytes, precision=precision, policies=activation_policies(spec, layout), auto=choices,
    )  # fmt: skip


def _gathered_units(spec: ProjectSpec, layout: Layout, counts: Sequence[int]) -> tuple[Bucket, ...]:
    """Return the units of parameters that are gathered at once: about a layer of a transformer, else a bucket.

    Args:
        spec: spec with the model.
        layout: layout of a replica, whose pipeline divides the layers.
        counts: number of elements of each tensor of a worker.
    """
    if not isinstance(spec.model, ModelShape):
        return gradient_buckets(counts, spec.bucket_size)
    layers = -(-spec.model.layers // layout.pipeline)
    # With one "byte" per element, the limit of a unit is a number of elements.
    return gradient_buckets(counts, max(1.0, sum(counts) / layers), element_bytes=1)


class _StepOptions(NamedTuple):
    """Options of the exchanges of every step between workers that have the same parameters.

    Attributes:
        sharding: kind of sharding, one of ``SHARDINGS``.
        weights: form in which updated weights travel.
        overlapped: whether collectives overlap with computing.
        micro_batches: number of micro-batches of a step.
        gradient_width: bytes of a gradient on the wire.
        parameter_width: bytes of a parameter on the wire.
        units: units of parameters, which travel one by one.
    """

    sharding: str
    weights: WeightMessages
    overlapped: bool
    micro_batches: int
    gradient_width: float
    parameter_width: float
    units: tuple[Bucket, ...]


@lru_cache(maxsize=32)
def _exchanges_inside(shard: ParameterShard, options: _StepOptions) -> list[Exchange]:
    """Return the exchanges of every step between the workers that have the same parameters."""
    if len(shard.group) == 1:
        return []
    gradient_bytes = options.gradient_width * shard.elements
    parameter_bytes = options.parameter_width * shard.elements
    exchanges: list[Exchange] = []
    by_broadcasts = options.sharding == "optimizer" and options.weights == "broadcasts"
    if options.sharding == "none" or by_broadcasts:
        exchanges.append(Exchange(gradient_bytes, label="gradient inside", in_backward=True, first_group=shard.group))
        if by_broadcasts and shard.sharers > 1:
            updates = update_broadcasts(options.parameter_width, shard.sharers, shard.tensors)
            exchanges += [replace(exchange, first_group=shard.sharing_group) for exchange in updates]
        return exchanges
    gathers = update_gathers(parameter_bytes, shard.sharers, options.units) if options.weights == "gathers" else None
    # The workers that store a copy of the states together exchange shards; then copies sum their gradients.
    for exchange in sharded_exchanges(
        gradient_bytes, parameter_bytes, workers=shard.sharers, sharding=options.sharding, units=options.units,
        micro_batches=options.micro_batches, overlapped=options.overlapped, weights=gathers,
    ):  # fmt: skip
        if shard.sharers > 1:
            exchanges.append(replace(exchange, first_group=shard.sharing_group))
        if exchange.collective == "reduce_scatter" and len(shard.copies_group) > 1:
            nbytes = exchange.payload_bytes / shard.sharers
            sum_of_copies = replace(exchange, payload_bytes=nbytes, collective="all_reduce", label="gradient of copies")
            exchanges.append(replace(sum_of_copies, first_group=shard.copies_group))
    return exchanges


def _exchanges_between(
    method: MethodBase, tensors: Sequence[TensorShape], replicas: int, layout: Layout, share: float
) -> Iterator[Exchange]:
    """Yield a worker's exchanges with its counterparts in other replicas, each before a gather inside the replica.

    Args:
        method: the method.
        tensors: tensors of the worker.
        replicas: number of replicas.
        layout: layout of a replica.
        share: share of the worker's parameters that the worker itself sends.
    """
    for exchange in method.exchanges(tensors, replicas):
        size = share * exchange.payload_bytes
        group = exchange.first_group
        if group is not None:  # the ranks of one worker of each replica
            stride = layout.workers
            group = range(group.start * stride, group.stop * stride, group.step * stride)
        yield replace(exchange, payload_bytes=size, encoded_bytes=share * exchange.encoded_bytes, first_group=group)
        if layout.sharers > 1 and not method.sends_in_backward:
            # Bytes of a collective's result over those of its input.
            growth = {"all_gather": replicas, "gather": replicas, "reduce_scatter": 1 / replicas}
            yield replace(
                exchange, payload_bytes=size * growth.get(exchange.collective, 1.0), encoded_bytes=0.0,
                collective="all_gather", label=f"{exchange.label} inside".strip(), first_group=layout.gradient_group,
            )  # fmt: skip


def activation_policies(spec: ProjectSpec, layout: Layout) -> tuple[ActivationPolicy | None, ...]:
    """Return the policies for activations to try in order, until a step fits."""
    layers = layout.layers_of_chunks(spec.model.layers) if isinstance(spec.model, ModelShape) else (1,)
    return spec.memory.policies(max(layers))


def _memory_budget(specs: Sequence[ProjectSpec], layout: Layout) -> MemoryBudget:
    """Return the usable memory of a worker in each setting, with the size of its batch and of its activations.

    The bytes of activations are of a whole batch under each recomputation policy; a worker stores those of one
    micro-batch, so they are divided by the number of micro-batches later.
    """
    model_parallel_workers = layout.workers // layout.data  # workers that compute a batch together
    policies = activation_policies(specs[0], layout)

    def budget_fields(spec: ProjectSpec) -> tuple[float, ...]:
        """Return the usable bytes, the sequences of a batch, and the bytes of activations under each policy."""
        model, options = spec.model, spec.memory
        if not isinstance(model, ModelShape):
            return usable_bytes(spec.memory_machine), 1.0, *[0.0 for _ in policies]
        sequences = model_parallel_workers * spec.worker_tokens / model.sequence
        micro_batches = options.micro_batches or (max(1, int(sequences)) if layout.pipeline > 1 else 1)
        batch_activations = []
        for policy in policies:
            nbytes = 0.0
            if policy is not None:
                storage = spec.activation_storage
                nbytes = worker_activation_bytes(model, layout, sequences, micro_batches, policy, storage)
            batch_activations.append(micro_batches * nbytes)
        return usable_bytes(spec.memory_machine), sequences, *batch_activations

    limit, sequences, *activations = np.array(value_per_spec(specs, budget_fields), dtype=np.float64).T
    return MemoryBudget(limit, sequences, np.array(activations))
