"""Tables for the terminal, as columns: a heading, and a function that shows a row's value as text."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.text import Text

from syncline.errors import SpecError, one_of
from syncline.planner.tables.layout import Sheet
from syncline.units import format_bytes, format_seconds, unit_of_column

if TYPE_CHECKING:
    from syncline.specs.study import Record

Column: TypeAlias = "tuple[str, Callable[[Record], str]]"
"""The heading of a column, and the function from a row to the text of its cell."""

NOTE_WIDTH = 110
"""Largest number of characters of a line of text."""


class RowsTable(Group):
    """A drawn table together with its rows, so that other columns of the rows can be shown.

    Args:
        parts: the drawn parts.
        title: title above the table.
        rows: one row per line.
        section: name of a field; a line is drawn where it changes.
        keys: names of the fields that distinguish rows.
    """

    def __init__(
        self, *parts: RenderableType, title: str, rows: list[Record], section: str = "", keys: Sequence[str] = ()
    ) -> None:
        super().__init__(*parts)
        self.title, self.rows, self.section, self.keys = title, rows, section, tuple(keys)


def table(
    title: str,
    columns: list[Column],
    rows: list[Record],
    note: str = "",
    text_columns: Collection[int] = (0,),
    section: str = "",
    keys: Sequence[str] = (),
) -> Group:
    """Return a title, a table and a note.

    Args:
        title: title of the table.
        columns: heading of each column, and the function that shows its cell of a row.
        rows: rows of the table.
        note: text below the table.
        text_columns: indices of the columns with text, which is aligned to the left.
        section: field of a row that begins a new block of the table when its value changes.
        keys: see `RowsTable`.
    """
    cells = [[show(row) for _, show in columns] for row in rows]
    ends_section = [bool(section) and row[section] != next_row[section] for row, next_row in pairwise(rows)]
    ends_section += [False] if rows else []
    sheet = Sheet([heading for heading, _ in columns], cells, text_columns, ends_section)
    notes = [Constrain(Text(note + "\n"), NOTE_WIDTH)] if note else []
    return RowsTable(Text(title, style="bold"), sheet, *notes, title=title, rows=rows, section=section, keys=keys)


def shown(name: str, text: Callable[[Any], str]) -> Callable[[Record], str]:
    """Return a function from a row to the text of a field, which ``text`` makes of its value; "-" for None."""
    return lambda row: "-" if row.get(name) is None else text(row[name])


def seconds_of(name: str) -> Callable[[Record], str]:
    """Return a function from a row to the text of a time in seconds; "-" if it is None or infinite."""
    return shown(name, lambda seconds: "-" if seconds == math.inf else format_seconds(seconds))


def number_of(name: str) -> Callable[[Record], str]:
    """Return a function from a row to the text of a number with four digits; "-" for None."""
    return shown(name, four_digits)


def digits_of(name: str, form: str) -> Callable[[Record], str]:
    """Return a function from a row to the text of a number in a Python format; "-" for None."""
    return shown(name, lambda value: format(value, form))


def times_of(name: str) -> Callable[[Record], str]:
    """Return a function from a row to the text of a multiple, as ``1.50x``; "-" for None."""
    return shown(name, lambda value: f"{value:.2f}x")


def percent_of(name: str) -> Callable[[Record], str]:
    """Return a function from a row to the text of a share in percent, without the sign; "-" for None."""
    return shown(name, lambda value: f"{100 * value:.2f}")


def text_of(name: str) -> Column:
    """Return a column of names, with the field's name as heading."""
    return name, lambda row: row[name]


def count_of(name: str) -> Column:
    """Return a column of integers with commas, with the field's name as heading; "-" for None."""
    return name, shown(name, lambda value: f"{value:,}")


def four_digits(value: float) -> str:
    """Return a number with four significant digits, including zeros."""
    return format(value, "#.4g")


def exposed_share(row: Record) -> float | None:
    """Return the share of a step that waits for the network; None if it is unknown or the step takes no time."""
    waits_s = row["exposed_communication_s"]
    return None if waits_s is None or not row["step_time_s"] else float(waits_s / row["step_time_s"])


def waiting_text(row: Record) -> str:
    """Return the share of a step that waits for the network in percent; "-" if it is unknown."""
    share = exposed_share(row)
    return "-" if share is None else f"{share:.0%}"


TOO_LARGE = " *"
"""Mark behind the memory of a method that exceeds the hardware's."""


def memory_text(row: Record) -> str:
    """Return a worker's memory, with the mark `TOO_LARGE` if it does not fit."""
    return format_bytes(row["memory_bytes"]) + (TOO_LARGE if row["fits"] is False else "")


RATE: Column = ("rate", digits_of("lr", "g"))
"""The column of learning rates."""

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
    chosen_groups: list[Group] = []
    for source in tables:
        if not isinstance(source, RowsTable) or {*map(id, source.rows)} <= shown_rows:
            continue
        shown_rows |= {*map(id, source.rows)}
        headings = [*dict.fromkeys([*source.keys, *names])]
        columns: list[Column] = [(name, cell_of(name)) for name in headings]
        text_columns = [
            index for index, name in enumerate(headings) if any(isinstance(row.get(name), str) for row in source.rows)
        ]
        chosen_groups.append(
            table(source.title, columns, source.rows, text_columns=text_columns, section=source.section)
        )
    return chosen_groups


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
    """Return a function from a row to the text of any field with its unit; "-" for None."""
    number_text = FORMATS.get(unit_of_column(name), _plain_number)
    return lambda row: _cell_text(row.get(name), number_text)


def _plain_number(value: float) -> str:
    """Return a whole number with commas, or another number with four digits."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _cell_text(value: Any, number_text: Callable[[float], str]) -> str:
    """Return any value as text, numbers by ``number_text``; "-" for None and numbers that are not finite."""
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
