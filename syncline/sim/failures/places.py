"""The places of a training and the machines that fill them: spares replace broken machines, which return repaired."""

from __future__ import annotations

import heapq
import math

import numpy as np

from syncline.sim.failures.outages import Outage


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
