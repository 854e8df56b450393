"""Chakra nodes as a record.

Nodes are processed in the order in which ASTRA-sim would issue them: among the nodes whose dependencies were issued,
the lowest number comes first. Computing on the device is queued on stream 0, computing of a host beside it on stream 1.
A call that waits for anything but the node queued last has its own stream, on which it waits.
"""

from __future__ import annotations

import heapq
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, get_args

from syncline.costmodel.compute.operations import Kind
from syncline.errors import SpecError
from syncline.measure.recording.record import (
    Computed,
    Counted,
    Lost,
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
from syncline.measure.replaying.chakra.export import PREFIX
from syncline.measure.replaying.chakra.schema import (
    COLLECTIVE,
    COLLECTIVE_TYPES,
    COMPUTE,
    METADATA,
    NODE_TYPES,
    RECV,
    SEND,
    ChakraMessage,
    attributes_of,
)

TIMED_AS = {
    "scatter": "gather", "barrier": "all_reduce", "reduce_scatter_block": "reduce_scatter",
}  # fmt: skip
"""Collectives without a closed form, with the collective whose closed form times them."""

HOST_STREAM = 1
"""The stream of operations that a host computes beside its device."""

KNOWN_TYPES = (METADATA, COMPUTE, SEND, RECV, COLLECTIVE)


class IssuedNode(NamedTuple):
    """A node with its attributes and the numbers of the nodes that it depends on."""

    id: int
    name: str
    type: int
    duration_s: float
    attributes: dict[str, Any]
    deps: list[int]


class TraceGroups(NamedTuple):
    """The groups and messages that all ranks have in common.

    Attributes:
        ranks: number of ranks.
        groups: ranks of each group, by its ``pg_name``.
        messages: numbers of messages, by sender, receiver, tag, and the count of earlier messages with these three.
    """

    ranks: int
    groups: dict[str, tuple[int, ...]]
    messages: dict[tuple[int, int, int, int], int]


def issued(nodes: Iterable[ChakraMessage], path: str) -> list[IssuedNode]:
    """Return nodes in the order in which they are issued.

    A dependency on a node that takes no time is replaced by the dependencies of that node.
    """
    by_id: dict[int, ChakraMessage] = {}
    for node in nodes:
        if node.id in by_id:
            raise SpecError("trace", path, f"nodes of different numbers (two have {node.id})")
        if node.type not in (0, *KNOWN_TYPES):
            name = NODE_TYPES[node.type] if node.type < len(NODE_TYPES) else str(node.type)
            supported = ", ".join(NODE_TYPES[kind] for kind in KNOWN_TYPES)
            raise SpecError("trace", path, f"nodes of the types {supported} (node {node.id} is {name})")
        by_id[node.id] = node
    dependencies = {number: {*node.data_deps, *node.ctrl_deps} for number, node in by_id.items()}
    dependents: dict[int, list[int]] = {}
    for number, all_deps in dependencies.items():
        for dep in all_deps:
            if dep not in by_id:
                raise SpecError("trace", path, f"dependencies that are there (node {number} waits for {dep})")
            dependents.setdefault(dep, []).append(number)
    num_waiting = {number: len(deps) for number, deps in dependencies.items()}
    ready = [number for number, count in num_waiting.items() if not count]
    heapq.heapify(ready)
    order: list[IssuedNode] = []
    waited_for: dict[int, list[int]] = {}  # the nodes for which a dependency on each node waits
    while ready:
        number = heapq.heappop(ready)
        node = by_id[number]
        deps = list(dict.fromkeys(dependent for dep in sorted(dependencies[number]) for dependent in waited_for[dep]))
        waited_for[number] = deps if node.type in (0, METADATA) else [number]
        order.append(
            IssuedNode(
                number,
                node.name,
                node.type,
                duration_s=1e-6 * node.duration_micros,
                attributes=attributes_of(node),
                deps=deps,
            )
        )
        for dependent in dependents.get(number, ()):
            num_waiting[dependent] -= 1
            if not num_waiting[dependent]:
                heapq.heappush(ready, dependent)
    if len(order) < len(by_id):
        stuck = min(number for number, count in num_waiting.items() if count)
        raise SpecError("trace", path, f"nodes that do not wait for each other in a circle (node {stuck} does)")
    return order


def groups_in(nodes: Iterable[ChakraMessage]) -> dict[str, tuple[int, ...]]:
    """Return the process groups that PyTorch's own traces have: JSON among the inputs of a METADATA node."""
    groups: dict[str, tuple[int, ...]] = {}
    for node in nodes:
        if node.type == METADATA and "pg_name" in node.inputs.values:
            try:
                (text,) = json.loads(node.inputs.values)
                for group in json.loads(text):
                    groups[str(group["pg_name"])] = tuple(int(rank) for rank in group["ranks"])
            except (ValueError, TypeError, KeyError):
                continue  # as in ASTRA-sim: a node that needs the missing group is refused later
    return groups


class RecordOfRank:
    """A rank's record, built from its nodes.

    Args:
        head: attributes of the file's head.
        trace: groups and messages of the whole trace.
        path: path of the file, for error messages.
    """

    def __init__(self, rank: int, head: dict[str, Any], trace: TraceGroups, path: str) -> None:
        """Begin an empty record, with the segments that the file's head may contain."""
        self.rank, self.trace, self.path = rank, trace, path
        self.record = RankRecord()
        self._stored, self._stored_s = _segments_of(head, path)  # segments that this package has written
        self._segments: dict[tuple[Operations, float], int] = {}
        self._stream_of: dict[int, int] = {}  # stream of each computing node
        self._last: dict[int, int] = {}  # last computing node of each stream
        self._at: dict[int, int] = {}  # number of events up to each computing node
        self._marks: dict[int, int] = {}  # mark behind a computing node
        self._calls: dict[int, int] = {}  # call of each communicating node
        self._waited: set[tuple[int, int]] = set()  # nodes for which a stream has waited
        self._numbers: Counter[Any] = Counter()
        self._streams = HOST_STREAM
        self._seconds: list[float] = []

    def take(self, nodes: Sequence[IssuedNode]) -> RankRecord:
        """Add nodes to the record in the order of their issue, and return the record."""
        computing = [node for node in nodes if node.type == COMPUTE]
        has_gpu_nodes = any(not node.attributes.get("is_cpu_op") for node in computing)
        streams = [value for node in nodes if isinstance(value := node.attributes.get("stream"), int)]
        self._streams = max([HOST_STREAM, *streams])
        for node in nodes:
            if node.type == COMPUTE:
                stream = self._stream_for(
                    node, HOST_STREAM if has_gpu_nodes and node.attributes.get("is_cpu_op") else 0
                )
                self._await(node, stream)
                self._compute(node, stream)
            elif node.type in (SEND, RECV, COLLECTIVE):
                stream = self._stream_for(node, None)
                self._await(node, stream)
                self._communicate(node, stream)
            else:
                self._note(node)
        for dep, mark in sorted(self._marks.items(), key=lambda pair: -self._at[pair[0]]):
            self.record.events.insert(self._at[dep], Marked(mark, self._stream_of[dep]))
        if self._stored is None or self._stored_s:
            self.record.segment_cpu_s = self._seconds
        return self.record

    def _stream_for(self, node: IssuedNode, otherwise: int | None) -> int:
        """Return the stream of a node; a call that names no stream gets stream 0 or a new stream."""
        if "stream" in node.attributes or self._stored is not None:
            return self._non_negative_int(node, "stream", otherwise=0)
        if otherwise is not None:
            return otherwise
        if node.deps in ([], [self._last.get(0)]):
            return 0
        self._streams += 1
        return self._streams

    def _await(self, node: IssuedNode, stream: int) -> None:
        """Append the waits of a stream for the nodes on which a node depends."""
        for dep in node.deps:
            if dep in self._calls:
                if (dep, stream) not in self._waited:
                    self._waited.add((dep, stream))
                    self.record.events.append(Waited(self._calls[dep], stream))
            elif self._stream_of.get(dep, stream) != stream and (dep, stream) not in self._waited:
                self._waited.add((dep, stream))
                mark = self._marks.setdefault(dep, len(self._marks) + 1)
                self.record.events.append(StreamWaited(mark, stream))

    def _compute(self, node: IssuedNode, stream: int) -> None:
        """Append the computing of a node to the record, as a segment of operations."""
        if self._stored is not None:
            number = self._non_negative_int(node, "segment")
            if number >= len(self._stored):
                raise self._refused(node, f"a segment below {len(self._stored)}", number)
            operations = self._stored[number]
            seconds = self._stored_s[number] if self._stored_s else 0.0
        else:
            number = -1
            flops, nbytes = (
                float(self._non_negative_int(node, name, otherwise=0)) for name in ("num_ops", "tensor_size")
            )
            operations, seconds = (Counted(flops, nbytes),), node.duration_s
        key = operations, seconds if number < 0 else float(number)
        if key not in self._segments:
            self._segments[key] = len(self.record.segments)
            self.record.segments.append(operations)
            self._seconds.append(seconds)
        self.record.events.append(Computed(self._segments[key], stream))
        self._stream_of[node.id], self._last[stream] = stream, node.id
        self._at[node.id] = len(self.record.events)  # the position after which a mark may be inserted

    def _communicate(self, node: IssuedNode, stream: int) -> None:
        """Append the collective or the message of a node."""
        call, site = node.id + 1, str(node.attributes.get("site", node.name))
        nbytes = self._non_negative_int(node, "comm_size")
        if node.type == COLLECTIVE:
            number = self._non_negative_int(node, "comm_type")
            if number >= len(COLLECTIVE_TYPES):
                raise self._refused(node, f"a comm_type below {len(COLLECTIVE_TYPES)}", number)
            collective = str(node.attributes.get("asked", COLLECTIVE_TYPES[number].lower()))
            kind = COLLECTIVE_TYPES[number].lower()
            ranks = self._group(node)
            name = str(node.attributes.get("group", node.attributes.get("pg_name", "") or "0"))
            key = name, self._next((name, ranks))
            self.record.events.append(
                Started(
                    call,
                    TIMED_AS.get(kind, kind),
                    asked=collective,
                    payload_bytes=nbytes,
                    ranks=ranks,
                    key=key,
                    site=site,
                    stream=stream,
                )
            )
            if len(ranks) > 1:
                self._calls[node.id] = call
            return
        sends = node.type == SEND
        peer = self._non_negative_int(node, "comm_dst" if sends else "comm_src")
        if peer >= self.trace.ranks or peer == self.rank:
            raise self._refused(node, f"another one of {self.trace.ranks} ranks", peer)
        ends = (self.rank, peer) if sends else (peer, self.rank)
        tagged = (*ends, self._non_negative_int(node, "comm_tag", otherwise=0))
        message = (*tagged, self._next((sends, *tagged)))
        number = self.trace.messages.setdefault(message, len(self.trace.messages))
        tag = (str(node.attributes.get("group", "")), *ends, number)
        if sends:
            self.record.events.append(MessageSent(call, peer, payload_bytes=nbytes, tag=tag, site=site, stream=stream))
        else:
            self.record.events.append(MessageAwaited(call, peer, tag, site, stream))
            self._calls[node.id] = call

    def _note(self, node: IssuedNode) -> None:
        """Append a step or a loss, which only files of this package have, and the waits before it."""
        if self._stored is None:
            return
        self._await(node, self._non_negative_int(node, "stream", otherwise=0))
        if node.name == "step":
            self.record.events.append(Stepped())
        elif node.name == "loss" and isinstance(node.attributes.get("loss"), float):
            self.record.events.append(Lost(node.attributes["loss"]))

    def _group(self, node: IssuedNode) -> tuple[int, ...]:
        """Return the ranks of the group of a collective."""
        name = str(node.attributes.get("pg_name", ""))
        ranks = self.trace.groups.get(name, () if name in ("", "0") else None)
        if ranks is None:
            raise self._refused(node, "a pg_name that comm_groups.json has", name)
        if not ranks:  # the group of all ranks, which PyTorch writes as an empty list
            return tuple(range(self.trace.ranks))
        if self.rank not in ranks:
            raise self._refused(node, f"a group with rank {self.rank}", name)
        return ranks

    def _next(self, key: Any) -> int:
        """Return the number of earlier calls with the same key, and count this one."""
        self._numbers[key] += 1
        return self._numbers[key] - 1

    def _non_negative_int(self, node: IssuedNode, name: str, otherwise: int | None = None) -> int:
        """Return an attribute that is a number of at least 0."""
        value = node.attributes.get(name, otherwise)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or value < 0:
            raise self._refused(node, f"{name}, a number that is not negative", value)
        return value

    def _refused(self, node: IssuedNode, expected: str, value: object) -> SpecError:
        """Return the error for a node with an attribute that cannot be used."""
        return SpecError(f"trace.{self.path}.node {node.id}", value, expected)


def _kernels_of(text: Any, count: int, path: str) -> list[tuple[Any, ...]]:
    """Return the kind, number format, shape and mask of each operation of a segment; nothing if it has none."""
    if text is None:
        return [()] * count
    try:
        kernels = [(kind, precision, tuple(map(float, shape)), bool(causal))
                   for kind, precision, shape, causal in json.loads(text)]  # fmt: skip
    except (ValueError, TypeError):
        kernels = []
    if len(kernels) != count or not all(kind in get_args(Kind) for kind, *_ in kernels):
        raise SpecError("trace", path, f"kinds and shapes of {count} operations in {PREFIX}kernels")
    return kernels


def _segments_of(head: dict[str, Any], path: str) -> tuple[list[Operations] | None, list[float]]:
    """Return the operations and measured seconds of each segment; None and [] if another program wrote the file."""
    if f"{PREFIX}ranks" not in head:
        return None, []

    def is_numbers(value: Any) -> bool:
        return isinstance(value, list) and all(isinstance(x, float) and 0 <= x < math.inf for x in value)

    segments: list[Operations] = []
    while f"{PREFIX}segment.{len(segments)}" in head:
        flat = head[f"{PREFIX}segment.{len(segments)}"]
        if not is_numbers(flat) or len(flat) % 2:
            raise SpecError("trace", path, f"FLOPs and bytes by turns in {PREFIX}segment.{len(segments)}")
        kernels = _kernels_of(head.get(f"{PREFIX}kernels.{len(segments)}"), len(flat) // 2, path)
        pairs = zip(flat[::2], flat[1::2], kernels, strict=True)
        segments.append(tuple(Counted(flops, nbytes, *kernel) for flops, nbytes, kernel in pairs))
    seconds = head.get(f"{PREFIX}cpu_s", [])
    if seconds and not (is_numbers(seconds) and len(seconds) == len(segments)):
        raise SpecError("trace", path, f"seconds of each segment in {PREFIX}cpu_s")
    return segments, seconds
