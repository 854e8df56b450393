"""Assembly of programs that only compute, send and receive: column by column, not instruction by instruction."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain, compress, repeat
from operator import attrgetter, is_not
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.topology import Ints
from syncline.sim.events.assembly import Assembly
from syncline.sim.events.numbering import Numbers
from syncline.sim.events.state import COMPUTE, END, RECV, SEND
from syncline.sim.program.instructions import Compute, Program, Recv, Send
from syncline.sim.program.queued import Queued

CODES = {Compute: COMPUTE, Send: SEND, Recv: RECV}
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
        codes = CODES | {type(None): END}
        self.codes = np.array(list(map(codes.__getitem__, map(type, self.instructions))), dtype=np.int64)
        self.at = {code: np.flatnonzero(self.codes == code) for code in CODES.values()}
        self._of = {code: list(compress(self.instructions, (self.codes == code).tolist())) for code in CODES.values()}

    def column(self, code: int, name: str) -> Iterable[Any]:
        """Return an attribute of all instructions of a kind."""
        return map(attrgetter(name), self._of[code])

    def numbers(self, code: int, name: str, kind: type = np.int64) -> NDArray[Any]:
        """Return a numeric attribute of all instructions of a kind, ``(N,)``."""
        return np.array(list(self.column(code, name)), dtype=kind)

    def effects(self, code: int) -> NDArray[np.bool_]:
        """Return whether each instruction of a kind has an effect, ``(N,)``."""
        return np.array(list(map(is_not, self.column(code, "effect"), repeat(None))), dtype=np.bool_)

    def ends(self, code: int, tags: Numbers) -> MessageEnds:
        """Return the senders, receivers and tags of sends or receives."""
        mine, numbers = self.workers[self.at[code]], tags.numbers_of(self.column(code, "tag"))
        if code == SEND:
            return MessageEnds(mine, self.numbers(SEND, "to"), numbers)
        return MessageEnds(self.numbers(RECV, "source"), mine, numbers)


def is_plain(program: Program) -> bool:
    """Return whether a program only computes, sends and receives."""
    return not isinstance(program, Queued) and set(map(type, program)) <= CODES.keys()


def spelled(tags: Sequence[Hashable], numbers: Ints, name: Callable[[str], int]) -> Ints:
    """Return the numbers of the tags as words.

    Equal tags are spelled alike if they consist of strings and integers alone; 1 and True are equal but are spelled
    differently.
    """
    kinds = set(map(type, tags))
    if kinds == {tuple}:
        kinds = set(map(type, chain.from_iterable(tags)))  # type: ignore[arg-type]
    if not kinds <= {int, str}:
        return np.array([name(str(tag)) for tag in tags], dtype=np.int64)
    used, first, word_of_row = np.unique(numbers, return_index=True, return_inverse=True)
    words = [name(str(tags[index])) for index in first.tolist()]
    return np.array(words, dtype=np.int64)[word_of_row.ravel()] if len(used) else numbers


def assemble_by_columns(into: Assembly, workers: list[int], programs: Sequence[Program]) -> list[int]:
    """Assemble the programs of these workers that only compute, send and receive; return the workers that are left.

    Few instructions are left, too, because column by column they take longer.
    """
    plain = [worker for worker in workers if is_plain(programs[worker])]
    if sum(len(programs[worker]) for worker in plain) < FEWEST:
        return workers
    into.flush()
    return sorted(set(workers) - set(plain)) if assemble_plain(into, plain, programs) else workers


def assemble_plain(into: Assembly, workers: list[int], programs: Sequence[Program]) -> bool:
    """Assemble the programs of these workers; return False, and do nothing, if a message has invalid ends.

    Args:
        into: the assembly, whose records so far are in the tables.
        workers: workers whose programs only compute, send and receive.
        programs: programs of all workers.
    """
    plain, num_workers, tags = (
        PlainInstructions(workers, [programs[worker] for worker in workers]),
        into.workers,
        into.messages.tags,
    )
    sent, got = plain.ends(SEND, tags), plain.ends(RECV, tags)
    if (
        _out_of_range(sent.receivers, num_workers)
        or _out_of_range(got.senders, num_workers)
        or (sent.receivers == sent.senders).any()
    ):
        return False
    state, rows_of = into.state, plain.at
    first, operations = state.take("operations", len(plain.codes))
    state["workers"]["at"][workers] = first + plain.begins
    operations["code"] = plain.codes
    for code in (RECV, COMPUTE):
        operations["effect"][rows_of[code]] = plain.effects(code)
    message0, sends = state.used["messages"], len(sent.senders)
    receivers, message_index = into.messages.add(
        message0, *(np.concatenate(pair) for pair in zip(sent, got, strict=True))
    )
    state.take("messages", len(receivers))[1]["receiver"] = receivers
    operations["a"][rows_of[SEND]], operations["a"][rows_of[RECV]] = message_index[:sends], message_index[sends:]
    operations["b"][rows_of[SEND]] = sent.senders + _streams(into, plain, sent)
    operations["c"][rows_of[SEND]] = _routes(into, sent)
    operations["x"][rows_of[SEND]] = plain.numbers(SEND, "nbytes", np.float64)
    operations["x"][rows_of[COMPUTE]] = plain.numbers(COMPUTE, "seconds", np.float64)
    into.instructions += plain.instructions
    into.told_before += [np.array(into.told, dtype=np.int64).reshape(-1, 4), _span_names(into, plain, sent, got)]
    into.told.clear()
    into.spans += len(plain.codes) - len(workers)
    return True


def _out_of_range(workers: Ints, num_workers: int) -> bool:
    return bool(len(workers) and (workers.min() < 0 or workers.max() >= num_workers))


def _streams(into: Assembly, plain: PlainInstructions, sent: MessageEnds) -> Ints:
    """Return the port of worker 0 for each send, and note the streams on which each worker sends."""
    names = Numbers()
    stream = names.numbers_of(plain.column(SEND, "stream"))
    for number, name in enumerate(names):
        for worker in np.unique(sent.senders[stream == number]).tolist():
            into.named(worker).sends.add(str(name))
    return np.array([into.port(str(name)) for name in names], dtype=np.int64)[stream]


def _routes(into: Assembly, sent: MessageEnds) -> Ints:
    """Return the route of each send."""
    pairs, pair_index = np.unique(sent.senders * into.workers + sent.receivers, return_inverse=True)
    senders, receivers = np.divmod(pairs, into.workers)
    first = into.routes.add(senders, receivers)
    ends = zip(senders.tolist(), receivers.tolist(), strict=True)
    into.route.update(zip(ends, range(first, first + len(pairs)), strict=True))
    return first + pair_index.ravel()


def _words(column: Iterable[str], names: Callable[[str], int]) -> Ints:
    """Return the numbers of words, of which many are the same."""
    numbering = Numbers()
    number_of_row = numbering.numbers_of(column)
    return np.array([names(str(word)) for word in numbering], dtype=np.int64)[number_of_row]


def _span_names(into: Assembly, plain: PlainInstructions, sent: MessageEnds, got: MessageEnds) -> Ints:
    """Return the names of the spans."""
    span_names, names, rows_of = np.zeros((len(plain.codes), 4), dtype=np.int64), into.names, plain.at
    span_names[:, 0] = names("compute")
    span_names[rows_of[SEND], 0] = _words(plain.column(SEND, "stream"), names)
    for code, ends, span_name in ((SEND, sent, "send"), (RECV, got, "recv")):
        span_names[rows_of[code], 1] = names(span_name)
        span_names[rows_of[code], 2] = spelled(list(plain.column(code, "tag")), ends.tags, names)
        labels = list(plain.column(code, "label"))
        if any(labels):
            labelled = np.flatnonzero(list(map(bool, labels)))
            span_names[rows_of[code][labelled], 2] = _words(compress(labels, labels), names)
    for i, name in enumerate(("what", "label"), 1):
        span_names[rows_of[COMPUTE], i] = _words(plain.column(COMPUTE, name), names)
    for code in rows_of:
        span_names[rows_of[code], 3] = plain.numbers(code, "step")
    return span_names
