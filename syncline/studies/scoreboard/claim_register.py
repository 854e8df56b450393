"""The register of claims: of each whether it holds, with which rows of the board, and what would settle it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from syncline.errors import SpecError, one_of
from syncline.specs.tables.columns import Column, digits_of, table, text_of
from syncline.studies.scoreboard.board import Scored, board_of
from syncline.studies.scoreboard.rows import PAPERS

if TYPE_CHECKING:
    from rich.console import Group

HOLDS, FAILS, HOLDS_UNDER, UNKNOWN = "holds", "fails", "holds under", "unknown"
STATES = (HOLDS, FAILS, HOLDS_UNDER, UNKNOWN)
OURS = "syncline"
"""Whose claims stand beside the papers': those of this project's own documentation."""

TITLES = {
    "curvadion": "CurvaDion", "demo": "DeMo", "mt-dao": "MT-DAO", "basis-rotation": "Basis Rotation",
    "lion-cub": "Lion Cub", OURS: "Syncline's own",
}  # fmt: skip


@dataclass(frozen=True)
class PaperClaim:
    """Something that is said, and what became of it.

    Args:
        paper: who says it; ``syncline`` of our own documentation.
        where: in which section.
        claim: in a sentence.
        state: holds, fails, holds under (a condition), unknown.
        under: the condition.
        rows: beginnings of ``where: quantity`` of rows of the board that speak for or against it.
        evidence: more of it: what was found, with a page or a command.
        settled_by: what would decide it.
        id: what replications call it, where one speaks to it; of a paper's claims each another one.
    """

    paper: str
    where: str
    claim: str
    state: str
    under: str = ""
    rows: tuple[str, ...] = ()
    evidence: str = ""
    settled_by: str = ""
    id: str = ""

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise SpecError(f"{self.paper}: {self.claim}: state", self.state, one_of(STATES, self.state))
        if (self.state == HOLDS_UNDER) != bool(self.under):
            raise SpecError(f"{self.paper}: {self.claim}: under", self.under, "a condition, of what holds under one")

    def evidence_rows(self) -> Iterator[Scored]:
        """The rows that are meant.

        Raises:
            SpecError: a beginning that no row has.
        """
        board = board_of(self.paper) if self.rows else []
        for beginning in self.rows:
            found = [row for row in board if f"{row['where']}: {row['quantity']}".startswith(beginning)]
            if not found:
                raise SpecError(f"{self.paper}: {self.claim}: rows", beginning, "the beginning of a row of the board")
            yield from found


@cache
def claims_of(paper: str | None = None) -> tuple[PaperClaim, ...]:
    """The register, or the part of one paper."""
    import yaml

    file = resources.files("syncline.studies.scoreboard") / "claims.yaml"
    given: dict[str, list[dict[str, Any]]] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return tuple(
        PaperClaim(name, **{**one, "rows": tuple(one.get("rows", ()))})
        for name in ([paper] if paper is not None else [*PAPERS, OURS])
        for one in given.get(name, [])
    )


def claims_table(paper: str | None = None) -> Group:
    """How many of the papers' claims hold, fail, hold under a condition, or are unknown."""
    columns: list[Column] = [text_of("paper"), *((state, digits_of(state, "d")) for state in STATES)]
    rows = [
        {"paper": name, **{state: sum(claim.state == state for claim in claims_of(name)) for state in STATES}}
        for name in ([paper] if paper is not None else PAPERS)
    ]
    return table(
        "claims", columns, rows, "Which they are, on what evidence, and what would settle them: docs/claims.md\n"
    )


HEAD = """# Claims

What the five papers say, and what this project says of itself: whether it holds as far as was found here, on which
evidence, and what would settle it. The evidence begins with the rows of `syncline reproduce PAPER`
([reproduce.md](reproduce.md)) that it rests on; a test holds what is said of a claim to their verdicts. *Holds* and
*fails* speak of what was computed; where that was a small network or a quadratic, the last column says what would
decide it for language models.

This page is made of `syncline/studies/scoreboard/claims.yaml` by `python -m syncline.studies.scoreboard`.
"""


def page() -> str:
    """docs/claims.md."""
    parts = [HEAD]
    for paper in [*PAPERS, OURS]:
        claims = claims_of(paper)
        counted = ", ".join(f"{sum(c.state == state for c in claims)} {plural_state(state)}" for state in STATES)
        parts += [f"\n## {TITLES[paper]}\n\n{counted}.\n\n", "| claim | | evidence | settled by |\n|---|---|---|---|\n"]
        parts += [_line(claim) for claim in claims]
    return "".join(parts)


def plural_state(state: str) -> str:
    """What several claims of a state do."""
    return {HOLDS: "hold", FAILS: "fail", HOLDS_UNDER: "hold under a condition", UNKNOWN: "unknown"}[state]


def told_claims(paper: str | None = None) -> list[dict[str, Any]]:
    """The register, or the part of one paper, as ``--json`` prints it."""
    return [asdict(claim) | {"rows": list(claim.rows)} for claim in claims_of(paper)]


def _line(claim: PaperClaim) -> str:
    rows = list(claim.evidence_rows())
    counted = _wheres(rows)
    findings = [f"[findings]({one})" for one in dict.fromkeys(row["finding"] for row in rows) if one]
    evidence = "; ".join(part for part in (counted, claim.evidence, *findings) if part)
    state = f"{claim.state} {claim.under}" if claim.under else claim.state
    said = f"{claim.claim} ({claim.where})" if claim.where else claim.claim
    return f"| {said} | **{state}** | {evidence} | {claim.settled_by or '-'} |\n"


def _wheres(rows: list[Scored]) -> str:
    return ", ".join(dict.fromkeys(row["where"] for row in rows))
