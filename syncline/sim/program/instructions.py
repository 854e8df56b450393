"""Programs of workers: instructions, as if each GPU had a compute stream and a network stream.

The compute stream runs the program in order. `Compute`, `Recv`, `First` and `Wait` block this stream until they are
done; `Send` and `Collective` only start a transfer, and the stream goes on. Collectives run on a network stream, one
after another, and messages leave on a send stream likewise; different streams run at the same time.
`syncline.sim.program.queued` has programs on several compute streams.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from syncline.costmodel.collectives.algorithms import Round
from syncline.costmodel.network.paths import Floats
from syncline.errors import SpecError, SynclineError
from syncline.sim.program.timeline import is_computing

Effect: TypeAlias = Callable[[], object]
"""The math of an instruction, called when the instruction completes; it sees the effects of all earlier events."""

Delay: TypeAlias = Callable[[int, int], float]
"""A function of sender and receiver that returns the seconds by which a message is late; called when a message starts.
"""


@dataclass(frozen=True, slots=True)
class Compute:
    """Computing for some seconds; ``what`` is the kind of computing in the timeline, the label is for people."""

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
    """A message to queue: it leaves after the messages queued before it on its stream, and the program goes on.

    The label is for people; the default is the tag.
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
    """A wait for the message that ``source`` sends with this tag; the label, by default the tag, is for people."""

    source: int
    tag: Hashable = ""
    step: int = -1
    effect: Effect | None = None
    label: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class First:
    """A choice: the program goes on with the first option that can run, or else with the one whose message comes first.

    With more than one option the worker chooses after all other events of that instant, so among messages that arrive
    together the first in the order of ``options`` wins.

    Args:
        options: the message for which each option waits; None for an option that waits for no message.
        then: function of the chosen index that returns the instructions that follow.
    """

    options: Sequence[Recv | None]
    then: Callable[[int], Sequence[Instruction]] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective to join: every worker of its group joins it with the same fields, except label and step.

    Collectives of one stream run one after another, collectives of different streams at the same time.

    Args:
        kind: the collective, one of `syncline.costmodel.collectives.table.COLLECTIVES`; any name if there are rounds.
        nbytes: bytes, with the meaning that the collective's closed form gives them.
        key: unique key of this collective.
        label: description for people.
        step: number of the training step, from 0; -1 if none.
        algorithm: algorithm of the collective; by default the first for this kind.
        group: the workers that take part, in the order in which the algorithm numbers them; all in their order if None.
        stream: network stream on which the collective runs.
        rounds: rounds to run instead of the algorithm's; workers 0, 1, ... in these rounds number the group's workers.
        takes_s: seconds of the collective, instead of a simulation message by message. The collective then begins when
            the last worker of the group enters it, ends for all workers at once, and shares no channel; its spans have
            ``nbytes`` bytes.
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
    """A wait until the collective with this key is done for this worker; ``step`` is by default the collective's."""

    key: Hashable
    effect: Effect | None = None
    step: int | None = None


Instruction: TypeAlias = Compute | Send | Recv | First | Collective | Wait
Program: TypeAlias = Sequence[Instruction]


class SharedProgram(Sequence[Program]):
    """The programs of workers that all run the same program, as a sequence that stores this program once.

    Args:
        program: the program.
        workers: number of workers.
    """

    def __init__(self, program: Program, workers: int) -> None:
        self.program, self._workers = program, workers

    def __len__(self) -> int:
        return self._workers

    def __getitem__(self, index: Any) -> Any:
        return ([self.program] * self._workers)[index]


class Stuck(SynclineError):
    """An error about programs that never finish.

    Args:
        line: the error message about one of these programs.
        current_instructions: the current instruction of each worker that has not finished.
    """

    def __init__(self, line: str, current_instructions: dict[int, Instruction]) -> None:
        super().__init__(line, current_instructions)
        self.line, self.current_instructions = line, current_instructions

    def __str__(self) -> str:
        return self.line


def start_times(starts_s: ArrayLike | None, workers: int) -> Floats:
    """Return the time at which each worker begins, ``(workers,)`` seconds, 0 by default.

    Raises:
        SpecError: a time that is negative or not finite, or a wrong number of times.
    """
    try:
        starts = np.broadcast_to(np.asarray(0.0 if starts_s is None else starts_s, dtype=np.float64), (workers,))
    except ValueError:
        raise SpecError("starts_s", starts_s, f"one time, or one for each of the {workers} workers") from None
    if not np.all(np.isfinite(starts) & (starts >= 0)):
        raise SpecError("starts_s", starts_s, "seconds, finite and at least 0")
    return starts


def compute_times(compute_s: ArrayLike) -> Floats:
    """Return the seconds that each worker computes in each step, ``(T, P)``, as a checked array.

    Raises:
        SpecError: another number of axes, or a time that is negative or not finite.
    """
    times = np.asarray(compute_s, dtype=np.float64)
    if times.ndim != 2:
        raise SpecError("compute_s", f"an array of shape {times.shape}", "seconds of shape (steps, workers)")
    check_seconds("compute_s", times)
    return times


def check_seconds(path: str, seconds: Floats) -> None:
    """Raise an error if any time is negative or not finite; ``path`` names the field.

    Raises:
        SpecError: names the first such time.
    """
    seconds = first_if_same(seconds)
    valid = np.isfinite(seconds) & (seconds >= 0)
    if not valid.all():
        raise SpecError(path, float(seconds[~valid][0]), "seconds, finite and at least 0")


def first_if_same(rows: Floats) -> Floats:
    """Return only the first row, as ``(1, ...)``, if all rows share one row's memory; else return all rows."""
    return rows[:1] if rows.ndim and not rows.strides[0] else rows
