"""The table of the rows of a study of tied votes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replication.studies.vote_ties.spec import VoteTiesSpec
from syncline.planner.tables.columns import Column, count_of, percent_of, table, text_of
from syncline.specs import Record

if TYPE_CHECKING:
    from rich.console import Group

TIE_COLUMNS: list[Column] = [
    count_of("workers"),
    text_of("distribution"),
    ("ties", percent_of("tie_rate")),
    ("ties\n(exact)", percent_of("tie_rate_exact")),
    ("ties\n(paper)", percent_of("paper_tie_rate")),
    ("match", percent_of("match")),
    ("match\n(paper)", percent_of("paper_match")),
    ("flip", percent_of("flip")),
    ("flip\n(paper)", percent_of("paper_flip")),
]
TIE_NOTE = "In percent of all votes. Match, flip: the vote is the sign of the sum of what is voted on, or its opposite."


def tie_tables(rows: list[Record], spec: VoteTiesSpec) -> list[Group]:
    """Return the table of rates in percent, beside those of the paper."""
    return [table(spec.description, TIE_COLUMNS, rows, f"{TIE_NOTE} Paper: {spec.source}.", (1,))]
