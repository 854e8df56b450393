"""Assembly of programs that only compute, send and receive: column by column, not instruction by instruction."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.paths import Ints
from syncline.sim.events import codes
from syncline.sim.events.assembly import Assembly
from syncline.sim.events.names import Numbers
from syncline.sim.program.instructions import Compute, Program, Queued, Recv, Send

CODES = {Compute: codes.COMPUTE, Send: codes.SEND, Recv: codes.RECV}
FEWEST = 64
"""Number of instructions below which assembly one by one takes less time."""


class MessageEnds(NamedTuple):
    """The senders, the receivers and the numbers of the tags of some sends or receives, ``(N,)`` each."""

    senders: Ints
    receivers: Ints
    tags: Ints


class PlainInstructions:
    """The instructions of programs that only compute, send and receive, in columns."""

    def __init__(self, workers: Sequence[int], programs: Sequence[Program]) -> None:
        lengths = np.array([len(program) + 1 for program in programs], dtype=np.int64)  # with the end of the program
        self.instructions: list[Any] = []  # None at the end of each program
        for program in programs:
            self.instructions += program
            self.instructions.append(None)
        self.begins = np.cumsum(lengths) - lengths
        self.workers = np.repeat(np.array(workers, dtype=np.int64), lengths)
        code_of = CODES | {type(None): codes.END}
        self.codes = np.array([code_of[type(instruction)] for instruction in self.instructions], dtype=np.int64)
        self.rows = {code: np.flatnonzero(self.codes == code) for code in CODES.values()}
        self._instructions_of = {
            code: [self.instructions[row] for row in rows.tolist()] for code, rows in self.rows.items()
        }

    def column(self, code: int, name: str) -> Iterable[Any]:
        """Return an attribute of all instructions of the kind ``code``, in their order."""
        return map(attrgetter(name), self._instructions_of[code])

    def numbers(self, code: int, name: str, kind: type = np.int64) -> NDArray[Any]:
        """Return a numeric attribute of all N instructions of a kind, ``(N,)``."""
        return np.array(list(self.column(code, name)), dtype=kind)

    def effects(self, code: int) -> NDArray[np.bool_]:
        """Return whether each instruction of a kind has an effect, ``(N,)``."""
        return np.array([effect is not None for effect in self.column(code, "effect")], dtype=np.bool_)

    def ends(self, code: int, tags: Numbers) -> MessageEnds:
        """Return the senders, receivers and tags of all sends (``code`` is ``SEND``) or of all receives (``RECV``)."""
        workers = self.workers[self.rows[code]]  # that send, or that receive
        tag_numbers = tags.numbers_of(self.column(code, "tag"))
        if code == codes.SEND:
            return MessageEnds(senders=workers, receivers=self.numbers(codes.SEND, "to"), tags=tag_numbers)
        return MessageEnds(senders=self.numbers(codes.RECV, "source"), receivers=workers, tags=tag_numbers)


def is_plain(program: Program) -> bool:
    """Return whether a program only computes, sends and receives, on one stream."""
    return not isinstance(program, Queued) and set(map(type, program)) <= CODES.keys()


def assemble_by_columns(assembly: Assembly, workers: list[int], programs: Sequence[Program]) -> list[int]:
    """Assemble the programs that only compute, send and receive; return the workers whose programs are left.

    All workers are left if the programs have fewer than ``FEWEST`` such instructions, which take less time one by one,
    or if a message has an invalid sender or receiver.

    Args:
        assembly: assembly of all programs, to which operations are added.
        workers: workers whose programs may be assembled.
    """
    plain_workers = [worker for worker in workers if is_plain(programs[worker])]
    if sum(len(programs[worker]) for worker in plain_workers) < FEWEST:
        return workers
    assembly.flush()
    plain = PlainInstructions(plain_workers, [programs[worker] for worker in plain_workers])
    tags, num_workers = assembly.messages.tags, assembly.workers
    sent, received = plain.ends(codes.SEND, tags), plain.ends(codes.RECV, tags)
    peers = np.concatenate([sent.receivers, received.senders])
    if ((peers < 0) | (peers >= num_workers)).any() or (sent.receivers == sent.senders).any():
        return workers
    # The messages: a send and its receive have the same sender, receiver and tag.
    state = assembly.state
    receivers, message_numbers = assembly.messages.add(
        state.used["messages"],
        senders=np.concatenate([sent.senders, received.senders]),
        receivers=np.concatenate([sent.receivers, received.receivers]),
        tags=np.concatenate([sent.tags, received.tags]),
    )
    _, messages = state.take("messages", len(receivers))
    messages["receiver"] = receivers
    # The operations.
    first_operation, operations = state.take("operations", len(plain.codes))
    state["streams"]["operation"][plain_workers] = first_operation + plain.begins
    send_rows, recv_rows, compute_rows = plain.rows[codes.SEND], plain.rows[codes.RECV], plain.rows[codes.COMPUTE]
    operations["code"] = plain.codes
    operations["effect"][recv_rows] = plain.effects(codes.RECV)
    operations["effect"][compute_rows] = plain.effects(codes.COMPUTE)
    operations["number"][send_rows] = message_numbers[: len(send_rows)]
    operations["number"][recv_rows] = message_numbers[len(send_rows) :]
    operations["port"][send_rows] = sent.senders + _first_ports(assembly, plain, sent)
    operations["route"][send_rows] = _add_routes(assembly, sent)
    operations["amount"][send_rows] = plain.numbers(codes.SEND, "nbytes", np.float64)
    operations["amount"][compute_rows] = plain.numbers(codes.COMPUTE, "seconds", np.float64)
    # The names of spans.
    assembly.instructions += plain.instructions
    names_so_far = np.array(assembly.span_names, dtype=np.int64).reshape(-1, 4)
    assembly.span_name_blocks += [names_so_far, _span_names(assembly.names, plain, sent, received)]
    assembly.span_names.clear()
    assembly.max_spans += len(plain.codes) - len(plain_workers)  # the end of a program has no span
    return sorted(set(workers) - set(plain_workers))


def _first_ports(assembly: Assembly, plain: PlainInstructions, sent: MessageEnds) -> Ints:
    """Return the port of worker 0 on the stream of each send, and note the streams on which each worker sends."""
    streams = Numbers()
    stream_of_send = streams.numbers_of(plain.column(codes.SEND, "stream"))
    for name, number in streams.items():
        for worker in np.unique(sent.senders[stream_of_send == number]).tolist():
            assembly.worker_names[worker].send_streams.add(str(name))
    port_of_stream = np.array([assembly.first_port(str(name)) for name in streams], dtype=np.int64)
    return port_of_stream[stream_of_send]


def _add_routes(assembly: Assembly, sent: MessageEnds) -> Ints:
    """Add the routes of the sends to the tables; return the index of each send's route, ``(N,)``."""
    encoded_pairs = sent.senders * assembly.workers + sent.receivers  # a sender and a receiver as one number
    pairs, pair_index = np.unique(encoded_pairs, return_inverse=True)
    senders, receivers = np.divmod(pairs, assembly.workers)
    first_route = assembly.routes.add(senders, receivers)
    for route_index, pair in enumerate(zip(senders.tolist(), receivers.tolist(), strict=True), first_route):
        assembly.route_indices[pair] = route_index
    return first_route + pair_index.ravel()


