"""What a worker does: a program of instructions, as if each GPU had a compute stream and a network stream.

The compute stream runs the program in order. `Compute`, `Recv`, `First` and `Wait` hold it until they are done; `Send`
and `Collective` only start something, and it goes on. Collectives run on a network stream, those of one stream one
after another, and messages leave on a send stream likewise; what is on different streams happens at the same time.
Programs on several compute streams are those of `syncline.sim.queued`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from syncline.costmodel.collectives.algorithms import Round
from syncline.errors import SpecError, SynclineError
from syncline.sim.starts import Floats
from syncline.sim.timeline import is_computing

Effect: TypeAlias = Callable[[], object]
"""The math that happens when an instruction completes: the order of events decides what it sees."""


Delay: TypeAlias = Callable[[int, int], float]
"""Seconds by which a message from one worker to another is late, called once per message when it starts."""


@dataclass(frozen=True, slots=True)
class Compute:
    """Compute for so many seconds; ``what`` is computed tells a timeline's spans apart, the label is for people."""

    seconds: float
    label: str = "compute"
    step: int = -1
    effect: Effect | None = None
    what: str = "compute"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.seconds) and self.seconds >= 0):
            raise SpecError("compute.seconds", self.seconds, "seconds, finite and at least 0")


@dataclass(frozen=True, slots=True)
class Send:
    """Queue a message: it leaves when those before it on the same stream have, and the program goes on.

    The label is for people, the tag unless given.
    """

    to: int
    nbytes: float
    tag: Hashable = ""
    step: int = -1
    stream: str = "send"
    label: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.nbytes) and self.nbytes >= 0):
            raise SpecError("send.nbytes", self.nbytes, "a finite number of bytes, at least 0")
        if is_computing(self.stream):
            raise SpecError("send.stream", self.stream, "another stream than that of the computing")


@dataclass(frozen=True, slots=True)
class Recv:
    """Wait for the message that ``source`` sends with this tag; the label is for people, the tag unless given."""

    source: int
    tag: Hashable = ""
    step: int = -1
    effect: Effect | None = None
    label: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class First:
    """Go on with what can run first: the first of these options that can, or the one whose message comes first.

    With more than one option it is decided when everything else of that instant has happened, so of messages that
    arrive together the first in this order wins.

    Args:
        options: the message that each waits for; None if it waits for none.
        then: told which was taken, the instructions that follow.
    """

    options: Sequence[Recv | None]
    then: Callable[[int], Sequence[Instruction]] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Collective:
    """Join a collective: every worker of its group does, and names the same of all this but label and step.

    Collectives of one stream run one after another, those of different streams at the same time.

    Args:
        kind: one of `syncline.costmodel.collectives.table.COLLECTIVES`; only a name if there are rounds.
        nbytes: with the meaning the closed form gives it.
        key: of this collective alone.
        label: for people.
        step: training step, from 0; -1 if none.
        algorithm: that carries it; the kind's first if none.
        group: the workers that take part, in the order that the algorithm numbers them; all in theirs if none.
        stream: on which it runs.
        rounds: to run, instead of those of the algorithm, of workers 0, 1, ... that stand for those of the group.
        takes_s: seconds that it takes, instead of being played message by message: it begins when the last of its group
            has come to it and is over for all at once. It shares no channel, and its spans tell its size.
    """

    kind: str
    nbytes: float
    key: Hashable
    label: str = ""
    step: int = -1
    algorithm: str | None = None
    group: tuple[int, ...] | None = None
    stream: str = "network"
    rounds: Sequence[Round] | None = field(default=None, compare=False, repr=False)
    takes_s: float | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.takes_s is not None and not (math.isfinite(self.takes_s) and self.takes_s >= 0):
            raise SpecError("collective.takes_s", self.takes_s, "seconds, finite and at least 0, or none")
        if is_computing(self.stream):
            raise SpecError("collective.stream", self.stream, "another stream than that of the computing")


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until the collective with this key is done for this worker; in the collective's step if none is named."""

    key: Hashable
    effect: Effect | None = None
    step: int | None = None


Instruction: TypeAlias = Compute | Send | Recv | First | Collective | Wait
Program: TypeAlias = Sequence[Instruction]


class Alike(Sequence[Program]):
    """The programs of workers who all run one and the same.

    Args:
        program: it.
        workers: how many.
    """

    def __init__(self, program: Program, workers: int) -> None:
        self.program, self._workers = program, workers

    def __len__(self) -> int:
        return self._workers

    def __getitem__(self, at: Any) -> Any:
        return ([self.program] * self._workers)[at]


class Stuck(SynclineError):
    """Programs that never finish.

    Args:
        line: what is wrong with one of them.
        at: the instruction that each worker is at who is not through.
    """

    def __init__(self, line: str, at: dict[int, Instruction]) -> None:
        super().__init__(line, at)
        self.line, self.at = line, at

    def __str__(self) -> str:
        return self.line


def compute_times(compute_s: ArrayLike) -> Floats:
    """Seconds that each worker computes in each step, ``(T, P)``, checked.

    Raises:
        SpecError: another number of axes, or a time that is negative or not finite.
    """
    times = np.asarray(compute_s, dtype=np.float64)
    if times.ndim != 2:
        raise SpecError("compute_s", f"an array of shape {times.shape}", "seconds of shape (steps, workers)")
    check_seconds("compute_s", times)
    return times


def check_seconds(path: str, seconds: Floats) -> None:
    """Refuse times of which one is negative or not finite.

    Raises:
        SpecError: with the first of these.
    """
    seconds = first_if_same(seconds)
    usable = np.isfinite(seconds) & (seconds >= 0)
    if not usable.all():
        raise SpecError(path, float(seconds[~usable][0]), "seconds, finite and at least 0")


def first_if_same(rows: Floats) -> Floats:
    """The first row alone, where NumPy holds all others as the same one; else all rows."""
    return rows[:1] if rows.ndim and not rows.strides[0] else rows
