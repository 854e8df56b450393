"""Traffic of a method's workers in many settings at once, as exchanges whose bytes are arrays.

A method works on the parameters of a worker. Its message to the other replicas is about the worker's part of the model.
Workers with the same part each send a share of it, and gather the shares inside the replica afterwards. In every step,
gradients are averaged inside a replica by an all-reduce, or sharded as in `syncline.costmodel.traffic.sharded`. So data
parallelism is a sum inside and a sum of shares between replicas; a replica of DiLoCo is a cluster. Without a layout
each worker is a replica; data parallelism then is what it is inside one replica of all P workers, ``data=P``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import Exchange, Network, TensorShape, calls_by_step
from syncline.costmodel.layouts.layout import Layout
from syncline.costmodel.layouts.partition import WorkerTensors
from syncline.costmodel.numerics.arrays import Indices, IntOrArray
from syncline.costmodel.traffic.call import Call
from syncline.costmodel.traffic.exchanges import CallPattern
from syncline.costmodel.traffic.overlap import WHOLE, Bucket, buckets_on
from syncline.costmodel.traffic.sharded import WeightMessages, sharded_exchanges, update_broadcasts, update_gathers
from syncline.methods import MethodBase


@dataclass(frozen=True, eq=False)
class Traffic:
    """The exchanges of all settings that exchange in the same steps, with arrays for sizes that differ.

    Attributes:
        row_of_setting: ``(S,)``: index of each setting in arrays of sizes; -1 if the setting has other traffic.
        exchanges: exchanges whose sizes are numbers, or arrays with one entry per setting with this traffic.
        steps: T, the number of steps.
        buckets: buckets of gradients that travel during the backward pass.
    """

    row_of_setting: Indices
    exchanges: list[Exchange]
    steps: int
    buckets: tuple[Bucket, ...] = WHOLE  # a single bucket

    @cached_property
    def patterns(self) -> list[CallPattern]:
        """Return the call patterns of `calls_by_step`; none without exchanges."""
        return calls_by_step(self.exchanges, self.steps) if self.exchanges else []

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
        buckets = tuple(buckets_on(network, self.buckets))
        return self if buckets == self.buckets else replace(self, buckets=buckets)


def traffic_of(
    workers: Indices,
    mask: NDArray[np.bool_],
    steps: int,
    exchanges_among: Callable[[int], list[Exchange]],
    same_for_any_group: bool = False,
) -> list[Traffic]:
    """Return the exchanges of a method in S settings, one `Traffic` for all settings that differ only in sizes.

    Args:
        workers: ``(S,)``: P, the number of workers.
        mask: ``(S,)``: whether the setting includes the method.
        steps: T, the number of steps.
        exchanges_among: function that returns the exchanges among a number of workers.
        same_for_any_group: whether the method promises the same exchanges for any number of workers above 1.
    """
    counts = sorted(set(workers[mask].tolist()))
    group_counts = [count for count in counts if count > 1]
    exchanges_by_count = _value_by_count(group_counts, exchanges_among, same_for_any_group)
    exchanges_by_count[1] = []  # a single worker has no other to exchange with
    if len(counts) == 1:  # there is nothing to compare or to join
        return [Traffic(_rows_of(mask), exchanges_by_count[counts[0]], steps)]
    counts_by_structure: dict[Any, list[int]] = {}
    for count in counts:
        structure = tuple(_structure_of(exchange) for exchange in exchanges_by_count[count])
        counts_by_structure.setdefault(structure, []).append(count)
    traffics = []
    for alike_counts in counts_by_structure.values():
        alike_mask = mask & np.isin(workers, alike_counts)
        count_index = np.searchsorted(alike_counts, workers[alike_mask])
        exchanges = _join_exchanges([exchanges_by_count[count] for count in alike_counts], count_index)
        traffics.append(Traffic(_rows_of(alike_mask), exchanges, steps))
    return traffics


def _rows_of(mask: NDArray[np.bool_]) -> Indices:
    """Return the index of each setting among those in a mask, ``(S,)``; -1 for the others."""
    return np.where(mask, np.cumsum(mask) - 1, -1)


def _value_by_count(counts: Sequence[int], value_of: Callable[[int], Any], same_for_any_group: bool) -> dict[int, Any]:
    """Return the value for each number of workers, computed for each unless the method promises one value."""
    if len(counts) > 2 and same_for_any_group:  # if the first and the last value are equal, the others are
        first_value = value_of(counts[0])
        if first_value == value_of(counts[-1]):
            return dict.fromkeys(counts, first_value)
    return {count: value_of(count) for count in counts}


def value_per_setting(
    value_of: Callable[[int], int], workers: Indices, mask: NDArray[np.bool_], same_for_any_group: bool
) -> IntOrArray:
    """Return ``value_of(number of workers)`` for each setting in the mask, or one number if all of them agree."""
    counts = sorted(set(workers[mask].tolist()))
    value_by_count = _value_by_count(counts, value_of, same_for_any_group)
    if len(set(value_by_count.values())) == 1:
        return value_by_count[counts[0]]
    setting_values = np.zeros(len(workers), dtype=np.int64)
    for count, value in value_by_count.items():
        setting_values[workers == count] = value
    return setting_values


SIZES = ("payload_bytes", "encoded_bytes")
"""Fields of an exchange that may differ between numbers of workers; any other difference makes separate traffic."""

_structure_of = attrgetter(*(field.name for field in fields(Exchange) if field.name not in SIZES))
"""Return the fields of an exchange except `SIZES`; they decide the steps of its calls."""


def _join_exchanges(exchange_lists: Sequence[list[Exchange]], list_index: Indices) -> list[Exchange]:
    """Return the exchanges of several numbers of workers as one list, with an array for sizes that differ.

    Args:
        exchange_lists: exchanges that differ only in sizes, a list for each number of workers.
        list_index: index of the list of each setting.
    """
    joined_exchanges = []
    for alike_exchanges in zip(*exchange_lists, strict=True):  # one of each list
        size_arrays: dict[str, Any] = {}
        for name in SIZES:
            sizes = [getattr(exchange, name) for exchange in alike_exchanges]
            if any(size != sizes[0] for size in sizes):
                size_arrays[name] = np.array(sizes, dtype=np.float64)[list_index]
        joined_exchanges.append(replace(alike_exchanges[0], **size_arrays) if size_arrays else alike_exchanges[0])
    return joined_exchanges


class ParameterShard(NamedTuple):
    """A part of a worker's parameters, of which other workers of its replica have copies.

    Attributes:
        tensors: number of elements of each tensor of the part.
        group: ranks of the first group of workers with copies of the same part.
        sharers: neighbours in the group that together store one copy of the sharded states; a divisor of its size.
    """

    tensors: tuple[int, ...]
    group: range
    sharers: int

    @property
    def elements(self) -> int:
        """Return the number of parameters."""
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
    """Divide a worker's parameters into shards: the experts are a separate one if another group has copies of them."""
    group, sharers = layout.gradient_group, layout.gradient_workers // layout.copies
    expert_group = layout.expert_gradient_group
    if expert_group == group or not any(worker_tensors.experts):
        return [ParameterShard(tuple(tensor.elements for tensor in worker_tensors.tensors), group, sharers)]
    # ``sharers * tensor`` workers together store one copy of the other states, and this many copies of each expert.
    copies_of_experts = sharers * layout.tensor // (layout.expert_tensor_workers * layout.expert)
    expert_sharers = math.gcd(len(expert_group), max(1, copies_of_experts))
    elements: dict[bool, list[int]] = {False: [], True: []}  # by whether a tensor is of an expert
    for tensor, is_expert in zip(worker_tensors.tensors, worker_tensors.experts, strict=True):
        elements[is_expert].append(tensor.elements)
    return [
        ParameterShard(tuple(elements[False]), group, sharers),
        ParameterShard(tuple(elements[True]), expert_group, expert_sharers),
    ]


