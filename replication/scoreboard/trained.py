"""Claims that were trained: the comparisons of a run, and the probability that they are as claimed."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from replication.claims import claims_of
from replication.replications.reading import read_replication
from replication.replications.replicated import Replicated
from replication.replications.spec import Cell, Comparison, ReplicatedClaim, setting
from replication.replications.verdicts import search_spreads, verdict_rows

HEADLINE = "headline"
"""The run in results/headline: eleven methods, sixteen trials each."""

RESULTS = Path(__file__).parents[2] / "results"


class Run(NamedTuple):
    """A run's setting, trials per method, and verdict rows; and the claims' comparisons by name."""

    setting: str
    trials: int
    comparisons: dict[str, tuple[Comparison, ...]]
    rows: list[dict[str, Any]]


@cache
def replication_of(name: str) -> Replicated:
    """Return a replication by the name of its folder."""
    return read_replication(RESULTS / "replication" / name)


@cache
def run_of(name: str) -> Run:
    """Return a run by the name of its folder."""
    if name == HEADLINE:
        return _headline()
    replicated = replication_of(name)
    spec = replicated.spec
    comparisons = {claim.claim: claim.comparisons for claim in spec.claims}
    few = {row["claim"] for row in replicated.verdicts if row["seeds"] < spec.min_seeds}
    rows = [row | ({"probability": np.nan} if row["claim"] in few else {}) for row in replicated.verdicts]
    trials = min(replicated.effort.values(), default=spec.search.trials)  # a search one by one may end earlier
    return Run(setting(spec.training), trials, comparisons, rows)


def _headline() -> Run:
    import pyarrow.parquet as pq

    finals = pq.read_table(RESULTS / HEADLINE / "headline.parquet").to_pylist()
    losses: dict[Cell, dict[int, float]] = {}
    for row in sorted(finals, key=lambda evaluation: evaluation["step"]):
        losses.setdefault(Cell(row["method"]), {})[row["seed"]] = row["loss"]
    with (RESULTS / HEADLINE / "trials.csv").open(encoding="utf-8") as lines:
        trials = [{**line, "trial": int(line["trial"])} for line in csv.DictReader(lines)]
    first = [trial | {"loss": float(trial["loss"] or np.inf)} for trial in trials]
    repetitions = [trial | {"loss": float(trial["again"])} for trial in trials if trial["again"]]
    claims = [
        ReplicatedClaim(claim=claim.key, comparisons=tuple(map(compared, claim.headline)), settled_by="more trials")
        for claim in claims_of()
        if claim.headline
    ]
    rows = verdict_rows(claims, losses, min_seeds=5, spreads=search_spreads(first, repetitions))
    return Run(
        "text-gpt, 4 workers, 400 steps", max(int(trial["trial"]) for trial in trials),
        {claim.claim: claim.comparisons for claim in claims}, rows,
    )  # fmt: skip


def compared(text: str) -> Comparison:
    """Return a comparison from its text.

    >>> str(compared("mt-dao < ddp-adam + 0.02"))
    'mt-dao < ddp-adam + 0.02'
    """
    lower, _, rest = text.partition(" < ")
    higher, _, tolerance = rest.partition(" + ")
    return Comparison(lower=lower, higher=higher, tolerance=float(tolerance or 0))


def comparisons_of(claim: str, run: str) -> tuple[Comparison, ...]:
    """Return the comparisons by which a run tests a claim."""
    return run_of(run).comparisons[claim]


def verdicts_of(claim: str, run: str) -> list[dict[str, Any]]:
    """Return the verdict rows of a claim in a run."""
    return [row for row in run_of(run).rows if row["claim"] == claim]


def probability(claim: str, run: str) -> float:
    """Return the lowest probability of a claim's comparisons over trials and seeds; NaN with too few seeds."""
    return float(np.min([row["probability"] for row in verdicts_of(claim, run)]))


def page_of(run: str) -> str:
    """Return the page and anchor in docs/ with the trials and losses of a run."""
    return (
        f"../results/{HEADLINE}/README.md#files"
        if run == HEADLINE
        else f"../results/replication/{run}/README.md#verdicts"
    )
