"""Comparisons seed by seed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replication.replications.spec import Cell, Comparison, ReplicatedClaim
from replication.replications.verdicts import compare_sides, verdict_rows

A, B = Cell("a"), Cell("b")
LOSSES = st.lists(st.floats(0.1, 10), min_size=5, max_size=5)


def claim(*comparisons: Comparison) -> ReplicatedClaim:
    return ReplicatedClaim(claim="it", comparisons=comparisons, settled_by="more")


@given(LOSSES, LOSSES)
def test_it_holds_or_fails_where_all_seeds_say_so(a, b):
    losses = {A: dict(enumerate(a)), B: dict(enumerate(b))}
    (row,) = verdict_rows([claim(Comparison(lower="a", higher="b"))], losses, 5)
    signs = {(x > y) - (x < y) for x, y in zip(a, b, strict=True)}
    assert row["state"] == ("holds" if signs == {-1} else "fails" if signs == {1} else "unknown")
    (few,) = verdict_rows([claim(Comparison(lower="a", higher="b"))], losses, 6)
    assert few["state"] == "unknown" and few["seeds"] == 5
    (back,) = verdict_rows([claim(Comparison(lower="b", higher="a"))], losses, 5)
    assert back["difference"] == pytest.approx(-row["difference"])


def test_differences_of_differences_and_a_margin():
    losses = {A: {0: 2.0, 1: 2.5}, B: {0: 2.1, 1: 2.4}, Cell("a", "K8"): {0: 1.5}, Cell("b", "K8"): {0: 1.9, 1: 2.0}}
    one = compare_sides(Comparison(lower="a - a @ K8", higher="b - b @ K8"), losses)
    assert one.differences == {0: pytest.approx(0.3)}  # the seed that all of them have
    margin = compare_sides(Comparison(lower="a", higher="b", tolerance=0.2), losses)
    assert margin.as_claimed == 2 and margin.record()["difference"] == pytest.approx(-0.2)


def test_what_diverged_is_more_than_any_loss_and_neither_than_itself():
    losses = {A: {0: math.inf, 1: 1.0}, B: {0: math.inf, 1: math.inf}}
    one = compare_sides(Comparison(lower="a", higher="b"), losses)
    assert (one.as_claimed, one.other_way_round) == (1, 0) and one.state(2) == "unknown"


def test_one_comparison_that_fails_is_enough_and_cells_to_come_are_left_out():
    losses = {A: dict.fromkeys(range(5), 1.0), B: dict.fromkeys(range(5), 2.0)}
    holds, fails = Comparison(lower="a", higher="b"), Comparison(lower="b", higher="a")
    assert {row["state"] for row in verdict_rows([claim(holds, fails)], losses, 5)} == {"fails"}
    assert verdict_rows([claim(holds, Comparison(lower="a", higher="c"))], losses, 5) == []
