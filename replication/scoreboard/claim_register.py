"""The states of the register's claims, computed by each claim's rule, and the page and records made from them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from math import isfinite
from statistics import median
from typing import TYPE_CHECKING, Any

from replication.claims import HOLDS_UNDER, OURS, PAPERS, STATES, TITLES, Claim, claims_of, counted_states, plural_state
from replication.replications.pages import filled
from replication.scoreboard.board import COUNTED, Scored, board_of, counts, scored_row
from replication.scoreboard.rows import run_rows, runs_of
from replication.scoreboard.rules import RULES
from replication.scoreboard.trained import HEADLINE, run_of, verdicts_of
from replication.scoreboard.verdicts import NOT_CHECKABLE
from syncline import SpecError
from syncline.errors import one_of
from syncline.planner.tables.table import table

if TYPE_CHECKING:
    from rich.console import Group

TARGET_TEXTS = {"ours": "a threshold of ours", "reconstructed": "a reconstructed formula", "identity": "an identity"}
"""Origins of targets that are not the paper's, as the evidence of a claim names them."""


@dataclass(frozen=True)
class Judged:
    """A claim with its state, and the scored rows of its evidence."""

    claim: Claim
    state: str
    rows: tuple[Scored, ...]

    @property
    def verdict(self) -> str:
        """Return the state with its condition."""
        return f"{self.state} {self.claim.under}" if self.state == HOLDS_UNDER else self.state

    def evidence(self) -> str:
        """Return the places and own targets of the rows, each run with its numbers, the note, and links to findings."""
        written = [row for row in self.rows if row["tolerance"] != "resampled"]
        places = dict.fromkeys(row["where"] for row in written)
        targets = Counter(row["target"] for row in written if row["target"])
        open_rows = sum(row["verdict"] == NOT_CHECKABLE for row in self.rows)
        links = dict.fromkeys(row["finding"] for row in self.rows if row["finding"].startswith("findings"))
        old_runs = [_run_text(self.claim, run) for run in self.claim.superseded]
        parts = [
            ", ".join(places),
            *(f"{number} of {len(written)} targets: {TARGET_TEXTS[target]}" for target, number in targets.items()),
            f"{open_rows} of {len(self.rows)} rows not checkable" if open_rows else "",
            *(_run_text(self.claim, run) for run in runs_of(self.claim) if run not in self.claim.superseded),
            f"superseded, not counted: {', '.join(old_runs)}" if old_runs else "",
            self.claim.note, *(f"[findings]({link})" for link in links),
        ]  # fmt: skip
        return "; ".join(part for part in parts if part)

    def settled_by(self) -> str:
        """Return the experiment that would decide the claim; the specs of runs name it."""
        specs = [verdicts_of(self.claim.key, run)[0]["settled_by"] for run in self.claim.runs]
        return self.claim.settled_by or (specs[0] if specs else "")


def _run_text(claim: Claim, run: str) -> str:
    """Return the numbers of a run: probability and median difference of each comparison, seeds, and what it can see."""
    link = f"../results/{'' if run == HEADLINE else 'replication/'}{run}/README.md"
    rows = verdicts_of(claim.key, run)
    compared = ", ".join(
        f"`{row['comparison']}` {row['difference']:+.3f} on {row['as_claimed']} of {row['seeds']} seeds"
        + (f", P {row['probability']:.2f}" if isfinite(row["probability"]) else ", too few")
        for row in rows
    )
    return f"[{run}]({link}) ({run_of(run).setting}, trials: {run_of(run).trials}): {compared}"


def judged_of(paper: str) -> tuple[Judged, ...]:
    """Return the claims of a paper, or of this project, with their states.

    Raises:
        SpecError: a claim names a rule or rows that do not exist.
    """
    return tuple(judge(claim) for claim in claims_of(paper))


@cache
def judge(claim: Claim) -> Judged:
    """Return a claim with its state, by its rule.

    Raises:
        SpecError: the claim names a rule or rows that do not exist, a condition without the rule ``under``,
            or as superseded a run that it does not have.
    """
    if claim.rule not in RULES:
        raise SpecError(f"{claim.paper}: {claim.claim}: rule", claim.rule, one_of(RULES, claim.rule))
    for run in claim.superseded:
        if run not in runs_of(claim):
            raise SpecError(f"{claim.paper}: {claim.claim}: superseded", run, one_of(runs_of(claim), run))
    if (claim.rule == "under") != bool(claim.under):
        raise SpecError(f"{claim.paper}: {claim.claim}: under", claim.under, "a condition, with the rule under")
    rows, otherwise = list(_matching(claim, claim.rows)), list(_matching(claim, claim.otherwise))
    runs = [scored_row(row) for run, row in run_rows(claim).items() if run not in claim.superseded]
    verdicts = [[row["verdict"] for row in evidence] for evidence in (rows, runs, otherwise)]
    state = RULES[claim.rule](*verdicts)
    return Judged(claim, state, (*rows, *runs, *otherwise))


