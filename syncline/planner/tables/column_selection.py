"""Tables of the columns that the user selects, by the names of ``--json``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group

from syncline.errors import SpecError, one_of
from syncline.planner.tables.columns import Column, RowsTable, table
from syncline.units import format_bytes, format_seconds, unit_of_column

if TYPE_CHECKING:
    from syncline.specs.study import Record

ALL = "all"

MOST_ITEMS = 8
"""Largest number of items of a list that a cell shows."""

FORMATS: dict[str, Callable[[float], str]] = {
    "B/s": lambda value: f"{format_bytes(value)}/s",
    "B": format_bytes,
    "s": format_seconds,
}
"""Formats of numbers by their units; other numbers have four digits."""


def chosen_tables(tables: Sequence[Group], rows: Sequence[Record], selection: str) -> list[Group]:
    """Return the same tables with the selected columns; a table that repeats rows of earlier tables is left out.

    Args:
        tables: tables as a command prints them.
        rows: rows of ``--json``, whose names can be selected.
        selection: ``all``, or names with commas between.

    Raises:
        SpecError: a name that no row has.
    """
    names = chosen_names(rows, selection)
    shown_rows: set[int] = set()
    chosen: list[Group] = []
    for source in tables:
        if not isinstance(source, RowsTable) or {*map(id, source.rows)} <= shown_rows:
            continue
        shown_rows |= {*map(id, source.rows)}
        headings = [*dict.fromkeys([*source.keys, *names])]
        columns: list[Column] = [(name, cell_of(name)) for name in headings]
        text_columns = [
            index for index, name in enumerate(headings) if any(isinstance(row.get(name), str) for row in source.rows)
        ]
        chosen.append(table(source.title, columns, source.rows, text_columns=text_columns, section=source.section))
    return chosen


def chosen_names(rows: Sequence[Record], selection: str) -> list[str]:
    """Return the selected names, each once.

    Raises:
        SpecError: a name that no row has.

    >>> chosen_names([{"method": "diloco", "loss": 2.0}], "all")
    ['method', 'loss']
    """
    available = [*dict.fromkeys(name for row in rows for name in row)]
    selected = [*dict.fromkeys(part.strip() for part in selection.split(","))]
    if selected == [ALL]:
        return available
    for name in selected:
        if name not in available:
            raise SpecError("--columns", name, one_of([ALL, *available], name))
    return selected


def cell_of(name: str) -> Callable[[Record], str]:
    """Return a function that shows a field with its unit; "-" for none."""
    number_text = FORMATS.get(unit_of_column(name), _plain_number)
    return lambda row: _cell_text(row.get(name), number_text)


def _plain_number(value: float) -> str:
    """Return a whole number with commas, or another number with four digits."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _cell_text(value: Any, number_text: Callable[[float], str]) -> str:
    """Return any value as text; ``number_text`` shows numbers."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number_text(value)
    if isinstance(value, list | tuple):
        items = ", ".join(_cell_text(item, number_text) for item in value[:MOST_ITEMS])
        return items + (", ..." if len(value) > MOST_ITEMS else "")
    return str(value)
