"""What is trained, and how its state is kept: the clock of a training in which nothing fails, with checkpoints."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from syncline.errors import SpecError


@dataclass(frozen=True)
class Saving:
    """How the state of a training is kept.

    Args:
        every: steps between checkpoints; none: only the end is saved.
        stop_s: seconds in which a checkpoint stops everybody.
        lag_s: seconds after these until it can be returned to.
        load_s: seconds to load one.
        peers: whether it is in the memory of the worker half-way round, and lost where both fail at once.

    Raises:
        SpecError: a number of steps below 1, or a negative time.
    """

    every: int | None = None
    stop_s: float = 0.0
    lag_s: float = 0.0
    load_s: float = 0.0
    peers: bool = False

    def __post_init__(self) -> None:
        if self.every is not None and self.every < 1:
            raise SpecError("checkpoint.interval", self.every, "at least one step")
        for name in ("stop_s", "lag_s", "load_s"):
            if getattr(self, name) < 0:
                raise SpecError(f"checkpoint.{name}", getattr(self, name), "a time, not negative")


class SavedSteps:
    """When steps and checkpoints end, counted from the end of the checkpoint that it goes on from.

    Args:
        steps: T.
        until_s: seconds of the first so many steps without checkpoints, which grow with their number.
        saving: how its state is kept; the end is always saved.
    """

    def __init__(self, steps: int, until_s: Callable[[int], float], saving: Saving) -> None:
        self.steps, self.until_s, self.saving = steps, until_s, saving
        self.every = steps if saving.every is None else min(saving.every, steps)

    def ready_s(self, step: int) -> float:
        """When the next step can begin after so many, checkpoints included; the end is saved, too."""
        saved = step // self.every + (step == self.steps and step % self.every > 0)
        return self.until_s(step) + self.saving.stop_s * saved

    def end_s(self, step: int) -> float:
        """When the step before this number ends, ahead of its own checkpoint."""
        before = max(step - 1, 0) // self.every
        return self.until_s(step) + self.saving.stop_s * before

    def saved_by(self, begun: int, elapsed_s: float) -> int:
        """To which step one can return after so many seconds from ``begun``, a step that is saved."""
        left_s = elapsed_s + self.ready_s(begun) - self.saving.lag_s
        first = begun // self.every
        numbers = range(first + 1, self.steps // self.every + 1)
        number = first + bisect_right(numbers, left_s, key=lambda n: self.ready_s(n * self.every))
        return max(begun, number * self.every)

    def done_by(self, begun: int, elapsed_s: float) -> int:
        """How many steps are completed after so many seconds from ``begun``."""
        left_s = elapsed_s + self.ready_s(begun)
        return begun + bisect_right(range(begun + 1, self.steps + 1), left_s, key=self.end_s)


def steady(step_s: float) -> Callable[[int], float]:
    """Steps that all take as long."""
    return lambda step: step * step_s


def checkpoint_steps(interval_s: float, step_s: float, lag_s: float = 0.0) -> int | None:
    """Whole steps between checkpoints: the nearest to an interval; as many as the one before takes to be written."""
    if math.isinf(interval_s):
        return None
    at_least = math.ceil(lag_s / step_s) if step_s else 1
    return max(1, at_least, round(interval_s / step_s) if step_s else 1)
