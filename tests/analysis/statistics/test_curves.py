"""Curves, statistics over seeds, smoothing, time to target."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from syncline.analysis.curves import (
    Curve,
    SeedSeries,
    lost_seeds,
    median_and_range,
    time_to_target_s,
)
from syncline.errors import SpecError

FINITE = st.floats(-1e6, 1e6)


def test_median_and_range_are_numpys_where_all_is_finite():
    values = np.random.default_rng(0).normal(size=(6, 11))
    middle, low, high = median_and_range(values)
    np.testing.assert_allclose(middle, np.median(values, axis=0))
    np.testing.assert_array_equal(low, values.min(axis=0))
    np.testing.assert_array_equal(high, values.max(axis=0))


def test_a_lost_seed_counts_as_the_worst_in_the_median_and_not_in_the_range():
    values = [[1.0, 1.0], [2.0, np.nan], [3.0, np.inf], [4.0, 4.0], [5.0, 5.0]]
    middle, low, high = median_and_range(values)
    np.testing.assert_array_equal(middle, [3.0, 5.0])
    np.testing.assert_array_equal(low, [1.0, 1.0])
    np.testing.assert_array_equal(high, [5.0, 5.0])
    assert lost_seeds(values) == 2
    assert median_and_range([[np.nan], [np.nan], [1.0]])[0] == np.inf


def test_time_to_target_interpolates():
    assert time_to_target_s([0, 10, 20], [4.0, 3.0, 1.0], 2.0) == 15
    assert time_to_target_s([0, 10, 20], [4.0, 2.0, 1.0], 2.0) == 10


def test_time_to_target_is_the_first_crossing():
    assert time_to_target_s([0, 1, 2, 3], [4.0, 2.0, 5.0, 0.0], 3.0) == 0.5


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ([1.0, 0.5, 0.2], 0.0),  # there from the start
        ([4.0, 3.0, 2.0], math.inf),  # never
        ([4.0, np.nan, np.nan], math.inf),  # diverged
        ([4.0, np.nan, 0.5], 2.0),  # no finite point before: not interpolated
        ([np.inf, 0.5, 0.2], 1.0),
    ],
)
def test_time_to_target_at_the_limits(loss, expected):
    assert time_to_target_s([0.0, 1.0, 2.0], loss, 1.0) == expected


@given(hnp.arrays(float, 8, elements=st.floats(0, 10)), st.floats(0, 10), st.floats(0, 10))
def test_a_harder_target_takes_no_less_time(loss, one, other):
    times = np.arange(8.0)
    assert time_to_target_s(times, loss, min(one, other)) >= time_to_target_s(times, loss, max(one, other))


def test_divergence_is_read_from_the_median_of_the_loss():
    step = np.array([0, 10, 20, 30])
    assert Curve("a", step, [3.0, 2.0, np.nan, np.nan]).diverged_at == 20
    assert Curve("a", step, [3.0, 2.0, 1.0, 0.5]).diverged_at is None
    assert Curve("a", step, [[3, 2, np.nan, np.nan], [3, 2, 1, 1], [3, 2, 1, 1]]).diverged_at is None


def test_nothing_is_shown_from_divergence_on():
    curve = Curve("a", [0, 10, 20, 30], [3.0, 2.0, 1e9, 1e20], diverged_at=20)
    np.testing.assert_array_equal(curve.shown, [True, True, False, False])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"step": [0, 2, 1]}, r"adam\.step\[2\]: got 1; expected strictly increasing values, after 2"),
        ({"step": []}, r"adam\.step: .* non-empty"),
        ({"loss": [1.0, 2.0]}, r"adam\.loss: got \(2,\); expected shape \(3,\) or \(seeds, 3\)"),
        ({"clock_s": {"wan": [0.0, 1.0]}}, r"adam\.clock_s\.wan: got 2; expected one time per step, 3"),
        ({"clock_s": {"wan": [0.0, 2.0, 1.0]}}, r"adam\.clock_s\.wan\[2\]: got 1.0; expected non-decreasing"),
        ({"clock_s": {"wan": [0.0, 1.0, np.nan]}}, r"adam\.clock_s\.wan: .* finite"),
    ],
)
def test_a_curve_that_does_not_fit_is_refused(arguments, message):
    fitting = {"label": "adam", "step": [0, 1, 2], "loss": [3.0, 2.0, 1.0]}
    with pytest.raises(SpecError, match=message):
        Curve(**(fitting | arguments))


def test_a_series_of_one_seed_has_a_seed_axis():
    assert SeedSeries("a", [1, 2], [3.0, 4.0]).values.shape == (1, 2)
    with pytest.raises(SpecError, match=r"a\.values"):
        SeedSeries("a", [1, 2], [3.0])
