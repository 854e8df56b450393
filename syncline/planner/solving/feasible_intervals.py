"""The spans of values that meet a target; each end between two values of the grid is found to a relative millionth."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from syncline.planner.solving.evaluations import Evaluation, Trials
from syncline.planner.solving.variables import Sense

Holds = Literal["always", "never", "from", "up to", "between", "in parts", "unknown"]
"""The values of the grid that meet a target, in words."""

BOUNDS = ("predicted", "optimistic", "pessimistic")
"""The step times to use, in the order of `Evaluation.margins`."""

MAX_ROUNDS = 80
"""Limit on the rounds of a search for the end of a span."""


class FeasibleSpan(NamedTuple):
    """A span of values that meet a target, with its ends; None for an end of the grid."""

    first: float | None
    last: float | None


class FeasibleSpans(NamedTuple):
    """The values that meet a target.

    Attributes:
        holds: the kind of these values, in words.
        spans: all spans of values that meet the target, ascending.
        crossings: the ends of the spans, without the ends of the grid.
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
    grid = trials.variable.grid
    evaluations = trials.evaluate(grid)
    if np.isnan([evaluation.margins[bound] for evaluation in evaluations]).all():
        return FeasibleSpans("unknown", (), ())
    is_met = [_is_met(evaluation, bound) for evaluation in evaluations]
    spans: list[FeasibleSpan] = []
    first: float | None = None
    for (low, is_low_met), (high, is_high_met) in pairwise(zip(grid, is_met, strict=True)):
        if is_high_met and not is_low_met:
            first = _span_end(trials, low, high, bound)
        elif is_low_met and not is_high_met:
            spans.append(FeasibleSpan(first, _span_end(trials, low, high, bound)))
            first = None
    if is_met[-1]:
        spans.append(FeasibleSpan(first, None))
    if len(spans) == 1 and spans[0] == (None, None):
        return FeasibleSpans("always", tuple(spans), ())
    crossings = tuple(end for span in spans for end in span if end is not None)
    return FeasibleSpans(_kind_of(spans), tuple(spans), crossings)


def _is_met(evaluation: Evaluation, bound: int) -> bool:
    """Return whether all targets are met at a bound; an unknown margin (nan) meets none."""
    return bool(evaluation.margins[bound] >= 0)


def _span_end(trials: Trials, low: float, high: float, bound: int) -> float:
    """Return the end of a span between two values, one of which meets the target: the last value that does."""
    for _ in range(MAX_ROUNDS):
        at_low, at_high = trials.evaluate([low, high])
        inner = trials.variable.between(low, high, float(at_low.margins[bound]), float(at_high.margins[bound]))
        if not inner:
            break
        values = [low, *inner, high]
        is_met = [_is_met(evaluation, bound) for evaluation in trials.evaluate(values)]
        index = next(i for i in range(len(values) - 1) if is_met[i] != is_met[i + 1])
        low, high = values[index], values[index + 1]
    return low if _is_met(trials.evaluate([low])[0], bound) else high


def _kind_of(spans: Sequence[FeasibleSpan]) -> Holds:
    """Return the kind of the values in these spans, in words."""
    if not spans:
        return "never"
    if len(spans) > 1:
        return "in parts"
    first, last = spans[0]
    return "from" if last is None else "up to" if first is None else "between"


class SolvedValue(NamedTuple):
    """The value that answers the question, and the values at both bounds of the step time, in ascending order.

    Attributes:
        value: the value; None if all values meet the target (except for workers and delays, where the answer is the
            fewest), if no value does, or if this is unknown.
        low: lower bound; None if all values, or none, would meet the target at that bound.
        high: upper bound; None as for ``low``.
        upward: whether the value and all larger values meet the target; else all up to the value do.
    """

    value: float | None
    low: float | None
    high: float | None
    upward: bool


def solved_value(spans_by_bound: Sequence[FeasibleSpans], sense: Sense, lowest: float) -> SolvedValue:
    """Return the value that answers the question, among the values that meet a target.

    The answer is the least bandwidth from which all higher bandwidths meet the target, the longest latency up to which
    all shorter latencies do, the fewest workers or steps of delay, and the longest period, or the shortest if every
    longer period meets the target.

    Args:
        spans_by_bound: the values that meet the target at each of `BOUNDS`.
        sense: the value that is the answer: the ``least``, ``most``, ``fewest`` or ``longest``.
        lowest: the least value of the grid.
    """
    upward = _is_upward(spans_by_bound, sense)
    value, optimistic, pessimistic = (
        _answer_among(feasible.spans, sense, upward, lowest) for feasible in spans_by_bound
    )
    ends = (optimistic, pessimistic) if upward else (pessimistic, optimistic)
    return SolvedValue(value, *ends, upward)


def _is_upward(spans_by_bound: Sequence[FeasibleSpans], sense: Sense) -> bool:
    """Return whether values above the answer meet the target, by the first bound at which a span has an end."""
    for feasible in spans_by_bound:
        if feasible.crossings:
            if feasible.holds in ("from", "up to"):
                return feasible.holds == "from" or sense == "fewest"
            return sense == "fewest" or (sense == "least" and feasible.spans[-1].last is None)
    return sense in ("least", "fewest")


def _answer_among(spans: Sequence[FeasibleSpan], sense: Sense, upward: bool, smallest: float) -> float | None:
    """Return the end of a span that is the answer; None if there is no such end."""
    if not spans:
        return None
    if sense == "fewest":
        return smallest if spans[0].first is None else spans[0].first
    if upward:
        return spans[-1].first if sense == "least" else spans[0].first
    return spans[0].last if sense == "most" and spans[0].first is None else spans[-1].last
