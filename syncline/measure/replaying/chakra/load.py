"""Conversion of Chakra nodes into a record.

Nodes are processed in the order in which ASTRA-sim would issue them: among the nodes whose dependencies were issued,
the lowest number comes first. Computing on the device is queued on stream 0, computing of a host beside it on stream 1.
A call that waits for anything but the node queued last has its own stream, on which it waits.
"""

from __future__ import annotations

import heapq
import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, get_args

from syncline.costmodel.compute.operations import Kind
from syncline.errors import SpecError
from syncline.measure.recording.record import (
    Computed,
    CountedOperation,
    Loss,
    Marked,
    MessageAwaited,
    MessageSent,
    Operations,
    RankRecord,
    Started,
    Stepped,
    StreamWaited,
    Waited,
)
from syncline.measure.replaying.chakra import schema
from syncline.measure.replaying.chakra.export import PREFIX

TIMED_AS = {
    "scatter": "gather", "barrier": "all_reduce", "reduce_scatter_block": "reduce_scatter",
}  # fmt: skip
"""Collectives without a closed form, with the collective whose closed form times them."""

HOST_STREAM = 1
"""The stream of operations that a host computes beside its device."""

KNOWN_TYPES = (schema.METADATA, schema.COMPUTE, schema.SEND, schema.RECV, schema.COLLECTIVE)


class OrderedNode(NamedTuple):
    """A Chakra node whose dependencies are only nodes that take time.

    Attributes:
        type: one of `KNOWN_TYPES`, or 0 for a node without a type.
        duration_s: seconds of the node.
        dependencies: numbers of the nodes that must end before this one begins.
    """

    id: int
    name: str
    type: int
    duration_s: float
    attributes: dict[str, Any]
    dependencies: list[int]


class TraceGroups(NamedTuple):
    """The groups and messages that all ranks have in common.

    Attributes:
        groups: ranks of each group, by its ``pg_name``.
        messages: numbers of messages, by sender, receiver, tag, and the count of earlier messages with these three.
    """

    num_ranks: int
    groups: dict[str, tuple[int, ...]]
    messages: dict[tuple[int, int, int, int], int]


def order_nodes(nodes: Iterable[schema.ChakraMessage], path: str) -> list[OrderedNode]:
    """Return nodes in the order in which ASTRA-sim would issue them: of those that are ready, the lowest number first.

    A dependency on a node that takes no time is replaced by the dependencies of that node.

    Raises:
        SpecError: two nodes have one number, a type is not supported, a dependency is missing, or nodes wait for each
            other in a circle.
    """
    node_of: dict[int, schema.ChakraMessage] = {}
    for node in nodes:
        if node.id in node_of:
            raise SpecError("trace", path, f"nodes of different numbers (two have {node.id})")
        if node.type not in (0, *KNOWN_TYPES):  # type 0, a node without a type, takes no time
            name = schema.NODE_TYPES[node.type] if node.type < len(schema.NODE_TYPES) else str(node.type)
            supported = ", ".join(schema.NODE_TYPES[kind] for kind in KNOWN_TYPES)
            raise SpecError("trace", path, f"nodes of the types {supported} (node {node.id} is {name})")
        node_of[node.id] = node
    direct_dependencies = {number: {*node.data_deps, *node.ctrl_deps} for number, node in node_of.items()}
    dependents: dict[int, list[int]] = {}
    for number, dependencies in direct_dependencies.items():
        for dependency in dependencies:
            if dependency not in node_of:
                raise SpecError("trace", path, f"dependencies that are there (node {number} waits for {dependency})")
            dependents.setdefault(dependency, []).append(number)

    num_waiting = {number: len(dependencies) for number, dependencies in direct_dependencies.items()}
    ready = [number for number, count in num_waiting.items() if count == 0]
    heapq.heapify(ready)
    ordered: list[OrderedNode] = []
    stands_for: dict[int, list[int]] = {}  # by node: itself, or the nodes that a node without time waits for
    while ready:
        number = heapq.heappop(ready)
        node = node_of[number]
        awaited: dict[int, None] = {}  # an ordered set
        for dependency in sorted(direct_dependencies[number]):
            awaited |= dict.fromkeys(stands_for[dependency])
        takes_no_time = node.type in (0, schema.METADATA)
        stands_for[number] = list(awaited) if takes_no_time else [number]
        ordered.append(
            OrderedNode(
                number, node.name, node.type, duration_s=1e-6 * node.duration_micros,
                attributes=schema.attributes_of(node), dependencies=list(awaited),
            )
        )  # fmt: skip
        for dependent in dependents.get(number, ()):
            num_waiting[dependent] -= 1
            if num_waiting[dependent] == 0:
                heapq.heappush(ready, dependent)
    if len(ordered) < len(node_of):
        first_in_circle = min(number for number, count in num_waiting.items() if count)
        raise SpecError(
            "trace", path, f"nodes that do not wait for each other in a circle (node {first_in_circle} does)"
        )
    return ordered


