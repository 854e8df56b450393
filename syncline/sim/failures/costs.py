"""The costs of failures, and the work that failures interrupt: the steps and checkpoints of a training."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from syncline.errors import SpecError
from syncline.units import format_seconds


class Stretch(NamedTuple):
    """A period in which all workers of a training do the same thing.

    Attributes:
        what: ``steps``, ``checkpoint``, ``lost`` (steps that were repeated), ``down`` (until the failure is noticed and
            a machine is available), ``restart``.
        start_s: start of the period, in seconds from the beginning of the training.
        end_s: end of the period, in seconds from the beginning of the training.
        first_step: number of steps that were done when the period began.
        num_steps: number of steps completed in the period.
    """

    what: str
    start_s: float
    end_s: float
    first_step: int
    num_steps: int = 0


@dataclass
class FailureCosts:
    """The costs of failures: on what P workers spend their time. All worker seconds add up to ``wall_s`` times P.

    Attributes:
        workers: P, number of workers.
        wall_s: time at which the last step is done and saved, or at which the simulation stopped.
        steps: completed steps; a step of n of the P workers counts as n / P.
        useful_s: worker seconds in steps that count.
        lost_s: worker seconds in lost steps, and in checkpoints to which no restart returned.
        checkpoint_s: worker seconds in which a checkpoint stops the workers.
        restart_s: worker seconds in restarts, loading of checkpoints, and re-forming of groups.
        down_s: worker seconds until a failure is noticed, and while the worker's place, or another, has no machine.
        interruptions: number of failures of workers' machines, without those of spare machines.
        lost_steps: lost steps, counted as ``steps``.
        stuck: reason why the training did not end; None if it did.
        stretches: periods in which workers that train together do one thing; empty for workers at their own pace.
    """

    workers: int
    wall_s: float = 0.0
    steps: float = 0.0
    useful_s: float = 0.0
    lost_s: float = 0.0
    checkpoint_s: float = 0.0
    restart_s: float = 0.0
    down_s: float = 0.0
    interruptions: int = 0
    lost_steps: float = 0.0
    stuck: str | None = None
    stretches: list[Stretch] = field(default_factory=list)

    @property
    def goodput(self) -> float:
        """Return the fraction of the workers' time that is in steps that count; 0 without progress."""
        return self.share("useful_s")

    def share(self, name: str) -> float:
        """Return the fraction of the workers' time that goes into a field, such as ``lost_s``."""
        value_s, all_s = float(getattr(self, name)), self.wall_s * self.workers
        if math.isinf(all_s):  # the training waits forever: only the wait has a share
            return float(math.isinf(value_s))
        return value_s / all_s if all_s else 0.0

    def wait_until(self, end_s: float) -> None:
        """Let all workers of a training that makes no progress wait until ``end_s``, which may be infinite."""
        self.down_s += self.workers * (end_s - self.wall_s)
        self.wall_s = end_s


def no_progress_line(since_s: float, reason: str = "nobody comes back") -> str:
    """Return the error line about a training that has made no progress since ``since_s`` seconds.

    >>> no_progress_line(90)
    'no progress possible since 1.5 min: nobody comes back'
    """
    return f"no progress possible since {format_seconds(since_s)}: {reason}"


MAX_FAILURES_IN_A_ROW = 1000
"""Number of interruptions in a row without a saved step, after which the simulation reports that there is no
progress.
"""


