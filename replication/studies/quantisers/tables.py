"""Tables of the rows of a study of quantisers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replication.studies.quantisers.spec import QuantisersSpec
from syncline.planner.tables.columns import RATE, Column, number_of, percent_of, table, text_of
from syncline.specs import Record

if TYPE_CHECKING:
    from rich.console import Group

SIGN_COLUMNS: list[Column] = [
    text_of("distribution"),
    text_of("quantiser"),
    ("match", percent_of("match")),
    ("lowest\nseed", percent_of("match_min")),
    ("highest\nseed", percent_of("match_max")),
    ("flip", percent_of("flip")),
    ("zero", percent_of("zero")),
]
SIGN_NOTE = "In percent of the entries: the sum of what was sent has the sign of the exact sum, its opposite, or none."

LOSS_COLUMNS: list[Column] = [
    ("noise", lambda row: row["distribution"]),
    text_of("quantiser"),
    RATE,
    ("loss", number_of("loss")),
    ("lowest\nseed", number_of("loss_min")),
    ("highest\nseed", number_of("loss_max")),
    ("seeds\nworse", lambda row: "-" if row["worse_than_reference"] is None else str(row["worse_than_reference"])),
]
LOSS_NOTE = "Loss: the median over the seeds after the last step. Seeds worse: those with a higher loss than"


def quantiser_tables(rows: list[Record], spec: QuantisersSpec) -> list[Group]:
    """Return a table of sign rates of the vectors, in percent, and a table of losses of the trainings."""
    vectors = [row for row in rows if row["part"] == "vectors"]
    trainings = [row for row in rows if row["part"] == "training"]
    tables = [table("Signs of sums", SIGN_COLUMNS, vectors, SIGN_NOTE, (0, 1))] if vectors else []
    if trainings:
        note = f"{LOSS_NOTE} {trainings[0]['reference']}, of {trainings[0]['seeds']}."
        tables.append(table("Trainings, each at its best rate", LOSS_COLUMNS, trainings, note, (0, 1)))
    return tables
