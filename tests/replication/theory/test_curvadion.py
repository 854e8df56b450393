"""RMMC's closed forms, against its definition on quadratics."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replication.theory import (
    build_up_rmmc,
    directional_curvature,
    noise_rmmc,
    noise_trigger_rate,
    rmmc_bias_over_curvature,
    rmmc_exact,
    rmmc_leading_order,
    steady_rmmc,
)
from syncline.errors import SpecError

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


@given(st.integers(0, 2**31), st.integers(1, 6))
def test_directional_curvature_is_how_the_gradient_changes_along_the_momentum(seed, d):
    """A finite difference on a quadratic, where it is exact; and between the least and the largest eigenvalue."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(d, d))
    hessian, x, m, eta = a + a.T, rng.normal(size=d), rng.normal(size=d), 1e-3
    unit = m / np.linalg.norm(m)
    change = (hessian @ (x - eta * m) - hessian @ x) @ unit / (-eta * np.linalg.norm(m))
    kappa = float(directional_curvature(hessian, m))
    assert kappa == pytest.approx(change, rel=1e-6, abs=1e-6)
    low, high = np.linalg.eigvalsh(hessian)[[0, -1]]
    assert low - 1e-9 <= kappa <= high + 1e-9


@pytest.mark.parametrize("mu", [0.0, 0.5, 0.9, 0.95])
@pytest.mark.parametrize("part", [0.01, 0.3, 0.9])
def test_a_slow_direction_settles_where_it_is_said_to(mu, part):
    a = part * (1 - mu**0.5) ** 2
    momenta, _ = descent(np.array([1.0]), a, mu, 3000)
    found = abs(momenta[:, 0])
    settled = int(np.flatnonzero(found > 1e-200)[-1])
    assert steady_rmmc(a, mu) == pytest.approx(1 - found[settled] / found[settled - 1], rel=1e-4)


def test_what_theorem_1_calls_curvature_and_bias_add_up():
    """On slow directions RMMC is a / (1 - mu), of which the curvature is 1 - mu parts and the bias mu."""
    mu, a = 0.95, 1e-7
    assert steady_rmmc(a, mu) == pytest.approx(a / (1 - mu), rel=1e-3)
    assert steady_rmmc(a, mu) / a == pytest.approx(1 + float(rmmc_bias_over_curvature(mu)), rel=1e-3)


@pytest.mark.parametrize("mu", [0.5, 0.95])
def test_a_momentum_that_builds_up(mu):
    """Gradients that do not change, and noise in 200,000 dimensions."""
    rng, same, noise = np.random.default_rng(0), np.zeros(3), np.zeros(200_000)
    for t in range(1, 13):
        before = [np.linalg.norm(m) for m in (same, noise)]
        same, noise = mu * same + 1.0, mu * noise + rng.normal(size=noise.size)
        if t > 1:
            after = [np.linalg.norm(m) for m in (same, noise)]
            assert build_up_rmmc(mu, t) == pytest.approx(after[0] / before[0] - 1, rel=1e-9)
            assert build_up_rmmc(mu, t, "noise") == pytest.approx(
                after[1] / before[1] - 1, abs=5 * (1 / 200_000) ** 0.5
            )


@pytest.mark.parametrize("signal", [0.0, 0.03, 1.0])
@pytest.mark.parametrize("mu", [0.0, 0.5, 0.95])
def test_noise_moves_the_norm_by_its_closed_form(mu, signal):
    """Settled momenta of 400 parameters; 4,000 of them, so a deviation is off by 1 / sqrt(8,000), five of these.

    A signal has q n as its squared norm. The closed form leaves out terms of 1 / n, 4 % here.
    """
    rng, n, count = np.random.default_rng(0), 400, 4000
    mean = np.full(n, signal**0.5)
    before = mean / (1 - mu) + rng.normal(size=(count, n)) / (1 - mu**2) ** 0.5
    after = mu * before + mean + rng.normal(size=(count, n))
    signed = np.linalg.norm(after, axis=1) / np.linalg.norm(before, axis=1) - 1
    assert signed.std() == pytest.approx(float(noise_rmmc(mu, n, signal)), rel=0.04 + 5 / 8000**0.5)
    threshold = 1.5 * float(noise_rmmc(mu, n, signal))
    fired = (np.abs(signed).reshape(-1, 4) > threshold).any(1).mean()  # four layers
    assert fired == pytest.approx(float(noise_trigger_rate(threshold, mu, [n] * 4, signal)), abs=5 * 0.5 / 1000**0.5)


def test_the_knobs_of_rmmc_are_checked():
    with pytest.raises(SpecError, match="momentum: got 0"):
        directional_curvature(np.eye(2), [0.0, 0.0])
    with pytest.raises(SpecError, match="step_curvature: got 1"):
        steady_rmmc(1.0, 0.9)
    with pytest.raises(SpecError, match="step: got 1"):
        build_up_rmmc(0.9, 1)
    with pytest.raises(SpecError, match="gradients: got 'none'"):
        build_up_rmmc(0.9, 2, "none")
