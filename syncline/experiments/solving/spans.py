"""From where to where a target is met: every crossing between values that were tried, each to a millionth of itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from syncline.experiments.solving.sought import Sense
from syncline.experiments.solving.tried import Trials, Tried

Holds = Literal["always", "never", "from", "up to", "between", "in parts", "unknown"]
"""Where a target is met, of all values that are looked at."""

BOUNDS = ("predicted", "optimistic", "pessimistic")
"""By which step times; places in the margins of `Tried`."""

MOST_ROUNDS = 80


class MetSpan(NamedTuple):
    """Values that meet a target, ends and all; None: as far as is looked."""

    first: float | None
    last: float | None


class Met(NamedTuple):
    """Where a target is met.

    Attributes:
        holds: in a word.
        spans: all values that meet it, ascending.
        crossings: their ends, but for those of what is looked at.
    """

    holds: Holds
    spans: tuple[MetSpan, ...]
    crossings: tuple[float, ...]


def met(trials: Trials, bound: int = 0) -> Met:
    """Where a target is met.

    Args:
        trials: of a variable.
        bound: of `BOUNDS`.
    """
    grid = trials.sought.grid
    tried = trials.at(grid)
    if np.isnan([one.margins[bound] for one in tried]).all():
        return Met("unknown", (), ())
    good = [_is_met(one, bound) for one in tried]
    spans: list[MetSpan] = []
    first: float | None = None
    for place, here in enumerate(good):
        before = good[place - 1] if place else None
        if here and before is False:
            first = _end(trials, grid[place - 1], grid[place], bound)
        elif not here and before:
            spans.append(MetSpan(first, _end(trials, grid[place - 1], grid[place], bound)))
            first = None
    if good[-1]:
        spans.append(MetSpan(first, None))
    if len(spans) == 1 and spans[0] == (None, None):
        return Met("always", tuple(spans), ())
    crossings = tuple(end for span in spans for end in span if end is not None)
    return Met(_word(spans), tuple(spans), crossings)


def _is_met(one: Tried, bound: int) -> bool:
    return bool(one.margins[bound] >= 0)  # nan is not


def _end(trials: Trials, low: float, high: float, bound: int) -> float:
    """The value next to a crossing that meets the target."""
    for _ in range(MOST_ROUNDS):
        at_low, at_high = trials.at([low, high])
        inner = trials.sought.between(low, high, float(at_low.margins[bound]), float(at_high.margins[bound]))
        if not inner:
            break
        values = [low, *inner, high]
        good = [_is_met(one, bound) for one in trials.at(values)]
        place = next(i for i in range(len(values) - 1) if good[i] != good[i + 1])
        low, high = values[place], values[place + 1]
    return low if _is_met(trials.at([low])[0], bound) else high


def _word(spans: Sequence[MetSpan]) -> Holds:
    if not spans:
        return "never"
    if len(spans) > 1:
        return "in parts"
    first, last = spans[0]
    return "from" if last is None else "up to" if first is None else "between"


class FoundValue(NamedTuple):
    """The value that is asked for, and what it is by either bound of the clock, in order.

    Attributes:
        value: None where all values meet the target (but of workers the fewest), none, or nobody knows.
        low: None where with that bound any value would do, or none.
        high: likewise.
        upward: whether the target is met from the value on; else up to it.
    """

    value: float | None
    low: float | None
    high: float | None
    upward: bool


def found_value(by_bound: Sequence[Met], sense: Sense, least: float) -> FoundValue:
    """Of values that meet a target the one that is asked for.

    Of bandwidths the least from which on every higher one meets it, too; of latencies the most up to which every
    shorter one does; of workers the fewest; of periods the longest, or the shortest where every longer one would do.

    Args:
        by_bound: where the target is met, as `BOUNDS` has it.
        sense: which value is asked for.
        least: that was looked at.
    """
    upward = _upward(by_bound, sense)
    value, optimistic, pessimistic = (_wanted(one.spans, sense, upward, least) for one in by_bound)
    ends = (optimistic, pessimistic) if upward else (pessimistic, optimistic)
    return FoundValue(value, *ends, upward)


def _upward(by_bound: Sequence[Met], sense: Sense) -> bool:
    for one in by_bound:
        if one.crossings:
            if one.holds in ("from", "up to"):
                return one.holds == "from" or sense == "fewest"
            return sense == "fewest" or (sense == "least" and one.spans[-1].last is None)
    return sense in ("least", "fewest")


def _wanted(spans: Sequence[MetSpan], sense: Sense, upward: bool, least: float) -> float | None:
    if not spans:
        return None
    if sense == "fewest":
        return least if spans[0].first is None else spans[0].first
    if upward:
        return spans[-1].first if sense == "least" else spans[0].first
    return spans[0].last if sense == "most" and spans[0].first is None else spans[-1].last
