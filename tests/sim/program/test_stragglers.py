"""Random slowdowns of computing: their moments, their tails and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.errors import SpecError
from syncline.seeds import generator
from syncline.sim import ComputeTime, ExponentialTail, ParetoTail, PersistentSpeeds, Slowdowns


def factors(straggler, steps=2000, workers=100, seed=0):
    return straggler.disturb(np.ones((steps, workers)), generator(seed, "stragglers"))


@pytest.mark.parametrize(
    ("straggler", "mean", "std"),
    [
        (ExponentialTail(0.3), 1.3, 0.3),
        (ParetoTail(5.0), 5 / 4, np.sqrt(5 / (4**2 * 3))),  # a / ((a - 1)^2 (a - 2))
        (Slowdowns(0.1, 5.0), 1.4, 4 * np.sqrt(0.1 * 0.9)),
    ],
)
def test_mean_and_spread_are_those_of_the_distribution(straggler, mean, std):
    drawn = factors(straggler)
    assert abs(drawn.mean() - mean) < 5 * std / np.sqrt(drawn.size)
    assert drawn.std() == pytest.approx(std, rel=0.05)


def test_the_tails_are_those_of_the_distributions():
    for f in (1.5, 2.0, 4.0):
        assert (factors(ParetoTail(1.5)) > f).mean() == pytest.approx(f**-1.5, abs=0.005)
        assert (factors(ExponentialTail(0.5)) > f).mean() == pytest.approx(np.exp(-(f - 1) / 0.5), abs=0.005)
    assert set(np.unique(factors(Slowdowns(0.1, 5.0)))) == {1.0, 5.0}


def test_the_slowest_of_p_exponentials_is_the_harmonic_number():
    slowest = factors(ExponentialTail(1.0), steps=20_000, workers=8).max(axis=1)
    harmonic = sum(1 / k for k in range(1, 9))
    assert slowest.mean() == pytest.approx(1 + harmonic, abs=5 * 1.24 / np.sqrt(20_000))  # std: sqrt(sum 1/k^2) < 1.24


def test_persistent_speeds_are_drawn_once_per_worker_and_one_in_the_mean():
    drawn = factors(PersistentSpeeds(0.5), steps=3, workers=40_000)
    assert np.array_equal(drawn[0], drawn[1]) and np.array_equal(drawn[0], drawn[2])
    assert abs(drawn[0].mean() - 1) < 5 * np.sqrt(np.expm1(0.25)) / np.sqrt(40_000)
    assert np.log(drawn[0]).std() == pytest.approx(0.5, rel=0.02)


@pytest.mark.parametrize(
    "nothing", [ExponentialTail(0.0), Slowdowns(0.0, 9.0), Slowdowns(1.0, 1.0), PersistentSpeeds(0.0)]
)
def test_what_does_nothing(nothing):
    assert np.all(factors(nothing, 5, 3) == 1.0)


@pytest.mark.parametrize(
    "straggler", [ExponentialTail(0.3), ParetoTail(1.5), Slowdowns(0.3, 4.0), PersistentSpeeds(0.4)]
)
def test_they_scale_the_time_and_the_seed_decides(straggler):
    one, two = factors(straggler, 5, 3), straggler.disturb(np.full((5, 3), 2.0), generator(0, "stragglers"))
    assert np.array_equal(two, 2 * one)
    assert not np.array_equal(one, factors(straggler, 5, 3, seed=1))
    beside = ComputeTime(1.0, (straggler,)).sample(5, 3, generator(0, "compute"))
    assert beside.shape == (5, 3) and np.all(beside > 0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ExponentialTail(-0.1),
        lambda: ExponentialTail(float("inf")),
        lambda: ParetoTail(1.0),
        lambda: ParetoTail(float("nan")),
        lambda: Slowdowns(1.1, 2.0),
        lambda: Slowdowns(float("nan"), 2.0),
        lambda: Slowdowns(0.1, -1.0),
        lambda: PersistentSpeeds(-1.0),
    ],
)
def test_what_cannot_be(make):
    with pytest.raises(SpecError, match="expected"):
        make()
