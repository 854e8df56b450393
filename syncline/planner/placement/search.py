"""A local search for a fast placement of replicated pipelines.

DT-FM's scheduler (B. Yuan et al., "Decentralized Training of Foundation Models in Heterogeneous Environments", NeurIPS
2022) minimises two levels: the averaging inside balanced groups, and a path over the groups; its steps move machines
between groups. In this search a step swaps the positions of two ranks, or of a rank and a position without a rank, and
both levels are one clock (`syncline.planner.placement.clock`). From each start the search times all swaps in a random
order, ``BATCH_SWAPS`` at a time. It makes the best swap of a batch if the score gets lower, and ends when a whole round
of swaps finds no lower score, or after ``MAX_SWAPS`` timed swaps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from syncline.costmodel.network.paths import Ints
from syncline.planner.placement.clock import PlacementClock
from syncline.seeds import generator

BATCH_SWAPS = 64
"""Number of swaps that are timed at once, of which the search makes the best."""

MAX_SWAPS = 40_000
"""Limit on the swaps that are timed from each start; some seconds for 64 ranks."""

IMPROVEMENT = 1 - 1e-9
"""Factor on the score below which a swap counts as better."""


class FoundPlacement(NamedTuple):
    """The result of a search.

    Attributes:
        positions: position of each rank, ``(P,)``.
        seconds: seconds by the clock that the search used.
        start: name of the start.
        swaps: number of swaps that were timed, from all starts.
    """

    positions: Ints
    seconds: float
    start: str
    swaps: int


def search_placement(clock: PlacementClock, starts: Mapping[str, Ints], classes: Ints) -> FoundPlacement:
    """Return the placement with the lowest score that the search finds.

    Args:
        clock: the clock of pipelines on a topology of N positions.
        starts: placements by name: the position of each rank, ``(P,)``.
        classes: class of each position, ``(N,)``; the search leaves out swaps inside a class, which change nothing.
    """
    results: list[tuple[float, FoundPlacement]] = []
    for name, start in starts.items():
        positions = np.concatenate([start, np.setdiff1d(np.arange(clock.topology.workers), start)])  # ranks first
        ranks = len(start)
        pairs = np.stack(np.triu_indices(len(positions), 1), axis=1)
        pairs = generator(0, f"placement {name}").permutation(pairs[pairs[:, 0] < ranks])
        score, swaps, since_better, first = float(clock.times(start[None]).score[0]), 0, 0, 0
        while since_better < len(pairs) and swaps < MAX_SWAPS:
            batch = pairs[first : first + BATCH_SWAPS]
            first = (first + len(batch)) % len(pairs)
            since_better += len(batch)
            batch = batch[classes[positions[batch[:, 0]]] != classes[positions[batch[:, 1]]]]
            if not len(batch):
                continue
            swapped = np.tile(positions, (len(batch), 1))
            row = np.arange(len(batch))[:, None]
            swapped[row, batch] = swapped[row, batch[:, ::-1]]
            scores = clock.times(swapped[:, :ranks]).score
            swaps += len(batch)
            best = int(np.argmin(scores))
            if scores[best] < score * IMPROVEMENT:
                positions, score, since_better = swapped[best], float(scores[best]), 0
        seconds = float(clock.times(positions[None, :ranks]).seconds[0])
        results.append((score, FoundPlacement(positions[:ranks], seconds, name, swaps)))
    swaps = sum(placement.swaps for _, placement in results)
    _, best_placement = min(results, key=lambda result: result[0])
    return best_placement._replace(swaps=swaps)
