"""Conversion of a record into Chakra nodes: the order of each of a rank's queues, and its waits, become dependencies.

Computing between two events is one COMP node; steps and losses are METADATA nodes, which take no time in any simulator.
A node depends on the one before it on its stream, and on the nodes that this stream, or the host, has waited for since.
If the host is the device, there is one stream. Microseconds are rounded so that their sum stays within half of one.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from syncline.measure.recording.record import (
    EVERYTHING,
    Computed,
    HostWaited,
    Loss,
    Marked,
    MessageAwaited,
    MessageSent,
    RankRecord,
    Started,
    Stepped,
    StreamWaited,
    Waited,
)
from syncline.measure.replaying.chakra import schema

PREFIX = "syncline."
"""The prefix of attributes that only this package writes, in the head of a file."""

MAX_INT64 = 2**63 - 1


class ChakraNumbers:
    """The numbers that Chakra uses in the place of the names of a record's groups and messages.

    Args:
        ranks: the record of each rank; groups and messages are numbered in the order of its events.

    Attributes:
        groups: numbers from 1 of the groups without some rank, by name and ranks; the number 0 stands for all ranks.
        messages: by tag, the number of a message among those from its sender to its receiver, from 0, and its bytes.
    """

    def __init__(self, ranks: Sequence[RankRecord]) -> None:
        self.groups: dict[tuple[str, tuple[int, ...]], int] = {}
        self.messages: dict[tuple[str, int, int, int], tuple[int, int]] = {}
        numbers: defaultdict[tuple[int, int], Iterator[int]] = defaultdict(itertools.count)  # by sender and receiver
        for sender, record in enumerate(ranks):
            for event in record.events:
                if isinstance(event, Started) and 1 < len(event.ranks) < len(ranks):
                    group_name, _ = event.key
                    self.groups.setdefault((group_name, event.ranks), len(self.groups) + 1)
                elif isinstance(event, MessageSent):
                    self.messages[event.tag] = next(numbers[sender, event.to]), event.payload_bytes

    def groups_as_json(self) -> str:
        """Return the groups in the format that ASTRA-sim reads: JSON with the ranks by the number of the group."""
        return json.dumps({str(number): list(ranks) for (_, ranks), number in self.groups.items()}, indent=1) + "\n"


def build_head(record: RankRecord, num_ranks: int, fields: dict[str, str]) -> schema.ChakraMessage:
    """Return the head of a rank's file, with the operations of each segment of its record, and further ``fields``."""
    head = schema.chakra_messages().metadata(version=schema.VERSION)
    attributes: dict[str, Any] = {"ranks": num_ranks} | fields
    if record.segment_cpu_s:
        attributes["cpu_s"] = record.segment_cpu_s
    for index, operations in enumerate(record.segments):
        flops_and_bytes = [(operation.flops, operation.nbytes) for operation in operations]
        attributes[f"segment.{index}"] = list(itertools.chain.from_iterable(flops_and_bytes))
        if any(operation.shape for operation in operations):
            kernels = [(work.kind, work.precision, work.shape, work.causal) for work in operations]
            attributes[f"kernels.{index}"] = json.dumps(kernels)
    schema.add_attributes(head, **{f"{PREFIX}{name}": value for name, value in attributes.items()})
    return head


