"""Faults from a spec to the loss and the clock."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.runs.training.train_and_time import time_method, train_method
from syncline.specs import load_spec

SPEC = "rosenbrock-mt-dao"
SHORT = ["workers=3", "steps=30", "seeds=[0]", "problem.noise_std=0.1", "compute={seconds: 10 ms}", "network=wan"]


def trained(*overrides, method="{kind: local, rule: sgdm, lr: 0.0001, period: 5}"):
    spec = load_spec(SPEC, [*SHORT, f"method={method}", *overrides])
    one = train_method(spec, spec.method)
    return one, time_method(spec, one, spec.network)


@pytest.fixture(scope="module")
def plain():
    return trained()


@pytest.mark.parametrize(
    "fault",
    [
        "faults.stragglers.exponential_scale=1",
        "faults.stragglers.pareto_shape=2",
        "faults.stragglers.slowdowns={probability: 0.5, factor: 3}",
        "faults.slow_links=[{worker: 1, bandwidth_divisor: 1000000}]",
        "faults.slow_links=[{worker: 1, latency_factor: 2}]",
        "faults.latency_jitter={mean_delay: 20 ms}",
    ],
)
def test_faults_of_the_clock_cost_time_and_change_no_loss(plain, fault):
    one, timed = trained(fault)
    assert timed.wall_s > plain[1].wall_s
    assert np.array_equal(one.history.loss, plain[0].history.loss)
    assert timed.wall_s == trained(fault)[1].wall_s


def test_a_worker_that_is_away_is_away_in_the_loss_the_ledger_and_the_clock(plain):
    one, timed = trained("faults.absences=[{worker: 2, first_step: 10, end_step: 20}]")
    assert np.array_equal(one.history.loss[:10], plain[0].history.loss[:10])
    assert not np.array_equal(one.history.loss[10:], plain[0].history.loss[10:])
    assert [call.group_size for call in one.ledger] == [3, 3, 2, 2, 3, 3]
    assert timed.wall_s < plain[1].wall_s  # a ring of two has fewer latencies than one of three
    here = timed.timeline.step[timed.timeline.worker == 2]
    assert set(here.tolist()) == {*range(10), *range(20, 30)}


def test_with_one_worker_left_nothing_is_sent():
    one, timed = trained("faults.absences=[{worker: 0, first_step: 5}, {worker: 2, first_step: 5}]")
    assert [call.step for call in one.calls()] == [4]
    assert timed.step_end_s[-1] - timed.step_end_s[4] == pytest.approx(25 * 10e-3)
