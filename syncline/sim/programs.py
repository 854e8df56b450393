"""What a worker does: a program of instructions, as if each GPU had a compute stream and a network stream.

The compute stream runs the program in order. `Compute`, `Recv` and `Wait` hold it until they are done; `Send` and
`Collective` only start something, and it goes on. Collectives run on the network stream one after another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from syncline.costmodel.collectives import COLLECTIVES
from syncline.errors import SpecError, one_of
from syncline.sim.rounds import Round
from syncline.sim.uplinks import Floats

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
    """Queue a message on the own link: it leaves when the messages before it have, and nobody waits for it."""

    to: int
    nbytes: float
    tag: Hashable = ""
    step: int = -1

    def __post_init__(self) -> None:
        if not (math.isfinite(self.nbytes) and self.nbytes >= 0):
            raise SpecError("send.nbytes", self.nbytes, "a finite number of bytes, at least 0")


@dataclass(frozen=True, slots=True)
class Recv:
    """Wait for the message that ``source`` sends with this tag."""

    source: int
    tag: Hashable = ""
    step: int = -1
    effect: Effect | None = None


@dataclass(frozen=True, slots=True)
class Collective:
    """Join a collective of all workers: each names the same key, kind, size and algorithm, or the kind's first by none.

    It starts on the network stream.
    """

    kind: str
    nbytes: float
    key: Hashable
    label: str = ""
    step: int = -1
    algorithm: str | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until the collective with this key is done for this worker."""

    key: Hashable
    effect: Effect | None = None


Instruction: TypeAlias = Compute | Send | Recv | Collective | Wait
Program: TypeAlias = Sequence[Instruction]


class Call(NamedTuple):
    """A collective of all workers after the computing of a step: what the traffic ledger holds.

    Attributes:
        step: the step it ends, from 0.
        collective: one of `syncline.costmodel.collectives.COLLECTIVES`.
        nbytes: payload, with the meaning the closed form gives it.
        label: what is sent, for people.
    """

    step: int
    collective: str
    nbytes: float
    label: str = ""


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
    usable = np.isfinite(times) & (times >= 0)
    if not usable.all():
        raise SpecError("compute_s", float(times[~usable][0]), "seconds, finite and at least 0")
    return times


def data_parallel(compute_s: ArrayLike, calls: Iterable[Call]) -> list[list[Instruction]]:
    """Programs of data-parallel training without overlap: in each step compute, then each call of the step in turn.

    Args:
        compute_s: seconds that each worker computes in each step, ``(T, P)``.
        calls: the collectives of the training.

    Returns:
        One program per worker.
    """
    times = compute_times(compute_s)
    programs: list[list[Instruction]] = [[] for _ in range(times.shape[1])]
    due = calls_by_step(calls, len(times))
    for step, row in enumerate(times.tolist()):
        exchange: list[Instruction] = []
        for index, call in enumerate(due.get(step, ())):
            key = (step, index)
            exchange += [Collective(call.collective, call.nbytes, key, call.label, step), Wait(key)]
        for program, seconds in zip(programs, row, strict=True):
            program += [Compute(seconds, step=step), *exchange]
    return programs


def messages(of: Sequence[Round], workers: int) -> list[list[Send | Recv]]:
    """The rounds of a collective as one program of messages per worker, tagged with the number of the round."""
    programs: list[list[Send | Recv]] = [[] for _ in range(workers)]
    for number, (senders, receivers, nbytes) in enumerate(of):
        sizes = np.broadcast_to(nbytes, senders.shape)
        pairs = list(zip(senders.tolist(), receivers.tolist(), sizes.tolist(), strict=True))
        for sender, receiver, size in pairs:
            programs[sender].append(Send(receiver, size, number))
        for sender, receiver, _ in pairs:
            programs[receiver].append(Recv(sender, number))
    return programs
