"""Tables for people, as columns: a heading, and how a row shows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from syncline.units import format_seconds

Record = dict[str, Any]
Column = tuple[str, Callable[[Record], str]]

WHOLE_NAME = 24
"""Characters of a name that is not folded."""


def table(
    title: str,
    columns: list[Column],
    rows: list[Record],
    note: str = "",
    left: Collection[int] = (0,),
    section: str = "",
) -> Group:
    """A title, a table, a note; ``left``: columns that hold text; ``section``: a field whose changes are ruled."""
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, (heading, show) in enumerate(columns):
        # What does not fit is continued on the next line: nothing is cut off. Names stay whole, for copying.
        width = min(max((len(show(row)) for row in rows), default=0), WHOLE_NAME) if number == 0 else None
        drawn.add_column(heading, justify="left" if number in left else "right", overflow="fold", min_width=width)
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        ruled = bool(section) and following is not None and row[section] != following[section]
        drawn.add_row(*(show(row) for _, show in columns), end_section=ruled)
    # Beside the table and not in it, where they would be folded at its width.
    return Group(Text(title, style="bold"), drawn, *([Text(note + "\n")] if note else []))


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
