"""Failures of workers at their own pace: lost steps, absences, and their costs."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from syncline.costmodel.network.topology import Floats
from syncline.sim.failures.outcome import FailureCosts, no_progress
from syncline.sim.failures.roster import AbsencePeriod, Absences

LOST, AWAY = "lost", "away"
"""Names of spans of failed workers in a timeline: steps that are lost, and absence."""


class WorkerFailures:
    """The failures of workers at work, and their costs.

    Args:
        workers: P, number of workers.
        pace: seconds of a worker's step of a given number.
        absences: absences of the workers; None: no machine fails.
    """

    def __init__(self, workers: int, pace: Callable[[int, int], float], absences: Absences | None) -> None:
        self.workers, self.pace, self.absences = workers, pace, absences
        self.lost_s, self.away_s = np.zeros(workers), np.zeros(workers)
        self.spells: list[AbsencePeriod] = []
        self.lost_steps = 0
        self.last_s = 0.0

    def next_of(self, worker: int, now_s: float, numbers: range) -> AbsencePeriod | None:
        """Return the next absence of a worker that begins before the worker has finished these steps."""
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

    def fail(self, worker: int, begun_s: float, away: AbsencePeriod) -> None:
        """Count a failure of a worker's machine, during its steps or while it waited."""
        from_s = max(away.from_s, begun_s)
        self.lost_s[worker] += from_s - begun_s
        self.spells.append(AbsencePeriod(from_s, away.back_s))
        self.last_s = from_s
        if not math.isinf(away.back_s):
            self.away_s[worker] += away.back_s - from_s

    def not_computing_s(self) -> Floats:
        """Return the seconds of each worker in spans of lost steps and absence, ``(P,)``."""
        seconds: Floats = self.lost_s + self.away_s
        return seconds

    def outcome(self, wall_s: float, steps: int, remaining_steps: int) -> FailureCosts | None:
        """Return the costs of failures until the end.

        Args:
            wall_s: seconds of the training.
            steps: steps that all workers made together.
            remaining_steps: steps that were left undone, because no worker came back.
        """
        if self.absences is None:
            return None
        costs = FailureCosts(self.workers, wall_s, steps / self.workers)
        costs.lost_s = float(self.lost_s.sum())
        costs.down_s = sum(min(away.back_s, wall_s) - away.from_s for away in self.spells if away.from_s < wall_s)
        costs.useful_s = self.workers * wall_s - costs.lost_s - costs.down_s
        costs.interruptions, costs.lost_steps = len(self.spells), self.lost_steps / self.workers
        if remaining_steps:
            costs.stuck = no_progress(self.last_s)
        return costs