@dataclass(frozen=True)
class CheckpointTimes:
    """Settings of a training's checkpoints.

    Args:
        every: number of steps between checkpoints; None: only the end is saved.
        stop_s: seconds in which a checkpoint stops all workers.
        lag_s: seconds after that stop until the checkpoint is written, so that a restart can return to it.
        load_s: seconds to load a checkpoint.
        peers: whether a worker's checkpoint is in the memory of its peer, worker i + P / 2 of P; if both fail at once,
            the checkpoint is lost.
        rejoin_s: seconds in which a returning worker fetches its state over the network; None: it loads a checkpoint.
    """

    every: int | None = None
    stop_s: float = 0.0
    lag_s: float = 0.0
    load_s: float = 0.0
    peers: bool = False
    rejoin_s: float | None = None

    @property
    def join_s(self) -> float:
        """Return the seconds in which a joining worker gets the state, from the other workers or from a checkpoint."""
        return self.load_s if self.rejoin_s is None else self.rejoin_s

    @property
    def reload_s(self) -> float:
        """Return the seconds until all workers have a checkpoint's state.

        Old workers load the checkpoint while workers on new machines fetch the state from others.
        """
        return max(self.load_s, self.join_s)

    def __post_init__(self) -> None:
        """Refuse fields of the wrong type, out of range, or in contradiction."""
        if self.every is not None and self.every < 1:
            raise SpecError("checkpoint.interval", self.every, "at least one step")
        for name in ("stop_s", "lag_s", "load_s"):
            if getattr(self, name) < 0:
                raise SpecError(f"checkpoint.{name}", getattr(self, name), "a time, not negative")


class SavedSteps:
    """The times of steps and checkpoints of a training without failures, in seconds from its beginning.

    Args:
        steps_s: function of n that returns the seconds of the first n steps without checkpoints, increasing with n.
        saving: settings of the checkpoints; the end is always saved.
    """

    def __init__(self, steps: int, steps_s: Callable[[int], float], saving: CheckpointTimes) -> None:
        self.steps, self.steps_s, self.saving = steps, steps_s, saving
        self.every = steps if saving.every is None else min(saving.every, steps)

    def next_start_s(self, step: int) -> float:
        """Return the time at which the next step can begin after ``step`` steps and their checkpoints."""
        checkpoints = step // self.every
        if step == self.steps and step % self.every:  # the end is saved in any case
            checkpoints += 1
        return self.steps_s(step) + self.saving.stop_s * checkpoints

    def finish_s(self, first_step: int, last_step: int) -> float:
        """Return the seconds from a start after ``first_step`` steps until ``last_step`` steps are done and saved."""
        checkpoints = max(1, math.ceil(last_step / self.every) - first_step // self.every)
        return self.steps_s(last_step) - self.steps_s(first_step) + self.saving.stop_s * checkpoints

    def end_s(self, step: int) -> float:
        """Return the time at which the first ``step`` steps end, before the checkpoint that may follow."""
        checkpoints = max(step - 1, 0) // self.every  # without one after the last step
        return self.steps_s(step) + self.saving.stop_s * checkpoints

    def saved_by(self, saved_step: int, elapsed_s: float) -> int:
        """Return the step of the last checkpoint written by ``elapsed_s`` seconds after a start from ``saved_step``."""
        # A checkpoint is written ``lag_s`` after the next step could begin.
        latest_start_s = elapsed_s + self.next_start_s(saved_step) - self.saving.lag_s
        num_before = saved_step // self.every  # checkpoints up to the saved step
        later_checkpoints = range(num_before + 1, self.steps // self.every + 1)
        num_later = bisect_right(
            later_checkpoints, latest_start_s, key=lambda checkpoint: self.next_start_s(checkpoint * self.every)
        )
        return max(saved_step, (num_before + num_later) * self.every)

    def done_by(self, first_step: int, elapsed_s: float) -> int:
        """Return the number of completed steps ``elapsed_s`` seconds after a start from step ``first_step``."""
        time_s = elapsed_s + self.next_start_s(first_step)
        later_steps = range(first_step + 1, self.steps + 1)
        return first_step + bisect_right(later_steps, time_s, key=self.end_s)


def equal_step_ends(step_s: float) -> Callable[[int], float]:
    """Return a function of n: the seconds of the first n steps, if each step takes ``step_s`` seconds."""
    return lambda step: step * step_s


def checkpoint_steps(interval_s: float, step_s: float, lag_s: float = 0.0) -> int | None:
    """Return the number of steps nearest to a checkpoint interval; None if the interval is infinite.

    Writing a checkpoint takes ``lag_s``, and must end before the next checkpoint begins.
    """
    if math.isinf(interval_s):
        return None
    if not step_s:  # steps take no time
        return 1
    return max(1, math.ceil(lag_s / step_s), round(interval_s / step_s))
