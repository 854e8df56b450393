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
        "paper": row.paper,
        "where": row.where,
        "quantity": row.quantity,
        "paper_value": row.printed if paper is None else float(paper),
        "ours": value,
        "interval": row.stored_line().get("interval", ""),
        "unit": row.unit,
        "kind": row.kind,
        "tolerance": row.tolerance or ("text" if paper is None else "rounding"),
        "verdict": _verdict(row, value),
        "finding": row.finding,
        "command": row.printing_command(),
        "reason": row.reason,
        "target": row.target,
        "follows": row.follows,
    }


def _verdict(row: PaperRow, value: Any) -> str:
    """Return the verdict on our value; undecided if it is another one at an end of the value's interval."""
    values = [value, *map(float, filter(None, row.stored_line().get("interval", "").split(" to ")))]
    verdicts = {verdict_of(row.printed, each, row.tolerance) for each in values}
    return verdicts.pop() if len(verdicts) == 1 else UNDECIDED


def board_of(paper: str | None = None) -> list[Scored]:
    """Return all scored rows of a paper, or of all papers.

    Raises:
        SpecError: there is no such paper.
    """
    return [scored_row(row) for name in ([paper] if paper is not None else PAPERS) for row in paper_rows(name)]


def counts(rows: list[Scored]) -> list[dict[str, Any]]:
    """Return the number of rows with each verdict, per paper and in total; rows without the paper's target apart."""
    num_rows = Counter((row["paper"], row["target"] or row["verdict"]) for row in rows)
    papers = list(dict.fromkeys(row["paper"] for row in rows))
    table_ = [{"paper": paper, **{column: num_rows[paper, column] for column in COUNTED}} for paper in papers]
    if len(papers) > 1:
        table_.append({"paper": "all", **{column: sum(counted[column] for counted in table_) for column in COUNTED}})
    return table_


def tables_of(rows: list[Scored]) -> list[Group]:
    """Return a table of counts, then per paper a table of the rows that differ, with links to the explanations."""
    differ = [row for row in rows if row["verdict"] == DIFFER]
    footnotes = {where: number for number, where in enumerate(dict.fromkeys(row["finding"] for row in differ), 1)}
    told_in = {"told_in": lambda row: f"[{footnotes[row['finding']]}]"}
    footnote_text = "".join(f"[{number}] docs/{where}\n" for where, number in footnotes.items())
    per_paper = [
        table(
            f"{paper}: where we differ",
            "where quantity paper_text ours_text told_in",
            [row for row in differ if row["paper"] == paper],
            values={"paper_text": lambda row: _shown(row["paper_value"]), "ours_text": _ours, **told_in},
        )
        for paper in dict.fromkeys(row["paper"] for row in differ)
    ]
    note = (
        "Trend: an order that was fixed beforehand. The last three columns count rows with targets of another origin.\n"
        "All rows, with commands and reasons: --json.\n"
    )
    return [
        table("verdicts", ["paper", *COUNTED], counts(rows), note=note),
        *per_paper,
        *([_lines(footnote_text)] if footnote_text else []),
    ]


def _lines(text: str) -> Any:
    from rich.text import Text

    return Text(text)


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
