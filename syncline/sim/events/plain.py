"""Programs that only compute, send and receive, assembled together: column by column, not one by one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain, compress, repeat
from operator import attrgetter, is_not
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.topology import Ints
from syncline.sim.events.state import COMPUTE, END, RECV, SEND
from syncline.sim.programs import Compute, Program, Recv, Send
from syncline.sim.queued import Queued

if TYPE_CHECKING:
    from syncline.sim.events.assembly import Assembly

Address: TypeAlias = tuple[int, int, Hashable]
"""A message's sender, receiver and tag."""

CODES = {Compute: COMPUTE, Send: SEND, Recv: RECV}
FEWEST = 64
"""So few instructions are assembled one by one in less time."""


class Numbers(dict[Hashable, int]):
    """Numbers of what is asked for, from 0."""

    def __missing__(self, name: Hashable) -> int:
        number = self[name] = len(self)
        return number

    def of(self, column: Iterable[Hashable]) -> Ints:
        """The numbers of a column."""
        return np.array(list(map(self.__getitem__, column)), dtype=np.int64)


class Messages:
    """Which message is from whom to whom with which tag.

    Args:
        workers: P.
    """

    def __init__(self, workers: int) -> None:
        self.tags = Numbers()
        self._workers = workers
        self._known: dict[Address, int] = {}
        self._new: list[tuple[int, Ints]] = []  # the first, and of each and the next ones its address as a number

    def add(self, first: int, senders: Ints, receivers: Ints, tags: Ints) -> tuple[Ints, Ints]:
        """Number the messages to be, from a first one: their receivers, and which message each of the column is."""
        most = self._workers
        addresses, which = np.unique((tags * most + senders) * most + receivers, return_inverse=True)
        self._new.append((first, addresses))
        return addresses % most, first + which.ravel()

    def by_address(self) -> dict[Address, int]:
        """The messages by sender, receiver and tag."""
        if self._new:
            tags = list(self.tags)
            for first, addresses in self._new:
                rest, receivers = np.divmod(addresses, self._workers)
                numbers, senders = np.divmod(rest, self._workers)
                columns = senders.tolist(), receivers.tolist(), numbers.tolist()
                for m, (sender, receiver, tag) in enumerate(zip(*columns, strict=True), first):
                    self._known[sender, receiver, tags[tag]] = m
            self._new = []
        return self._known


class Ends(NamedTuple):
    """The messages of sends or receives."""

    senders: Ints
    receivers: Ints
    tags: Ints


