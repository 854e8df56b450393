"""The register of claims: what it says rests on rows, and the page is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from replication.scoreboard.claim_register import (
    FAILS,
    HOLDS,
    HOLDS_UNDER,
    OURS,
    STATES,
    UNKNOWN,
    PaperClaim,
    claims_of,
    page,
)
from replication.scoreboard.rows import PAPERS
from syncline.errors import SpecError

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("paper", [*PAPERS, OURS])
def test_what_is_said_of_a_claim_is_what_its_rows_say(paper):
    for claim in claims_of(paper):
        verdicts = [row["verdict"] for row in claim.evidence_rows()]
        if claim.state == HOLDS and verdicts:
            assert set(verdicts) <= {"agree", "trend"}, claim.claim
        if claim.state == FAILS and claim.rows:
            assert "differ" in verdicts, claim.claim
        if claim.state == HOLDS_UNDER:
            assert {"agree", "trend"} & set(verdicts), claim.claim
        if claim.state == UNKNOWN:
            assert claim.settled_by, claim.claim
        assert verdicts or claim.evidence or claim.settled_by, claim.claim


def test_every_paper_has_claims_in_every_state():
    for paper in PAPERS:
        assert {claim.state for claim in claims_of(paper)} == set(STATES)


def test_the_page_is_made_of_the_register():
    assert (ROOT / "docs" / "claims.md").read_text(encoding="utf-8") == page()


def test_a_claim_says_what_it_lacks():
    with pytest.raises(SpecError, match=r"state: got 'true'; expected one of"):
        PaperClaim("demo", "", "it is fast", "true")
    with pytest.raises(SpecError, match="under: got ''; expected a condition"):
        PaperClaim("demo", "", "it is fast", HOLDS_UNDER)
    with pytest.raises(SpecError, match="the beginning of a row"):
        list(PaperClaim("demo", "", "it is fast", HOLDS, rows=("Table 99",)).evidence_rows())
