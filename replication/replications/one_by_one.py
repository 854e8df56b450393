"""A search that changes one hyperparameter at a time: which point the next trial tries.

The rule depends on the trials so far alone. Let b be the best of them.

1. Trial 1 is the method's default. The trials ``contained_at`` are the best point so far of a contained method, if the
   method contains one and has not tried this point.
2. Every other trial is the first point not yet tried in this list: for the factors 2, sqrt 2, 2^(1/4), and then their
   eighth roots: for each hyperparameter in its order (rates come first): b with this hyperparameter times the factor,
   and divided by it. For a decay rate the factor changes its distance to 1. A hyperparameter whose range has whole ends
   stays a whole number.

After the first, ``side_by_side`` trials at a time are proposed from the trials before them, each at another point.
A factor that improves the loss moves b, so the next trial goes on in this direction: no range ends the search.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from replication.replications.choosing import to_three_digits
from replication.replications.spec import Contained, OneByOne, SearchedMethod
from syncline import SpecError
from syncline.methods import method_of
from syncline.runs.sweep.search import Tuned, value_at

FACTORS = (2.0, 2.0**0.5, 2.0**0.25)
SAME = 1.02
"""Two values of a hyperparameter within this factor are the same."""

Knobs = dict[str, float]


class Tried(NamedTuple):
    """A trial: its hyperparameters, its last loss (infinite if it diverged or was stopped), and losses by step."""

    knobs: Knobs
    loss: float
    losses: Mapping[int, float]


def ranges_of(method: SearchedMethod) -> dict[str, Tuned]:
    """Return the range of each hyperparameter by its path."""
    return {path: Tuned.parse(f"method.{path}={ends}") for path, ends in method.tune.items()}


def default_knobs(method: SearchedMethod) -> Knobs:
    """Return the hyperparameters of a method's spec.

    Raises:
        SpecError: the spec leaves one of them open.
    """
    spec = method_of(method.method)
    knobs = {path: value_at(spec, path) for path in method.tune}
    for path, value in knobs.items():
        if value is None:
            raise SpecError(f"methods: {method.label}: {path}", None, "a value, with which the search begins")
    return {path: float(value) for path, value in knobs.items()}


def contained_knobs(contained: Contained, trials: Sequence[Tried]) -> Knobs:
    """Return the hyperparameters with which a method is the best trial of the method that it contains."""
    best = best_of(trials)
    return {path: best.knobs[value] if isinstance(value, str) else value for path, value in contained.knobs.items()}


def best_of(trials: Sequence[Tried]) -> Tried:
    """Return the trial with the lowest loss, the earliest of several."""
    return min(trials, key=lambda trial: trial.loss)


def trials_before(rule: OneByOne, number: int) -> int:
    """Return how many trials must be finished before a trial is proposed, by the trial's number from 1.

    >>> [trials_before(OneByOne(side_by_side=2), number) for number in (1, 2, 3, 4, 5, 6)]
    [0, 1, 1, 3, 3, 5]
    """
    return 0 if number == 1 else 1 + (number - 2) // rule.side_by_side * rule.side_by_side


def next_knobs(
    method: SearchedMethod,
    rule: OneByOne,
    trials: Sequence[Tried],
    contained: Sequence[Tried],
    pending: Sequence[Knobs] = (),
) -> Knobs:
    """Return the hyperparameters of a method's next trial.

    Args:
        method: method with the ranges that say which hyperparameters are distances to 1.
        rule: the search.
        trials: the method's finished trials before this one.
        contained: as many trials of the contained method, if the next trial needs them.
        pending: points of earlier trials that are training.
    """
    if not trials:
        return default_knobs(method)
    points = [*(trial.knobs for trial in trials), *pending]
    if method.contains and len(points) + 1 in rule.contained_at:
        knobs = contained_knobs(method.contains, contained)
        if not _is_tried(method, knobs, points):
            return knobs
    # When all points around the best trial are tried, those around the second best follow, and so on.
    for trial in sorted(trials, key=lambda trial: trial.loss):
        for point in neighbours(method, trial.knobs):
            if not _is_tried(method, point, points):
                return point
    raise AssertionError("every point around a trial is tried")


def neighbours(method: SearchedMethod, knobs: Knobs) -> Iterator[Knobs]:
    """Yield the points that differ from a point in one hyperparameter, the nearest last."""
    for factor in (*FACTORS, *(factor**0.125 for factor in FACTORS)):
        for path, tuned in ranges_of(method).items():
            is_whole = isinstance(tuned.low, int) and isinstance(tuned.high, int)
            number = _searched_number(tuned, knobs[path])
            changed_numbers = (number * factor, number / factor) if number else (tuned.low, tuned.high)
            for changed in changed_numbers:
                if tuned.below_one and changed > 1:
                    continue
                value = tuned.value(changed)
                yield knobs | {path: max(1, round(value)) if is_whole else to_three_digits(value)}


def _searched_number(tuned: Tuned, value: float) -> float:
    """Return the number that a factor multiplies: the value, or its distance to 1."""
    return 1 - value if tuned.below_one else value


def _is_tried(method: SearchedMethod, knobs: Knobs, points: Sequence[Knobs]) -> bool:
    """Return whether one of the points has the same hyperparameters, each within the factor ``SAME``."""
    ranges = ranges_of(method)
    for point in points:
        is_same = True
        for path, tuned in ranges.items():
            low, high = sorted((_searched_number(tuned, knobs[path]), _searched_number(tuned, point[path])))
            is_same &= low == high or (low > 0 and high / low < SAME)
        if is_same:
            return True
    return False


def stop_losses(rule: OneByOne, trials: Sequence[Tried]) -> dict[int, float]:
    """Return the loss by step above which the next trial is hopeless; empty for the first trials."""
    if len(trials) < rule.never_stopped:
        return {}
    bounds = {}
    for step in rule.stop_at:
        losses = [trial.losses[step] for trial in trials if math.isfinite(trial.losses.get(step, math.inf))]
        if losses:
            bounds[step] = max(median(losses), min(losses) + rule.stop_margin)
    return bounds
