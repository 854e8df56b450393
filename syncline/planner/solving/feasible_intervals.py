"""The spans of values that meet a target: every crossing between tried values, found to a relative millionth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from syncline.planner.solving.evaluations import Evaluation, Trials
from syncline.planner.solving.variables import Sense

Holds = Literal["always", "never", "from", "up to", "between", "in parts", "unknown"]
"""The values of the grid that meet a target."""

BOUNDS = ("predicted", "optimistic", "pessimistic")
"""The step times to use, in the order of the margins of `Tried`."""

MOST_ROUNDS = 80


class FeasibleSpan(NamedTuple):
    """A span of values that meet a target, ends included; None: up to the end of the grid."""

    first: float | None
    last: float | None


class FeasibleSpans(NamedTuple):
    """The values that meet a target.

    Attributes:
        holds: the kind of these values, in a word.
        spans: all spans of values that meet it, ascending.
        crossings: the ends of the spans, without those at the ends of the grid.
    """

    holds: Holds
    spans: tuple[FeasibleSpan, ...]
    crossings: tuple[float, ...]


def feasible_spans(trials: Trials, bound: int = 0) -> FeasibleSpans:
    """Return the spans of values that meet a target.

    Args:
        trials: trials of a variable.
        bound: index into `BOUNDS`.
    """
    grid = trials.sought.grid
    tried = trials.evaluate(grid)
    if np.isnan([trial.margins[bound] for trial in tried]).all():
        return FeasibleSpans("unknown", (), ())
    is_met = [_is_met(trial, bound) for trial in tried]
    spans: list[FeasibleSpan] = []
    first: float | None = None
    for place, is_good in enumerate(is_met):
        before = is_met[place - 1] if place else None
        if is_good and before is False:
            first = _end(trials, grid[place - 1], grid[place], bound)
        elif not is_good and before:
            spans.append(FeasibleSpan(first, _end(trials, grid[place - 1], grid[place], bound)))
            first = None
    if is_met[-1]:
        spans.append(FeasibleSpan(first, None))
    if len(spans) == 1 and spans[0] == (None, None):
        return FeasibleSpans("always", tuple(spans), ())
    crossings = tuple(end for span in spans for end in span if end is not None)
    return FeasibleSpans(_word(spans), tuple(spans), crossings)


def _is_met(trial: Evaluation, bound: int) -> bool:
    return bool(trial.margins[bound] >= 0)  # nan is not


def _end(trials: Trials, low: float, high: float, bound: int) -> float:
    """Return the value next to a crossing that meets the target."""
    for _ in range(MOST_ROUNDS):
        at_low, at_high = trials.evaluate([low, high])
        inner = trials.sought.between(low, high, float(at_low.margins[bound]), float(at_high.margins[bound]))
        if not inner:
            break
        values = [low, *inner, high]
        is_met = [_is_met(trial, bound) for trial in trials.evaluate(values)]
        place = next(i for i in range(len(values) - 1) if is_met[i] != is_met[i + 1])
        low, high = values[place], values[place + 1]
    return low if _is_met(trials.evaluate([low])[0], bound) else high


def _word(spans: Sequence[FeasibleSpan]) -> Holds:
    if not spans:
        return "never"
    if len(spans) > 1:
        return "in parts"
    first, last = spans[0]
    return "from" if last is None else "up to" if first is None else "between"


class SolvedValue(NamedTuple):
    """The wanted value, with its values at both bounds of the clock, in ascending order.

    Attributes:
        value: the value; None if all values meet the target (except for workers and delays, where it is the fewest), if
            none does, or if it is unknown.
        low: lower bound; None if all values, or none, would meet the target at that bound.
        high: upper bound; None as for ``low``.
        upward: whether the value and all above it meet the target; else all up to it do.
    """

    value: float | None
    low: float | None
    high: float | None
    upward: bool


def solved_value(by_bound: Sequence[FeasibleSpans], sense: Sense, lowest: float) -> SolvedValue:
    """Return the value that answers the question, among the values that meet a target.

    For a bandwidth it is the least from which all higher ones meet the target, for a latency the longest up to which
    all shorter ones do, for workers and delays the fewest, and for a period the longest, or the shortest if every
    longer one meets it.

    Args:
        by_bound: the values that meet the target at each of `BOUNDS`.
        sense: the value that is the answer: the ``least``, ``most``, ``fewest`` or ``longest``.
        lowest: the least value of the grid.
    """
    upward = _upward(by_bound, sense)
    value, optimistic, pessimistic = (_wanted(bound_met.spans, sense, upward, lowest) for bound_met in by_bound)
    ends = (optimistic, pessimistic) if upward else (pessimistic, optimistic)
    return SolvedValue(value, *ends, upward)


def _upward(by_bound: Sequence[FeasibleSpans], sense: Sense) -> bool:
    for bound_met in by_bound:
        if bound_met.crossings:
            if bound_met.holds in ("from", "up to"):
                return bound_met.holds == "from" or sense == "fewest"
            return sense == "fewest" or (sense == "least" and bound_met.spans[-1].last is None)
    return sense in ("least", "fewest")


def _wanted(spans: Sequence[FeasibleSpan], sense: Sense, upward: bool, smallest: float) -> float | None:
    if not spans:
        return None
    if sense == "fewest":
        return smallest if spans[0].first is None else spans[0].first
    if upward:
        return spans[-1].first if sense == "least" else spans[0].first
    return spans[0].last if sense == "most" and spans[0].first is None else spans[-1].last
