"""Checkpoint intervals: limits, and where the derivative of the exact formula vanishes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel.failures import (
    FAILURE_RATES,
    FailureRate,
    best_interval_s,
    daly_interval_s,
    expected_wall_s,
    group_mtbf_s,
    intervals_within,
    young_interval_s,
)
from syncline.errors import SpecError


@given(stop_s=st.floats(1e-3, 1e5), mtbf_s=st.floats(1, 1e8))
def test_no_interval_is_better_than_the_best(stop_s: float, mtbf_s: float) -> None:
    best_s = best_interval_s(stop_s, mtbf_s)
    assert 0 < best_s <= mtbf_s
    cost = expected_wall_s(1.0, best_s, stop_s, 0.0, mtbf_s)
    for factor in (0.5, 0.9, 1.1, 2.0):
        assert cost <= expected_wall_s(1.0, factor * best_s, stop_s, 0.0, mtbf_s) * (1 + 1e-12)


@pytest.mark.parametrize("mtbf_s", [1e4, 1e6, 1e8])
def test_where_failures_are_rare_it_is_youngs_and_dalys(mtbf_s: float) -> None:
    share = math.sqrt(10 / mtbf_s)  # the first-order estimate is off by about a third of it
    assert best_interval_s(10, mtbf_s) == pytest.approx(young_interval_s(10, mtbf_s), rel=share)
    assert best_interval_s(10, mtbf_s) == pytest.approx(daly_interval_s(10, mtbf_s), rel=share**3)


def test_without_failures_checkpoints_are_all_that_it_costs() -> None:
    assert expected_wall_s(100, 10, 1, 5, math.inf) == pytest.approx(110)
    assert expected_wall_s(100, 10, 1, 5, 1e15) == pytest.approx(110)
    assert best_interval_s(1, math.inf) == math.inf
    assert best_interval_s(0, 100) == 0


def test_the_formula_without_checkpoints_is_that_of_one_attempt_after_the_other() -> None:
    # an attempt of length L succeeds with p = e^(-L / M); those in vain take E[X | X < L]
    length_s, mtbf_s = 30.0, 20.0
    p = math.exp(-length_s / mtbf_s)
    in_vain_s = mtbf_s - length_s * p / (1 - p)
    literal_s = length_s + (1 / p - 1) * in_vain_s
    assert expected_wall_s(length_s, length_s, 0, 0, mtbf_s) == pytest.approx(literal_s)


@given(stop_s=st.floats(0.1, 1e3), mtbf_s=st.floats(10, 1e7))
def test_the_range_ends_where_it_costs_so_much_more(stop_s: float, mtbf_s: float) -> None:
    def cost(interval_s: float) -> float:
        return expected_wall_s(1.0, interval_s, stop_s, 0.0, mtbf_s)

    best = cost(best_interval_s(stop_s, mtbf_s))
    for end_s in intervals_within(0.01, stop_s, mtbf_s):
        assert cost(end_s) == pytest.approx(1.01 * best, rel=1e-6)


def test_rates_add_up_over_what_fails() -> None:
    rates = [FailureRate(100.0), FailureRate(60.0, "node"), FailureRate(50.0, "site")]
    assert 1 / group_mtbf_s(rates, 10, node_workers=4, sites=2) == pytest.approx(10 / 100 + 3 / 60 + 2 / 50)
    assert group_mtbf_s([], 10) == math.inf


def test_published_rates_are_what_their_sources_say() -> None:
    # 419 in 54 days on 16,384 GPUs: one in 3.1 h; of RSC-1 Kokolis et al. project 1.8 h and, on 131,072 GPUs, 0.23 h
    assert group_mtbf_s(FAILURE_RATES["llama-3"].rates, 16_384) == pytest.approx(54 * 24 * 3600 / 419)
    rates = FAILURE_RATES["meta-rsc-1"].rates
    assert group_mtbf_s(rates, 16_384, node_workers=8) / 3600 == pytest.approx(1.8, abs=0.05)
    assert group_mtbf_s(rates, 131_072, node_workers=8) / 3600 == pytest.approx(0.23, abs=0.006)


@given(
    nodes=st.integers(1, 2000),
    restart_s=st.floats(0, 900),
    write_s=st.floats(0.1, 300),
    interval_s=st.floats(600, 7200),
)
def test_where_failures_are_rare_it_is_the_expected_training_time_ratio_of_kokolis_et_al(
    nodes: int, restart_s: float, write_s: float, interval_s: float
) -> None:
    """Theirs: ``(1 - N r (u0 + dt / 2)) / (1 + w / dt)``, of first order in what fails within an interval."""
    mtbf_s = group_mtbf_s(FAILURE_RATES["meta-rsc-2"].rates, 8 * nodes, node_workers=8)
    theirs = (1 - (restart_s + interval_s / 2) / mtbf_s) / (1 + write_s / interval_s)
    ours = 1 / expected_wall_s(1.0, interval_s, write_s, restart_s, mtbf_s)
    second_order = ((restart_s + interval_s + write_s) / mtbf_s) ** 2 + write_s / mtbf_s
    assert abs(ours - theirs) <= second_order


@pytest.mark.parametrize(("field", "value"), [("mtbf_s", 0.0), ("shape", 0.0), ("repair_s", -1.0)])
def test_what_is_no_rate_is_refused(field: str, value: float) -> None:
    with pytest.raises(SpecError, match=field.removesuffix("_s")):
        FailureRate(**{"mtbf_s": 1.0, field: value})
