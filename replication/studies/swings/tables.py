"""The table of the rows of a study of swings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replication.studies.swings.spec import SwingsSpec
from syncline.planner.tables.columns import Column, count_of, digits_of, table, text_of
from syncline.specs import Record

if TYPE_CHECKING:
    from rich.console import Group

SWING_NOTE = (
    "Medians over the seeds. Norm: (1,1)-norm of the Hessian over the number of parameters, and that in "
    "the basis that the method scales in. Steps along the dominant eigenvector, and beside it. Undone: "
    "of the way along it, what other steps took back."
)


def swing_tables(rows: list[Record], spec: SwingsSpec) -> list[Group]:
    """Return the table of the rows, one line per method and number of stages."""
    columns: list[Column] = [
        text_of("method"),
        count_of("stages"),
        ("loss", digits_of("loss", ".3f")),
        ("eigenvalue", digits_of("eigenvalue", ".1f")),
        ("norm", digits_of("norm_per_parameter", ".2f")),
        ("in its\nbasis", digits_of("own_norm_per_parameter", ".2f")),
        ("step\n(rms)", digits_of("rms", ".1e")),
        ("undone", digits_of("undone", ".0%")),
        ("beside\n(rms)", digits_of("rms_beside", ".1e")),
        ("undone", digits_of("undone_beside", ".0%")),
    ]
    return [table(spec.description or spec.name, columns, rows, SWING_NOTE, (0,), "method")]
