"""What becomes of workers at their own pace whose machines fail."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from syncline.costmodel.network.topology import Floats
from syncline.sim.failures.absences import Absences, Away
from syncline.sim.failures.outcome import FailureCosts, no_progress

LOST, AWAY = "lost", "away"
"""What such workers compute in a timeline: steps that nobody gets, and nothing."""


class Fates:
    """Who fails while at work, and what that costs.

    Args:
        workers: P.
        pace: seconds of a worker's step of some number.
        absences: who is away when; none: nobody ever.
    """

    def __init__(self, workers: int, pace: Callable[[int, int], float], absences: Absences | None) -> None:
        self.workers, self.pace, self.absences = workers, pace, absences
        self.lost_s, self.away_s = np.zeros(workers), np.zeros(workers)
        self.spells: list[Away] = []
        self.lost_steps = 0
        self.last_s = 0.0

    def next_of(self, worker: int, now_s: float, numbers: range) -> Away | None:
        """The next time away of a worker that begins before it is through with these steps."""
        if self.absences is None:
            return None
        until_s = now_s + sum(self.pace(worker, number) for number in numbers)
        away = self.absences.next_of(worker, now_s, until_s)
        if away is not None:
            self.lost_steps += self._completed(worker, max(away.from_s - now_s, 0.0), numbers)
        return away

    def _completed(self, worker: int, seconds: float, numbers: range) -> int:
        ends_s = np.cumsum([self.pace(worker, number) for number in numbers])
        return int(np.searchsorted(ends_s, seconds, side="right"))

    def fail(self, worker: int, begun_s: float, away: Away) -> None:
        """A worker's machine fails, or has while it waited."""
        from_s = max(away.from_s, begun_s)
        self.lost_s[worker] += from_s - begun_s
        self.spells.append(Away(from_s, away.back_s))
        self.last_s = from_s
        if not math.isinf(away.back_s):
            self.away_s[worker] += away.back_s - from_s

    def not_computing_s(self) -> Floats:
        """Seconds of each worker in spans that compute nothing that counts, ``(P,)``."""
        seconds: Floats = self.lost_s + self.away_s
        return seconds

    def outcome(self, wall_s: float, steps: int, left: int) -> FailureCosts | None:
        """What failures have cost until the end; ``left``: steps that nobody was there to make."""
        if self.absences is None:
            return None
        told = FailureCosts(self.workers, wall_s, steps / self.workers)
        told.lost_s = float(self.lost_s.sum())
        told.down_s = sum(min(away.back_s, wall_s) - away.from_s for away in self.spells if away.from_s < wall_s)
        told.useful_s = self.workers * wall_s - told.lost_s - told.down_s
        told.interruptions, told.lost_steps = len(self.spells), self.lost_steps / self.workers
        if left:
            told.stuck = no_progress(self.last_s)
        return told
