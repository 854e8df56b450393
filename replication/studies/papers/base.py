"""Base class and helpers of studies of printed tables and figures, which show each number beside that of the paper."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from syncline.planner.tables.columns import Column, table
from syncline.specs import Experiment, Figures, Record, Study, no_figures
from syncline.units import format_bandwidth

if TYPE_CHECKING:
    from rich.console import Group

Printed = Annotated[Decimal, Field(gt=0)]
"""A number as a paper prints it; the number of digits shows its precision."""

TEXT_HEADINGS = ("method", "model", "network", "unit", "vote", "cheapest", "optimizer", "by collectives")


class PaperTable(Experiment):
    """Base class of the specs of printed tables and figures."""


def paper_table(
    spec: type[PaperTable],
    rows: Callable[[Any], list[Record]],
    columns: list[Column],
    note: str | Callable[[list[Record]], str] = "",
    section: str = "",
    figure: Callable[[Any, list[Record], list[Record]], Figures] = no_figures,
) -> Study:
    """Return the study of a printed table or figure.

    Args:
        spec: the class of its specs.
        rows: computes the rows from a spec.
        columns: the columns of the table.
        note: the note below the table, or a function that computes it from the rows.
        section: the field whose changes start a new section with a line in the table.
        figure: draws the figure, if the paper has one.
    """
    left_aligned = [number for number, (heading, _) in enumerate(columns) if heading in TEXT_HEADINGS]

    def tables(table_rows: list[Record], study_spec: PaperTable) -> list[Group]:
        text = note(table_rows) if callable(note) else note
        return [
            table(
                study_spec.description,
                columns,
                table_rows,
                f"{text}Source: {study_spec.source}.",
                left_aligned,
                section,
            )
        ]

    return Study(spec, lambda study_spec, records: rows(study_spec), tables, figures=figure)


def digits(name: str) -> Callable[[Record], str]:
    """Return a function that formats a field of a row with four significant digits."""
    return lambda row: f"{row[name]:,.4g}"


def bandwidth_of(name: str) -> Callable[[Record], str]:
    """Return a function that formats a field in bytes per second as bits per second."""
    return lambda row: format_bandwidth(row[name])
