"""Outages of workers, drawn or listed, and the workers that are present: spares, departures, returns, absences."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.failures import FailureRate
from syncline.seeds import generator
from syncline.sim.failures.costs import FailureCosts


class Outage(NamedTuple):
    """A simultaneous failure of the machines of neighbouring workers.

    Attributes:
        at_s: time of the failure, in seconds from the beginning of the training.
        first: number of the first worker whose machine fails.
        stop: one more than the number of the last such worker.
        back_s: time at which the machines can be used again, in seconds; infinite if never.
    """

    at_s: float
    first: int
    stop: int
    back_s: float = math.inf


def drawn_outages(rate: FailureRate, workers: int, node: int, sites: int, rng: np.random.Generator) -> Iterator[Outage]:
    """Yield the outages of one failure rate in the order of time, without end.

    Each worker, node or site is new at 0, and the seconds to its next failure count from its last failure, whatever the
    training does: so all training methods meet the same failures.

    Args:
        rate: failure rate of one unit: a worker, node or site.
        node: number of workers of a node.
        sites: number of sites, which have equal numbers of workers.
    """
    workers_of_unit, units = rate.unit_workers(workers, node, sites), rate.units(workers, node, sites)
    # The seconds to a failure have a Weibull distribution of this scale and shape.
    first_failures_s = rate.scale_s * rng.weibull(rate.shape, units)
    # Next failure of each unit, as a heap; equal times are in the order of the units' numbers.
    queue = [(at_s, unit) for unit, at_s in enumerate(first_failures_s.tolist())]
    heapq.heapify(queue)
    while True:
        at_s, unit = queue[0]
        first_worker = unit * workers_of_unit
        stop = min(first_worker + workers_of_unit, workers)  # the last unit may have fewer workers
        yield Outage(at_s, first_worker, stop, back_s=at_s + rate.repair_s)
        seconds_to_next = rate.scale_s * float(rng.weibull(rate.shape))
        heapq.heapreplace(queue, (at_s + seconds_to_next, unit))


def all_outages(
    rates: Sequence[FailureRate], scheduled: Iterable[Outage], workers: int, node: int, sites: int, seed: int
) -> Iterator[Outage]:
    """Yield all outages, drawn and scheduled, in the order of time; each rate draws from a random stream of its own."""
    streams = [
        drawn_outages(rate, workers, node, sites, rng=generator(seed, "failures", index))
        for index, rate in enumerate(rates)
    ]
    return heapq.merge(sorted(scheduled), *streams)


NEVER = Outage(at_s=math.inf, first=0, stop=0)
"""The outage after the last one."""


@dataclass(frozen=True)
class FailingGroup:
    """The workers of a training, and the costs of a restart.

    Args:
        workers: P, number of workers.
        timeout_s: seconds from a failure until the other workers notice.
        restart_s: seconds to start processes on a machine, without loading a checkpoint or a model.
        reform_s: seconds in which the remaining workers re-form their group.
        min_workers: number of present workers below which these wait.
    """

    workers: int
    spares: int = 0
    timeout_s: float = 0.0
    restart_s: float = 0.0
    reform_s: float = 0.0
    min_workers: int = 1


class _Repair(NamedTuple):
    """The end of a machine's repair, and the place at which the machine failed."""

    at_s: float
    place: int


class FilledPlaces:
    """The places of P workers, each with a machine or empty, and S spare machines.

    A spare takes the place of any broken machine at once. A repaired machine takes its own place if that is empty, else
    the first empty place, or becomes a spare if no place is empty.
    """

    def __init__(self, workers: int, spares: int = 0) -> None:
        self.filled = np.ones(workers, dtype=bool)
        self.spares = spares
        self._repairs: list[_Repair] = []  # a heap

    def repair(self, now_s: float) -> list[int]:
        """Use the machines whose repair has ended by now; return the places that have a machine again."""
        refilled = []
        while self._repairs and self._repairs[0].at_s <= now_s:
            failed_place = heapq.heappop(self._repairs).place
            if self.filled.all():
                self.spares += 1
                continue
            place = int(self.filled.argmin()) if self.filled[failed_place] else failed_place  # its own or first empty
            self.filled[place] = True
            refilled.append(place)
        return refilled

    def fail(self, outage: Outage) -> list[int]:
        """Take the machines of an outage out of their places, and return these places; call `repair` first.

        Places that spares fill at once are also returned.
        """
        # Only machines at their places fail: a place that is empty already has none to lose.
        places: list[int] = (np.flatnonzero(self.filled[outage.first : outage.stop]) + outage.first).tolist()
        spares_used = min(self.spares, len(places))
        self.spares -= spares_used
        self.filled[places[spares_used:]] = False  # spares fill the other places
        if math.isfinite(outage.back_s):
            for place in places:
                heapq.heappush(self._repairs, _Repair(outage.back_s, place))
        return places

    def next_s(self) -> float:
        """Return the time in seconds at which the next broken machine is repaired; infinite if none is."""
        return self._repairs[0].at_s if self._repairs else math.inf

    def when_filled_s(self, count: int) -> float:
        """Return the time in seconds at which ``count`` places have a machine if nothing else fails.

        The time is infinite if this never happens, and minus infinity if at least ``count`` places have one already.
        """
        num_missing = count - int(self.filled.sum())
        if num_missing <= 0:
            return -math.inf
        soonest = heapq.nsmallest(num_missing, self._repairs)
        return soonest[-1].at_s if len(soonest) == num_missing else math.inf


class _Return(NamedTuple):
    """The planned return of a worker; void if its place has failed again since it had ``failures`` failures."""

    at_s: float
    place: int
    failures: int


