"""The table of the rows of a study of swings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replication.studies.swings.spec import SwingsSpec
from syncline.planner.tables.table import table
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
    columns = (
        "method stages loss eigenvalue norm_per_parameter own_norm_per_parameter rms undone rms_beside undone_beside"
    )
    return [table(spec.description or spec.name, columns, rows, note=SWING_NOTE, section="method")]
