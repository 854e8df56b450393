"""The places of a training and the machines that fill them: spares stand by, broken ones come back repaired."""

from __future__ import annotations

import heapq
import math

import numpy as np

from syncline.sim.failures.outages import Outage


class FilledPlaces:
    """P places and S spare machines.

    A spare takes the place of a broken machine at once, whichever; who is repaired takes its own place, if that is
    empty, else the first empty one, or stands by.

    Args:
        workers: P.
        spares: S.
    """

    def __init__(self, workers: int, spares: int = 0) -> None:
        self.filled = np.ones(workers, dtype=bool)
        self.spares = spares
        self._empty: set[int] = set()
        self._repairs: list[tuple[float, int]] = []

    @property
    def empty(self) -> int:
        """FilledPlaces without a machine."""
        return len(self._empty)

    def settle(self, now_s: float) -> list[int]:
        """Take up who has been repaired by now; the places that are filled again."""
        back = []
        while self._repairs and self._repairs[0][0] <= now_s:
            _, place = heapq.heappop(self._repairs)
            if not self._empty:
                self.spares += 1
                continue
            back.append(place if place in self._empty else min(self._empty))
            self._empty.remove(back[-1])
            self.filled[back[-1]] = True
        return back

    def fail(self, outage: Outage) -> list[int]:
        """The places whose machines fail; those that spares fill at once are among them. To be settled before."""
        hit = np.flatnonzero(self.filled[outage.first : outage.stop]) + outage.first
        taken = min(self.spares, len(hit))
        self.spares -= taken
        for place in hit[taken:].tolist():
            self.filled[place] = False
            self._empty.add(place)
        places: list[int] = hit.tolist()
        if math.isfinite(outage.back_s):
            for place in places:
                heapq.heappush(self._repairs, (outage.back_s, place))
        return places

    def next_s(self) -> float:
        """When the next machine is back; infinite if none."""
        return self._repairs[0][0] if self._repairs else math.inf

    def when_filled_s(self, count: int) -> float:
        """When so many places are filled, if nothing else fails; infinite if never."""
        missing = count - (len(self.filled) - len(self._empty))
        if missing <= 0:
            return -math.inf
        soonest = heapq.nsmallest(missing, self._repairs)
        return soonest[-1][0] if len(soonest) == missing else math.inf
