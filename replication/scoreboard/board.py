"""Rows with their verdicts, the counts of verdicts per paper, and tables of both."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any

from replication.claims import PAPERS
from replication.scoreboard.rows import TARGETS, PaperRow, paper_rows
from replication.scoreboard.verdicts import DIFFER, UNDECIDED, VERDICTS, names_in, number_in, verdict_of
from syncline.columns import four_digits
from syncline.planner.tables.table import table

if TYPE_CHECKING:
    from rich.console import Group

Scored = dict[str, Any]

COUNTED = (*VERDICTS, *TARGETS[1:])
"""Columns of the counts: verdicts on the paper's targets, and other targets."""


@cache
def _value(row: PaperRow) -> Any:
    return row.value()


def scored_row(row: PaperRow) -> Scored:
    """Return a row with our value and its verdict, as ``--json`` prints it."""
    value = _value(row)
    paper = number_in(row.printed)
    return {
        "paper": row.paper, "where": row.where, "quantity": row.quantity,
        "paper_value": row.printed if paper is None else float(paper), "ours": value,
        "interval": row.stored_line().get("interval", ""), "unit": row.unit, "kind": row.kind,
        "tolerance": row.tolerance or ("text" if paper is None else "rounding"),
        "verdict": _verdict(row, value), "finding": row.finding, "command": row.printing_command(),
        "reason": row.reason, "target": row.target, "follows": row.follows,
    }  # fmt: skip


def _verdict(row: PaperRow, value: Any) -> str:
    """Return the verdict on our value; undecided if it is another one at an end of the value's interval."""
    verdict, interval = verdict_of(row.printed, value, row.tolerance), row.stored_line().get("interval", "")
    for end in interval.split(" to ") if interval else ():
        if verdict_of(row.printed, float(end), row.tolerance) != verdict:
            return UNDECIDED
    return verdict


def board_of(paper: str | None = None) -> list[Scored]:
    """Return all scored rows of a paper, or of all papers.

    Raises:
        SpecError: there is no such paper.
    """
    rows: list[Scored] = []
    for name in PAPERS if paper is None else (paper,):
        rows += [scored_row(row) for row in paper_rows(name)]
    return rows


def counts(rows: list[Scored]) -> list[dict[str, Any]]:
    """Return the number of rows with each verdict, per paper and in total; rows without the paper's target apart."""
    counted: dict[str, Counter[str]] = {}  # by paper
    for row in rows:
        counted.setdefault(row["paper"], Counter())[row["target"] or row["verdict"]] += 1
    if len(counted) > 1:
        counted["all"] = sum(counted.values(), Counter())
    return [{"paper": paper} | {column: count[column] for column in COUNTED} for paper, count in counted.items()]


def tables_of(rows: list[Scored]) -> list[Group]:
    """Return a table of counts, then per paper a table of the rows that differ, with links to the explanations."""
    from rich.text import Text

    note = (
        "Trend: an order that was fixed beforehand. The last three columns count rows with targets of another origin.\n"
        "All rows, with commands and reasons: --json.\n"
    )
    tables: list[Any] = [table("verdicts", ["paper", *COUNTED], counts(rows), note=note)]
    differing = [row for row in rows if row["verdict"] == DIFFER]
    findings = list(dict.fromkeys(row["finding"] for row in differing))  # pages, which footnotes name
    values = {
        "paper_text": lambda row: _shown(row["paper_value"]),
        "ours_text": _ours,
        "told_in": lambda row: f"[{findings.index(row['finding']) + 1}]",
    }
    for paper in dict.fromkeys(row["paper"] for row in differing):
        paper_rows = [row for row in differing if row["paper"] == paper]
        columns = "where quantity paper_text ours_text told_in"
        tables.append(table(f"{paper}: where we differ", columns, paper_rows, values=values))
    footnotes = "".join(f"[{number}] docs/{where}\n" for number, where in enumerate(findings, 1))
    if footnotes:
        tables.append(Text(footnotes))
    return tables


def _ours(row: Scored) -> str:
    """Return our value as text; for an order only the values of its names."""
    value = row["ours"]
    ordered = isinstance(value, dict) and {name: value[name] for name in value if name in names_in(row["paper_value"])}
    return _shown(ordered or value)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(inner)}" for name, inner in value.items())
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else four_digits(value).rstrip(".")
    return str(value)
