"""What becomes of a training on machines that fail."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from syncline.units import format_seconds


class Stretch(NamedTuple):
    """What all who train together do from one instant to another.

    Attributes:
        what: ``steps``, ``checkpoint``, ``lost`` (steps that were done again), ``down`` (until somebody notices, and a
            machine is there), ``restart``.
        start_s: seconds from the beginning.
        end_s: likewise.
        first: the step that it begins with.
        steps: how many are completed in it.
    """

    what: str
    start_s: float
    end_s: float
    first: int
    steps: int = 0


@dataclass
class FailureCosts:
    """Where the time went. Of all P workers, what follows adds up to ``wall_s`` times P.

    Attributes:
        workers: P.
        wall_s: until the last step is done and saved, or until nothing more was played.
        steps: completed, as of all P workers.
        useful_s: seconds of workers in steps that count.
        lost_s: of workers, in steps that were lost, and checkpoints that nobody returned to.
        checkpoint_s: of workers, while a checkpoint stops them.
        restart_s: of workers, in restarts, loading a checkpoint, and re-forming groups.
        down_s: of workers, until somebody notices, and while their place or others' are empty.
        interruptions: that somebody had to do something about.
        lost_steps: of all P workers.
        stuck: why it did not end; none if it did.
        stretches: what those who train together did.
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
        """Part of the workers' time that is in steps that count; 0 where there is no progress."""
        all_s = self.wall_s * self.workers
        return self.useful_s / all_s if all_s and math.isfinite(all_s) else 0.0

    def share(self, name: str) -> float:
        """Part of the workers' time that goes into something, by the name of its field."""
        all_s = self.wall_s * self.workers
        return float(getattr(self, name)) / all_s if all_s else 0.0


def no_progress(since_s: float, why: str = "nobody comes back") -> str:
    """What is told of a training that stands still for good.

    >>> no_progress(90)
    'no progress possible since 1.5 min: nobody comes back'
    """
    return f"no progress possible since {format_seconds(since_s)}: {why}"


MOST_IN_VAIN = 1000
"""Interruptions in a row between which nothing was saved; then it is told that there is no progress."""
