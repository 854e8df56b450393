"""Tables for the terminal: rows, shown by the columns of `syncline.columns`."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.text import Text

from syncline.columns import Column, column_of, is_declared
from syncline.errors import SpecError, one_of
from syncline.planner.tables.layout import Sheet

if TYPE_CHECKING:
    from syncline.specs.study import Record

ColumnNames: TypeAlias = "str | Iterable[str | Column]"
"""Names of columns with spaces between, or names and columns of another package."""

NOTE_WIDTH = 110
"""Largest number of characters of a line of text."""

TEXT_WIDTH = 120
"""Number of characters per line of tables as plain text."""

TOO_LARGE = " *"
"""Mark behind the memory of a method that exceeds the hardware's."""

EXTRAPOLATED = " ~"
"""Mark behind a loss outside the range that a fit has seen."""

ALL = "all"


class RowsTable(Group):
    """A drawn table together with its rows, so that other columns of the rows can be shown.

    Args:
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
    columns: ColumnNames,
    rows: list[Record],
    *,
    note: str = "",
    section: str = "",
    keys: Sequence[str] = (),
    bounds: Collection[str] = (),
    values: Mapping[str, Callable[[Record], Any]] | None = None,
) -> Group:
    """Return a title, a table and a note.

    Args:
        columns: names of the columns, with spaces between.
        section: field of a row that begins a new block of the table when its value changes.
        keys: see `RowsTable`.
        bounds: columns that show the distances of their bounds in percent, in rows that have bounds.
        values: functions from a row to the value of a column, for columns that the rows do not have.
    """
    names = columns.split() if isinstance(columns, str) else columns
    table_columns = [column if isinstance(column, Column) else column_of(column) for column in names]
    functions = values or {}
    cells, ends_section = [], []
    for index, row in enumerate(rows):
        row_cells = []
        for column in table_columns:
            text = cell_text(row, column, functions.get(column.name))
            row_cells.append(text + bounds_text(row, column.name) if column.name in bounds else text)
        cells.append(row_cells)
        is_last = index == len(rows) - 1
        ends_section.append(bool(section) and not is_last and row[section] != rows[index + 1][section])
    text_columns = [index for index, column in enumerate(table_columns) if _is_text(column, rows)]
    sheet = Sheet([column.header for column in table_columns], cells, text_columns, ends_section)
    notes = [Constrain(Text(note + "\n"), NOTE_WIDTH)] if note else []
    return RowsTable(Text(title, style="bold"), sheet, *notes, title=title, rows=rows, section=section, keys=keys)


def _is_text(column: Column, rows: Sequence[Record]) -> bool:
    """Return whether a column has text rather than numbers; if the column is not declared, its values decide."""
    if column.type or is_declared(column.name):
        return column.is_text
    return any(isinstance(row.get(column.name), str | list | tuple | dict) for row in rows)


def cell_text(row: Mapping[str, Any], column: Column | str, value_of: Callable[[Any], Any] | None = None) -> str:
    """Return a row's cell as text, with the marks that depend on other fields of the row.

    A loss shows that a training diverged or ended early, or that a fit is extrapolated; a memory shows that it does not
    fit; money shows its currency.

    Args:
        value_of: function that returns the value; by default the field of the column's name.
    """
    column = column_of(column) if isinstance(column, str) else column
    text = column.text(value_of(row) if value_of else row.get(column.name))
    if column.format == "memory" and row.get("fits") is False:
        text += TOO_LARGE
    elif column.format == "money" and text != "-" and row.get("currency"):
        text += f" {row['currency']}"
    elif column.format == "loss":
        text = _loss_text(row, column.name, text)
    return text


def _loss_text(row: Mapping[str, Any], name: str, text: str) -> str:
    """Return the text of a loss, with the step of an early end or a mark for extrapolation, or why it is missing."""
    if text == "-":  # there is no loss
        if name in row and row.get("diverged_at") is not None:
            return f"diverged\n(step {row['diverged_at']})"
        return "unknown" if row.get("loss_unknown") else "-"
    if name == "loss" and "steps" in row and (row.get("interrupted") or row.get("stuck")):
        return f"{text}\n(step {row['steps']})"
    return text + EXTRAPOLATED if row.get("extrapolation") else text


def bounds_text(row: Record, name: str) -> str:
    """Return the distances of a value's bounds in percent, such as `` -8+83%``; an empty text without bounds."""
    low_name, high_name = _bound_names(name)
    value, low, high = row.get(name), row.get(low_name), row.get(high_name)
    if not value or low is None or high is None or low >= high:
        return ""
    return f" {distances_text(value, low, high)}"


