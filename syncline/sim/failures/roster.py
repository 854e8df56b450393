"""The workers of a training whose machines fail: places and spare machines, departures, returns and absences."""

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
        min_workers: number of workers without which the others wait.
    """

    workers: int
    spares: int = 0
    timeout_s: float = 0.0
    restart_s: float = 0.0
    reform_s: float = 0.0
    min_workers: int = 1


class FilledPlaces:
    """A set of P places and S spare machines.

    A spare takes the place of any broken machine at once. A repaired machine takes its own place if that is empty, else
    the first empty one, or becomes a spare.

    Args:
        workers: P, number of workers.
        spares: S, number of spare machines.
    """

    def __init__(self, workers: int, spares: int = 0) -> None:
        self.filled = np.ones(workers, dtype=bool)
        self.spares = spares
        self._empty: set[int] = set()
        self._repairs: list[tuple[float, int]] = []

    @property
    def empty(self) -> int:
        """Return the number of places without a machine."""
        return len(self._empty)

    def settle(self, now_s: float) -> list[int]:
        """Bring back the machines repaired by now, and return the places that are filled again."""
        refilled = []
        while self._repairs and self._repairs[0][0] <= now_s:
            _, place = heapq.heappop(self._repairs)
            if not self._empty:
                self.spares += 1
                continue
            refilled.append(place if place in self._empty else min(self._empty))
            self._empty.remove(refilled[-1])
            self.filled[refilled[-1]] = True
        return refilled

    def fail(self, outage: Outage) -> list[int]:
        """Return the places whose machines fail, also those that spares fill at once; call `settle` before."""
        hit = np.flatnonzero(self.filled[outage.first : outage.stop]) + outage.first
        spares_used = min(self.spares, len(hit))
        self.spares -= spares_used
        for place in hit[spares_used:].tolist():
            self.filled[place] = False
            self._empty.add(place)
        places: list[int] = hit.tolist()
        if math.isfinite(outage.back_s):
            for place in places:
                heapq.heappush(self._repairs, (outage.back_s, place))
        return places

    def next_s(self) -> float:
        """Return the time at which the next machine is repaired; infinite if none."""
        return self._repairs[0][0] if self._repairs else math.inf

    def when_filled_s(self, count: int) -> float:
        """Return the time at which ``count`` places are filled, if nothing else fails; infinite if never."""
        missing = count - (len(self.filled) - len(self._empty))
        if missing <= 0:
            return -math.inf
        soonest = heapq.nsmallest(missing, self._repairs)
        return soonest[-1][0] if len(soonest) == missing else math.inf


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
        self.group, self.return_s = group, group.restart_s + load_s
        self.present: NDArray[np.bool_] = np.ones(group.workers, dtype=bool)
        self.count = group.workers  # number of present workers
        self._places = FilledPlaces(group.workers, group.spares)
        self._outages = iter(outages)
        self._next = next(self._outages, NEVER)
        self._joins: list[tuple[float, int, int]] = []
        self._failed_s: dict[int, float] = {}  # time of the last failure of each place that is away
        self.lost: set[int] = set()  # places whose machines never come back, without spares that replace them
        self._failures = [0] * group.workers  # of each place; a join from before the last failure does not count

    def next_s(self) -> float:
        """Return the time of the next change; infinite if there is none."""
        return min(self._next.at_s, self._places.next_s(), self._joins[0][0] if self._joins else math.inf)

    def change(self, costs: FailureCosts) -> Change:
        """Return the next change, and add the costs of returning workers to ``costs``."""
        now_s, leaving, joined = self.next_s(), list[int](), list[int]()
        self._refill(now_s)
        while self._joins and self._joins[0][0] <= now_s:
            _, place, failures = heapq.heappop(self._joins)
            if failures == self._failures[place]:
                joined.append(place)
                away_s = now_s - self._failed_s.pop(place)
                costs.restart_s += self.return_s
                costs.down_s += away_s - self.return_s
        while self._next.at_s <= now_s:
            for place in self._places.fail(self._next):
                self._failures[place] += 1
                if place in self._failed_s:
                    costs.down_s += now_s - self._failed_s[place]
                else:
                    leaving.append(place)
                self._failed_s[place] = now_s
                if math.isinf(self._next.back_s) and not self.group.spares:
                    self.lost.add(place)
                if self._places.filled[place]:  # filled by a spare
                    self._start(place, now_s + self.group.timeout_s)
            self._next = next(self._outages, NEVER)
            self._refill(now_s)
        self.present[joined] = True
        self.present[leaving] = False
        self.count += len(joined) - len(leaving)
        costs.interruptions += bool(leaving)
        return Change(now_s, leaving, joined)

    def end(self, now_s: float, costs: FailureCosts) -> None:
        """Add the costs of workers that are still away."""
        costs.down_s += sum(now_s - away_s for away_s in self._failed_s.values())

    def _refill(self, now_s: float) -> None:
        for place in self._places.settle(now_s):
            self._start(place, max(now_s, self._failed_s[place] + self.group.timeout_s))

    def _start(self, place: int, at_s: float) -> None:
        heapq.heappush(self._joins, (at_s + self.return_s, place, self._failures[place]))


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
        self._roster, self._costs = Roster(group, 0.0, outages), FailureCosts(group.workers)
        self._of: list[list[AbsencePeriod]] = [[] for _ in range(group.workers)]

    def next_of(self, worker: int, now_s: float, until_s: float) -> AbsencePeriod | None:
        """Return a worker's first absence that ends after ``now_s`` and begins before ``until_s``, or None."""
        while self._roster.next_s() < until_s:
            self._read()
        match = next((away for away in self._of[worker] if away.back_s > now_s), None)
        if match is None or match.from_s >= until_s:
            return None
        while math.isinf(self._of[worker][-1].back_s) and self._may_return(worker):
            self._read()  # until the time of the worker's return is known
        return next(away for away in self._of[worker] if away.back_s > now_s)

    def _may_return(self, worker: int) -> bool:
        return worker not in self._roster.lost and math.isfinite(self._roster.next_s())

    def _read(self) -> None:
        change = self._roster.change(self._costs)
        for worker in change.left:
            self._of[worker].append(AbsencePeriod(change.at_s, math.inf))
        for worker in change.joined:
            self._of[worker][-1] = self._of[worker][-1]._replace(back_s=change.at_s)
