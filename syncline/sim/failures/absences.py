"""Absences of workers that train by themselves: from a failure until the worker's processes have started again."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from syncline.sim.failures.outages import Outage
from syncline.sim.failures.outcome import FailureCosts
from syncline.sim.failures.roster import FailingGroup, Roster


class AbsencePeriod(NamedTuple):
    """One absence of a worker; ``back_s`` is infinite if it does not come back."""

    from_s: float
    back_s: float


class Absences:
    """The absences of all workers, read from the outages as far as a caller asks.

    Args:
        group: the workers that train.
        outages: outages in the order of time.
    """

    def __init__(self, group: FailingGroup, outages: Iterable[Outage]) -> None:
        self._roster, self._told = Roster(group, 0.0, outages), FailureCosts(group.workers)
        self._of: list[list[AbsencePeriod]] = [[] for _ in range(group.workers)]

    def next_of(self, worker: int, now_s: float, until_s: float) -> AbsencePeriod | None:
        """Return a worker's first absence that ends after ``now_s`` and begins before ``until_s``, or None."""
        while self._roster.next_s() < until_s:
            self._read()
        match = next((away for away in self._of[worker] if away.back_s > now_s), None)
        if match is None or match.from_s >= until_s:
            return None
        while math.isinf(self._of[worker][-1].back_s) and self._may_come(worker):
            self._read()  # until the time of the worker's return is known
        return next(away for away in self._of[worker] if away.back_s > now_s)

    def _may_come(self, worker: int) -> bool:
        return worker not in self._roster.lost and math.isfinite(self._roster.next_s())

    def _read(self) -> None:
        change = self._roster.change(self._told)
        for worker in change.left:
            self._of[worker].append(AbsencePeriod(change.at_s, math.inf))
        for worker in change.joined:
            self._of[worker][-1] = self._of[worker][-1]._replace(back_s=change.at_s)
