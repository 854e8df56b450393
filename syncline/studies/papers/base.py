"""What every study of a printed table or figure has: it answers at once, each number beside the paper's."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from syncline.specs.experiment import Experiment
from syncline.specs.study import Figures, Record, Study, no_figures
from syncline.specs.tables.columns import Column, table
from syncline.units import format_bandwidth

if TYPE_CHECKING:
    from rich.console import Group

Printed = Annotated[Decimal, Field(gt=0)]
"""A number as a paper prints it: its digits say how exact it is."""

TEXT_HEADINGS = ("method", "model", "network", "unit", "vote", "cheapest", "optimizer", "by collectives")


class PaperTable(Experiment):
    """What every spec of a table has."""


def paper_table(
    spec: type[PaperTable],
    rows: Callable[[Any], list[Record]],
    columns: list[Column],
    note: str | Callable[[list[Record]], str] = "",
    section: str = "",
    figure: Callable[[Any, list[Record], list[Record]], Figures] = no_figures,
) -> Study:
    """The study of a table.

    Args:
        spec: the class of its specs.
        rows: from a spec to the rows.
        columns: what people see of them.
        note: what stands below, or how it follows from the rows.
        section: the field whose changes are ruled.
        figure: the same drawn, if the paper has it as a figure.
    """
    left = [number for number, (heading, _) in enumerate(columns) if heading in TEXT_HEADINGS]

    def tables(made: list[Record], of: PaperTable) -> list[Group]:
        told = note(made) if callable(note) else note
        return [table(of.description, columns, made, f"{told}Source: {of.source}.", left, section)]

    return Study(spec, lambda of, records: rows(of), tables, figures=figure)


def digits(name: str) -> Callable[[Record], str]:
    """Shows a number with four digits."""
    return lambda row: f"{row[name]:,.4g}"


def bandwidth_of(name: str) -> Callable[[Record], str]:
    """Shows bytes per second as bits per second."""
    return lambda row: format_bandwidth(row[name])
