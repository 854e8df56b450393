"""Whether a claim holds: its comparisons, seed by seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from syncline.specs.replications import Cell, Comparison, ReplicatedClaim, cells_of

HELD, FAILED, OPEN = "holds", "fails", "unknown"
"""States of the register of claims."""

Losses = Mapping[Cell, Mapping[int, float]]
"""Last losses by cell and seed; infinite of what diverged."""


@dataclass(frozen=True)
class Compared:
    """A comparison: what its left side has less than its right side, by seed; below 0 it is as claimed."""

    comparison: Comparison
    differences: Mapping[int, float]

    @property
    def as_claimed(self) -> int:
        """Seeds on which it is."""
        return sum(one < 0 for one in self.differences.values())

    @property
    def other_way_round(self) -> int:
        """Seeds on which it is the other way round."""
        return sum(one > 0 for one in self.differences.values())

    def state(self, least_seeds: int) -> str:
        """It holds, or fails, where all seeds say so, and there are enough of them."""
        seeds = len(self.differences)
        if seeds < least_seeds:
            return OPEN
        return HELD if self.as_claimed == seeds else FAILED if self.other_way_round == seeds else OPEN

    def told(self) -> dict[str, Any]:
        """For JSON and tables."""
        values = [one for one in self.differences.values() if not math.isnan(one)]
        middle, low, high = (median(values), min(values), max(values)) if values else (math.nan,) * 3
        return {
            "comparison": str(self.comparison), "difference": middle, "difference_min": low, "difference_max": high,
            "seeds": len(self.differences), "as_claimed": self.as_claimed,
        }  # fmt: skip


def compared(comparison: Comparison, losses: Losses) -> Compared:
    """The difference of both sides on the seeds that all of its cells have."""
    sides = [cells_of(comparison.less), cells_of(comparison.than)]
    seeds = set.intersection(*(set(losses[cell]) for side in sides for cell in side))

    def value(side: Sequence[Cell], seed: int) -> float:
        first, *rest = (losses[cell][seed] for cell in side)
        return first - sum(rest)  # not a number where both are infinite, which is neither less nor more

    margin = comparison.by - comparison.within
    found = {seed: value(sides[0], seed) - value(sides[1], seed) + margin for seed in sorted(seeds)}
    return Compared(comparison, found)


def verdict_rows(claims: Sequence[ReplicatedClaim], losses: Losses, least_seeds: int) -> list[dict[str, Any]]:
    """A row per comparison, with the state of its claim; claims with cells that are not trained yet are left out."""
    rows = []
    for claim in claims:
        if any(cell not in losses for cell in claim.cells()):
            continue
        made = [compared(one, losses) for one in claim.all]
        states = [one.state(least_seeds) for one in made]
        state = FAILED if FAILED in states else OPEN if OPEN in states else HELD
        rows += [{"claim": claim.claim, "state": state, **one.told(), "settled_by": claim.settled_by} for one in made]
    return rows
