"""Bounds of asynchronous Adam: their limits and how they grow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from replication.theory import (
    constant_gradient_step,
    delay_deviation,
    delay_step_factor,
    delayed_adam_bound,
    delayed_adam_step,
    momentum_adam_bound,
    momentum_delay_step_factor,
    trap_radius,
)
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
    assert delayed_adam_bound(1e3 * delay_step_factor(delay, d), delay, smoothness, gap, 0, d) == pytest.approx(on_time)


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


@given(delays, st.integers(1, 50), positive, positive)
def test_with_momentum_the_bound_is_that_of_more_steps(delay, d, smoothness, gap):
    """Without noise only R differs: (1 + d tau) becomes d (1 + tau), by as many times fewer steps."""
    fewer = delay_step_factor(delay, d) / (d * (1 + delay))
    plain = delayed_adam_bound(1e6 * fewer, delay, smoothness, gap, 0, d)
    assert momentum_adam_bound(1e6, delay, smoothness, gap, 0, d, 1.0) == pytest.approx(plain)
    assert momentum_adam_bound(1e6, 0, smoothness, gap, 0, d, 1.0) == pytest.approx(
        d**0.5 * delayed_adam_bound(1e6, 0, smoothness, gap, 0, d)
    )


def test_the_momentum_s_bound_by_hand():
    """R = 2 * 3 * 10 * 5 / 10^4 = .03; sigma 4, G 9: .1732 + 2 * .4162 + sqrt(72) (9.2103 / 10^4)^(1/4)."""
    by_hand = 0.03**0.5 + 2 * 0.03**0.25 + 72**0.5 * (np.log(1e4) / 1e4) ** 0.25
    assert momentum_adam_bound(1e4, 2, 5, 10, 4, 2, 9) == pytest.approx(by_hand)


@pytest.mark.parametrize("beta1", [0.0, 0.5, 0.9])
def test_momentum_adds_its_lag_to_the_delay(beta1):
    """Equation (53) without noise, c3 = c4 = 1, at the eta that a search finds: squares over that of R alone."""
    d, tau, beta2 = 6, 4, 1 - 1e-9

    def least(b, delay, dimension):
        def terms(log_eta):
            eta = np.exp(log_eta)
            grows = (1 - b) * (1 + dimension * delay) + b * dimension / (1 - b)
            return 4 / eta + eta * grows / (1 - b / beta2)

        return minimize_scalar(terms, bounds=(-8, 8), method="bounded", options={"xatol": 1e-10}).fun

    assert momentum_delay_step_factor(beta1, tau, d) == pytest.approx(
        (least(beta1, tau, d) / least(0.0, 0, 1)) ** 2, rel=1e-6
    )
    assert momentum_delay_step_factor(0.0, tau, d) == delay_step_factor(tau, d)
    with pytest.raises(SpecError, match="beta1: got 1"):
        momentum_delay_step_factor(1.0, 1, 1)


@pytest.mark.parametrize(("beta1", "beta2"), [(0.0, 0.9), (0.9, 0.999), (0.5, 0.5)])
def test_the_steps_of_a_constant_gradient(beta1, beta2):
    m = v = 0.0
    for t in range(1, 40):
        m, v = beta1 * m + (1 - beta1) * 3.0, beta2 * v + (1 - beta2) * 9.0
        assert constant_gradient_step(beta1, beta2, t) == pytest.approx(m / v**0.5)


def adam_path(gradient, start, lr, steps, delay, beta1=0.0, beta2=0.9):
    """Positions of Adam without bias correction whose gradients are so many updates late, (T + 1, d)."""
    x, m, v = [np.asarray(start, dtype=float)], 0.0, 0.0
    for t in range(steps):
        g = gradient(x[max(t - delay, 0)])
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
        x.append(x[-1] - lr * m / np.sqrt(v + 1e-12))
    return np.array(x)


def test_on_a_slope_a_delay_changes_nothing():
    """Appendix B where its assumption holds exactly: a gradient that is the same everywhere."""
    paths = [adam_path(lambda x: np.array([1.0, -2.0]), [0, 0], 0.1, 50, delay, 0.9) for delay in (0, 3)]
    assert np.array_equal(*paths)


def test_slow_changes_lead_off_the_path_by_as_many_steps():
    """Gradient descent on a bowl, for a small step: the prediction's own error is of second order in it."""
    delay, errors = 3, []
    for lr in (0.02, 0.01):
        steps = round(2 / lr)
        paths = []
        for late in (0, delay):
            x = [1.0]
            for t in range(steps):
                x.append(x[-1] - lr * x[max(t - late, 0)])
            paths.append(np.array(x))
        predicted = delay_deviation(np.diff(paths[0])[:, None], delay).ravel()
        found = (paths[1] - paths[0])[1:]
        errors.append(np.abs(found - predicted).max())
        assert errors[-1] < 0.7 * np.abs(predicted).max() and np.abs(predicted).max() < delay * lr
    assert errors[1] < 0.6 * errors[0]
    assert not delay_deviation(np.ones((9, 2)), 4).any()
    with pytest.raises(SpecError, match="delay: got -1"):
        delay_deviation(np.ones((3, 1)), -1)


@pytest.mark.parametrize("delay", [0, 2, 8])
def test_delayed_adam_falls_with_the_steps_as_its_bound(delay):
    """On a misaligned bowl at the theorem's step size and beta2: the least gradient, within ten times the bound."""
    turned = np.array([[1.0, 0.9], [0.9, 1.0]])
    smoothness, gap = np.abs(turned).sum(), 0.5 * np.array([3.0, -1.0]) @ turned @ np.array([3.0, -1.0])
    for steps in (300, 3000):
        lr = float(delayed_adam_step(steps, delay, smoothness, gap, 2))
        path = adam_path(lambda x: turned @ x, [3.0, -1.0], lr, steps, delay, beta2=1 - np.log(steps) / steps)
        least = np.abs(path[steps // 2 :] @ turned).sum(-1).min()
        assert least < delayed_adam_bound(steps, delay, smoothness, gap, 0, 2)
