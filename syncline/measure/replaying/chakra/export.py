"""A record as Chakra nodes: the order of each of a rank's queues, and its waits, become dependencies.

Computing between two events is one COMP node; steps and losses are METADATA nodes, which take no time in any simulator.
A node depends on the one before it on its stream, and on the nodes that this stream, or the host, has waited for since.
If the host is the device, there is one stream. Microseconds are rounded so that their sum stays within half of one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from syncline.measure.recording.record import (
    EVERYTHING,
    Computed,
    HostWaited,
    Lost,
    Marked,
    MessageAwaited,
    MessageSent,
    RankRecord,
    Started,
    Stepped,
    StreamWaited,
    Waited,
)
from syncline.measure.replaying.chakra.schema import (
    COLLECTIVE,
    COLLECTIVE_TYPES,
    COMPUTE,
    METADATA,
    RECV,
    SEND,
    VERSION,
    ChakraMessage,
    add_attributes,
    chakra_messages,
)

PREFIX = "syncline."
"""The prefix of attributes that only this package writes, in the head of a file."""

MOST = 2**63 - 1


class ChakraNumbers:
    """The numbers that Chakra uses in the place of a record's names: groups, from 1, and messages between two ranks."""

    def __init__(self, ranks: Sequence[RankRecord]) -> None:
        """Give numbers to groups, and to the messages between each pair of ranks, in the records' order."""
        self.groups: dict[tuple[str, tuple[int, ...]], int] = {}
        self.messages: dict[Any, tuple[int, int]] = {}
        message_counts: dict[tuple[int, int], int] = {}
        for rank, record in enumerate(ranks):
            for event in record.events:
                if isinstance(event, Started) and 1 < len(event.ranks) < len(ranks):
                    self.groups.setdefault((event.key[0], event.ranks), len(self.groups) + 1)
                elif isinstance(event, MessageSent):
                    number = message_counts.get((rank, event.to), 0)
                    message_counts[rank, event.to] = number + 1
                    self.messages[event.tag] = number, event.payload_bytes

    def file(self) -> str:
        """Return the groups of some ranks in the format that ASTRA-sim reads: JSON with the ranks by group number."""
        return json.dumps({str(number): list(ranks) for (_, ranks), number in self.groups.items()}, indent=1) + "\n"


def head_of(record: RankRecord, ranks: int, head_fields: dict[str, str]) -> ChakraMessage:
    """Return the head of a file, with the operations of each segment as alternating FLOPs and bytes."""
    head = chakra_messages().metadata(version=VERSION)
    add_attributes(
        head, **{f"{PREFIX}ranks": ranks}, **{f"{PREFIX}{name}": value for name, value in head_fields.items()}
    )
    if record.segment_cpu_s:
        add_attributes(head, **{f"{PREFIX}cpu_s": record.segment_cpu_s})
    for index, operations in enumerate(record.segments):
        flat = [value for operation in operations for value in operation[:2]]
        add_attributes(head, **{f"{PREFIX}segment.{index}": flat})
        if any(operation.shape for operation in operations):
            kernels = json.dumps([operation[2:] for operation in operations])
            add_attributes(head, **{f"{PREFIX}kernels.{index}": kernels})
    return head


