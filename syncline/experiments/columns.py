"""Tables for people, as columns: a heading, and how a row shows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.text import Text

from syncline.experiments.layout import Sheet
from syncline.units import format_seconds

if TYPE_CHECKING:
    from syncline.specs.study import Record


Column: TypeAlias = "tuple[str, Callable[[Record], str]]"

NOTE_WIDTH = 110
"""Characters of a line of text, where there is room for more."""


class RowsTable(Group):
    """A table as it is drawn, and the rows that it is of, for other columns of them.

    Args:
        parts: what is drawn.
        title: above it.
        rows: one per line.
        section: a field whose changes are ruled.
        keys: the fields that tell rows apart.
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
    left: Collection[int] = (0,),
    section: str = "",
    keys: Sequence[str] = (),
) -> Group:
    """A title, a table, a note; ``left``: columns that hold text; ``section``, ``keys``: see `RowsTable`."""
    cells = [[show(row) for _, show in columns] for row in rows]
    ruled = [bool(section) and one[section] != following[section] for one, following in pairwise(rows)]
    sheet = Sheet([heading for heading, _ in columns], cells, left, [*ruled, *([False] if rows else [])])
    told = [Constrain(Text(note + "\n"), NOTE_WIDTH)] if note else []
    return RowsTable(Text(title, style="bold"), sheet, *told, title=title, rows=rows, section=section, keys=keys)


def seconds_of(name: str) -> Callable[[Record], str]:
    """Shows a time; "-" for none."""
    return lambda row: "-" if row.get(name) in (None, math.inf) else format_seconds(row[name])


def number_of(name: str) -> Callable[[Record], str]:
    """Shows a number; "-" for none."""
    return lambda row: "-" if row.get(name) is None else four_digits(row[name])


def digits_of(name: str, form: str) -> Callable[[Record], str]:
    """Shows a number in a format of Python's; "-" for none."""
    return lambda row: "-" if row[name] is None else format(row[name], form)


def four_digits(value: float) -> str:
    """Four significant digits, zeros and all."""
    return format(value, "#.4g")


def times_of(name: str) -> Callable[[Record], str]:
    """Shows a multiple; "-" for none."""
    return lambda row: "-" if row[name] is None else f"{row[name]:.2f}x"


def text_of(name: str) -> Column:
    """A column of names."""
    return name, lambda row: row[name]


def count_of(name: str) -> Column:
    """A column of whole numbers; "-" for none."""
    return name, lambda row: "-" if row[name] is None else f"{row[name]:,}"


def percent_of(name: str) -> Callable[[Record], str]:
    """Shows a share in percent; "-" for none."""
    return lambda row: "-" if row[name] is None else f"{100 * row[name]:.2f}"


RATE: Column = ("rate", digits_of("lr", "g"))
