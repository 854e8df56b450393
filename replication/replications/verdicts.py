"""Verdicts on claims: how often a side ends below the other if trials and seeds are drawn again."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

import numpy as np

from replication.replications.choosing import Trial, losses_by_trial
from replication.replications.spec import Cell, Comparison, ReplicatedClaim, cells_of

HELD, FAILED, OPEN = "holds", "fails", "unknown"
"""States of a claim, as in the register of claims."""

SURE = 0.95
"""Share of the resamples from which a comparison holds, or fails if they show the opposite."""

RESAMPLES = 10_000

Losses = Mapping[Cell, Mapping[int, float]]
"""Last losses by cell and seed; infinite if a training diverged."""


@dataclass(frozen=True)
class ComparisonResult:
    """A comparison: the left side minus the right side; a difference below 0 is as claimed.

    Args:
        comparison: the comparison.
        differences: the difference by seed.
        resampled: the mean difference over the seeds in each resample of trials and seeds.
    """

    comparison: Comparison
    differences: Mapping[int, float]
    resampled: np.ndarray

    @property
    def as_claimed(self) -> int:
        """Return the number of seeds on which the comparison is as claimed."""
        return sum(difference < 0 for difference in self.differences.values())

    @property
    def probability(self) -> float:
        """Return the share of resamples in which the comparison is as claimed."""
        return float((self.resampled < 0).mean())

    @property
    def resolution(self) -> float:
        """Return the smallest difference at which this spread would still give a verdict; NaN if trainings diverge."""
        if not np.isfinite(self.resampled).all():
            return math.nan
        low, middle, high = np.quantile(self.resampled, (1 - SURE, 0.5, SURE))
        return float(max(middle - low, high - middle))

    def state(self, min_seeds: int) -> str:
        """Return the state: it holds or fails if resamples and seeds are enough; otherwise it is unknown."""
        if len(self.differences) < min_seeds:
            return OPEN
        if self.probability >= SURE:
            return HELD
        return FAILED if (self.resampled > 0).mean() >= SURE else OPEN

    def record(self) -> dict[str, Any]:
        """Return the fields of the comparison for JSON and tables."""
        values = [difference for difference in self.differences.values() if not math.isnan(difference)]
        middle, low, high = (median(values), min(values), max(values)) if values else (math.nan,) * 3
        return {
            "comparison": str(self.comparison), "difference": middle, "difference_min": low, "difference_max": high,
            "seeds": len(self.differences), "as_claimed": self.as_claimed, "probability": self.probability,
            "resolution": self.resolution,
        }  # fmt: skip


Average = Callable[[Sequence[float]], float]


def search_spreads(
    trials: Sequence[Trial], repeated: Sequence[Trial], average: Average = fmean
) -> dict[str, np.ndarray]:
    """Return by method how much higher each resampled search's choice scores than the choice of the search itself.

    A resample keeps the first trial, which the spec fixes, and draws the others again with replacement. It chooses as
    a replication does: the repeated trial with the lowest score, or the lowest trial if it drew no repeated one. The
    score is the average loss of a trial over its seeds, less what the other seeds add to the repeated trials on
    average. No resample is better than the best trial, so the spread is a lower bound.
    """
    return {
        label: _spread(trial_scores(trials, repeated, label, average), set(losses_by_trial(repeated, label)))
        for label in dict.fromkeys(trial["method"] for trial in trials)
    }


def trial_scores(trials: Sequence[Trial], repeated: Sequence[Trial], label: str, average: Average) -> dict[int, float]:
    """Return the score of each trial of a method, see `search_spreads`; trials with the lowest scores are the best."""
    search_losses, rerun_losses = losses_by_trial(trials, label), losses_by_trial(repeated, label)
    search_scores = {number: average(search_losses[number]) for number in sorted(search_losses)}
    scores, seed_effects = {}, []
    for number, search_score in search_scores.items():
        scores[number] = average([*search_losses[number], *rerun_losses.get(number, ())])
        if number in rerun_losses:
            seed_effects.append(scores[number] - search_score)
    seed_effect = fmean(seed_effects) if seed_effects else 0.0
    if not math.isfinite(seed_effect):
        return search_scores
    for number in scores:
        if number in rerun_losses:
            scores[number] -= seed_effect
    return scores


def _spread(scores_by_trial: Mapping[int, float], repeated_numbers: Collection[int]) -> np.ndarray:
    """Return how much higher each resampled search's choice scores than the choice of the search itself."""
    numbers, scores = list(scores_by_trial), np.array(list(scores_by_trial.values()))
    ranks = scores + np.where(np.isin(numbers, list(repeated_numbers)), 0.0, 1e6)  # repeated trials before all others
    draws = np.random.default_rng(0).integers(1, max(2, len(numbers)), (RESAMPLES, len(numbers)))
    draws[:, 0] = 0  # the first trial is fixed
    draws = np.minimum(draws, len(numbers) - 1)
    best_draw = ranks[draws].argmin(axis=1)
    chosen = draws[np.arange(RESAMPLES), best_draw]
    spread: np.ndarray = scores[chosen] - scores[ranks.argmin()]
    return spread