def _bound_names(name: str) -> tuple[str, str]:
    """Return the names of the fields with the lower and the upper bound of a column."""
    stem, unit = (name.removesuffix("_s"), "_s") if name.endswith("_s") else (name, "")
    prefix = f"{stem}_" if stem else ""  # the name ``_s`` alone stands for ``low_s`` and ``high_s``
    return f"{prefix}low{unit}", f"{prefix}high{unit}"


def distances_text(value: float, low: float, high: float) -> str:
    """Return the distances of both bounds from a value, in percent of the value.

    >>> distances_text(0.358, 0.331, 0.655), distances_text(100, 93, 107)
    ('-8+83%', '±7%')
    """
    below, above = f"{max(0.0, 1 - low / value):.0%}", f"{max(0.0, high / value - 1):.0%}"
    return f"±{above}" if below == above else f"-{below.removesuffix('%')}+{above}"


def range_text(row: Mapping[str, Any], name: str) -> str:
    """Return the lower and the upper bound of a column as ``1.2 to 3.4 d``; "-" if the lower one is unknown.

    >>> range_text({"time_low_s": 1.0, "time_high_s": 2.5}, "time_s")
    '1 to 2.5 s'
    >>> range_text({"time_low_s": 86400.0, "time_high_s": None}, "time_s")
    '1 d or more'
    """
    low_name, high_name = _bound_names(name)
    low, high, column = row[low_name], row[high_name], column_of(name)
    if low is None:
        return "-"
    low_text = column.text(low)
    if high is None:
        return f"{low_text} or more"
    high_text = column.text(high)
    number, _, unit = low_text.partition(" ")
    if unit and high_text.endswith(f" {unit}"):  # the unit of both bounds appears once
        return f"{number} to {high_text}"
    return f"{low_text} to {high_text}"


def chosen_tables(tables: Sequence[Group], rows: Sequence[Record], selection: str) -> list[Group]:
    """Return the same tables with the selected columns; a table that repeats rows of earlier tables is left out.

    The headings are the names of ``--json``, because users select columns by these names.

    Args:
        tables: tables as a command prints them.
        rows: rows of ``--json``, whose names can be selected.
        selection: ``all``, or names with commas between.
    """
    names = chosen_names(rows, selection)
    shown_ids: set[int] = set()
    chosen: list[Group] = []
    for source in tables:
        if not isinstance(source, RowsTable) or all(id(row) in shown_ids for row in source.rows):
            continue
        shown_ids |= {id(row) for row in source.rows}
        columns = [column_of(name)._replace(header=name) for name in dict.fromkeys([*source.keys, *names])]
        chosen.append(table(source.title, columns, source.rows, section=source.section))
    return chosen


def chosen_names(rows: Sequence[Record], selection: str) -> list[str]:
    """Return the column names in a selection such as ``method,loss`` or ``all``, each once.

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


def waiting(row: Record) -> float | None:
    """Return the share of a step that waits for the network; None if it is unknown or the step takes no time."""
    waits_s, step_s = row["exposed_communication_s"], row["step_time_s"]
    return None if waits_s is None or not step_s else float(waits_s / step_s)


def as_text(*tables: Group) -> str:
    """Return tables as plain text with lines of up to `TEXT_WIDTH` characters."""
    file = io.StringIO()
    console = Console(file=file, width=TEXT_WIDTH, color_system=None, markup=False, highlight=False)
    for text_or_table in tables:
        console.print(text_or_table)
    return file.getvalue()