def _matching(claim: Claim, beginnings: tuple[str, ...]) -> Iterator[Scored]:
    board = board_of(claim.paper) if beginnings else []
    for beginning in beginnings:
        matches = [row for row in board if f"{row['where']}: {row['quantity']}".startswith(beginning)]
        if not matches:
            raise SpecError(f"{claim.paper}: {claim.claim}: rows", beginning, "the beginning of a row of the board")
        yield from matches


def claims_table(paper: str | None = None) -> Group:
    """Return a table with the number of claims in each state, per paper."""
    rows = []
    for name in PAPERS if paper is None else (paper,):
        rows.append({"paper": name} | counted_states([claim.state for claim in judged_of(name)]))
    note = "Which they are, on what evidence, and what would settle them: docs/claims.md\n"
    return table("claims", ["paper", *STATES], rows, note=note)


def states_text() -> str:
    """Return the text of `STATES_FILE`: the state and evidence of every claim, a line each."""
    lines = []
    for name in (*PAPERS, OURS):
        for judged in judged_of(name):
            claim = {
                "paper": name, "claim": judged.claim.claim, "state": judged.state, "verdict": judged.verdict,
                "evidence": judged.evidence(),
            }  # fmt: skip
            lines.append(json.dumps(claim, ensure_ascii=False))
    return "[\n" + ",\n".join(lines) + "\n]\n"


HEAD = """# Claims

What the five papers say, and what this project says of itself: whether it holds as far as was found here, on which
evidence, and what would settle it. A rule per claim computes the state from its evidence: rows of
`syncline reproduce PAPER` ([reproduce.md](reproduce.md)), and runs of `syncline replicate`
([replication.md](replication.md)). *Holds* and *fails* speak of what was computed; where that was a small network or a
quadratic, the last column says what would decide it for language models.

A run gives each comparison the median difference over the seeds (below 0 is as claimed) and P, the probability that
it is as claimed if trials and seeds are drawn again. From 0.95 it holds, from 0.05 down it fails, otherwise it is
undecided. Runs with few trials and without clipping that [protocol 2](protocol.md) repeated are *superseded*: their
numbers stay, and do not count.

This page is made from `replication/claims.yaml` by `python -m replication.scoreboard`.
"""

RESOLUTION = """
The smallest difference that a run's search and seeds can see is {}. Each run's page has it per
comparison. It is a lower bound, as no resample has a better trial than the search; a search that missed a method's
good values decides against the method.
"""


def page() -> str:
    """Return the text of the page docs/claims.md."""
    resolutions = []  # of the comparisons of all runs
    for run in dict.fromkeys(run for claim in claims_of() for run in claim.runs):
        if run_of(run).trials > 1:
            resolutions += [row["resolution"] for row in run_of(run).rows if isfinite(row["probability"])]
    low, middle, high = min(resolutions), median(resolutions), max(resolutions)
    shown = f"{middle:.2f} nats in the median of {len(resolutions)} ({low:.3f} to {high:.1f})"
    parts = [HEAD, "\n", filled(RESOLUTION.strip().format(shown)), "\n", *_counts()]
    for paper in [*PAPERS, OURS]:
        claims = judged_of(paper)
        counted = counted_states([claim.state for claim in claims])
        total = ", ".join(f"{counted[state]} {plural_state(state)}" for state in STATES)
        parts += [f"\n## {TITLES[paper]}\n\n{total}.\n\n", "| claim | | evidence | settled by |\n|---|---|---|---|\n"]
        for judged in claims:
            where = f" ({judged.claim.where})" if judged.claim.where else ""
            parts.append(
                f"| {judged.claim.claim}{where} | **{judged.verdict}** "
                f"| {judged.evidence()} | {judged.settled_by() or '-'} |\n"
            )
    return "".join(parts)


def _counts() -> Iterator[str]:
    """Yield a table of the verdicts on rows, per paper."""
    columns = ("paper", *COUNTED)
    yield "\n## Rows\n\n"
    yield f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|\n"
    for row in counts(board_of()):
        yield f"| {' | '.join(str(row[column]) for column in columns)} |\n"


def claim_fields(paper: str | None = None) -> list[dict[str, Any]]:
    """Return the claims of the register, or those of one paper, as ``--json`` prints them."""
    claims = []
    for name in (*PAPERS, OURS) if paper is None else (paper,):
        for judged in judged_of(name):
            fields = asdict(judged.claim)
            for key, value in fields.items():
                if isinstance(value, tuple):
                    fields[key] = list(value)
            fields |= {"state": judged.state, "evidence": judged.evidence(), "settled_by": judged.settled_by()}
            claims.append(fields)
    return claims