class Plain:
    """The instructions of such programs, in columns.

    Args:
        workers: ``(N,)`` whose programs these are.
        programs: of each.
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
        """What the instructions of a kind have."""
        return map(attrgetter(name), self._of[code])

    def numbers(self, code: int, name: str, kind: type = np.int64) -> NDArray[Any]:
        """The same of numbers, ``(N,)``."""
        return np.array(list(self.column(code, name)), dtype=kind)

    def effects(self, code: int) -> NDArray[np.bool_]:
        """Which have an effect."""
        return np.array(list(map(is_not, self.column(code, "effect"), repeat(None))), dtype=np.bool_)

    def ends(self, code: int, tags: Numbers) -> Ends:
        """The messages of sends or receives."""
        mine, numbers = self.workers[self.at[code]], tags.of(self.column(code, "tag"))
        if code == SEND:
            return Ends(mine, self.numbers(SEND, "to"), numbers)
        return Ends(self.numbers(RECV, "source"), mine, numbers)


def is_plain(program: Program) -> bool:
    """Whether a program only computes, sends and receives."""
    return not isinstance(program, Queued) and set(map(type, program)) <= CODES.keys()


def spelled(tags: Sequence[Hashable], numbers: Ints, name: Callable[[str], int]) -> Ints:
    """The numbers of the tags as words.

    What is equal is spelled alike if it is of strings and integers alone: 1 and True are not.
    """
    kinds = set(map(type, tags))
    if kinds == {tuple}:
        kinds = set(map(type, chain.from_iterable(tags)))  # type: ignore[arg-type]
    if not kinds <= {int, str}:
        return np.array([name(str(tag)) for tag in tags], dtype=np.int64)
    used, first, which = np.unique(numbers, return_index=True, return_inverse=True)
    words = [name(str(tags[at])) for at in first.tolist()]
    return np.array(words, dtype=np.int64)[which.ravel()] if len(used) else numbers


def assemble_plain(into: Assembly, workers: list[int], programs: Sequence[Program]) -> bool:
    """Assemble the programs of these workers; False, and nothing is done, if a message is between what are no two.

    Args:
        into: what there is already is in the tables.
        workers: whose programs only compute, send and receive.
        programs: of all workers.
    """
    of, most, tags = Plain(workers, [programs[worker] for worker in workers]), into.workers, into.messages.tags
    sent, got = of.ends(SEND, tags), of.ends(RECV, tags)
    if (
        _out_of_range(sent.receivers, most)
        or _out_of_range(got.senders, most)
        or (sent.receivers == sent.senders).any()
    ):
        return False
    state, at = into.state, of.at
    first, operations = state.take("operations", len(of.codes))
    state["workers"]["at"][workers] = first + of.begins
    operations["code"] = of.codes
    for code in (RECV, COMPUTE):
        operations["effect"][at[code]] = of.effects(code)
    message0, sends = state.used["messages"], len(sent.senders)
    receivers, which = into.messages.add(message0, *(np.concatenate(pair) for pair in zip(sent, got, strict=True)))
    state.take("messages", len(receivers))[1]["receiver"] = receivers
    operations["a"][at[SEND]], operations["a"][at[RECV]] = which[:sends], which[sends:]
    operations["b"][at[SEND]] = sent.senders + _streams(into, of, sent)
    operations["c"][at[SEND]] = _routes(into, sent)
    operations["x"][at[SEND]] = of.numbers(SEND, "nbytes", np.float64)
    operations["x"][at[COMPUTE]] = of.numbers(COMPUTE, "seconds", np.float64)
    into.instructions += of.instructions
    into.told_before += [np.array(into.told, dtype=np.int64).reshape(-1, 4), _told(into, of, sent, got)]
    into.told.clear()
    into.spans += len(of.codes) - len(workers)
    return True


def _out_of_range(workers: Ints, most: int) -> bool:
    return bool(len(workers) and (workers.min() < 0 or workers.max() >= most))


def _streams(into: Assembly, of: Plain, sent: Ends) -> Ints:
    """The port of worker 0 for each send, after a note of who sends on which stream."""
    names = Numbers()
    stream = names.of(of.column(SEND, "stream"))
    for number, name in enumerate(names):
        for worker in np.unique(sent.senders[stream == number]).tolist():
            into.named(worker).sends.add(str(name))
    return np.array([into.port(str(name)) for name in names], dtype=np.int64)[stream]


def _routes(into: Assembly, sent: Ends) -> Ints:
    """The route of each send."""
    pairs, which = np.unique(sent.senders * into.workers + sent.receivers, return_inverse=True)
    senders, receivers = np.divmod(pairs, into.workers)
    first = into.routes.add(senders, receivers)
    ends = zip(senders.tolist(), receivers.tolist(), strict=True)
    into.route.update(zip(ends, range(first, first + len(pairs)), strict=True))
    return first + which.ravel()


def _words(column: Iterable[str], names: Callable[[str], int]) -> Ints:
    """The numbers of words, of which many are the same."""
    few = Numbers()
    which = few.of(column)
    return np.array([names(str(word)) for word in few], dtype=np.int64)[which]


def _told(into: Assembly, of: Plain, sent: Ends, got: Ends) -> Ints:
    """What the spans are called."""
    told, names, at = np.zeros((len(of.codes), 4), dtype=np.int64), into.names, of.at
    told[:, 0] = names("compute")
    told[at[SEND], 0] = _words(of.column(SEND, "stream"), names)
    for code, ends, what in ((SEND, sent, "send"), (RECV, got, "recv")):
        told[at[code], 1] = names(what)
        told[at[code], 2] = spelled(list(of.column(code, "tag")), ends.tags, names)
        labels = list(of.column(code, "label"))
        if any(labels):
            labelled = np.flatnonzero(list(map(bool, labels)))
            told[at[code][labelled], 2] = _words(compress(labels, labels), names)
    for i, name in enumerate(("what", "label"), 1):
        told[at[COMPUTE], i] = _words(of.column(COMPUTE, name), names)
    for code in at:
        told[at[code], 3] = of.numbers(code, "step")
    return told
