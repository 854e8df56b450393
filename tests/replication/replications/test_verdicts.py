"""Comparisons seed by seed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replication.replications.spec import Cell, Comparison, ReplicatedClaim
from replication.replications.verdicts import compare_sides, search_spreads, verdict_rows

A, B = Cell("a"), Cell("b")
LOSSES = st.lists(st.floats(0.1, 10), min_size=5, max_size=5)


def claim(*comparisons: Comparison) -> ReplicatedClaim:
    return ReplicatedClaim(claim="it", comparisons=comparisons, settled_by="more")


@given(LOSSES, LOSSES)
def test_it_holds_or_fails_where_all_seeds_say_so(a, b):
    losses = {A: dict(enumerate(a)), B: dict(enumerate(b))}
    (row,) = verdict_rows([claim(Comparison(lower="a", higher="b"))], losses, 5)
    signs = {(x > y) - (x < y) for x, y in zip(a, b, strict=True)}
    if len(signs) == 1:
        assert row["state"] == ("holds" if signs == {-1} else "fails" if signs == {1} else "unknown")
    (few,) = verdict_rows([claim(Comparison(lower="a", higher="b"))], losses, 6)
    assert few["state"] == "unknown" and few["seeds"] == 5
    (back,) = verdict_rows([claim(Comparison(lower="b", higher="a"))], losses, 5)
    assert back["difference"] == pytest.approx(-row["difference"])
    assert back["probability"] + row["probability"] <= 1


def trial(number: int, loss: float, method: str = "a") -> dict[str, object]:
    return {"method": method, "trial": number, "loss": loss, "seed": 101}


def test_the_spread_of_a_search_is_that_of_its_best_of_n():
    """Trial 1 is in every resample; of three others the best is missed with probability (2/3)^3."""
    trials = [trial(1, 2.0), trial(2, 1.0), trial(3, 3.0), trial(4, 4.0)]
    spread = search_spreads(trials, [])["a"]
    assert set(spread) == {0.0, 1.0}
    assert (spread == 1.0).mean() == pytest.approx((2 / 3) ** 3, abs=0.02)
    assert set(search_spreads(trials[:1], [])["a"]) == {0.0}


def test_repeated_trials_decide_and_seeds_of_their_own_cost_nothing():
    """Trial 3 is better over both seeds, and a resample without it has trial 2; the second seed is 0.55 higher."""
    trials = [trial(1, 2.0), trial(2, 1.0), trial(3, 1.1)]
    spread = search_spreads(trials, [trial(2, 1.7), trial(3, 1.5)])["a"]
    assert set(spread.round(9)) == {0.0, round((1.0 + 1.7) / 2 - (1.1 + 1.5) / 2, 9)}
    assert (spread > 0).mean() == pytest.approx(1 / 4, abs=0.02)


def test_a_lucky_search_makes_a_verdict_unknown_and_cancels_within_a_method():
    losses = {
        A: dict.fromkeys(range(5), 1.0),
        B: dict.fromkeys(range(5), 1.5),
        Cell("a", "K8"): dict.fromkeys(range(5), 1.2),
    }
    spreads = search_spreads([trial(1, 3.0), trial(2, 1.0), trial(3, 3.0)], [])
    lucky = compare_sides(Comparison(lower="a", higher="b"), losses, spreads)
    assert lucky.probability == pytest.approx(0.75, abs=0.02) and lucky.state(5) == "unknown"
    assert compare_sides(Comparison(lower="a", higher="b"), losses).state(5) == "holds"
    same = compare_sides(Comparison(lower="a", higher="a @ K8"), losses, spreads)
    assert same.state(5) == "holds" and same.resolution == 0


def test_differences_of_differences_and_a_margin():
    losses = {A: {0: 2.0, 1: 2.5}, B: {0: 2.1, 1: 2.4}, Cell("a", "K8"): {0: 1.5}, Cell("b", "K8"): {0: 1.9, 1: 2.0}}
    one = compare_sides(Comparison(lower="a - a @ K8", higher="b - b @ K8"), losses)
    assert one.differences == {0: pytest.approx(0.3)}  # the seed that all of them have
    margin = compare_sides(Comparison(lower="a", higher="b", tolerance=0.2), losses)
    assert margin.as_claimed == 2 and margin.record()["difference"] == pytest.approx(-0.2)


def test_what_diverged_is_more_than_any_loss_and_neither_than_itself():
    losses = {A: {0: math.inf, 1: 1.0}, B: {0: math.inf, 1: math.inf}}
    one = compare_sides(Comparison(lower="a", higher="b"), losses)
    assert one.as_claimed == 1 and one.state(2) == "unknown"


def test_one_comparison_that_fails_is_enough_and_cells_to_come_are_left_out():
    losses = {A: dict.fromkeys(range(5), 1.0), B: dict.fromkeys(range(5), 2.0)}
    holds, fails = Comparison(lower="a", higher="b"), Comparison(lower="b", higher="a")
    assert {row["state"] for row in verdict_rows([claim(holds, fails)], losses, 5)} == {"fails"}
    assert verdict_rows([claim(holds, Comparison(lower="a", higher="c"))], losses, 5) == []


def test_a_repetition_that_differs_by_rounding_widens_the_verdict():
    """Seeds agree on a difference of 0.1, which a repetition turns on most of them."""
    a, b = Cell("a"), Cell("b")
    losses = {a: dict.fromkeys(range(5), 1.0), b: dict.fromkeys(range(5), 1.1)}
    comparison = Comparison(lower="a", higher="b")
    assert compare_sides(comparison, losses).probability == 1.0
    same = {a: losses[a], b: losses[b]}
    assert compare_sides(comparison, losses, repeats=same).probability == 1.0
    chaotic = {a: dict.fromkeys(range(5), 1.4), b: losses[b]}
    result = compare_sides(comparison, losses, repeats=chaotic)
    assert 0.1 < result.probability < 0.3 and result.differences == compare_sides(comparison, losses).differences
    assert result.resolution > 0.1