class NodesOfRank:
    """A rank's events as nodes.

    Args:
        ahead: whether the host runs ahead of its streams; otherwise the host is the device.
    """

    def __init__(
        self, rank: int, record: RankRecord, seconds: Sequence[float], numbering: ChakraNumbers, ahead: bool
    ) -> None:
        """Begin without any node; the events follow."""
        self.rank, self.record, self.seconds, self.numbering, self.ahead = rank, record, seconds, numbering, ahead
        self._last: dict[int, int] = {}  # last node of each stream
        self._pending: dict[int, list[int]] = {}  # nodes that a stream has waited for since its last node
        self._host: list[int] = []  # nodes that the host has waited for
        self._seen: dict[int, int] = {}  # number of the host's nodes that a stream's last node depends on
        self._marks: dict[int, list[int]] = {}  # nodes before each mark
        self._calls: dict[int, int] = {}  # node of each call
        self._unawaited: list[int] = []  # nodes of the calls since the host last waited for everything
        self._next = 0
        self._total_s, self._written_us = 0.0, 0

    def __iter__(self) -> Iterator[ChakraMessage]:
        """Yield the rank's nodes in the order of its events."""
        for event in self.record.events:
            if isinstance(event, Computed):
                yield self._computed(event)
            elif isinstance(event, Started):
                if len(event.ranks) > 1:
                    yield self._collective(event)
            elif isinstance(event, MessageSent | MessageAwaited):
                yield self._message(event)
            elif isinstance(event, Stepped):
                yield self._metadata_node("step", 0)
            elif isinstance(event, Lost):
                node = self._metadata_node("loss", 0)
                add_attributes(node, loss=event.loss)
                yield node
            else:
                self._waits(event)
        for stream, waited in list(self._pending.items()):
            if waited:
                yield self._metadata_node("end", stream)

    def _waits(self, event: Any) -> None:
        """Note the nodes for which a stream or the host has waited; its next node depends on them."""
        if isinstance(event, Waited):
            if event.call in self._calls:
                self._pending.setdefault(self._effective_stream(event.stream), []).append(self._calls[event.call])
        elif not self.ahead:
            return
        elif isinstance(event, Marked):
            self._marks[event.mark] = self._before(event.stream)
        elif isinstance(event, StreamWaited):
            self._pending.setdefault(event.stream, []).extend(self._marks.get(event.mark, ()))
        elif isinstance(event, HostWaited) and event.mark != EVERYTHING:
            self._host += self._marks.get(event.mark, [])
        elif isinstance(event, HostWaited):
            streams = sorted({*self._last, *self._pending})
            self._host += [*(node for stream in streams for node in self._before(stream)), *self._unawaited]
            self._unawaited = []

    def _effective_stream(self, stream: int) -> int:
        """Return the stream of a node: stream 0 if the host is the device, which has only one."""
        return stream if self.ahead else 0

    def _before(self, stream: int) -> list[int]:
        """Return the numbers of the nodes that precede a node queued on a stream now."""
        last = [self._last[stream]] if stream in self._last else []
        return list(dict.fromkeys([*last, *self._pending.get(stream, ()), *self._host[self._seen.get(stream, 0) :]]))

    def _node(self, kind: int, name: str, stream: int) -> ChakraMessage:
        """Return a new node behind the queued work of a stream."""
        node = chakra_messages().node(id=self._next, name=name, type=kind, data_deps=self._before(stream))
        self._next += 1
        if stream:
            add_attributes(node, stream=stream)
        return node

    def _computed(self, event: Computed) -> ChakraMessage:
        """Return the node of a computing segment."""
        stream = self._effective_stream(event.stream)
        node = self._node(COMPUTE, "compute", stream)
        self._queued(node, stream)
        self._total_s += self.seconds[event.segment]
        now_us = round(1e6 * self._total_s)
        node.duration_micros, self._written_us = now_us - self._written_us, now_us
        operations = self.record.segments[event.segment]
        flops, nbytes = (
            min(MOST, round(sum(getattr(operation, name) for operation in operations))) for name in ("flops", "nbytes")
        )
        # A roofline divides by both: an operation without arithmetic gets one FLOP, and is still bound by its bytes.
        add_attributes(node, is_cpu_op=False, num_ops=max(1, flops), tensor_size=max(1, nbytes), segment=event.segment)
        return node

    def _collective(self, event: Started) -> ChakraMessage:
        """Return the Chakra node of a recorded collective."""
        node = self._node(COLLECTIVE, f"{event.asked} {event.site}".strip(), self._effective_stream(event.stream))
        # NCCL and gloo implement a barrier as a sum, and ASTRA-sim has no barrier.
        collective = event.kind if event.asked == "barrier" else event.asked
        number = self.numbering.groups.get((event.key[0], event.ranks), 0)
        add_attributes(
            node, is_cpu_op=False, comm_type=COLLECTIVE_TYPES.index(collective.upper()), comm_size=event.payload_bytes,
            pg_name=str(number), group=event.key[0], site=event.site,
        )  # fmt: skip
        if collective != event.asked:
            add_attributes(node, asked=event.asked)
        self._call(event.call, node)
        return node

    def _call(self, call: int, node: ChakraMessage) -> None:
        """Note the node of a call, for which later nodes may wait."""
        self._calls[call] = node.id
        self._unawaited.append(node.id)

    def _message(self, event: MessageSent | MessageAwaited) -> ChakraMessage:
        """Return the node of a sent or received message."""
        if isinstance(event, MessageSent):
            kind, word, source, target = SEND, "send", self.rank, event.to
        else:
            kind, word, source, target = RECV, "recv", event.source, self.rank
        node = self._node(kind, f"{word} {event.site}".strip(), self._effective_stream(event.stream))
        tag, nbytes = self.numbering.messages.get(event.tag, (0, 0))
        add_attributes(
            node, is_cpu_op=False, comm_src=source, comm_dst=target, comm_tag=tag, comm_size=nbytes,
            group=event.tag[0], site=event.site,
        )  # fmt: skip
        if kind == RECV:  # a sent buffer is free at once: no event waits for it
            self._call(event.call, node)
        return node

    def _queued(self, node: ChakraMessage, stream: int) -> None:
        """Let later nodes of the stream depend on this node alone."""
        self._last[stream], self._pending[stream], self._seen[stream] = node.id, [], len(self._host)

    def _metadata_node(self, name: str, stream: int) -> ChakraMessage:
        """Return a node that takes no time and only marks a place, such as a step's end."""
        node = self._node(METADATA, name, self._effective_stream(stream))
        self._queued(node, self._effective_stream(stream))
        add_attributes(node, is_cpu_op=True)
        return node
