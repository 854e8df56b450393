"""The outcome of a training on machines that fail."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from syncline.units import format_seconds


class Stretch(NamedTuple):
    """A period in which all workers of a training do the same thing.

    Attributes:
        what: ``steps``, ``checkpoint``, ``lost`` (steps that were repeated), ``down`` (until the failure is noticed and
            a machine is available), ``restart``.
        start_s: start of the period, in seconds from the beginning of the training.
        end_s: end of the period, in seconds from the beginning of the training.
        first: step with which the period begins.
        steps: number of steps completed in the period.
    """

    what: str
    start_s: float
    end_s: float
    first: int
    steps: int = 0


@dataclass
class FailureCosts:
    """The costs of failures: on what P workers spend their time. All worker seconds add up to ``wall_s`` times P.

    Attributes:
        workers: P, number of workers.
        wall_s: time at which the last step is done and saved, or at which the simulation stopped.
        steps: completed steps, as of all P workers.
        useful_s: worker seconds in steps that count.
        lost_s: worker seconds in lost steps, and in checkpoints to which no restart returned.
        checkpoint_s: worker seconds in which a checkpoint stops the workers.
        restart_s: worker seconds in restarts, loading of checkpoints, and re-forming of groups.
        down_s: worker seconds until a failure is noticed, and while the worker's place, or another, has no machine.
        interruptions: number of failures that required an action.
        lost_steps: lost steps, as of all P workers.
        stuck: reason why the training did not end; None if it did.
        stretches: periods of workers that train together.
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
        all_s = self.wall_s * self.workers
        return self.useful_s / all_s if all_s and math.isfinite(all_s) else 0.0

    def share(self, name: str) -> float:
        """Return the fraction of the workers' time that goes into a field, by its name."""
        all_s = self.wall_s * self.workers
        return float(getattr(self, name)) / all_s if all_s else 0.0


def no_progress(since_s: float, reason: str = "nobody comes back") -> str:
    """Return the message about a training that makes no more progress since ``since_s`` seconds.

    >>> no_progress(90)
    'no progress possible since 1.5 min: nobody comes back'
    """
    return f"no progress possible since {format_seconds(since_s)}: {reason}"


MAX_FAILURES_IN_A_ROW = 1000
"""Number of interruptions in a row without a saved step, after which the simulation reports that there is no
progress.
"""
