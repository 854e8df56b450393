"""Verdicts of a replication if one of its rules is dropped, recomputed from its tables; nothing is trained.

Where another rule would have chosen another trial, the finals of that trial are estimated: the finals of the chosen
trial, and the difference of both trials' scores in the search (`replication.replications.verdicts.trial_scores`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from replication.replications.choosing import Trial, average_of
from replication.replications.one_by_one import ranges_of
from replication.replications.replicated import EMPTY_STAGE, Replicated
from replication.replications.spec import Cell, ReplicationSpec
from replication.replications.stage_tables import StageRows
from replication.replications.verdicts import search_spreads, trial_scores, verdict_rows


@dataclass(frozen=True)
class Rules:
    """The rules that are kept.

    Args:
        keeps: whether a trial of the search counts.
        repeats_trials: whether the best trials are chosen by their repetition on other seeds, too.
        draws_trials: whether verdicts draw the trials of the search again.
        draws_rounding: whether verdicts draw repetitions that differ by rounding.
    """

    keeps: Callable[[ReplicationSpec, Trial], bool] = lambda spec, trial: True
    repeats_trials: bool = True
    draws_trials: bool = True
    draws_rounding: bool = True


def first_trials(number: int) -> Callable[[ReplicationSpec, Trial], bool]:
    """Return the condition that a trial is among the first ones."""
    return lambda spec, trial: bool(trial["trial"] <= number)


def within_ranges(spec: ReplicationSpec, trial: Trial) -> bool:
    """Return whether all hyperparameters of a trial are within the ranges of the spec."""
    method = next(method for method in spec.methods if method.label == trial["method"])
    knobs = json.loads(trial["knobs"])
    if trial["trial"] == 1:
        return True
    return all(tuned.number_of(knobs[path]) is not None for path, tuned in ranges_of(method).items())


RULES = {
    "all rules": Rules(),
    "8 trials": Rules(first_trials(8)),
    "16 trials": Rules(first_trials(16)),
    "a choice at one seed": Rules(repeats_trials=False),
    "5 trials, a choice at one seed": Rules(first_trials(5), repeats_trials=False),
    "no value beyond its range": Rules(within_ranges),
    "no rounding": Rules(draws_rounding=False),
    "seeds alone": Rules(draws_trials=False, draws_rounding=False),
}
"""The rules that are kept, by the name of what is dropped or put in its place."""


def verdicts_by(result: Replicated, rules: Rules) -> StageRows:
    """Return the verdict rows of a replication with other rules."""
    spec, average = result.spec, average_of(result.spec)
    all_trials, all_repeated = result.kept["search"].rows, result.kept.get("rerun", EMPTY_STAGE).rows
    trials = [trial for trial in all_trials if rules.keeps(spec, trial)]
    repeated: StageRows = []
    if rules.repeats_trials:
        kept_trials = {(trial["method"], trial["trial"]) for trial in trials}
        repeated = [trial for trial in all_repeated if (trial["method"], trial["trial"]) in kept_trials]
    # How much higher the finals of each method would end, because the rules choose another trial.
    shifts = {}
    for label in spec.labels:
        scores = trial_scores(all_trials, all_repeated, label, average)
        own_scores = trial_scores(trials, repeated, label, average)
        repeated_numbers = {trial["trial"] for trial in repeated if trial["method"] == label}
        candidates = [number for number in own_scores if number in repeated_numbers] or list(own_scores)
        chosen = min(candidates, key=own_scores.__getitem__)
        shifts[label] = scores[chosen] - scores[result.chosen[label]["trial"]]
    losses = {
        cell: {seed: loss + shifts[cell.method] for seed, loss in of_seeds.items()}
        for cell, of_seeds in result.losses().items()
    }
    rounding = spec.finals.rounding if rules.draws_rounding else ""
    repeats = {Cell(cell.method): of_seeds for cell, of_seeds in losses.items() if cell.extra == rounding != ""}
    spreads = search_spreads(trials, repeated, average) if rules.draws_trials else {}
    return verdict_rows(spec.claims, losses, spec.min_seeds, spreads, repeats)


def rows_of_dropped_rules(result: Replicated) -> Iterator[dict[str, Any]]:
    """Yield a row per rule and claim: the state, and the lowest probability of its comparisons."""
    for name, rules in RULES.items():
        by_claim: dict[str, list[dict[str, Any]]] = {}
        for row in verdicts_by(result, rules):
            by_claim.setdefault(row["claim"], []).append(row)
        for claim, rows in by_claim.items():
            lowest = min(row["probability"] for row in rows)
            yield {"dropped": name, "claim": claim, "state": rows[0]["state"], "probability": lowest}


def dropped_rules_page(result: Replicated) -> Iterator[str]:
    """Yield the part of a page with the verdicts if one rule is dropped; a state in bold differs from the verdict."""
    rows = list(rows_of_dropped_rules(result))
    claims = list(dict.fromkeys(row["claim"] for row in rows))
    by_cell = {(row["dropped"], row["claim"]): row for row in rows}
    yield "## If a rule is dropped\n"
    yield (
        "Recomputed from the tables: if the rule would have chosen another trial, its finals are estimated by the "
        "difference\nof both trials in the search. Bold differs from the verdict with all rules.\n"
    )
    yield f"| claim | {' | '.join(RULES)} |\n{'|---' * (len(RULES) + 1)}|"
    for claim in claims:
        states = [by_cell[name, claim] for name in RULES]
        cells = [
            f"{row['state']} {row['probability']:.2f}" if row["state"] == states[0]["state"]
            else f"**{row['state']}** {row['probability']:.2f}"
            for row in states
        ]  # fmt: skip
        yield f"| {claim} | {' | '.join(cells)} |"
    yield ""
