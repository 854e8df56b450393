"""The register of claims: every state is computed from committed results, and every page is made from the register."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from replication.claims import FAILS, HOLDS, HOLDS_UNDER, OURS, PAPERS, STATES, STATES_FILE, UNKNOWN, Claim, claims_of
from replication.replications.readme import page_of
from replication.replications.verdicts import SURE
from replication.scoreboard.claim_register import judge, judged_of, page, states_text
from replication.scoreboard.rules import every, indicative, trained, under
from replication.scoreboard.trained import HEADLINE, RESULTS, compared, run_of
from replication.scoreboard.verdicts import AGREE, DIFFER, NOT_CHECKABLE, TREND, UNDECIDED
from syncline.errors import SpecError

ROOT = Path(__file__).parents[3]
RUNS = sorted(path.parent.name for path in (RESULTS / "replication").glob("*/finals.parquet"))


def test_the_pages_are_made_from_the_register():
    assert (ROOT / "docs" / "claims.md").read_text(encoding="utf-8") == page()
    assert STATES_FILE.read_text(encoding="utf-8") == states_text()


@pytest.mark.parametrize("run", RUNS)
def test_the_page_of_a_run_is_made_from_its_tables(run):
    folder = RESULTS / "replication" / run
    assert (folder / "README.md").read_text(encoding="utf-8") == page_of(folder)


def last_losses(run: str) -> dict[str, dict[int, float]]:
    """The last loss of each ``method @ extra`` and seed, read off the tables alone."""
    folder = RESULTS / HEADLINE if run == HEADLINE else RESULTS / "replication" / run
    tables = {"": folder / ("headline.parquet" if run == HEADLINE else "finals.parquet")}
    tables |= {path.stem.removeprefix("extra-"): path for path in folder.glob("extra-*.parquet")}
    losses: dict[str, dict[int, float]] = {}
    for extra, path in tables.items():
        if not path.stem.endswith("-averages"):
            last = pd.read_parquet(path).sort_values("step").groupby(["method", "seed"])["loss"].last()
            for (method, seed), loss in last.items():
                losses.setdefault(f"{method} @ {extra}" if extra else method, {})[seed] = loss
    return losses


@pytest.mark.parametrize("run", [*RUNS, HEADLINE])
def test_every_comparison_of_a_run_comes_out_of_its_tables(run):
    losses = last_losses(run)
    written = {row["comparison"]: row for row in run_of(run).rows}
    compared_in_run = [one for comparisons in run_of(run).comparisons.values() for one in comparisons]
    assert written.keys() == {str(comparison) for comparison in compared_in_run}
    for comparison in compared_in_run:
        sides = [comparison.lower.split(" - "), comparison.higher.split(" - ")]
        seeds = set.intersection(*(set(losses[cell]) for side in sides for cell in side))
        differences = []
        for seed in seeds:
            lower, higher = (losses[side[0]][seed] - sum(losses[cell][seed] for cell in side[1:]) for side in sides)
            differences.append(lower + comparison.margin - higher - comparison.tolerance)
        row = written[str(comparison)]
        assert row["seeds"] == len(seeds)
        assert row["as_claimed"] == sum(difference < 0 for difference in differences)
        assert row["difference"] == pytest.approx(np.nanmedian(differences))


@pytest.mark.parametrize("run", [*RUNS, HEADLINE])
def test_a_sure_probability_is_one_that_the_seeds_share(run):
    """A comparison that holds or fails is so on most seeds: neither search nor rounding turns what the seeds say."""
    for row in run_of(run).rows:
        if row["probability"] >= SURE:
            assert 2 * row["as_claimed"] > row["seeds"]
        elif row["probability"] <= 1 - SURE:
            assert 2 * row["as_claimed"] < row["seeds"]


def test_every_claim_of_every_run_is_in_the_register():
    registered = {(run, claim.key) for claim in claims_of() for run in claim.runs}
    assert registered == {(run, claim) for run in RUNS for claim in run_of(run).comparisons}


@pytest.mark.parametrize("paper", [*PAPERS, OURS])
def test_a_claim_has_evidence_or_says_what_would_settle_it(paper):
    assert all(judged.rows or judged.settled_by() for judged in judged_of(paper))
    assert {judged.state for judged in judged_of(paper)} <= set(STATES)


def test_a_claim_says_what_it_lacks():
    with pytest.raises(SpecError, match=r"rule: got 'ever'; expected one of .*did you mean 'every'"):
        judge(Claim("demo", "", "it is fast", "ever"))
    with pytest.raises(SpecError, match="under: got ''; expected a condition"):
        judge(Claim("demo", "", "it is fast", "under"))
    with pytest.raises(SpecError, match="the beginning of a row"):
        judge(Claim("demo", "", "it is fast", rows=("Table 99",)))
    with pytest.raises(SpecError, match="superseded: got 'demo'; expected one of 'mt-dao'"):
        judge(Claim("demo", "", "it is fast", runs=("mt-dao",), superseded=("demo",)))


def test_a_superseded_run_is_told_and_does_not_count():
    (claim,) = [claim for claim in claims_of("demo") if claim.key == "better-than-adamw"]
    fails = judge(replace(claim, superseded=("protocol-2-digits", *claim.superseded)))
    assert (judge(claim).state, fails.state) == (UNKNOWN, FAILS)  # digits hold, text fails
    assert "superseded, not counted: [protocol-2-digits]" in fails.evidence()


@pytest.mark.parametrize(
    ("rule", "rows", "runs", "otherwise", "state"),
    [
        (every, [AGREE, TREND], [], [], HOLDS),
        (every, [AGREE, DIFFER, UNDECIDED], [], [], FAILS),
        (every, [AGREE, NOT_CHECKABLE], [], [], UNKNOWN),
        (every, [], [], [], UNKNOWN),
        (trained, [DIFFER], [TREND, UNDECIDED, TREND], [], HOLDS),
        (trained, [], [DIFFER, UNDECIDED], [], UNKNOWN),  # a half is not the majority
        (trained, [], [DIFFER, TREND, DIFFER], [], UNKNOWN),
        (trained, [], [DIFFER], [], FAILS),
        (under, [TREND], [DIFFER], [], HOLDS_UNDER),
        (under, [TREND], [], [AGREE], HOLDS),
        (under, [DIFFER], [], [AGREE], FAILS),
        (under, [UNDECIDED], [], [DIFFER], UNKNOWN),
        (indicative, [DIFFER], [], [], UNKNOWN),
    ],
)
def test_rules(rule, rows, runs, otherwise, state):
    assert rule(rows, runs, otherwise) == state


def test_a_comparison_reads_as_it_is_written():
    for text in ("mt-dao < local-adam", "mt-dao < ddp-adam + 0.02", "a @ K8 - a < b @ K8 - b"):
        assert str(compared(text)) == text
