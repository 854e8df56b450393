"""Bounds that a calibration writes into its file: what its measurements say about the errors of predictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncline.costmodel.numerics.scope import RANGES, Scope
from syncline.costmodel.numerics.uncertainty import Uncertainty
from syncline.errors import SpecError

NEEDED = ("low", "high", "points", "basis")
EXPECTED = "what a calibration writes: {low: 0.97, high: 1.05, points: 24, basis: ...}, and ranges of " + (
    ", ".join(RANGES)
)


def parse_bounds(value: Any, path: str = "bounds") -> Uncertainty:
    """Return the bounds of a calibrated network or machine from the fields of its file.

    Raises:
        SpecError: a field is unknown, missing or unusable.
    """
    if isinstance(value, Uncertainty):
        return value
    fields = {*NEEDED, *RANGES, "families"}
    if not isinstance(value, Mapping) or not {*NEEDED} <= {*value} <= fields:
        raise SpecError(path, dict(value) if isinstance(value, Mapping) else value, EXPECTED)
    try:
        ranges: dict[str, Any] = {name: tuple(map(float, value[name])) for name in RANGES if name in value}
        scope = Scope(tuple(map(str, value.get("families", ()))), **ranges)
        return Uncertainty(
            float(value["low"]), float(value["high"]), int(value["points"]), str(value["basis"]), 0, scope
        )
    except (TypeError, ValueError):
        raise SpecError(path, dict(value), EXPECTED) from None


def bounds_fields(bounds: Uncertainty) -> dict[str, Any]:
    """Return the fields from which `parse_bounds` makes the same bounds again."""
    ranges: dict[str, Any] = {
        name: [int(bound) if bound == int(bound) else bound for bound in value]
        for name in RANGES
        if (value := getattr(bounds.scope, name)) is not None
    }
    ranges |= {"families": list(bounds.scope.families)} if bounds.scope.families else {}
    return {"low": bounds.low, "high": bounds.high, "points": bounds.points, "basis": bounds.basis} | ranges