def read_pytorch_groups(nodes: Iterable[schema.ChakraMessage]) -> dict[str, tuple[int, ...]]:
    """Return the ranks of process groups by name, from a METADATA node with JSON, as PyTorch's own traces have it."""
    groups: dict[str, tuple[int, ...]] = {}
    for node in nodes:
        if node.type == schema.METADATA and "pg_name" in node.inputs.values:  # a text, perhaps JSON
            try:
                (text,) = json.loads(node.inputs.values)  # a list with one string, which also contains JSON
                for group in json.loads(text):
                    groups[str(group["pg_name"])] = tuple(int(rank) for rank in group["ranks"])
            except (ValueError, TypeError, KeyError):
                continue  # ASTRA-sim does so too; a node that needs the missing group is refused later
    return groups


class RecordBuilder:
    """A builder of the record of a rank from its Chakra nodes.

    Args:
        trace_groups: groups and messages of the whole trace.
    """

    def __init__(self, rank: int, head: dict[str, Any], trace_groups: TraceGroups, path: str) -> None:
        self.rank, self.trace_groups, self.path = rank, trace_groups, path
        self.record = RankRecord()
        # Operations and seconds of the segments, if this package has written the file.
        self._stored_segments, self._stored_s = _read_segments(head, path)
        self._segment_of: dict[tuple[Operations, float], int] = {}  # number of a segment in the record
        self._segment_s: list[float] = []
        self._stream_of: dict[int, int] = {}  # stream of each computing node
        self._last_node: dict[int, int] = {}  # last computing node of each stream
        self._marks: dict[int, int] = {}  # number of the mark behind a computing node that another stream waits for
        self._mark_positions: dict[int, int] = {}  # where such a mark would be among the record's events
        self._calls: dict[int, int] = {}  # number of the call of each communicating node
        self._waits: set[tuple[int, int]] = set()  # pairs of a node and a stream that has waited for it
        self._numbers: defaultdict[tuple[Any, ...], Iterator[int]] = defaultdict(itertools.count)  # by group or message
        self._highest_stream = HOST_STREAM

    def build(self, nodes: Sequence[OrderedNode]) -> RankRecord:
        """Return the record of nodes that are in the order of their issue."""
        has_device_nodes = any(node.type == schema.COMPUTE and not node.attributes.get("is_cpu_op") for node in nodes)
        named_streams = [stream for node in nodes if isinstance(stream := node.attributes.get("stream"), int)]
        self._highest_stream = max([HOST_STREAM, *named_streams])
        for node in nodes:
            if node.type == schema.COMPUTE:
                is_on_host = has_device_nodes and node.attributes.get("is_cpu_op")
                stream = self._stream_for(node, default=HOST_STREAM if is_on_host else 0)
                self._add_waits(node, stream)
                self._add_computing(node, stream)
            elif node.type in (schema.SEND, schema.RECV, schema.COLLECTIVE):
                stream = self._stream_for(node)
                self._add_waits(node, stream)
                if node.type == schema.COLLECTIVE:
                    self._add_collective(node, stream)
                else:
                    self._add_message(node, stream)
            elif self._stored_segments is not None:  # only files of this package have steps and losses
                self._add_waits(node, self._non_negative_int(node, "stream", default=0))
                if node.name == "step":
                    self.record.events.append(Stepped())
                elif node.name == "loss" and isinstance(node.attributes.get("loss"), float):
                    self.record.events.append(Loss(node.attributes["loss"]))
        # Insert marks behind their nodes, from the last one backwards, so that the positions of the others stay valid.
        for node_id in sorted(self._marks, key=lambda node_id: -self._mark_positions[node_id]):
            mark = Marked(self._marks[node_id], self._stream_of[node_id])
            self.record.events.insert(self._mark_positions[node_id], mark)
        if self._stored_segments is None or self._stored_s:  # nodes of other programs always have seconds
            self.record.segment_cpu_s = self._segment_s
        return self.record

    def _stream_for(self, node: OrderedNode, default: int | None = None) -> int:
        """Return the stream that a node names, else ``default``, else stream 0 or a new one."""
        if "stream" in node.attributes or self._stored_segments is not None:  # this package writes no stream 0
            return self._non_negative_int(node, "stream", default=0)
        if default is not None:
            return default
        waits_only_for_stream_0 = node.dependencies in ([], [self._last_node.get(0)])
        if waits_only_for_stream_0:
            return 0
        self._highest_stream += 1
        return self._highest_stream

    def _add_waits(self, node: OrderedNode, stream: int) -> None:
        """Append the waits of a stream for the nodes on which a node depends."""
        for dependency in node.dependencies:
            is_call = dependency in self._calls
            # These dicts leave out sent messages and collectives of one rank, because no node has to wait for them.
            is_on_other_stream = self._stream_of.get(dependency, stream) != stream
            if not (is_call or is_on_other_stream) or (dependency, stream) in self._waits:
                continue
            self._waits.add((dependency, stream))
            if is_call:
                self.record.events.append(Waited(self._calls[dependency], stream))
            else:
                mark = self._marks.setdefault(dependency, len(self._marks) + 1)
                self.record.events.append(StreamWaited(mark, stream))

    def _add_computing(self, node: OrderedNode, stream: int) -> None:
        """Append the computing of a node to the record, as a segment of operations."""
        operations: Operations
        if self._stored_segments is not None:
            number = self._non_negative_int(node, "segment")
            if number >= len(self._stored_segments):
                raise self._error(node, f"a segment below {len(self._stored_segments)}", number)
            operations = self._stored_segments[number]
            seconds = self._stored_s[number] if self._stored_s else 0.0
            key = operations, float(number)  # segments with equal operations stay apart, as they were stored
        else:
            flops = float(self._non_negative_int(node, "num_ops", default=0))
            nbytes = float(self._non_negative_int(node, "tensor_size", default=0))
            operations, seconds = (CountedOperation(flops, nbytes),), node.duration_s
            key = operations, seconds
        if key not in self._segment_of:
            self._segment_of[key] = len(self.record.segments)
            self.record.segments.append(operations)
            self._segment_s.append(seconds)
        self.record.events.append(Computed(self._segment_of[key], stream))
        self._stream_of[node.id], self._last_node[stream] = stream, node.id
        self._mark_positions[node.id] = len(self.record.events)  # for `build`, if a stream waits for this node

    def _add_collective(self, node: OrderedNode, stream: int) -> None:
        """Append the event of a node that is a collective to the record."""
        call = node.id + 1  # calls are numbered from 1
        site = str(node.attributes.get("site", node.name))
        nbytes = self._non_negative_int(node, "comm_size")
        type_index = self._non_negative_int(node, "comm_type")
        if type_index >= len(schema.COLLECTIVE_TYPES):
            raise self._error(node, f"a comm_type below {len(schema.COLLECTIVE_TYPES)}", type_index)
        collective = schema.COLLECTIVE_TYPES[type_index].lower()
        ranks = self._group_ranks(node)
        pg_name = node.attributes.get("pg_name", "") or "0"  # 0 is the group of all ranks
        group_name = str(node.attributes.get("group", pg_name))  # the name in the record, if this package wrote it
        number_in_group = next(self._numbers[group_name, ranks])
        started = Started(
            call, kind=TIMED_AS.get(collective, collective), asked=str(node.attributes.get("asked", collective)),
            payload_bytes=nbytes, ranks=ranks, key=(group_name, number_in_group), site=site, stream=stream,
        )  # fmt: skip
        self.record.events.append(started)
        if len(ranks) > 1:  # a single rank communicates with nobody, so there is nothing to wait for
            self._calls[node.id] = call

    def _add_message(self, node: OrderedNode, stream: int) -> None:
        """Append the event of a node that sends or receives a message to the record."""
        call = node.id + 1  # calls are numbered from 1
        site = str(node.attributes.get("site", node.name))
        nbytes = self._non_negative_int(node, "comm_size")
        is_send = node.type == schema.SEND
        peer = self._non_negative_int(node, "comm_dst" if is_send else "comm_src")
        num_ranks = self.trace_groups.num_ranks
        if peer >= num_ranks or peer == self.rank:
            raise self._error(node, f"another one of {num_ranks} ranks", peer)
        sender, receiver = (self.rank, peer) if is_send else (peer, self.rank)
        chakra_tag = self._non_negative_int(node, "comm_tag", default=0)
        num_earlier = next(self._numbers[is_send, sender, receiver, chakra_tag])
        messages = self.trace_groups.messages
        # The end whose file is read first numbers the message; the other end finds the number.
        number = messages.setdefault((sender, receiver, chakra_tag, num_earlier), len(messages))
        tag = (str(node.attributes.get("group", "")), sender, receiver, number)
        if is_send:
            self.record.events.append(MessageSent(call, peer, payload_bytes=nbytes, tag=tag, site=site, stream=stream))
        else:
            self.record.events.append(MessageAwaited(call, peer, tag=tag, site=site, stream=stream))
            self._calls[node.id] = call  # later nodes may wait for a receive; a sender goes on at once

    def _group_ranks(self, node: OrderedNode) -> tuple[int, ...]:
        """Return the ranks of the group of a collective."""
        name = str(node.attributes.get("pg_name", ""))
        ranks = self.trace_groups.groups.get(name)
        if ranks is None and name not in ("", "0"):
            raise self._error(node, "a pg_name that comm_groups.json has", name)
        if not ranks:  # no name, ASTRA-sim's name 0, or PyTorch's empty list, which all stand for all ranks
            return tuple(range(self.trace_groups.num_ranks))
        if self.rank not in ranks:
            raise self._error(node, f"a group with rank {self.rank}", name)
        return ranks

    def _non_negative_int(self, node: OrderedNode, name: str, default: int | None = None) -> int:
        """Return an attribute that is a number of at least 0."""
        value = node.attributes.get(name, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or value < 0:
            raise self._error(node, f"{name}, a number that is not negative", value)
        return value

    def _error(self, node: OrderedNode, expected: str, value: object) -> SpecError:
        """Return the error for a node with an attribute that cannot be used."""
        return SpecError(f"trace.{self.path}.node {node.id}", value, expected)


def _read_segments(head: dict[str, Any], path: str) -> tuple[list[Operations] | None, list[float]]:
    """Return the operations and measured seconds of each segment of a Chakra file, from the attributes of its head.

    The operations are None if another program wrote the file; the seconds are empty if none were measured.
    """
    if f"{PREFIX}ranks" not in head:
        return None, []

    def are_numbers(value: Any) -> bool:
        return isinstance(value, list) and all(isinstance(x, float) and 0 <= x < math.inf for x in value)

    segments: list[Operations] = []
    while (name := f"{PREFIX}segment.{len(segments)}") in head:
        flops_and_bytes = head[name]
        if not are_numbers(flops_and_bytes) or len(flops_and_bytes) % 2:
            raise SpecError("trace", path, f"FLOPs and bytes by turns in {name}")
        flops, nbytes = flops_and_bytes[::2], flops_and_bytes[1::2]
        kernels = _read_kernels(head.get(f"{PREFIX}kernels.{len(segments)}"), len(flops), path)
        operations = [CountedOperation(flops[i], nbytes[i], *kernel) for i, kernel in enumerate(kernels)]
        segments.append(tuple(operations))
    seconds = head.get(f"{PREFIX}cpu_s", [])
    if seconds and not (are_numbers(seconds) and len(seconds) == len(segments)):
        raise SpecError("trace", path, f"seconds of each segment in {PREFIX}cpu_s")
    return segments, seconds


def _read_kernels(text: Any, count: int, path: str) -> list[tuple[Any, ...]]:
    """Return kind, number format, shape and mask of each operation of a segment.

    Args:
        text: a JSON list with these four values for each operation; None if the file does not have them. Then the
            result has an empty tuple for each operation.
    """
    if text is None:
        return [()] * count
    kernels: list[tuple[Any, ...]] = []
    try:
        for kind, precision, shape, is_causal in json.loads(text):
            kernels.append((kind, precision, tuple(float(size) for size in shape), bool(is_causal)))
    except (ValueError, TypeError):
        kernels = []
    has_known_kinds = all(kind in get_args(Kind) for kind, *_ in kernels)
    if len(kernels) != count or not has_known_kinds:
        raise SpecError("trace", path, f"kinds and shapes of {count} operations in {PREFIX}kernels")
    return kernels