def _span_names(names: Numbers, plain: PlainInstructions, sent: MessageEnds, received: MessageEnds) -> Ints:
    """Return the names of N spans as numbers ``(N, 4)``: stream, what, label and step."""
    span_names, rows = np.zeros((len(plain.codes), 4), dtype=np.int64), plain.rows
    stream, kind, label, step = span_names.T  # views of the columns
    stream[:] = names["compute"]
    stream[rows[codes.SEND]] = names.numbers_of(plain.column(codes.SEND, "stream"))
    for code, ends, span_name in ((codes.SEND, sent, "send"), (codes.RECV, received, "recv")):
        kind[rows[code]] = names[span_name]
        label[rows[code]] = _tag_names(list(plain.column(code, "tag")), ends.tags, names)
        for row, text in zip(rows[code].tolist(), plain.column(code, "label"), strict=True):
            if text:  # the message's own label, in place of its tag
                label[row] = names[text]
    kind[rows[codes.COMPUTE]] = names.numbers_of(plain.column(codes.COMPUTE, "what"))
    label[rows[codes.COMPUTE]] = names.numbers_of(plain.column(codes.COMPUTE, "label"))
    for code in rows:
        step[rows[code]] = plain.numbers(code, "step")
    return span_names


def _tag_names(tags: Sequence[Hashable], tag_numbers: Ints, names: Numbers) -> Ints:
    """Return the number among ``names`` of each tag's text, ``(N,)``; ``tag_numbers`` are equal for equal tags.

    Each different tag is spelled once if all tags consist of strings and integers: then equal tags have equal texts.
    (1 and True are equal, but have different texts.)
    """
    types = {type(tag) for tag in tags}
    if types == {tuple}:
        types = {type(item) for tag in tags for item in tag}  # type: ignore[attr-defined]
    if not types <= {int, str}:
        return names.numbers_of(map(str, tags))
    _, first_index, index_of_tag = np.unique(tag_numbers, return_index=True, return_inverse=True)
    numbers_of_texts = names.numbers_of(str(tags[index]) for index in first_index.tolist())
    return numbers_of_texts[index_of_tag.ravel()]
