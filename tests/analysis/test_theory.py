"""The closed forms, against the recurrences that they are about."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.analysis.theory import (
    momentum_information_nats,
    momentum_noise_variance,
    quasi_hyperbolic_stability,
    rmmc_bias_over_curvature,
    rmmc_exact,
    rmmc_leading_order,
    top_k_error_bound,
)

rates = st.floats(0.0, 0.999)


def descent(curvatures, eta, mu, steps):
    """Momenta and gradients of ``m <- mu m + g``, ``x <- x - eta m`` on a diagonal quadratic, from ones."""
    x, m = np.ones(len(curvatures)), np.zeros(len(curvatures))
    momenta, gradients = [], []
    for _ in range(steps):
        gradients.append(curvatures * x)
        m = mu * m + gradients[-1]
        x = x - eta * m
        momenta.append(m)
    return np.array(momenta), np.array(gradients)


def split(m, g):
    """A gradient along and across a momentum, in units of the momentum's norm."""
    size = np.linalg.norm(m)
    along = g @ m / size**2
    return along, np.linalg.norm(g / size - along * m / size)


@given(st.integers(0, 2**31), rates)
def test_the_exact_form_is_the_definition(seed, mu):
    before, gradient = np.random.default_rng(seed).normal(size=(2, 5))
    measured = abs(np.linalg.norm(mu * before + gradient) / np.linalg.norm(before) - 1)
    assert rmmc_exact(mu, *split(before, gradient)) == pytest.approx(measured, rel=1e-9, abs=1e-12)


def test_leading_order_is_exact_along_a_single_direction():
    """With one dimension nothing is across: both forms are the definition while the momentum keeps its sign."""
    curvature, eta, mu = np.array([0.3]), 1e-3, 0.95
    momenta, gradients = descent(curvature, eta, mu, 50)
    for t in range(1, 50):
        bias = split(momenta[t - 1], gradients[t - 1])[0] - (1 - mu)
        measured = abs(momenta[t, 0] / momenta[t - 1, 0] - 1)
        assert rmmc_leading_order(eta, curvature[0], bias) == pytest.approx(measured, rel=1e-9)


@pytest.mark.parametrize("mu", [0.5, 0.9, 0.95])
def test_bias_outweighs_curvature_in_steady_state(mu):
    curvature, eta = np.array([1.0]), 1e-3 * (1 - mu) ** 2
    momenta, gradients = descent(curvature, eta, mu, 600)
    bias = split(momenta[-2], gradients[-2])[0] - (1 - mu)
    assert -bias / eta == pytest.approx(rmmc_bias_over_curvature(mu), rel=0.01)


@given(st.integers(1, 30), st.integers(0, 2**31))
def test_top_k_error_is_within_its_bound(k, seed):
    x = np.random.default_rng(seed).standard_cauchy(30)
    error = np.sqrt((np.sort(x**2)[: 30 - k]).sum() / (x**2).sum())
    assert error <= top_k_error_bound(k, 30) + 1e-12


@pytest.mark.parametrize("k", [0, 1, 7, 30])
def test_top_k_bound_is_reached_by_equal_entries(k):
    assert top_k_error_bound(k, 30) == pytest.approx(np.sqrt((30 - k) / 30))


@given(rates, st.integers(0, 50))
def test_momentum_noise_follows_its_recurrence(beta, period):
    variance = 0.0
    for _ in range(period):
        variance = beta**2 * variance + (1 - beta) ** 2 * 4.0
    assert momentum_noise_variance(beta, period, 4.0) == pytest.approx(variance, rel=1e-6, abs=1e-15)


def test_information_is_that_of_a_correlation():
    """For two gaussians ``I = -1/2 ln(1 - rho^2)``."""
    beta, period, signal, noise = 0.9, 4, 2.0, 0.3
    kept = beta ** (2 * period) * signal
    assert momentum_information_nats(beta, period, signal, noise) == pytest.approx(
        -0.5 * np.log(1 - kept / (kept + noise))
    )


def test_information_vanishes_when_the_common_momentum_is_forgotten():
    assert momentum_information_nats(0.0, 1, 1.0, 1.0) == 0
    assert np.all(np.diff(momentum_information_nats(0.9, np.arange(1, 60), 1.0, 0.05)) < 0)


@given(st.floats(0.01, 0.999), st.floats(0.0, 1.0))
def test_stability_is_the_spectral_radius_of_the_step(beta, omega):
    def radius(a):
        step = [[1 - a * (1 - omega * beta), -omega * beta], [(1 - beta) * a, beta]]
        return np.abs(np.linalg.eigvals(step)).max()

    a_max = float(quasi_hyperbolic_stability(beta, omega))
    assert radius(a_max * (1 + 1e-3)) > 1
    assert radius(a_max * (1 - 1e-3)) < 1 + 1e-9


def test_gradient_descent_is_stable_up_to_two():
    assert quasi_hyperbolic_stability(0.0, 0.0) == 2
    assert quasi_hyperbolic_stability(0.7, 0.0) == 2
