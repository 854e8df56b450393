"""Programs that only compute, send and receive, assembled together: column by column, not one by one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain, compress, repeat
from operator import attrgetter, is_not
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.sim.events.state import COMPUTE, END, RECV, SEND
from syncline.sim.programs import Compute, Program, Recv, Send

Ints = NDArray[np.int64]

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
    return set(map(type, program)) <= CODES.keys()


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