class StepOptions(NamedTuple):
    """Options of the exchanges of every step between workers that have the same parameters.

    Attributes:
        sharding: kind of sharding, one of ``SHARDINGS``.
        weights: form in which updated weights travel.
        overlapped: whether collectives overlap with computing.
        bytes_per_gradient: bytes of a gradient on the wire.
        bytes_per_parameter: bytes of a parameter on the wire.
        units: units of parameters, which travel one by one.
    """

    sharding: str
    weights: WeightMessages
    overlapped: bool
    micro_batches: int
    bytes_per_gradient: float
    bytes_per_parameter: float
    units: tuple[Bucket, ...]

    @property
    def broadcasts_weights(self) -> bool:
        """Return whether each worker broadcasts the weights that it has updated."""
        return self.sharding == "optimizer" and self.weights == "broadcasts"


def traffic_of_replicas(
    tensors: Sequence[int], replicas: Indices, mask: NDArray[np.bool_], steps: int, options: StepOptions
) -> list[Traffic]:
    """Return the exchanges of every step between replicas, if no two workers of a replica have the same parameters.

    Args:
        tensors: number of elements of each tensor of a worker.
        replicas: ``(S,)``: number of replicas.
        mask: ``(S,)``: whether ``options`` are those of the setting.
        steps: T, the number of steps.
    """
    masks = [mask & (replicas == 1), mask & (replicas > 1)]
    if options.broadcasts_weights:  # each number of replicas has its own broadcasts
        masks = [mask & (replicas == count) for count in np.unique(replicas[mask])]
    traffics = []
    for alike_mask in filter(np.any, masks):
        counts = np.unique(replicas[alike_mask])
        sharers = int(counts[0]) if len(counts) == 1 else replicas[alike_mask]
        # A single replica has no other to exchange with.
        exchanges = [] if counts[0] == 1 else _exchanges_of_step(tensors, sharers, options)
        traffics.append(Traffic(_rows_of(alike_mask), exchanges, steps))
    return traffics


