"""The present workers of a training whose other workers go on after a failure: departures and returns."""

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
    """The workers of a training, and the costs of a restart.

    Args:
        workers: P, number of workers.
        spares: number of spare machines.
        timeout_s: seconds from a failure until the others notice.
        restart_s: seconds to start processes on a machine, without loading a checkpoint or a model.
        reform_s: seconds in which the remaining workers re-form their group.
        at_least: number of workers without which the others wait.
    """

    workers: int
    spares: int = 0
    timeout_s: float = 0.0
    restart_s: float = 0.0
    reform_s: float = 0.0
    at_least: int = 1


class Change(NamedTuple):
    """The workers that leave and join at one instant; both empty if only spares change."""

    at_s: float
    left: list[int]
    joined: list[int]


class Roster:
    """The present workers of a training, which leave and join one by one.

    A worker whose machine fails is away until the failure is noticed, a machine is available, and its processes have
    started and loaded.

    Args:
        group: the workers.
        load_s: seconds to fetch the state that a worker needs to begin.
        outages: outages in the order of time.
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
        self.lost: set[int] = set()  # places whose machines never come back, without spares that replace them
        self._life = [0] * group.workers  # failures of each place; a join from an earlier life does not count

    def next_s(self) -> float:
        """Return the time of the next change; infinite if there is none."""
        return min(self._next.at_s, self._places.next_s(), self._joins[0][0] if self._joins else math.inf)

    def change(self, costs: FailureCosts) -> Change:
        """Return the next change, and add the costs of returning workers to ``costs``."""
        now_s, leaving, joined = self.next_s(), list[int](), list[int]()
        self._refill(now_s)
        while self._joins and self._joins[0][0] <= now_s:
            _, place, life = heapq.heappop(self._joins)
            if life == self._life[place]:
                joined.append(place)
                away_s = now_s - self._away_s.pop(place)
                costs.restart_s += self.again_s
                costs.down_s += away_s - self.again_s
        while self._next.at_s <= now_s:
            for place in self._places.fail(self._next):
                self._life[place] += 1
                if place in self._away_s:
                    costs.down_s += now_s - self._away_s[place]
                else:
                    leaving.append(place)
                self._away_s[place] = now_s
                if math.isinf(self._next.back_s) and not self.group.spares:
                    self.lost.add(place)
                if self._places.filled[place]:  # filled by a spare
                    self._start(place, now_s + self.group.timeout_s)
            self._next = next(self._outages, NEVER)
            self._refill(now_s)
        self.here[joined] = True
        self.here[leaving] = False
        self.count += len(joined) - len(leaving)
        costs.interruptions += bool(leaving)
        return Change(now_s, leaving, joined)

    def end(self, now_s: float, costs: FailureCosts) -> None:
        """Add the costs of workers that are still away."""
        costs.down_s += sum(now_s - away_s for away_s in self._away_s.values())

    def _refill(self, now_s: float) -> None:
        for place in self._places.settle(now_s):
            self._start(place, max(now_s, self._away_s[place] + self.group.timeout_s))

    def _start(self, place: int, at_s: float) -> None:
        heapq.heappush(self._joins, (at_s + self.again_s, place, self._life[place]))
