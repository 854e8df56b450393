"""Searches of n trials, drawn from the N trials that were trained: their results, and the orders that they tell.

A search takes the trial with the lowest score among n of the N trials of a method. If trials are sorted by score, the
one at place r (0 is the best) is taken with probability

    C(N - 1 - r, n - 1) / C(N, n),

so that every probability here is exact and nothing is drawn at random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from replication.lottery.setting import labels

STABLE = 0.95
"""Probability of the reference order from which a pair is stable."""

Floats = NDArray[np.float64]


def place_probabilities(trials: int, searched: int) -> Floats:
    """Return the probability that a search of n of N trials takes the trial at each place of their order, ``(N,)``.

    >>> place_probabilities(4, 2).tolist()
    [0.5, 0.3333333333333333, 0.16666666666666666, 0.0]
    """
    counts = [comb(trials - 1 - place, searched - 1) for place in range(trials)]
    return np.array(counts) / comb(trials, searched)


@dataclass(frozen=True)
class Trials:
    """The losses of all trials; a training that diverged has an infinite loss.

    Attributes:
        methods: names of the M methods.
        search: ``(M, N, S)`` losses at the search seeds.
        judge: ``(M, N, J)`` losses at the judge seeds.
    """

    methods: Sequence[str]
    search: Floats
    judge: Floats

    @classmethod
    def of_table(cls, table: pd.DataFrame, setting: Mapping[str, Any]) -> Trials:
        """Return the trials of a table with a row per method, trial and seed."""
        losses = table.pivot_table(index=["method", "trial"], columns="seed", values="loss", dropna=False)
        names = labels(setting)
        by_method = np.stack([losses.loc[name].to_numpy(dtype=np.float64) for name in names])
        by_method = np.where(np.isfinite(by_method), by_method, np.inf)
        seeds = losses.columns.tolist()
        parts = [
            by_method[..., [seeds.index(seed) for seed in setting[name]]] for name in ("search_seeds", "judge_seeds")
        ]
        return cls(names, *parts)

    def scores(self) -> dict[str, list[Floats]]:
        """Return the scores by which searches choose, ``(M, N)`` each: at one search seed, and the median over all."""
        seeds = self.search.shape[-1]
        return {
            "one seed": [self.search[..., s] for s in range(seeds)],
            "three seeds": [np.median(self.search, axis=-1)],
        }

    @property
    def results(self) -> Floats:
        """Return the mean loss of each trial over the judge seeds, ``(M, N)``."""
        return np.asarray(self.judge.mean(axis=-1))

    @property
    def reference(self) -> Floats:
        """Return the loss of each method's best trial by the median over all seeds, ``(M,)``."""
        return np.asarray(np.median(np.concatenate([self.search, self.judge], axis=-1), axis=-1).min(axis=-1))

    def results_in_order(self, score: Floats) -> Floats:
        """Return the results of each method's trials in the order of their scores, ``(M, N)``."""
        return np.take_along_axis(self.results, np.argsort(score, axis=-1, kind="stable"), axis=-1)

    def below(self, scores: Sequence[Floats], searched: int) -> Floats:
        """Return the probability that a search of n trials of A ends below one of B, ``(M, M)``; ties count half.

        Args:
            scores: scores to choose by; the probability is the mean over them.
            searched: n, for both methods.
        """
        probabilities = place_probabilities(self.results.shape[1], searched)
        weights = np.outer(probabilities, probabilities)
        total = np.zeros((len(self.methods), len(self.methods)))
        for score in scores:
            results = self.results_in_order(score)
            for a, row in enumerate(results):
                for b, other in enumerate(results):
                    less = (row[:, None] < other[None]) + 0.5 * (row[:, None] == other[None])
                    total[a, b] += (weights * less).sum() / len(scores)
        return total

    def spread(self, score: Floats, searched: int, method: int) -> tuple[float, float, float]:
        """Return the 5 %, 50 % and 95 % quantiles of the result of a method's search of n trials."""
        results = self.results_in_order(score)[method]
        order = np.argsort(results, kind="stable")
        shares = np.cumsum(place_probabilities(len(results), searched)[order])
        low, middle, high = (float(results[order][np.searchsorted(shares, q - 1e-12)]) for q in (0.05, 0.5, 0.95))
        return low, middle, high


class PairOrder(NamedTuple):
    """A pair of methods, better first, with the probability that a search tells this order.

    Attributes:
        better: name of the method with the lower reference loss.
        worse: name of the other.
        difference: reference loss of ``worse`` over that of ``better``, less 1.
        probability: probability of the reference order.
    """

    better: str
    worse: str
    difference: float
    probability: float


def pair_orders(trials: Trials, scores: Sequence[Floats], searched: int) -> list[PairOrder]:
    """Return all pairs at n trials, the smallest difference first."""
    below, reference = trials.below(scores, searched), trials.reference
    ranked = np.argsort(reference, kind="stable").tolist()
    pairs = [
        PairOrder(trials.methods[a], trials.methods[b], float(reference[b] / reference[a] - 1), float(below[a, b]))
        for place, a in enumerate(ranked)
        for b in ranked[place + 1 :]
    ]
    return sorted(pairs, key=lambda pair: pair.difference)


def smallest_difference(pairs: Sequence[PairOrder]) -> float | None:
    """Return the least difference from which on all pairs are stable, or None if the most different pair is not.

    >>> pairs = [PairOrder("a", "b", d, p) for d, p in ((0.1, 0.99), (0.2, 0.6), (0.3, 0.96), (0.4, 1.0))]
    >>> smallest_difference(pairs)
    0.3
    """
    resolved: float | None = None
    for pair in reversed(pairs):
        if pair.probability < STABLE:
            break
        resolved = pair.difference
    return resolved


def summary(table: pd.DataFrame, setting: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reference losses, and for each number of trials the stable pairs and the smallest difference."""
    trials = Trials.of_table(table, setting)
    order = np.argsort(trials.reference, kind="stable").tolist()
    rows = []
    for chosen_by, scores in trials.scores().items():
        for searched in setting["sizes"]:
            pairs = pair_orders(trials, scores, searched)
            rows.append(
                {
                    "chosen_by": chosen_by,
                    "trials": searched,
                    "stable_pairs": sum(pair.probability >= STABLE for pair in pairs),
                    "pairs": len(pairs),
                    "mean_probability": float(np.mean([pair.probability for pair in pairs])),
                    "smallest_difference": smallest_difference(pairs),
                }
            )
    reference = {trials.methods[method]: float(trials.reference[method]) for method in order}
    return {"reference_losses": reference, "searches": rows}
