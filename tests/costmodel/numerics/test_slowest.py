"""The slowest of several workers: order statistics, limits, and the simulated clock."""

from __future__ import annotations

import math

import numpy as np
import pytest

from syncline.costmodel import Link
from syncline.costmodel.numerics.slowest import slowest_factor
from syncline.costmodel.traffic.call import Call
from syncline.sim import clock
from syncline.sim.program.disturbances import ComputeTime, LogNormalJitter


def test_small_spreads_are_those_of_normal_numbers() -> None:
    """The mean of the largest of P standard normal numbers; H. A. David, Order Statistics (1970), Table of means."""
    for workers, mean in ((1, 0.0), (2, 1 / math.sqrt(math.pi)), (3, 1.5 / math.sqrt(math.pi)), (100, 2.5076)):
        assert slowest_factor(1e-3, workers) == pytest.approx(1 + 1e-3 * mean, abs=5e-6)


def test_of_two_it_is_the_closed_form() -> None:
    """E max(X, Y) = 2 Phi(s / sqrt 2) for two log-normal numbers of mean 1."""
    for spread in (0.1, 0.5, 1.0):
        assert slowest_factor(spread, 2) == pytest.approx(1 + math.erf(spread / 2), rel=1e-9)


def test_limits() -> None:
    assert slowest_factor(0.0, 1024) == 1.0
    assert slowest_factor(0.3, 1) == pytest.approx(1.0, rel=1e-12)
    assert slowest_factor(0.3, 1024, steps=10**9) == pytest.approx(1.0, abs=1e-3)
    factors = slowest_factor(0.1, np.array([[2], [8], [64]]))
    assert np.shape(factors) == (3, 1) and np.all(np.diff(np.ravel(factors)) > 0)


@pytest.mark.parametrize("period", [1, 5])
def test_the_simulated_clock_agrees(period: int) -> None:
    """Workers that wait for each other every K steps: 4,000 steps of 16 workers, the mean to a fifth of a percent."""
    steps, workers = 4000, 16
    times = ComputeTime(1.0, (LogNormalJitter(0.1),)).sample(steps, workers, np.random.default_rng(0))
    calls = [Call(step, "all_reduce", 1.0) for step in range(period - 1, steps, period)]
    simulated = clock(calls, times, Link(0.0, 1e12), workers, steps)
    assert simulated.step_time_s == pytest.approx(slowest_factor(0.1, workers, period), rel=2e-3)