def compare_sides(
    comparison: Comparison,
    losses: Losses,
    spreads: Mapping[str, np.ndarray] | None = None,
    repeats: Losses | None = None,
) -> ComparisonResult:
    """Return the difference of both sides on the seeds that all of its cells have, and over resamples.

    Args:
        comparison: the comparison.
        losses: last losses.
        spreads: spread of each method's search, as `search_spreads` returns it; without it hyperparameters are fixed.
        repeats: last losses of repetitions that differ by rounding; a resample draws one of both by seed and cell.
    """
    lower, higher = cells_of(comparison.lower), cells_of(comparison.higher)
    seeds = sorted(set.intersection(*(set(losses[cell]) for cell in lower + higher)))

    def side_value(side: Sequence[Cell], seed: int) -> float:
        """Return the loss of a side's cell, or the difference of its two cells."""
        cell, *subtracted = side
        return losses[cell][seed] - sum(losses[other][seed] for other in subtracted)  # NaN if both are infinite

    margin = comparison.margin - comparison.tolerance
    differences = {seed: side_value(lower, seed) - side_value(higher, seed) + margin for seed in seeds}
    draws = np.random.default_rng(1).integers(0, max(1, len(seeds)), (RESAMPLES, len(seeds)))
    resampled = np.array(list(differences.values()))[draws].mean(axis=1) if seeds else np.full(RESAMPLES, math.nan)
    cell_weights, method_weights = _cell_weights(lower, higher), Counter[str]()
    for cell, weight in cell_weights.items():
        method_weights[cell.method] += weight
        if repeats and seeds and set(seeds) <= set(repeats.get(cell, ())):
            change = np.array([[0.0, repeats[cell][seed] - losses[cell][seed]] for seed in seeds])
            repetition = np.random.default_rng(sum(map(ord, str(cell)))).integers(0, 2, draws.shape)
            resampled = resampled + weight * change[draws, repetition].mean(axis=1)
    for label, weight in method_weights.items():
        if weight and spreads and label in spreads:
            rng = np.random.default_rng(sum(map(ord, label)))
            resampled = resampled + weight * rng.permutation(spreads[label])
    return ComparisonResult(comparison, differences, resampled)


def _cell_weights(lower: Sequence[Cell], higher: Sequence[Cell]) -> dict[Cell, int]:
    """Return the factor of each cell's loss in ``lower - higher``; a side is its first cell less the others."""
    weights = Counter[Cell]()
    for sign, (cell, *subtracted) in ((1, lower), (-1, higher)):
        weights[cell] += sign
        for other in subtracted:
            weights[other] -= sign
    return weights


def verdict_rows(
    claims: Sequence[ReplicatedClaim],
    losses: Losses,
    min_seeds: int,
    spreads: Mapping[str, np.ndarray] | None = None,
    repeats: Losses | None = None,
) -> list[dict[str, Any]]:
    """Return a row per comparison with the state of its claim; a claim with untrained cells has no rows."""
    rows = []
    for claim in claims:
        if any(cell not in losses for cell in claim.cells()):
            continue
        comparisons = [compare_sides(comparison, losses, spreads, repeats) for comparison in claim.comparisons]
        states = [result.state(min_seeds) for result in comparisons]
        state = HELD
        if FAILED in states:
            state = FAILED
        elif OPEN in states:
            state = OPEN
        for result in comparisons:
            rows.append({"claim": claim.claim, "state": state, **result.record(), "settled_by": claim.settled_by})
    return rows