class Change(NamedTuple):
    """The workers that join and those that leave at an instant; none if only spare machines fail or return."""

    at_s: float
    left: list[int]
    joined: list[int]


class Roster:
    """The present workers of a training, in which a failed worker returns alone.

    A worker whose machine fails is away until the failure is noticed, a machine is available, its processes have
    started, and they have fetched the state.

    Args:
        load_s: seconds in which a returning worker fetches the state that it needs to begin.
        outages: outages in the order of time.
    """

    def __init__(self, group: FailingGroup, load_s: float, outages: Iterable[Outage]) -> None:
        self.group, self.return_s = group, group.restart_s + load_s
        self.present: NDArray[np.bool_] = np.ones(group.workers, dtype=bool)
        self.num_present = group.workers
        self._places = FilledPlaces(group.workers, group.spares)
        self._outages = iter(outages)
        self._next_outage = next(self._outages, NEVER)
        self._returns: list[_Return] = []  # a heap
        self._failed_s: dict[int, float] = {}  # time of the last failure of each place whose worker is away
        self.lost_for_good: set[int] = set()  # places without a machine from now on
        self._num_failures = [0] * group.workers  # by place

    def next_s(self) -> float:
        """Return the time in seconds of the next change of workers or spare machines; infinite if there is none."""
        return_s = self._returns[0].at_s if self._returns else math.inf
        return min(self._next_outage.at_s, self._places.next_s(), return_s)

    def take_next_change(self, costs: FailureCosts) -> Change:
        """Make and return the next change of the present workers; add the seconds of ended absences to ``costs``."""
        now_s = self.next_s()
        leaving: list[int] = []
        joined: list[int] = []
        self._refill(now_s)  # the repairs that end now, then the returns, then the failures
        while self._returns and self._returns[0].at_s <= now_s:
            _, place, num_failures = heapq.heappop(self._returns)
            if num_failures == self._num_failures[place]:  # otherwise the place has failed again since
                joined.append(place)
                away_s = now_s - self._failed_s.pop(place)
                costs.restart_s += self.return_s
                costs.down_s += away_s - self.return_s  # the rest of the absence, before the restart
        while self._next_outage.at_s <= now_s:
            for place in self._places.fail(self._next_outage):
                self._num_failures[place] += 1
                if place in self._failed_s:  # its worker was away already
                    costs.down_s += now_s - self._failed_s[place]
                else:
                    leaving.append(place)
                self._failed_s[place] = now_s
                if math.isinf(self._next_outage.back_s) and not self.group.spares:
                    self.lost_for_good.add(place)
                if self._places.filled[place]:  # filled by a spare
                    self._plan_return(place, now_s + self.group.timeout_s)
            self._next_outage = next(self._outages, NEVER)
            self._refill(now_s)  # a repair that takes no time ends at once
        self.present[joined] = True
        self.present[leaving] = False
        self.num_present += len(joined) - len(leaving)
        if leaving:
            costs.interruptions += 1
        return Change(now_s, leaving, joined)

    def end(self, now_s: float, costs: FailureCosts) -> None:
        """Add the seconds of workers that are still away at the end of the training, at ``now_s``, to the costs."""
        costs.down_s += sum(now_s - failed_s for failed_s in self._failed_s.values())

    def _refill(self, now_s: float) -> None:
        """Use the machines that are repaired by now, and plan the returns of the workers that get one."""
        for place in self._places.repair(now_s):  # processes start once the others have noticed the failure
            self._plan_return(place, max(now_s, self._failed_s[place] + self.group.timeout_s))

    def _plan_return(self, place: int, start_s: float) -> None:
        """Plan the return of a worker whose processes start at ``start_s``."""
        heapq.heappush(self._returns, _Return(start_s + self.return_s, place, self._num_failures[place]))


class AbsencePeriod(NamedTuple):
    """One absence of a worker, in seconds; ``back_s`` is infinite if the worker does not come back."""

    from_s: float
    back_s: float


class Absences:
    """The absences of all workers, from outages that are read as far as a caller needs."""

    def __init__(self, group: FailingGroup, outages: Iterable[Outage]) -> None:
        # The costs that the roster counts are not used: workers at their own pace count their own.
        self._roster, self._costs = Roster(group, load_s=0.0, outages=outages), FailureCosts(group.workers)
        self._periods: list[list[AbsencePeriod]] = [[] for _ in range(group.workers)]

    def next_absence(self, worker: int, now_s: float, until_s: float) -> AbsencePeriod | None:
        """Return a worker's first absence that ends after ``now_s`` and begins before ``until_s``, or None."""
        while self._roster.next_s() < until_s:
            self._read_next_change()
        periods, roster = self._periods[worker], self._roster
        index = bisect_right(periods, now_s, key=lambda period: period.back_s)
        if index == len(periods) or periods[index].from_s >= until_s:
            return None
        # Read on until the time of the worker's return is known, if it returns.
        while math.isinf(periods[-1].back_s) and worker not in roster.lost_for_good and math.isfinite(roster.next_s()):
            self._read_next_change()
        return periods[index]

    def _read_next_change(self) -> None:
        """Read the next change of the roster, and add it to the absences of the workers that leave or join."""
        change = self._roster.take_next_change(self._costs)
        for worker in change.joined:  # before those that leave, because a worker may join and fail at one instant
            self._periods[worker][-1] = self._periods[worker][-1]._replace(back_s=change.at_s)
        for worker in change.left:
            self._periods[worker].append(AbsencePeriod(change.at_s, math.inf))
