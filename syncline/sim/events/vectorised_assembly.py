"""Assembly of programs that only compute, send and receive: column by column, not instruction by instruction."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import chain, compress, repeat
from operator import attrgetter, is_not
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
    """The senders, receivers and tags of sends or receives."""

    senders: Ints
    receivers: Ints
    tags: Ints


class PlainInstructions:
    """The instructions of programs that only compute, send and receive, in columns.

    Args:
        workers: ``(N,)`` workers of these programs.
        programs: program of each.
    """

    def __init__(self, workers: Sequence[int], programs: Sequence[Program]) -> None:
        lengths = np.array([len(program) for program in programs], dtype=np.int64)
        self.instructions: list[Any] = list(chain.from_iterable((*program, None) for program in programs))
        ends = np.cumsum(lengths + 1)
        self.begins = ends - lengths - 1
        self.workers = np.repeat(np.array(workers, dtype=np.int64), lengths + 1)
        code_of = CODES | {type(None): codes.END}
        self.codes = np.array(list(map(code_of.__getitem__, map(type, self.instructions))), dtype=np.int64)
        self.rows = {code: np.flatnonzero(self.codes == code) for code in CODES.values()}
        self._of = {code: list(compress(self.instructions, (self.codes == code).tolist())) for code in CODES.values()}

    def column(self, code: int, name: str) -> Iterable[Any]:
        """Return an attribute of all instructions of a kind, in their order; ``code`` is the kind."""
        return map(attrgetter(name), self._of[code])

    def numbers(self, code: int, name: str, kind: type = np.int64) -> NDArray[Any]:
        """Return a numeric attribute of all instructions of a kind, ``(N,)``."""
        return np.array(list(self.column(code, name)), dtype=kind)

    def effects(self, code: int) -> NDArray[np.bool_]:
        """Return whether each instruction of a kind has an effect, ``(N,)``."""
        return np.array(list(map(is_not, self.column(code, "effect"), repeat(None))), dtype=np.bool_)

    def ends(self, code: int, tags: Numbers) -> MessageEnds:
        """Return the senders, receivers and tags of sends or receives."""
        mine, numbers = self.workers[self.rows[code]], tags.numbers_of(self.column(code, "tag"))
        if code == codes.SEND:
            return MessageEnds(mine, self.numbers(codes.SEND, "to"), numbers)
        return MessageEnds(self.numbers(codes.RECV, "source"), mine, numbers)


def is_plain(program: Program) -> bool:
    """Return whether a program only computes, sends and receives, on one stream."""
    return not isinstance(program, Queued) and set(map(type, program)) <= CODES.keys()


def assemble_by_columns(assembly: Assembly, workers: list[int], programs: Sequence[Program]) -> list[int]:
    """Assemble the programs of these workers that only compute, send and receive; return the workers that are left.

    Few instructions are left, too, because column by column they take longer; and all workers are left if a message
    has invalid ends. ``programs`` are those of all workers.
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
    state = assembly.state
    first, operations = state.take("operations", len(plain.codes))
    state["streams"]["operation"][plain_workers] = first + plain.begins
    message0, sends = state.used["messages"], len(sent.senders)
    ends = (np.concatenate(pair) for pair in zip(sent, received, strict=True))
    receivers, message_index = assembly.messages.add(message0, *ends)
    state.take("messages", len(receivers))[1]["receiver"] = receivers
    send_rows, recv_rows, compute_rows = (plain.rows[code] for code in (codes.SEND, codes.RECV, codes.COMPUTE))
    operations["code"] = plain.codes
    operations["effect"][recv_rows] = plain.effects(codes.RECV)
    operations["effect"][compute_rows] = plain.effects(codes.COMPUTE)
    operations["number"][send_rows], operations["number"][recv_rows] = message_index[:sends], message_index[sends:]
    operations["port"][send_rows] = sent.senders + _ports(assembly, plain, sent)
    operations["route"][send_rows] = _routes(assembly, sent)
    operations["amount"][send_rows] = plain.numbers(codes.SEND, "nbytes", np.float64)
    operations["amount"][compute_rows] = plain.numbers(codes.COMPUTE, "seconds", np.float64)
    assembly.instructions += plain.instructions
    names_so_far = np.array(assembly.span_names, dtype=np.int64).reshape(-1, 4)
    assembly.span_name_blocks += [names_so_far, _span_names(assembly.names, plain, sent, received)]
    assembly.span_names.clear()
    assembly.spans += len(plain.codes) - len(plain_workers)
    return sorted(set(workers) - set(plain_workers))


def _ports(assembly: Assembly, plain: PlainInstructions, sent: MessageEnds) -> Ints:
    """Return the port of worker 0 on the stream of each send, and note the streams on which each worker sends."""
    streams = Numbers()
    stream = streams.numbers_of(plain.column(codes.SEND, "stream"))
    for name, number in streams.items():
        for worker in np.unique(sent.senders[stream == number]).tolist():
            assembly.note_send_stream(worker, str(name))
    return np.array([assembly.port(str(name)) for name in streams], dtype=np.int64)[stream]


def _routes(assembly: Assembly, sent: MessageEnds) -> Ints:
    """Add the routes of the sends to the tables; return the route of each send, ``(N,)``."""
    pairs, pair_index = np.unique(sent.senders * assembly.workers + sent.receivers, return_inverse=True)
    senders, receivers = np.divmod(pairs, assembly.workers)
    first = assembly.routes.add(senders, receivers)
    ends = zip(senders.tolist(), receivers.tolist(), strict=True)
    assembly.route.update(zip(ends, range(first, first + len(pairs)), strict=True))
    return first + pair_index.ravel()


def _span_names(names: Numbers, plain: PlainInstructions, sent: MessageEnds, received: MessageEnds) -> Ints:
    """Return the names of the spans as numbers ``(N, 4)``: stream, what, label and step."""
    span_names, rows = np.zeros((len(plain.codes), 4), dtype=np.int64), plain.rows
    span_names[:, 0] = names["compute"]
    span_names[rows[codes.SEND], 0] = names.numbers_of(plain.column(codes.SEND, "stream"))
    for code, ends, span_name in ((codes.SEND, sent, "send"), (codes.RECV, received, "recv")):
        span_names[rows[code], 1] = names[span_name]
        span_names[rows[code], 2] = _tag_words(list(plain.column(code, "tag")), ends.tags, names)
        labels = list(plain.column(code, "label"))
        labelled = np.flatnonzero(list(map(bool, labels)))
        span_names[rows[code][labelled], 2] = names.numbers_of(compress(labels, labels))
    for i, name in enumerate(("what", "label"), 1):
        span_names[rows[codes.COMPUTE], i] = names.numbers_of(plain.column(codes.COMPUTE, name))
    for code in rows:
        span_names[rows[code], 3] = plain.numbers(code, "step")
    return span_names


def _tag_words(tags: Sequence[Hashable], numbers: Ints, names: Numbers) -> Ints:
    """Return the numbers of the tags as words.

    Equal tags are spelled alike if they consist of strings and integers alone; 1 and True are equal but are spelled
    differently.
    """
    kinds = set(map(type, tags))
    if kinds == {tuple}:
        kinds = set(map(type, chain.from_iterable(tags)))  # type: ignore[arg-type]
    if not kinds <= {int, str}:
        return names.numbers_of(map(str, tags))
    _, first, word_of_row = np.unique(numbers, return_index=True, return_inverse=True)
    words = names.numbers_of(str(tags[index]) for index in first.tolist())
    return words[word_of_row.ravel()]
