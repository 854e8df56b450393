"""Cells of studies, by bundled spec, row and column."""

from __future__ import annotations

from functools import cache
from typing import Any

from syncline.specs import Experiment, Record, load_spec, study_of


@cache
def records_of_study(spec: str, *settings: str) -> tuple[Experiment, list[Record]]:
    """Return a bundled spec and the records of its study, computed in this process; none if it answers at once."""
    loaded: Experiment = load_spec(spec, list(settings))
    return loaded, study_of(loaded).records(loaded)


@cache
def rows_of_study(spec: str, *settings: str) -> list[dict[str, Any]]:
    """Return the rows of a bundled study, such as ``syncline run`` or ``syncline project`` writes."""
    loaded, records = records_of_study(spec, *settings)
    return study_of(loaded).rows(loaded, records)


def study_cell(spec: str, column: str, scale: float = 1.0, **where: Any) -> Any:
    """Return a column of the only row whose fields have these values, times ``scale`` if it is a number.

    >>> round(study_cell("curvadion-table3", "speedup", network="wan"), 3)
    4.361
    """
    (row,) = (row for row in rows_of_study(spec) if all(row[name] == value for name, value in where.items()))
    value = row[column]
    return value if isinstance(value, str | bool) else value * scale
