"""Tables of the columns that somebody asked for, by the names of ``--json``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group

from syncline.errors import SpecError, one_of
from syncline.experiments.columns import Column, RowsTable, table
from syncline.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from syncline.specs.study import Record

ALL = "all"

MOST_ITEMS = 8
"""Of a list that a cell shows."""

UNITS: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("bytes_per_s", lambda value: f"{format_bytes(value)}/s"),
    ("bytes_per_worker", format_bytes),
    ("bytes", format_bytes),
    ("_s", format_seconds),
)
"""How numbers are shown, by how their names end; others with four digits."""


def chosen_tables(tables: Sequence[Group], rows: Sequence[Record], asked: str) -> list[Group]:
    """The same tables with other columns; one that repeats rows of those before it is left out.

    Args:
        tables: as a command prints them.
        rows: of ``--json``, whose names there are.
        asked: ``all``, or names with commas between.

    Raises:
        SpecError: a name that no row has.
    """
    names = chosen_names(rows, asked)
    shown: set[int] = set()
    out: list[Group] = []
    for one in tables:
        if not isinstance(one, RowsTable) or {*map(id, one.rows)} <= shown:
            continue
        shown |= {*map(id, one.rows)}
        every = [*dict.fromkeys([*one.keys, *names])]
        columns: list[Column] = [(name, cell_of(name)) for name in every]
        left = [number for number, name in enumerate(every) if any(isinstance(row.get(name), str) for row in one.rows)]
        out.append(table(one.title, columns, one.rows, left=left, section=one.section))
    return out


def chosen_names(rows: Sequence[Record], asked: str) -> list[str]:
    """Those that are asked for, each once.

    Raises:
        SpecError: a name that no row has.

    >>> chosen_names([{"method": "diloco", "loss": 2.0}], "all")
    ['method', 'loss']
    """
    known = [*dict.fromkeys(name for row in rows for name in row)]
    wanted = [*dict.fromkeys(part.strip() for part in asked.split(","))]
    if wanted == [ALL]:
        return known
    for name in wanted:
        if name not in known:
            raise SpecError("--columns", name, one_of([ALL, *known], name))
    return wanted


def cell_of(name: str) -> Callable[[Record], str]:
    """Shows a field with its unit; "-" for none."""
    unit = next((show for end, show in UNITS if name.endswith(end)), _plain)
    return lambda row: _cell(row.get(name), unit)


def _plain(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _cell(value: Any, unit: Callable[[float], str]) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return unit(value)
    if isinstance(value, list | tuple):
        return ", ".join(_cell(one, unit) for one in value[:MOST_ITEMS]) + (", ..." if len(value) > MOST_ITEMS else "")
    return str(value)
