"""A local search for a fast placement of replicated pipelines.

DT-FM's scheduler (B. Yuan et al., "Decentralized Training of Foundation Models in Heterogeneous Environments", NeurIPS
2022) minimises two levels: the averaging inside balanced groups, and a path over the groups; its steps move machines
between groups. Here a step swaps the positions of two ranks, or of a rank and a position without a rank, and both
levels are one clock (`syncline.planner.placement.clock`). From each start the search times all swaps in an order drawn
from the stream ``placement`` of a seed, ``TOGETHER`` at a time, makes the best of these if its score is lower, and ends
when a whole round finds none, or after ``MOST_SWAPS`` timed swaps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from syncline.costmodel.network.paths import Ints
from syncline.planner.placement.clock import PlacementClock
from syncline.seeds import generator

TOGETHER = 64
"""Number of swaps that are timed at once, of which the best is made."""

MOST_SWAPS = 40_000
"""Largest number of swaps that are timed from each start; some seconds for 64 ranks."""

BETTER = 1 - 1e-9
"""Factor on the score below which a swap counts as better."""


class FoundPlacement(NamedTuple):
    """The result of a search.

    Attributes:
        positions: position of each rank, ``(P,)``.
        seconds: of the clock that the search used.
        start: name of the start.
        swaps: number of swaps that were timed, from all starts.
    """

    positions: Ints
    seconds: float
    start: str
    swaps: int


def search_placement(clock: PlacementClock, starts: Mapping[str, Ints], alike: Ints) -> FoundPlacement:
    """Return the placement with the lowest score that the search finds.

    Args:
        clock: the clock of a work on a topology of N positions.
        starts: placements by name: the position of each rank, ``(P,)``.
        alike: class of each position, ``(N,)``; a swap inside a class changes nothing and is left out.
    """
    results: list[tuple[float, FoundPlacement]] = []
    for name, start in starts.items():
        slots = np.concatenate([start, np.setdiff1d(np.arange(clock.topology.workers), start)])
        ranks = len(start)
        pairs = np.stack(np.triu_indices(len(slots), 1), axis=1)
        pairs = generator(0, f"placement {name}").permutation(pairs[pairs[:, 0] < ranks])
        score, swaps, since_better, first = float(clock.times(start[None]).score[0]), 0, 0, 0
        while since_better < len(pairs) and swaps < MOST_SWAPS:
            chosen = pairs[first : first + TOGETHER]
            first = (first + len(chosen)) % len(pairs)
            since_better += len(chosen)
            chosen = chosen[alike[slots[chosen[:, 0]]] != alike[slots[chosen[:, 1]]]]
            if not len(chosen):
                continue
            swapped = np.tile(slots, (len(chosen), 1))
            row = np.arange(len(chosen))[:, None]
            swapped[row, chosen] = swapped[row, chosen[:, ::-1]]
            scores = clock.times(swapped[:, :ranks]).score
            swaps += len(chosen)
            best = int(np.argmin(scores))
            if scores[best] < score * BETTER:
                slots, score, since_better = swapped[best], float(scores[best]), 0
        seconds = float(clock.times(slots[None, :ranks]).seconds[0])
        results.append((score, FoundPlacement(slots[:ranks], seconds, name, swaps)))
    swaps = sum(placement.swaps for _, placement in results)
    return min(results, key=lambda entry: entry[0])[1]._replace(swaps=swaps)
