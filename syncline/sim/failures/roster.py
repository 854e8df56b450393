"""Who is at work where the others go on: when somebody leaves, and when he is back."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.sim.failures.outages import Outage
from syncline.sim.failures.outcome import FailureCosts
from syncline.sim.failures.places import FilledPlaces

NEVER = Outage(math.inf, 0, 0)


@dataclass(frozen=True)
class FailingGroup:
    """Those who train, and what it takes to begin again.

    Args:
        workers: P.
        spares: machines that stand by.
        timeout_s: from a failure until the others notice.
        restart_s: to start processes on a machine, besides loading a checkpoint or a model.
        reform_s: in which those who go on form their group anew.
        at_least: workers without whom the others wait.
    """

    workers: int
    spares: int = 0
    timeout_s: float = 0.0
    restart_s: float = 0.0
    reform_s: float = 0.0
    at_least: int = 1


class Change(NamedTuple):
    """Who left and who joined at one instant; nobody, if it is a matter of spares."""

    at_s: float
    left: list[int]
    joined: list[int]


class Roster:
    """Workers who come and go, each by itself.

    Whose machine fails is away until somebody has noticed, there is a machine, and processes are started and loaded.

    Args:
        group: who.
        load_s: to fetch what a worker needs to begin.
        outages: in the order of time.
    """

    def __init__(self, group: FailingGroup, load_s: float, outages: Iterable[Outage]) -> None:
        self.group, self.again_s = group, group.restart_s + load_s
        self.here: NDArray[np.bool_] = np.ones(group.workers, dtype=bool)
        self.count = group.workers
        self._places = FilledPlaces(group.workers, group.spares)
        self._outages = iter(outages)
        self._next = next(self._outages, NEVER)
        self._joins: list[tuple[float, int, int]] = []
        self._away_s: dict[int, float] = {}
        self.lost: set[int] = set()  # places whose machines never come back, where no spare could take them
        self._life = [0] * group.workers  # a join of an earlier life does not count

    def next_s(self) -> float:
        """When something changes next; infinite if nothing does."""
        return min(self._next.at_s, self._places.next_s(), self._joins[0][0] if self._joins else math.inf)

    def change(self, told: FailureCosts) -> Change:
        """The next change; what it cost those who come back is noted."""
        now_s, left, joined = self.next_s(), list[int](), list[int]()
        self._refill(now_s)
        while self._joins and self._joins[0][0] <= now_s:
            _, place, life = heapq.heappop(self._joins)
            if life == self._life[place]:
                joined.append(place)
                away_s = now_s - self._away_s.pop(place)
                told.restart_s += self.again_s
                told.down_s += away_s - self.again_s
        while self._next.at_s <= now_s:
            for place in self._places.fail(self._next):
                self._life[place] += 1
                if place in self._away_s:
                    told.down_s += now_s - self._away_s[place]
                else:
                    left.append(place)
                self._away_s[place] = now_s
                if math.isinf(self._next.back_s) and not self.group.spares:
                    self.lost.add(place)
                if self._places.filled[place]:  # by a spare
                    self._start(place, now_s + self.group.timeout_s)
            self._next = next(self._outages, NEVER)
            self._refill(now_s)
        self.here[joined] = True
        self.here[left] = False
        self.count += len(joined) - len(left)
        told.interruptions += bool(left)
        return Change(now_s, left, joined)

    def end(self, now_s: float, told: FailureCosts) -> None:
        """Note what those still away have cost."""
        told.down_s += sum(now_s - away_s for away_s in self._away_s.values())

    def _refill(self, now_s: float) -> None:
        for place in self._places.settle(now_s):
            self._start(place, max(now_s, self._away_s[place] + self.group.timeout_s))

    def _start(self, place: int, at_s: float) -> None:
        heapq.heappush(self._joins, (at_s + self.again_s, place, self._life[place]))
