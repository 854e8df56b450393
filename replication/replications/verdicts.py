"""Verdicts on claims, from comparisons seed by seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from replication.replications.spec import Cell, Comparison, ReplicatedClaim, cells_of

HELD, FAILED, OPEN = "holds", "fails", "unknown"
"""States of a claim, as in the register of claims."""

Losses = Mapping[Cell, Mapping[int, float]]
"""Last losses by cell and seed; infinite if a training diverged."""


@dataclass(frozen=True)
class ComparisonResult:
    """A comparison: the left side minus the right side, by seed; a difference below 0 is as claimed."""

    comparison: Comparison
    differences: Mapping[int, float]

    @property
    def as_claimed(self) -> int:
        """Return the number of seeds on which the comparison is as claimed."""
        return sum(difference < 0 for difference in self.differences.values())

    @property
    def other_way_round(self) -> int:
        """Return the number of seeds on which the comparison is opposite to the claim."""
        return sum(difference > 0 for difference in self.differences.values())

    def state(self, min_seeds: int) -> str:
        """Return the state: it holds or fails if all seeds agree and there are enough; otherwise it is unknown."""
        seeds = len(self.differences)
        if seeds < min_seeds:
            return OPEN
        return HELD if self.as_claimed == seeds else FAILED if self.other_way_round == seeds else OPEN

    def record(self) -> dict[str, Any]:
        """Return the fields of the comparison for JSON and tables."""
        values = [difference for difference in self.differences.values() if not math.isnan(difference)]
        middle, low, high = (median(values), min(values), max(values)) if values else (math.nan,) * 3
        return {
            "comparison": str(self.comparison), "difference": middle, "difference_min": low, "difference_max": high,
            "seeds": len(self.differences), "as_claimed": self.as_claimed,
        }  # fmt: skip


def compare_sides(comparison: Comparison, losses: Losses) -> ComparisonResult:
    """Return the difference of both sides on the seeds that all of its cells have."""
    sides = [cells_of(comparison.lower), cells_of(comparison.higher)]
    seeds = set.intersection(*(set(losses[cell]) for side in sides for cell in side))

    def value(side: Sequence[Cell], seed: int) -> float:
        first, *rest = (losses[cell][seed] for cell in side)
        return first - sum(rest)  # NaN if both are infinite, which is neither less nor more

    margin = comparison.margin - comparison.tolerance
    differences = {seed: value(sides[0], seed) - value(sides[1], seed) + margin for seed in sorted(seeds)}
    return ComparisonResult(comparison, differences)


def verdict_rows(claims: Sequence[ReplicatedClaim], losses: Losses, min_seeds: int) -> list[dict[str, Any]]:
    """Return a row per comparison with the state of its claim; a claim with untrained cells has no rows."""
    rows = []
    for claim in claims:
        if any(cell not in losses for cell in claim.cells()):
            continue
        comparisons = [compare_sides(comparison, losses) for comparison in claim.comparisons]
        states = [result.state(min_seeds) for result in comparisons]
        state = FAILED if FAILED in states else OPEN if OPEN in states else HELD
        rows += [
            {"claim": claim.claim, "state": state, **result.record(), "settled_by": claim.settled_by}
            for result in comparisons
        ]
    return rows
