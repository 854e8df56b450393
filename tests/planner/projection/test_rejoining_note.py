"""The note on the state that a returning worker fetches: of plans that go on without it."""

from __future__ import annotations

import pytest

import syncline as sl


@pytest.mark.parametrize(("recovery", "noted"), [("elastic", True), ("restart", False)])
def test_a_returning_worker_fetches_its_state_unless_all_restart(recovery: str, noted: bool) -> None:
    result = sl.project(
        model="gpt-160m", networks=["wan"], workers=[4], hardware=["h100"], methods=["diloco"], failures="64d",
        recovery=recovery, thresholds=False,
    )  # fmt: skip
    (row,) = result.rows
    assert row["recovery"] == recovery and row["rejoin_s"] > 1
    assert ("A worker that returns fetches its state over its link: diloco" in str(result)) is noted
