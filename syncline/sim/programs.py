"""What a worker does: a program of instructions, as if each GPU had a compute stream and a network stream.

The compute stream runs the program in order. `Compute`, `Recv`, `First` and `Wait` hold it until they are done; `Send`
and `Collective` only start something, and it goes on. Collectives run on a network stream, those of one stream one
after another, and messages leave on a send stream likewise; what is on different streams happens at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from syncline.costmodel.collectives.algorithms import Round
from syncline.costmodel.collectives.table import COLLECTIVES
from syncline.errors import SpecError, SynclineError, one_of
from syncline.sim.starts import Floats

Effect: TypeAlias = Callable[[], object]
"""The math that happens when an instruction completes: the order of events decides what it sees."""


@dataclass(frozen=True, slots=True)
class Compute:
    """Compute for so many seconds."""

    seconds: float
    label: str = "compute"
    step: int = -1
    effect: Effect | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.seconds) and self.seconds >= 0):
            raise SpecError("compute.seconds", self.seconds, "seconds, finite and at least 0")


@dataclass(frozen=True, slots=True)
class Send:
    """Queue a message: it leaves when those before it on the same stream have, and the program goes on."""

    to: int
    nbytes: float
    tag: Hashable = ""
    step: int = -1
    stream: str = "send"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.nbytes) and self.nbytes >= 0):
            raise SpecError("send.nbytes", self.nbytes, "a finite number of bytes, at least 0")
        if self.stream == "compute":
            raise SpecError("send.stream", self.stream, "another stream than that of the computing")


@dataclass(frozen=True, slots=True)
class Recv:
    """Wait for the message that ``source`` sends with this tag."""

    source: int
    tag: Hashable = ""
    step: int = -1
    effect: Effect | None = None


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
    """

    kind: str
    nbytes: float
    key: Hashable
    label: str = ""
    step: int = -1
    algorithm: str | None = None
    group: tuple[int, ...] | None = None
    stream: str = "network"
    rounds: tuple[Round, ...] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.stream == "compute":
            raise SpecError("collective.stream", self.stream, "another stream than that of the computing")


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until the collective with this key is done for this worker; in the collective's step if none is named."""

    key: Hashable
    effect: Effect | None = None
    step: int | None = None


Instruction: TypeAlias = Compute | Send | Recv | First | Collective | Wait
Program: TypeAlias = Sequence[Instruction]


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


class Call(NamedTuple):
    """A collective of all workers after the computing of a step: what the traffic ledger holds.

    Attributes:
        step: the step it ends, from 0.
        collective: one of `syncline.costmodel.collectives.table.COLLECTIVES`.
        nbytes: payload, with the meaning the closed form gives it.
        label: what is sent, for people.
        algorithm: that carries it; the collective's first if none.
        ready: the part of the step's compute time after which it can start, from 0 to 1.
        wait_steps: steps until its result is needed; 0: before the next step.
        encode_s: seconds that each worker computes to encode and decode it, before it starts.
        in_backward: whether parts of it are ready during the backward pass, as a gradient's are.
    """

    step: int
    collective: str
    nbytes: float
    label: str = ""
    algorithm: str | None = None
    ready: float = 1.0
    wait_steps: int = 0
    encode_s: float = 0.0
    in_backward: bool = False


def calls_by_step(calls: Iterable[Call], steps: int) -> dict[int, list[Call]]:
    """The calls of each step that has any, in their order.

    Raises:
        SpecError: a call of no step of these, of an unknown collective, or of a size that is negative or not finite.
    """
    due: dict[int, list[Call]] = {}
    for index, call in enumerate(calls):
        if not 0 <= call.step < steps:
            raise SpecError(f"calls[{index}].step", call.step, f"a step from 0 to {steps - 1}")
        if call.collective not in COLLECTIVES:
            raise SpecError(f"calls[{index}].collective", call.collective, one_of(COLLECTIVES, str(call.collective)))
        if not (math.isfinite(call.nbytes) and call.nbytes >= 0):
            raise SpecError(f"calls[{index}].nbytes", call.nbytes, "a finite number of bytes, at least 0")
        if not 0 <= call.ready <= 1:
            raise SpecError(f"calls[{index}].ready", call.ready, "a part of the compute time, from 0 to 1")
        if call.wait_steps < 0:
            raise SpecError(f"calls[{index}].wait_steps", call.wait_steps, "a number of steps, at least 0")
        if not (math.isfinite(call.encode_s) and call.encode_s >= 0):
            raise SpecError(f"calls[{index}].encode_s", call.encode_s, "seconds, finite and at least 0")
        due.setdefault(call.step, []).append(call)
    return due


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
    usable = np.isfinite(seconds) & (seconds >= 0)
    if not usable.all():
        raise SpecError(path, float(seconds[~usable][0]), "seconds, finite and at least 0")
