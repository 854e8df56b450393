"""When each of those who train alone is away: from its failure until its processes have started again."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from syncline.sim.failures.outages import Outage
from syncline.sim.failures.outcome import FailureCosts
from syncline.sim.failures.roster import FailingGroup, Roster


class Away(NamedTuple):
    """From when to when a worker is away; ``back_s`` is infinite if it does not come back."""

    from_s: float
    back_s: float


class Absences:
    """Who is away when, read from the outages as far as somebody asks.

    Args:
        group: who trains.
        outages: in the order of time.
    """

    def __init__(self, group: FailingGroup, outages: Iterable[Outage]) -> None:
        self._roster, self._told = Roster(group, 0.0, outages), FailureCosts(group.workers)
        self._of: list[list[Away]] = [[] for _ in range(group.workers)]

    def next_of(self, worker: int, now_s: float, until_s: float) -> Away | None:
        """The first time away of a worker that ends after now and begins before another instant, if there is one."""
        while self._roster.next_s() < until_s:
            self._read()
        found = next((away for away in self._of[worker] if away.back_s > now_s), None)
        if found is None or found.from_s >= until_s:
            return None
        while math.isinf(self._of[worker][-1].back_s) and self._may_come(worker):
            self._read()  # until it is known when it comes back
        return next(away for away in self._of[worker] if away.back_s > now_s)

    def _may_come(self, worker: int) -> bool:
        return worker not in self._roster.lost and math.isfinite(self._roster.next_s())

    def _read(self) -> None:
        change = self._roster.change(self._told)
        for worker in change.left:
            self._of[worker].append(Away(change.at_s, math.inf))
        for worker in change.joined:
            self._of[worker][-1] = self._of[worker][-1]._replace(back_s=change.at_s)
