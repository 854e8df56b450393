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
    """The failures of workers at their own pace, and the costs of these failures.

    Args:
        workers: P, number of workers.
        pace: function of a worker and a step number that returns the seconds of this step.
        absences: absences of the workers; None: no machine fails.
    """

    def __init__(self, workers: int, pace: Callable[[int, int], float], absences: Absences | None) -> None:
        self.workers, self.pace, self.absences = workers, pace, absences
        self.lost_s, self.away_s = np.zeros(workers), np.zeros(workers)
        self.periods: list[AbsencePeriod] = []
        self.lost_steps = 0
        self.last_failure_s = 0.0

    def next_of(self, worker: int, now_s: float, numbers: range) -> AbsencePeriod | None:
        """Return a worker's absence that begins before the worker has finished steps ``numbers``, begun at ``now_s``.

        The steps that the worker completes before this absence count as lost.
        """
        if self.absences is None:
            return None
        until_s = now_s + sum(self.pace(worker, number) for number in numbers)
        absence = self.absences.next_of(worker, now_s, until_s)
        if absence is not None:
            step_ends_s = np.cumsum([self.pace(worker, number) for number in numbers])
            self.lost_steps += int(np.searchsorted(step_ends_s, max(absence.from_s - now_s, 0.0), side="right"))
        return absence

    def fail(self, worker: int, begun_s: float, absence: AbsencePeriod) -> None:
        """Count a failure of a worker's machine, during its steps, begun at ``begun_s``, or while it waited."""
        from_s = max(absence.from_s, begun_s)
        self.lost_s[worker] += from_s - begun_s
        self.periods.append(AbsencePeriod(from_s, absence.back_s))
        self.last_failure_s = from_s
        if not math.isinf(absence.back_s):
            self.away_s[worker] += absence.back_s - from_s

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
        costs.down_s = sum(
            min(period.back_s, wall_s) - period.from_s for period in self.periods if period.from_s < wall_s
        )
        costs.useful_s = self.workers * wall_s - costs.lost_s - costs.down_s
        costs.interruptions, costs.lost_steps = len(self.periods), self.lost_steps / self.workers
        if remaining_steps:
            costs.stuck = no_progress(self.last_failure_s)
        return costs
