from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel.least_squares import relative_fit
from syncline.errors import SpecError

SIZES = np.geomspace(1e2, 1e8, 40)


def line(c):
    """A latency and a bandwidth."""
    return c[0] + SIZES / c[1]


@given(st.floats(1e-6, 1e-1), st.floats(1e6, 1e11), st.floats(-2, 2), st.floats(-2, 2))
def test_exact_measurements_give_their_constants(alpha, bandwidth, off, aside):
    start = [alpha * np.exp(off), bandwidth * np.exp(aside)]
    fit = relative_fit(line, line(np.array([[alpha], [bandwidth]])), start)
    told = max(SIZES) / bandwidth > alpha / 10 and min(SIZES) / bandwidth < alpha * 10
    if told:  # where one of the two is never seen, its value says nothing
        np.testing.assert_allclose(fit.constants, [alpha, bandwidth], rtol=1e-4)
    np.testing.assert_allclose(fit.errors, 0, atol=1e-4)


def test_a_few_wrong_points_move_little_and_least_squares_more():
    truth = line(np.array([[1e-3], [1e9]]))
    measured = truth.copy()
    measured[::10] *= 3
    robust, squares = (relative_fit(line, measured, [1e-2, 1e8], scale=scale) for scale in (0.01, 1e3))
    off = [abs(np.log(fit.constants / [1e-3, 1e9])).max() for fit in (robust, squares)]
    assert off[0] < 0.01 and off[1] > 0.1
    assert np.median(abs(robust.errors)) < 0.01


def test_the_spread_is_that_of_repeated_measurements():
    rng, truth = np.random.default_rng(0), line(np.array([[1e-3], [1e9]]))
    fits = [relative_fit(line, truth * np.exp(rng.normal(0, 0.02, 40)), [1e-3, 1e9], scale=1.0) for _ in range(200)]
    seen = np.std([np.log(fit.constants) for fit in fits], axis=0)
    np.testing.assert_allclose(np.mean([fit.spread for fit in fits], axis=0), seen, rtol=0.2)


def test_constants_that_nothing_tells_apart_have_no_end_of_spread():
    fit = relative_fit(lambda c: c[0] * c[1] * SIZES, 6.0 * SIZES, [1.0, 1.0])
    assert np.prod(fit.constants) == pytest.approx(6.0)
    assert np.all(fit.spread > 1e3) or np.all(np.isinf(fit.spread))


def test_a_constant_stays_at_its_ceiling_and_the_others_do_their_best():
    truth = line(np.array([[1e-3], [1e9]]))
    fit = relative_fit(line, truth, [1e-2, 1e7], upper=[np.inf, 5e8], scale=1e6)
    assert fit.constants[1] == pytest.approx(5e8)
    best = min(
        (float(np.sum(np.log(line(np.array([[alpha], [5e8]])) / truth) ** 2)), alpha)
        for alpha in np.geomspace(1e-4, 1e-2, 4001)
    )
    assert fit.constants[0] == pytest.approx(best[1], rel=2e-3)
    free = relative_fit(line, truth, [1e-2, 1e7], upper=[np.inf, 5e9])
    np.testing.assert_allclose(free.constants, [1e-3, 1e9], rtol=1e-6)


def test_of_several_starts_the_best_end_is_taken():
    def kinked(c):
        return np.maximum(c[0], SIZES / 1e6 * np.abs(np.log(c[0]) + 1.0) + 1e-9)

    measured = kinked(np.array([[20.0]]))
    ends = [relative_fit(kinked, measured, [start]) for start in (1e-3, 30.0)]
    both = relative_fit(kinked, measured, [[1e-3], [30.0]])
    assert ends[1].cost < ends[0].cost
    assert both.cost == ends[1].cost and both.constants == pytest.approx([20.0])


@pytest.mark.parametrize(
    ("measured", "start", "message"),
    [
        ([1.0], [1.0, 1.0], "measured: got 1; expected at least as many"),
        ([1.0, 0.0], [1.0], r"measured: got 0\.0"),
        ([1.0, 1.0], [-1.0], r"starts: got -1\.0"),
    ],
)
def test_what_cannot_be_fitted_is_refused(measured, start, message):
    with pytest.raises(SpecError, match=message):
        relative_fit(lambda c: c[0] * np.ones(len(measured)), measured, start)
