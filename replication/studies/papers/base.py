"""Base class and helpers of studies of printed tables and figures, which show each number beside that of the paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from syncline.planner.tables.table import table
from syncline.specs import Experiment, Figures, Record, Study, no_figures

if TYPE_CHECKING:
    from rich.console import Group

Printed = Annotated[Decimal, Field(gt=0)]
"""A number as a paper prints it; the number of digits shows its precision."""


class PaperTable(Experiment):
    """Base class of the specs of printed tables and figures."""


def paper_table(
    spec: type[PaperTable],
    rows: Callable[[Any], list[Record]],
    columns: str,
    note: str | Callable[[list[Record]], str] = "",
    section: str = "",
    figure: Callable[[Any, list[Record], list[Record]], Figures] = no_figures,
    values: Mapping[str, Callable[[Record], Any]] | None = None,
) -> Study:
    """Return the study of a printed table or figure.

    Args:
        spec: the class of its specs.
        rows: computes the rows from a spec.
        columns: the names of the table's columns.
        note: the note below the table, or a function that computes it from the rows.
        section: the field whose changes start a new section with a line in the table.
        figure: draws the figure, if the paper has one.
        values: see `syncline.planner.tables.table.table`.
    """

    def tables(table_rows: list[Record], study_spec: PaperTable) -> list[Group]:
        text = f"{note(table_rows) if callable(note) else note}Source: {study_spec.source}."
        return [table(study_spec.description, columns, table_rows, note=text, section=section, values=values)]

    return Study(spec, lambda study_spec, records: rows(study_spec), tables, figures=figure)