def _exchanges_of_step(tensors: Sequence[int], sharers: IntOrArray, options: StepOptions) -> list[Exchange]:
    """Return the exchanges of every step among workers that store the states of the same parameters together.

    Args:
        tensors: number of elements of each tensor of one worker.
        sharers: number of these workers, or an array with an entry for each setting unless weights are broadcast.
    """
    elements = sum(tensors)
    gradient_bytes, parameter_bytes = options.bytes_per_gradient * elements, options.bytes_per_parameter * elements
    if options.sharding == "none" or options.broadcasts_weights:  # every worker needs the whole gradient
        gradient = Exchange(gradient_bytes, label="gradient inside", in_backward=True)
        if not options.broadcasts_weights:
            return [gradient]
        return [gradient, *update_broadcasts(options.bytes_per_parameter, int(sharers), tensors)]
    gathers = update_gathers(parameter_bytes, sharers, options.units) if options.weights == "gathers" else None
    return sharded_exchanges(
        gradient_bytes, parameter_bytes, workers=sharers, sharding=options.sharding, units=options.units,
        micro_batches=options.micro_batches, overlapped=options.overlapped, update_exchanges=gathers,
    )  # fmt: skip


def exchanges_inside(shard: ParameterShard, options: StepOptions) -> list[Exchange]:
    """Return the exchanges of every step between the workers of a replica that have copies of a shard."""
    if len(shard.group) == 1:
        return []
    exchanges: list[Exchange] = []
    # The `sharers` that together store a copy of the states reduce-scatter gradients and gather weights. In between,
    # workers that store the same part of different copies sum their gradients.
    for exchange in _exchanges_of_step(shard.tensors, shard.sharers, options):
        if exchange.in_backward:  # all workers of the group sum the whole gradient at once
            exchanges.append(replace(exchange, first_group=shard.group))
        elif shard.sharers > 1:
            exchanges.append(replace(exchange, first_group=shard.sharing_group))
        if exchange.collective == "reduce_scatter" and len(shard.copies_group) > 1:
            nbytes = exchange.payload_bytes / shard.sharers
            sum_of_copies = replace(exchange, payload_bytes=nbytes, collective="all_reduce", label="gradient of copies")
            exchanges.append(replace(sum_of_copies, first_group=shard.copies_group))
    return exchanges


def exchanges_between(
    method: MethodBase, tensors: Sequence[TensorShape], replicas: int, layout: Layout, share: float
) -> Iterator[Exchange]:
    """Yield a worker's exchanges with other replicas, and gathers of their results inside its replica.

    There is a gather after each exchange if several workers of a replica have the same parameters and each sends a
    share. A method that sends in the backward pass needs none: `exchanges_inside` has the gathers of its gradients.

    Args:
        share: share of the worker's parameters that the worker itself sends.
    """
    for exchange in method.exchanges(tensors, replicas):
        size, group = share * exchange.payload_bytes, exchange.first_group
        if group is not None:  # the ranks of one worker of each replica
            stride = layout.workers
            group = range(group.start * stride, group.stop * stride, group.step * stride)
        yield replace(exchange, payload_bytes=size, encoded_bytes=share * exchange.encoded_bytes, first_group=group)
        if layout.gradient_workers > 1 and not method.sends_in_backward:
            # The bytes of a collective's result, divided by those of its input.
            growth = {"all_gather": replicas, "gather": replicas, "reduce_scatter": 1 / replicas}
            yield replace(
                exchange, payload_bytes=size * growth.get(exchange.collective, 1.0), encoded_bytes=0.0,
                collective="all_gather", label=f"{exchange.label} inside".strip(), first_group=layout.gradient_group,
            )  # fmt: skip
