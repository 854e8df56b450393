"""RMMC's closed forms, against its definition on quadratics."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.analysis.theory import rmmc_bias_over_curvature, rmmc_exact, rmmc_leading_order

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
