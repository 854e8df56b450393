from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replication.theory.wall_clock import (
    curvadion_speedup,
    curvadion_step_s,
    half_life_total_s,
    mt_dao_all_reduce_s,
    unified_total_s,
)
from syncline.costmodel import MODELS, Link, half_life, half_life_period, ring_all_reduce_s
from syncline.specs import network

MEASURED = (3.375, 0.039, 0.0005)  # CurvaDion, section 4.4: compute, optimizer, flag, in seconds


@pytest.mark.parametrize(("sync_s", "speedup"), [(0.07, 1.0201), (0.7, 1.2024), (12.0, 4.3610)])
def test_curvadion_table_3(sync_s: float, speedup: float) -> None:
    assert curvadion_speedup(*MEASURED, sync_s, 0.01) == pytest.approx(speedup, abs=5e-5)


def test_curvadions_text_used_the_rate_of_its_cut() -> None:
    speedups = curvadion_speedup(*MEASURED, np.array([0.7, 12.0]), 1 - 0.9924)
    np.testing.assert_allclose(speedups, [1.203, 4.396], atol=1e-3)


def test_a_trigger_that_always_fires_costs_its_flag() -> None:
    step_s = curvadion_step_s(3.0, 1.0, 0.25, 2.0, 1.0)
    assert step_s == 6.25
    assert curvadion_speedup(3.0, 1.0, 0.25, 2.0, 1.0) == 6.0 / 6.25


def test_a_sweep_of_a_million_configurations_is_one_call() -> None:
    sync_s = np.geomspace(1e-3, 100, 100)[:, None, None]
    rate = np.linspace(0, 1, 100)[:, None]
    compute_s = np.geomspace(1e-2, 10, 100)
    speedups = np.asarray(curvadion_speedup(compute_s, 0.039, 0.0, sync_s, rate))
    assert speedups.shape == (100, 100, 100)
    np.testing.assert_allclose(speedups[:, -1], 1)  # always in sync
    assert np.all(np.diff(speedups, axis=0)[:, :-1] > 0)  # a slower network rewards silence
    assert np.all(np.diff(speedups, axis=1) < 0)  # and every sync costs
    totals_s = unified_total_s(
        1e5, steps=40960, period=32, state_bytes=4e9, workers=4, link=Link(sync_s, 1e9 / compute_s)
    )
    assert np.shape(totals_s) == (100, 1, 100)


@pytest.mark.parametrize(("beta", "steps"), [(0.99, 68.97), (0.999, 692.80), (0.9999, 6931.1)])
def test_half_lives_of_mt_dao(beta: float, steps: float) -> None:
    assert half_life(beta) == pytest.approx(steps, abs=0.05)
    assert beta ** float(half_life(beta)) == pytest.approx(0.5)


def test_a_period_is_at_least_what_is_asked_for() -> None:
    assert [half_life_period(beta, 32) for beta in (0.0, 0.95, 0.999)] == [32, 32, 693]
    assert half_life_period(0.0) == 1


def test_mt_daos_totals_by_hand() -> None:
    link = Link(0.5, 8.0)  # one state of 16 bytes on 4 workers: 2 x 16 / 8 x 3 / 4 + 0.5 = 3.5 s; three: 9.5 s
    common = {"steps": 64, "state_bytes": 16.0, "workers": 4, "link": link}
    assert unified_total_s(100.0, period=32, **common) == 100 + 2 * 9.5
    assert half_life_total_s(100.0, periods=(32, 32, 64), **common) == 100 + 5 * 3.5
    assert half_life_total_s(100.0, periods=(math.inf, math.inf, math.inf), **common) == 100


@given(workers=st.integers(2, 512), nbytes=st.floats(1, 1e12))
def test_mt_dao_undercounts_a_ring_by_its_latencies(workers: int, nbytes: float) -> None:
    link = network("wan")
    missing_s = (2 * (workers - 1) - 1) * link.latency_s
    ring_s = mt_dao_all_reduce_s(workers, nbytes, link) + missing_s
    assert ring_all_reduce_s(workers, nbytes, link) == pytest.approx(ring_s, rel=1e-12)


def test_curvadions_sync_times_are_of_the_order_of_a_ring() -> None:
    nbytes = MODELS["gpt-160m"].parameter_bytes()
    for name, sync_s in [("infiniband", 0.07), ("10gbe", 0.7), ("wan", 12.0)]:
        predicted_s = ring_all_reduce_s(16, nbytes, network(name))
        assert 0.7 < sync_s / predicted_s < 1.2
