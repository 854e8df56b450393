"""The register of claims: what the papers and this project claim, on which evidence each claim rests, and its rule.

Nothing else states a verdict: `replication.scoreboard.claim_register` computes the verdicts, and pages are made from
them.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from syncline import SpecError
from syncline.errors import one_of

PAPERS = ("curvadion", "demo", "mt-dao", "basis-rotation", "lion-cub")
OURS = "syncline"
"""The name under which the claims of this project's own documentation are registered, beside the papers."""

TITLES = {
    "curvadion": "CurvaDion", "demo": "DeMo", "mt-dao": "MT-DAO", "basis-rotation": "Basis Rotation",
    "lion-cub": "Lion Cub", OURS: "Syncline's own",
}  # fmt: skip

HOLDS, FAILS, HOLDS_UNDER, UNKNOWN = "holds", "fails", "holds under", "unknown"
STATES = (HOLDS, FAILS, HOLDS_UNDER, UNKNOWN)

STATES_FILE = Path(__file__).parent / "states.json"
"""The states as `python -m replication.scoreboard` last computed them, for reports that cannot wait for the board."""

_TEXTS = ("rows", "otherwise", "runs", "superseded", "headline", "covers")


@dataclass(frozen=True)
class Claim:
    """A claim with its evidence and its rule.

    Args:
        paper: the paper that makes the claim; ``syncline`` for our own documentation.
        where: the section of the paper.
        claim: the claim in one sentence.
        rule: name of the function of `replication.scoreboard.rules` that decides; ``every`` by default.
        under: the condition that ``rows`` meet and ``otherwise`` does not, for the rule ``under``.
        rows: beginnings of ``where: quantity`` of rows of the board that are evidence.
        otherwise: the same, of rows outside of the condition.
        runs: folders of results/replication whose trainings test the claim.
        superseded: those of the runs, or ``headline``, that a later protocol repeated, so that they do not count.
        headline: comparisons of results/headline, such as ``mt-dao < local-adam``, that test the claim.
        note: what the rows do not show.
        settled_by: the experiment that would decide the claim; of claims with runs their specs name it.
        id: the name of the claim in replications, unique within a paper; by default the claim itself.
        covers: items of the paper's inventory that the runs answer.
    """

    paper: str
    where: str
    claim: str
    rule: str = "every"
    under: str = ""
    rows: tuple[str, ...] = ()
    otherwise: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    headline: tuple[str, ...] = ()
    note: str = ""
    settled_by: str = ""
    id: str = ""
    covers: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Return the name of the claim in replications."""
        return self.id or self.claim


@cache
def claims_of(paper: str | None = None) -> tuple[Claim, ...]:
    """Return the claims of the register, or those of one paper.

    Raises:
        SpecError: an entry has a field that claims do not have.
    """
    import yaml

    file = resources.files("replication") / "claims.yaml"
    register: dict[str, list[dict[str, Any]]] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return tuple(
        _claim(name, written)
        for name in ([paper] if paper is not None else [*PAPERS, OURS])
        for written in register.get(name, [])
    )


def _claim(paper: str, written: dict[str, Any]) -> Claim:
    names = [field.name for field in fields(Claim) if field.name != "paper"]
    for name, value in written.items():
        if name not in names:
            raise SpecError(f"claims.yaml: {paper}: {written.get('claim')}: {name}", value, one_of(names, name))
    values: dict[str, Any] = {name: tuple(value) if name in _TEXTS else value for name, value in written.items()}
    return Claim(paper, **values)


def findings_of(methods: Collection[str]) -> list[dict[str, Any]]:
    """Return the claims of the papers of these methods for a report: a ``title``, and ``claims`` with a ``state``."""
    findings = []
    for paper in PAPERS:
        if any(name == paper or name.startswith(f"{paper}-") for name in methods):
            registered = json.loads(STATES_FILE.read_text(encoding="utf-8"))
            claims = [claim for claim in registered if claim["paper"] == paper]
            counted = counted_states([claim["state"] for claim in claims])
            counts = ", ".join(f"{number} {plural_state(state)}" for state, number in counted.items() if number)
            findings.append({
                "title": f"What {TITLES[paper]}'s paper claims, and what was found here: {counts}",
                "claims": [
                    {name: claim[name] for name in ("claim", "evidence")} | {"state": claim["verdict"]}
                    for claim in claims
                ],
            })  # fmt: skip
    return findings


def counted_states(states: list[str]) -> dict[str, int]:
    """Return the number of claims in each state."""
    return {state: states.count(state) for state in STATES}


def plural_state(state: str) -> str:
    """Return the plural verb or the adjective of a state, such as ``hold`` for ``holds``."""
    return {HOLDS: "hold", FAILS: "fail", HOLDS_UNDER: "hold under a condition", UNKNOWN: "unknown"}[state]
