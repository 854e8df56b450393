"""Verdicts on a paper's value and ours, by a tolerance that was fixed beforehand."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import ROUND_DOWN, Decimal, InvalidOperation
from itertools import pairwise
from typing import TypeAlias

from replication.replications.verdicts import SURE
from syncline import SpecError

AGREE, DIFFER, TREND, UNDECIDED, NOT_CHECKABLE = "agree", "differ", "trend", "undecided", "not checkable"
SAYS = (AGREE, DIFFER, TREND, UNDECIDED)
"""Verdicts on rows with a computed value."""

VERDICTS = (*SAYS, NOT_CHECKABLE)

Value: TypeAlias = "float | str | Mapping[str, float]"

ACCEPTED = "rounding, cut off, N %, within N, at most, at least, between, order, resampled or text"
RESAMPLED = "resampled"
SLACK = 1e-9
"""Relative slack, because a number that ends in 5 may have a rounding error."""

_SIGNS = re.compile(r"\s*(<=|<|=)\s*")


def number_in(printed: str) -> Decimal | None:
    """Return a printed number as a decimal, or None for any other text; commas separate thousands.

    >>> number_in("1,813"), number_in(".37"), number_in("a < b")
    (Decimal('1813'), Decimal('0.37'), None)
    """
    try:
        return Decimal(printed.replace(",", ""))
    except InvalidOperation:
        return None


def verdict_of(printed: str, ours: Value | None, tolerance: str = "") -> str:
    """Return the verdict on our value beside the paper's.

    Args:
        printed: the paper's value as it prints it, because its digits show its precision. An order has names from low
            to high: ``aligned < misaligned``, ``a <= b``, ``a = b`` (equal within 1 %). A range is ``60 to 70``.
        ours: a number or a text; for an order, a number for each of its names; None if nothing was computed.
        tolerance: ``rounding`` (half a unit of the last printed digit, the default for a number), ``cut off`` (the same
            digits after truncation), ``5 %`` of the paper's value, ``within 0.1`` of it, ``at most`` or ``at least`` if
            the paper's value is a bound, ``between`` for a range, ``order``, ``text`` (equal texts), or ``resampled``
            (ours is the probability of the order over trials and seeds; NaN with too few seeds).

    Returns:
        ``agree`` or ``differ``; for an order ``trend`` or ``differ``, for a probability that decides neither
        ``undecided``; ``not checkable`` without a value.

    Raises:
        SpecError: there is no such tolerance.

    >>> verdict_of("1.020", 1.0201), verdict_of("0.93", 0.9373), verdict_of("0.93", 0.9373, "cut off")
    ('agree', 'differ', 'agree')
    >>> verdict_of("aligned < turned", {"aligned": 1.1, "turned": 3.0}, "order")
    'trend'
    """
    if ours is None:
        return NOT_CHECKABLE
    if isinstance(ours, Mapping):
        return TREND if _in_order(printed, ours) else DIFFER
    if tolerance == RESAMPLED:
        if float(ours) >= SURE:
            return TREND
        return DIFFER if float(ours) <= 1 - SURE else UNDECIDED
    if isinstance(ours, str) or tolerance == "text":
        return AGREE if str(ours) == printed else DIFFER
    return AGREE if _number_holds(printed, ours, tolerance) else DIFFER


def names_in(order: str) -> list[str]:
    """Return the names of an order, from low to high."""
    return _SIGNS.split(order.strip())[::2]


def _in_order(order: str, ours: Mapping[str, float]) -> bool:
    """Return whether the values have an order such as ``a < b <= c = d``; equal values differ by at most 1 %."""
    values = [float(ours[name]) for name in names_in(order)]
    for sign, (value, next_value) in zip(_SIGNS.findall(order.strip()), pairwise(values), strict=True):
        if sign == "=":
            holds = math.isclose(value, next_value, rel_tol=0.01)
        else:
            holds = value < next_value or (sign == "<=" and value == next_value)
        if not holds:
            return False
    return True


def _number_holds(printed: str, ours: float, tolerance: str) -> bool:
    if not math.isfinite(ours):
        return False
    if tolerance == "between":
        low, high = (float(end) for end in printed.split(" to "))
        return low <= ours <= high
    paper = number_in(printed)
    if paper is None:
        raise SpecError("paper", printed, f"a number, as ours is {ours!r}")
    if tolerance == "cut off":
        return Decimal(repr(ours * (1 + SLACK))).quantize(paper, ROUND_DOWN) == paper
    value = float(paper)
    if tolerance in ("at most", "at least"):
        return ours <= value if tolerance == "at most" else ours >= value
    return abs(ours - value) <= _allowed(paper, tolerance) + SLACK * abs(value)


def _allowed(paper: Decimal, tolerance: str) -> float:
    if tolerance in ("", "rounding"):
        return 0.5 * 10.0 ** int(paper.as_tuple().exponent)
    relative, absolute = re.fullmatch(r"([\d.e-]+) %", tolerance), re.fullmatch(r"within ([\d.e-]+)", tolerance)
    if relative:
        return float(relative[1]) / 100 * abs(float(paper))
    if absolute:
        return float(absolute[1])
    raise SpecError("tolerance", tolerance, ACCEPTED)
