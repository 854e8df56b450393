"""Cells of studies that answer at once, by bundled spec, row and column."""

from __future__ import annotations

from functools import cache
from typing import Any

from syncline.specs import Experiment, load_spec, study_of


@cache
def rows_of_study(spec: str) -> list[dict[str, Any]]:
    """Return the rows of a bundled study that ``syncline project`` answers, for its unchanged spec."""
    loaded: Experiment = load_spec(spec)
    return study_of(loaded).rows(loaded, [])


def study_cell(spec: str, column: str, scale: float = 1.0, **where: Any) -> Any:
    """Return a column of the only row whose fields have these values, times ``scale`` if it is a number.

    >>> round(study_cell("curvadion-table3", "speedup", network="wan"), 3)
    4.361
    """
    (row,) = (row for row in rows_of_study(spec) if all(row[name] == value for name, value in where.items()))
    value = row[column]
    return value if isinstance(value, str | bool) else value * scale
