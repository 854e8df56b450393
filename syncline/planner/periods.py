"""The period at which methods that do not exchange in every step are compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from syncline.errors import SpecError
from syncline.methods import MethodBase, method_of, preset_of

COMPARED_PERIOD = 30
"""Default steps between exchanges for comparisons, as in the fits of losses (Charles et al., 2025)."""

PRESET = "preset"
"""Value of the option ``--period`` with which each method keeps its own period."""


def with_field(method: MethodBase, name: str, value: Any) -> MethodBase | None:
    """Return the method with another value of a field, or None if it cannot have that value."""
    try:
        changed_method: MethodBase = type(method).model_validate(dict(method) | {name: value})
    except ValidationError:
        return None
    return changed_method


def exchanges_now_and_then(method: MethodBase) -> bool:
    """Return whether a method has a period of more than one step."""
    return int(getattr(method, "period", 1)) > 1


def has_own_period(candidate: Any) -> bool:
    """Return whether a candidate of `methods_at_period` has its own period: a method, or fields with a period."""
    return isinstance(candidate, MethodBase) or (isinstance(candidate, Mapping) and "period" in candidate)


def method_from(candidate: Any, path: str = "--method") -> MethodBase:
    """Return the method that a name or a mapping of fields describes; return a method unchanged."""
    return method_of(preset_of(candidate, path) if isinstance(candidate, str) else candidate)


def methods_at_period(methods: Iterable[Any], period: str | int | None, path: str = "--method") -> list[MethodBase]:
    """Return methods with one period, for a comparison.

    Args:
        methods: names, mappings of fields, or methods.
        period: steps between exchanges, for all methods that do not exchange in every step; ``preset``: each method's
            own; None: `COMPARED_PERIOD` for names, and for mappings without a period.
    """
    steps = COMPARED_PERIOD
    if period is not None and period != PRESET:
        steps = parse_period(period)
    compared = []
    for candidate in methods:
        method = method_from(candidate, path)
        keeps_period = period == PRESET or (period is None and has_own_period(candidate))
        if exchanges_now_and_then(method) and not keeps_period:
            changed_method = with_field(method, "period", steps)
            if changed_method is None:
                raise SpecError("--period", period, f"a period that {method.name} can have, or {PRESET}")
            method = changed_method
        compared.append(method)
    return compared


def parse_period(period: str | int) -> int:
    """Return the number of steps between exchanges that an option sets."""
    text = str(period).strip()
    is_whole = text.isascii() and text.isdecimal() and len(text) < 20  # `int` refuses very long texts
    if not (is_whole and 1 <= int(text) <= MOST_PERIOD):
        raise SpecError("--period", period, f"a whole number of steps from 1 to {MOST_PERIOD:,}, or {PRESET}")
    return int(text)


MOST_PERIOD = 1_000_000
"""Limit on the steps between exchanges."""


def period_of(method: MethodBase) -> int:
    """Return the steps between exchanges of a method: its period, or else the longest of its exchanges' periods."""
    period = getattr(method, "period", None)
    if period is not None:
        return int(period)
    num_parameters, workers = 1, 2  # the periods do not depend on these numbers
    return max((int(exchange.period) for exchange in method.exchanges(num_parameters, workers)), default=1)
