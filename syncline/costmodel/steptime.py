"""The time of a training step, in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syncline.costmodel.arrays import FloatOrArray, IntOrArray
from syncline.costmodel.link import Link
from syncline.costmodel.traffic import Exchange, communication_s
from syncline.errors import SpecError


@dataclass(frozen=True)
class StepTime:
    """Where the time of a mean step goes, in seconds; each field a number or an array.

    Args:
        compute_s: forward, backward and update of one worker.
        communication_s: what the network takes.

    Nothing overlaps: a worker computes, then communicates, so all communication is exposed.
    """

    compute_s: FloatOrArray
    communication_s: FloatOrArray

    @property
    def exposed_communication_s(self) -> FloatOrArray:
        """Communication that no computation hides: all of it."""
        return self.communication_s

    @property
    def step_time_s(self) -> FloatOrArray:
        """``compute + exposed communication``."""
        return self.compute_s + self.exposed_communication_s


def step_time_s(compute_s: FloatOrArray, communication_s: FloatOrArray) -> FloatOrArray:
    """Seconds of a step without overlap: ``compute + communication``."""
    return StepTime(compute_s, communication_s).step_time_s


def mean_step(
    compute_s: FloatOrArray, exchanges: Sequence[Exchange], steps: int, workers: IntOrArray, link: Link
) -> StepTime:
    """The mean step of a training of T steps: ``compute + (communication of T steps) / T``.

    Args:
        compute_s: seconds that each worker computes in a step.
        exchanges: what is sent, and how often.
        steps: T, at least 1.
        workers: P; it and the fields of the link broadcast.
        link: each worker's link.

    Raises:
        SpecError: no step.
    """
    if steps < 1:
        raise SpecError("steps", steps, "at least 1")
    return StepTime(compute_s, communication_s(exchanges, steps, workers, link) / steps)
