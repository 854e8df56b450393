"""Tables of the rows of a study of quantisers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replication.studies.quantisers.spec import QuantisersSpec
from syncline.planner.tables.table import table
from syncline.specs import Record

if TYPE_CHECKING:
    from rich.console import Group

SIGN_COLUMNS = "distribution quantiser match match_min match_max flip zero"
SIGN_NOTE = "Shares of the entries: the sum of what was sent has the sign of the exact sum, its opposite, or none."

LOSS_COLUMNS = "distribution quantiser lr loss loss_min loss_max worse_than_reference"
LOSS_NOTE = "Loss: the median over the seeds after the last step. Seeds worse: those with a higher loss than"


def quantiser_tables(rows: list[Record], spec: QuantisersSpec) -> list[Group]:
    """Return a table of sign rates of the vectors, and a table of losses of the trainings."""
    vectors = [row for row in rows if row["part"] == "vectors"]
    trainings = [row for row in rows if row["part"] == "training"]
    tables = [table("Signs of sums", SIGN_COLUMNS, vectors, note=SIGN_NOTE)] if vectors else []
    if trainings:
        note = f"{LOSS_NOTE} {trainings[0]['reference']}, of {trainings[0]['seeds']}."
        tables.append(table("Trainings, each at its best rate", LOSS_COLUMNS, trainings, note=note))
    return tables
