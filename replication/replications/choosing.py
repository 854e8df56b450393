"""The rule that chooses a method's knobs: a replication fixes it before its first training."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from replication.replications.spec import ReplicationSpec, SearchedMethod
from syncline import SynclineError
from syncline.specs.load import with_overrides

Trial = Mapping[str, Any]
"""A row with ``method``, ``trial`` from 1, ``seed``, ``loss`` (infinite if it diverged), ``knobs`` as JSON by path."""

DIGITS_KEPT = 3
"""Number of significant digits of a chosen knob; more digits carry no information."""


def with_knobs(method: Mapping[str, Any], knobs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a method's fields with knobs by their paths below the method.

    >>> with_knobs({"kind": "mt-dao", "omegas": [0.9], "lr": 0.1}, {"omegas.0": 0.95, "lr": 0.2})
    {'kind': 'mt-dao', 'omegas': [0.95], 'lr': 0.2}
    """
    fields = with_overrides({"method": method}, {f"method.{path}": value for path, value in knobs.items()})
    method_fields: dict[str, Any] = fields["method"]
    return method_fields


def to_three_digits(value: float) -> float:
    """Return a value with three significant digits; for a value a bit below 1, three digits of its distance to 1.

    >>> to_three_digits(1.26543), to_three_digits(0.0123456), to_three_digits(0.9912345)
    (1.27, 0.0123, 0.99123)
    """
    if 0.5 < value < 1:
        distance = float(f"{1 - value:.{DIGITS_KEPT}g}")
        num_decimals = -math.floor(math.log10(distance)) + DIGITS_KEPT - 1
        return round(1 - distance, num_decimals)
    return float(f"{value:.{DIGITS_KEPT}g}")


def check_effort(spec: ReplicationSpec, trials: Sequence[Trial]) -> dict[str, int]:
    """Return the number of trials by method.

    Raises:
        SynclineError: the methods do not all have the number of trials of the spec.
    """
    counts = {label: len(losses_by_trial(trials, label)) for label in spec.labels}
    different_counts = set(counts.values())
    ended_early = spec.search.one_by_one and len(different_counts) == 1 and max(different_counts) < spec.search.trials
    if different_counts != {spec.search.trials} and not ended_early:
        shown = ", ".join(f"{label} {count}" for label, count in counts.items())
        raise SynclineError(
            f"search: {shown} trials of {spec.search.trials} can be trained; choose ranges of which every value can"
        )
    return counts


def best_trials(spec: ReplicationSpec, trials: Sequence[Trial], label: str) -> list[int]:
    """Return the numbers of a method's best trials, the best first: the lowest means over the search's seeds."""
    losses = losses_by_trial(trials, label)
    by_mean = sorted(losses, key=lambda number: (fmean(losses[number]), number))
    return by_mean[: spec.rerun.top_trials if spec.rerun else 1]


def chosen_trial(spec: ReplicationSpec, trials: Sequence[Trial], repeated: Sequence[Trial], label: str) -> int:
    """Return the repeated trial with the lowest mean or median of all losses; ties go to the better of the search.

    Without repeated trials it is the search's best.

    Raises:
        SynclineError: none of the trials ends with a loss.
    """
    best = best_trials(spec, trials, label)
    search_losses, rerun_losses = losses_by_trial(trials, label), losses_by_trial(repeated, label)
    average = average_of(spec)
    averages = {number: average([*search_losses[number], *rerun_losses.get(number, ())]) for number in best}
    chosen = min(best, key=averages.__getitem__)  # the first of equal ones
    if not math.isfinite(averages[chosen]):
        stage = "rerun" if spec.rerun else "search"
        raise SynclineError(f"{stage}: all of the {len(best)} best trials of {label} diverged; choose lower rates")
    return chosen


def average_of(spec: ReplicationSpec) -> Callable[[Sequence[float]], float]:
    """Return the average of a trial's losses by which a trial is chosen, the mean or the median."""
    return median if spec.rerun and spec.rerun.choose == "median" else fmean


def chosen_trials(
    spec: ReplicationSpec, trials: Sequence[Trial], repeated: Sequence[Trial]
) -> dict[str, dict[str, Any]]:
    """Return ``trial`` and ``knobs`` of each method, by the rule of `chosen_trial`."""
    chosen = {}
    for label in spec.labels:
        number = chosen_trial(spec, trials, repeated, label)
        chosen[label] = {"trial": number, "knobs": knobs_of(trials, label, number)}
    return chosen


def knobs_of(trials: Sequence[Trial], label: str, number: int) -> dict[str, float]:
    """Return the knobs of a trial, with three digits, by path below the method."""
    (knobs, *_) = [trial["knobs"] for trial in trials if trial["method"] == label and trial["trial"] == number]
    return {
        path: value if isinstance(value, int) else to_three_digits(value) for path, value in json.loads(knobs).items()
    }


def method_with(searched: SearchedMethod, knobs: Mapping[str, float], label: str = "") -> dict[str, Any]:
    """Return a method's fields with searched knobs, and with another label if there is one."""
    return with_knobs(searched.method, knobs) | {"label": label or searched.label}


def losses_by_trial(trials: Sequence[Trial], label: str) -> dict[int, list[float]]:
    """Return the losses of a method's trials by number; a loss that is no number is infinite."""
    losses: dict[int, list[float]] = {}
    for trial in trials:
        if trial["method"] == label:
            loss = trial["loss"]
            losses.setdefault(trial["trial"], []).append(math.inf if loss is None or math.isnan(loss) else loss)
    return losses