class NodeBuilder:
    """A builder of the Chakra nodes of a rank's events.

    A node depends on the last node of its stream, and on the nodes for which its stream or the host has waited.

    Args:
        record: the record of the rank.
        segment_s: seconds of each segment of the record.
        numbers: the numbers of groups and messages.
        host_runs_ahead: whether the host runs ahead of its streams; otherwise it runs all work itself, on one stream.
    """

    def __init__(
        self, record: RankRecord, segment_s: Sequence[float], numbers: ChakraNumbers, host_runs_ahead: bool
    ) -> None:
        self.record, self.segment_s = record, segment_s
        self.numbers, self.host_runs_ahead = numbers, host_runs_ahead
        self._last_node: dict[int, int] = {}  # last node of each stream
        self._awaited_nodes: dict[int, list[int]] = {}  # by stream: nodes that it has waited for since its last node
        self._host_awaited_nodes: list[int] = []  # nodes that the host has waited for, on which all later nodes depend
        self._num_host_awaited: dict[int, int] = {}  # by stream: how many of those its last node depends on
        self._nodes_before_mark: dict[int, list[int]] = {}  # by mark: nodes on which the work behind it depends
        self._node_of_call: dict[int, int] = {}
        self._open_call_nodes: list[int] = []  # nodes of the calls since the host last waited for everything
        self._next_id = 0
        self._total_s, self._written_us = 0.0, 0  # time of the computing nodes so far: exact, and in rounded parts

    def build(self) -> Iterator[schema.ChakraMessage]:
        """Yield the rank's nodes in the order of its events."""
        for event in self.record.events:
            if isinstance(event, Computed):
                yield self._compute_node(event)
            elif isinstance(event, Started):
                if len(event.ranks) > 1:  # a single rank communicates with nobody
                    yield self._collective_node(event)
            elif isinstance(event, MessageSent | MessageAwaited):
                yield self._message_node(event)
            elif isinstance(event, Stepped):
                yield self._metadata_node("step", stream=0)
            elif isinstance(event, Loss):
                node = self._metadata_node("loss", stream=0)
                schema.add_attributes(node, loss=event.loss)
                yield node
            else:
                self._add_waits(event)
        for stream, nodes in list(self._awaited_nodes.items()):
            if nodes:  # a wait that no node follows: add one that depends on the awaited nodes
                yield self._metadata_node("end", stream)

    def _add_waits(self, event: Waited | Marked | StreamWaited | HostWaited) -> None:
        """Note the nodes for which a stream or the host waits in an event; later nodes depend on them."""
        if isinstance(event, Waited):
            if event.call in self._node_of_call:
                nodes = self._awaited_nodes.setdefault(self._stream_in_trace(event.stream), [])
                nodes.append(self._node_of_call[event.call])
        elif not self.host_runs_ahead:  # the nodes of the only stream depend on each other anyway
            return
        elif isinstance(event, Marked):
            self._nodes_before_mark[event.mark] = self._dependencies(event.stream)
        elif isinstance(event, StreamWaited):
            self._awaited_nodes.setdefault(event.stream, []).extend(self._nodes_before_mark.get(event.mark, ()))
        elif event.mark != EVERYTHING:
            self._host_awaited_nodes += self._nodes_before_mark.get(event.mark, [])
        else:
            nodes = []
            for stream in sorted({*self._last_node, *self._awaited_nodes}):
                nodes += self._dependencies(stream)
            self._host_awaited_nodes += nodes + self._open_call_nodes
            self._open_call_nodes = []

    def _stream_in_trace(self, stream: int) -> int:
        """Return the stream of a node: the recorded one, or stream 0 if the host runs all work itself."""
        return stream if self.host_runs_ahead else 0

    def _dependencies(self, stream: int) -> list[int]:
        """Return the numbers of the nodes that precede a node queued on a stream now."""
        nodes = [self._last_node[stream]] if stream in self._last_node else []
        nodes += self._awaited_nodes.get(stream, [])
        # The last node of the stream depends already on the nodes that the host had waited for before it.
        nodes += self._host_awaited_nodes[self._num_host_awaited.get(stream, 0) :]
        return list(dict.fromkeys(nodes))

    def _new_node(self, node_type: int, name: str, recorded_stream: int) -> schema.ChakraMessage:
        """Return a new node behind the queued work of a stream."""
        stream = self._stream_in_trace(recorded_stream)
        dependencies = self._dependencies(stream)
        node = schema.chakra_messages().node(id=self._next_id, name=name, type=node_type, data_deps=dependencies)
        self._next_id += 1
        if stream:
            schema.add_attributes(node, stream=stream)
        # A call runs beside its stream. After any other node, later nodes of the stream depend on that node alone.
        if node_type in (schema.COMPUTE, schema.METADATA):
            self._last_node[stream] = node.id
            self._awaited_nodes[stream] = []
            self._num_host_awaited[stream] = len(self._host_awaited_nodes)
        return node

    def _compute_node(self, event: Computed) -> schema.ChakraMessage:
        """Return the node of a computing segment."""
        node = self._new_node(schema.COMPUTE, "compute", event.stream)
        # Durations are differences of rounded sums, so that rounding changes their sum by at most half a microsecond.
        self._total_s += self.segment_s[event.segment]
        total_us = round(1e6 * self._total_s)
        node.duration_micros = total_us - self._written_us
        self._written_us = total_us
        operations = self.record.segments[event.segment]
        flops = min(MAX_INT64, round(sum(operation.flops for operation in operations)))
        nbytes = min(MAX_INT64, round(sum(operation.nbytes for operation in operations)))
        # A roofline divides by both: an operation without arithmetic gets one FLOP, and is still bound by its bytes.
        schema.add_attributes(
            node, is_cpu_op=False, num_ops=max(1, flops), tensor_size=max(1, nbytes), segment=event.segment
        )
        return node

    def _collective_node(self, event: Started) -> schema.ChakraMessage:
        """Return the Chakra node of a recorded collective."""
        node = self._new_node(schema.COLLECTIVE, f"{event.asked} {event.site}".strip(), event.stream)
        # The script asked for ``event.asked``. NCCL and gloo implement a barrier as an all-reduce; ASTRA-sim has none.
        collective = event.kind if event.asked == "barrier" else event.asked
        group_name, _ = event.key
        group_number = self.numbers.groups.get((group_name, event.ranks), 0)  # 0: all ranks
        schema.add_attributes(
            node, is_cpu_op=False, comm_type=schema.COLLECTIVE_TYPES.index(collective.upper()),
            comm_size=event.payload_bytes, pg_name=str(group_number), group=group_name, site=event.site,
        )  # fmt: skip
        if collective != event.asked:
            schema.add_attributes(node, asked=event.asked)
        self._set_node_of_call(event.call, node)
        return node

    def _message_node(self, event: MessageSent | MessageAwaited) -> schema.ChakraMessage:
        """Return the node of a sent or received message."""
        is_send = isinstance(event, MessageSent)
        group_name, sender, receiver, _ = event.tag
        node_type, verb = (schema.SEND, "send") if is_send else (schema.RECV, "recv")
        node = self._new_node(node_type, f"{verb} {event.site}".strip(), event.stream)
        number, nbytes = self.numbers.messages.get(event.tag, (0, 0))  # default: no rank sends this message
        schema.add_attributes(
            node, is_cpu_op=False, comm_src=sender, comm_dst=receiver, comm_tag=number, comm_size=nbytes,
            group=group_name, site=event.site,
        )  # fmt: skip
        if not is_send:  # a sender goes on at once
            self._set_node_of_call(event.call, node)
        return node

    def _metadata_node(self, name: str, stream: int) -> schema.ChakraMessage:
        """Return a node that takes no time, for an event such as the end of a step; ``name`` says which event."""
        node = self._new_node(schema.METADATA, name, stream)
        schema.add_attributes(node, is_cpu_op=True)
        return node

    def _set_node_of_call(self, call: int, node: schema.ChakraMessage) -> None:
        """Store the node of a call, for which later nodes may wait."""
        self._node_of_call[call] = node.id
        self._open_call_nodes.append(node.id)
