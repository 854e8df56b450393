"""Bounds of asynchronous Adam: their limits and how they grow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.analysis.staleness import delayed_adam_bound, late_factor, trap_radius
from syncline.costmodel.pipeline.closed_form import effective_delay
from syncline.errors import SpecError
from syncline.problems.spiral import Spiral, spiral_hessian

positive = st.floats(1e-3, 1e3)
delays = st.integers(0, 64)


@given(positive, positive, positive, st.integers(1, 1000))
def test_without_delay_it_is_adam_s_own_bound(smoothness, gap, noise, d):
    """The rate under smoothness in the maximum norm, for which the dimension plays no part."""
    t = 1e4
    r = gap * smoothness / t
    plain = r**0.5 + noise**0.5 * r**0.25 + noise * (np.log(t) / t) ** 0.25
    assert delayed_adam_bound(t, 0, smoothness, gap, noise, d) == pytest.approx(plain)


@given(delays, st.integers(1, 20), positive, positive, st.floats(0, 1e3), st.integers(1, 100))
def test_it_grows_with_delay_and_with_curvature_and_falls_with_steps(delay, more, smoothness, gap, noise, d):
    at = delayed_adam_bound(1e4, delay, smoothness, gap, noise, d)
    assert delayed_adam_bound(1e4, delay + more, smoothness, gap, noise, d) > at
    assert delayed_adam_bound(1e4, delay, smoothness * (1 + more), gap, noise, d) > at
    assert delayed_adam_bound(2e4, delay, smoothness, gap, noise, d) < at


@given(delays, st.integers(1, 8), positive, positive)
def test_without_noise_so_many_more_steps_make_up_for_the_delay(delay, d, smoothness, gap):
    on_time = delayed_adam_bound(1e3, 0, smoothness, gap, 0, d)
    assert delayed_adam_bound(1e3 * late_factor(delay, d), delay, smoothness, gap, 0, d) == pytest.approx(on_time)


def staged_adam_bound(steps, delays, smoothness, gap, noise):
    """Basis Rotation, Theorem E.6: a delay tau_i and a smoothness C_i of each coordinate."""
    d, whole = len(smoothness), sum(smoothness)
    return delayed_adam_bound(steps, effective_delay(delays, smoothness), whole, gap, noise, d)


@given(delays, st.integers(1, 30), positive, positive)
def test_equal_delays_of_all_coordinates_are_one_delay(delay, d, curvature, noise):
    staged = staged_adam_bound(1e4, [delay] * d, [curvature] * d, 10, noise)
    assert staged == pytest.approx(delayed_adam_bound(1e4, delay, curvature * d, 10, noise, d))


def test_delay_counts_by_the_square_of_the_curvature_that_it_meets():
    """One steep coordinate that is late is worth more than many flat ones."""
    steep, flat = (staged_adam_bound(1e4, late, [10, 1, 1], 10, 0) for late in ([4, 0, 0], [0, 4, 4]))
    effective = 4 * (100 / 102) ** 0.5
    assert steep == pytest.approx(delayed_adam_bound(1e4, effective, 12, 10, 0, 3))
    assert steep > flat > staged_adam_bound(1e4, [0, 0, 0], [10, 1, 1], 10, 0)
    with pytest.raises(SpecError):
        staged_adam_bound(1e4, [1, 1], [0, 0], 10, 0)


def test_bounds_broadcast():
    assert delayed_adam_bound(1e4, np.arange(3)[:, None], np.array([1.0, 2.0]), 1, 0, 2).shape == (3, 2)


def test_the_trap_s_curvature_and_slope_are_the_spiral_s():
    """At r 64 the largest eigenvalue is 12,800 to a thousandth, and the valley's floor, at f = r^2, falls by 1/2."""
    point = Spiral(radius=64.0).start_point()
    assert np.linalg.eigvalsh(spiral_hessian(point).numpy())[-1] == pytest.approx(12_800, rel=5e-3)
    radii = np.array([63.999, 64.001])
    length = (radii[1] - radii[0]) * np.hypot(1, 4 * 64.0)  # theta = 4 r
    assert (radii[1] ** 2 - radii[0] ** 2) / length == pytest.approx(0.5, rel=1e-4)
    assert trap_radius([0.2, 0.1, 0.05]) == pytest.approx(64 * np.array([4, 1, 0.25]))
