"""The register of claims: the state of each claim, its evidence on the board, and a way to settle it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from replication.scoreboard.board import Scored, board_of
from replication.scoreboard.rows import PAPERS
from syncline import SpecError
from syncline.errors import one_of
from syncline.planner.tables.columns import Column, digits_of, table, text_of

if TYPE_CHECKING:
    from rich.console import Group

HOLDS, FAILS, HOLDS_UNDER, UNKNOWN = "holds", "fails", "holds under", "unknown"
STATES = (HOLDS, FAILS, HOLDS_UNDER, UNKNOWN)
OURS = "syncline"
"""The name under which the claims of this project's own documentation are registered, beside the papers."""

TITLES = {
    "curvadion": "CurvaDion", "demo": "DeMo", "mt-dao": "MT-DAO", "basis-rotation": "Basis Rotation",
    "lion-cub": "Lion Cub", OURS: "Syncline's own",
}  # fmt: skip


@dataclass(frozen=True)
class PaperClaim:
    """A claim of a paper, with its state and evidence.

    Args:
        paper: the paper that makes the claim; ``syncline`` for our own documentation.
        where: the section of the paper.
        claim: the claim in one sentence.
        state: holds, fails, holds under (a condition), or unknown.
        under: the condition under which the claim holds.
        rows: beginnings of ``where: quantity`` of rows of the board that are evidence for or against the claim.
        evidence: further findings, each with a page or a command.
        settled_by: the experiment that would decide the claim.
        id: the name of the claim in replications, if one tests it; unique within a paper.
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
        """Yield the rows of the board that are evidence for or against the claim.

        Raises:
            SpecError: no row begins with an entry of ``rows``.
        """
        board = board_of(self.paper) if self.rows else []
        for beginning in self.rows:
            matches = [row for row in board if f"{row['where']}: {row['quantity']}".startswith(beginning)]
            if not matches:
                raise SpecError(f"{self.paper}: {self.claim}: rows", beginning, "the beginning of a row of the board")
            yield from matches


@cache
def claims_of(paper: str | None = None) -> tuple[PaperClaim, ...]:
    """Return the claims of the register, or those of one paper."""
    import yaml

    file = resources.files("replication.scoreboard") / "claims.yaml"
    register: dict[str, list[dict[str, Any]]] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return tuple(
        PaperClaim(name, **{**fields, "rows": tuple(fields.get("rows", ()))})
        for name in ([paper] if paper is not None else [*PAPERS, OURS])
        for fields in register.get(name, [])
    )


def claims_table(paper: str | None = None) -> Group:
    """Return a table with the number of claims in each state, per paper."""
    columns: list[Column] = [text_of("paper"), *((state, digits_of(state, "d")) for state in STATES)]
    rows = [
        {"paper": name, **{state: sum(claim.state == state for claim in claims_of(name)) for state in STATES}}
        for name in ([paper] if paper is not None else PAPERS)
    ]
    return table(
        "claims", columns, rows, "Which they are, on what evidence, and what would settle them: docs/claims.md\n"
    )


def findings_of(methods: Collection[str]) -> list[dict[str, Any]]:
    """Return the claims of the papers of these methods for a report: a ``title``, and ``claims`` with a ``state``."""
    findings = []
    for paper in PAPERS:
        if any(name == paper or name.startswith(f"{paper}-") for name in methods):
            claims = claims_of(paper)
            counted = {state: sum(claim.state == state for claim in claims) for state in STATES}
            counts = ", ".join(f"{number} {plural_state(state)}" for state, number in counted.items() if number)
            findings.append({
                "title": f"What {TITLES[paper]}'s paper claims, and what was found here: {counts}",
                "claims": [
                    {"claim": claim.claim, "state": f"{claim.state} {claim.under}".strip(), "evidence": claim.evidence}
                    for claim in claims
                ],
            })  # fmt: skip
    return findings


HEAD = """# Claims

What the five papers say, and what this project says of itself: whether it holds as far as was found here, on which
evidence, and what would settle it. The evidence begins with the rows of `syncline reproduce PAPER`
([reproduce.md](reproduce.md)) that it rests on; a test holds what is said of a claim to their verdicts. *Holds* and
*fails* speak of what was computed; where that was a small network or a quadratic, the last column says what would
decide it for language models.

This page is made of `replication/scoreboard/claims.yaml` by `python -m replication.scoreboard`.
"""


def page() -> str:
    """Return the text of the page docs/claims.md."""
    parts = [HEAD]
    for paper in [*PAPERS, OURS]:
        claims = claims_of(paper)
        counted = ", ".join(f"{sum(c.state == state for c in claims)} {plural_state(state)}" for state in STATES)
        parts += [f"\n## {TITLES[paper]}\n\n{counted}.\n\n", "| claim | | evidence | settled by |\n|---|---|---|---|\n"]
        parts += [_line(claim) for claim in claims]
    return "".join(parts)


def plural_state(state: str) -> str:
    """Return the plural verb or the adjective of a state, such as ``hold`` for ``holds``."""
    return {HOLDS: "hold", FAILS: "fail", HOLDS_UNDER: "hold under a condition", UNKNOWN: "unknown"}[state]


def claim_fields(paper: str | None = None) -> list[dict[str, Any]]:
    """Return the claims of the register, or those of one paper, as ``--json`` prints them."""
    return [asdict(claim) | {"rows": list(claim.rows)} for claim in claims_of(paper)]


def _line(claim: PaperClaim) -> str:
    rows = list(claim.evidence_rows())
    places = _wheres(rows)
    findings = [f"[findings]({finding})" for finding in dict.fromkeys(row["finding"] for row in rows) if finding]
    evidence = "; ".join(part for part in (places, claim.evidence, *findings) if part)
    state = f"{claim.state} {claim.under}" if claim.under else claim.state
    statement = f"{claim.claim} ({claim.where})" if claim.where else claim.claim
    return f"| {statement} | **{state}** | {evidence} | {claim.settled_by or '-'} |\n"


def _wheres(rows: list[Scored]) -> str:
    return ", ".join(dict.fromkeys(row["where"] for row in rows))
