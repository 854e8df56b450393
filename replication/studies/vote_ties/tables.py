"""The table of the rows of a study of tied votes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replication.studies.vote_ties.spec import VoteTiesSpec
from syncline.planner.tables.table import table
from syncline.specs import Record

if TYPE_CHECKING:
    from rich.console import Group

TIE_COLUMNS = "workers distribution tie_rate tie_rate_exact paper_tie_rate match paper_match flip paper_flip"
TIE_NOTE = "Shares of all votes. Match, flip: the vote is the sign of the sum of what is voted on, or its opposite."


def tie_tables(rows: list[Record], spec: VoteTiesSpec) -> list[Group]:
    """Return the table of rates, beside those of the paper."""
    return [table(spec.description, TIE_COLUMNS, rows, note=f"{TIE_NOTE} Paper: {spec.source}.")]
