"""MT-DAO's closed forms, against the recurrences and the algorithm that they are about."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from replication.theory import (
    beta_omega,
    covariance_information_nats,
    drift_factor,
    flat_drift,
    momentum_information_nats,
    momentum_noise_variance,
    mt_dao_bound,
    mt_dao_rate,
    mt_dao_step_size,
    quasi_hyperbolic_contraction,
    quasi_hyperbolic_stability,
    random_averages,
    shared_batch_variance,
)
from syncline.errors import SpecError

rates = st.floats(0.0, 0.999)
TWO = {"betas": [0.9, 0.99], "omegas": [0.3, 0.5], "momentum_rates": [0.25, 0.1]}


@given(rates, st.integers(0, 50))
def test_momentum_noise_follows_its_recurrence(beta, period):
    variance = 0.0
    for _ in range(period):
        variance = beta**2 * variance + (1 - beta) ** 2 * 4.0
    assert momentum_noise_variance(beta, period, 4.0) == pytest.approx(variance, rel=1e-6, abs=1e-15)


@pytest.mark.parametrize(("workers", "batch"), [(2, 8), (8, 8)])
def test_a_shared_batch_is_split_over_the_workers(workers, batch):
    """Momenta of means over each worker's own samples; a variance of n draws is off by sqrt(2 / n), five of these."""
    rng, beta, period, count = np.random.default_rng(0), 0.9, 6, 40_000
    u = np.zeros(count)
    for _ in range(period):
        u = beta * u + (1 - beta) * 3.0 * rng.normal(size=(batch // workers, count)).mean(0)
    expected = shared_batch_variance(beta, period, workers, batch, sample_variance=9.0)
    assert u.var() == pytest.approx(float(expected), rel=5 * (2 / count) ** 0.5)


def test_a_batch_has_a_sample_for_each_worker():
    with pytest.raises(SpecError, match="batch: got 4"):
        shared_batch_variance(0.9, 32, workers=8, batch=4)


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


@given(st.integers(0, 2**31), st.integers(1, 4))
def test_information_of_vectors_is_that_of_their_joint_covariance(seed, d):
    """``I = 1/2 ln(det S_X det S_Y / det S_XY)`` for gaussians X and Y."""
    rng, beta, period = np.random.default_rng(seed), 0.8, 3
    a, b = rng.normal(size=(2, d, d + 2))
    signal, noise, kept = a @ a.T, b @ b.T, beta**period
    after = kept**2 * signal + noise
    joint = np.block([[signal, kept * signal], [kept * signal, after]])
    logs = [np.linalg.slogdet(m)[1] for m in (signal, after, joint)]
    expected = 0.5 * (logs[0] + logs[1] - logs[2])
    assert covariance_information_nats(beta, period, signal, noise) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_independent_coordinates_add_their_information():
    signal, noise = np.array([4.0, 1.0]), np.array([0.5, 2.0])
    parts = momentum_information_nats(0.9, 5, signal, noise)
    assert covariance_information_nats(0.9, 5, np.diag(signal), np.diag(noise)) == pytest.approx(parts.sum())
    with pytest.raises(SpecError, match="noise: got 0"):
        covariance_information_nats(0.9, 5, np.eye(2), np.diag([1.0, 0.0]))


def step_matrix(beta, omega, a):
    return [[1 - a * (1 - omega * beta), -omega * beta], [(1 - beta) * a, beta]]


@given(st.floats(0.01, 0.999), st.floats(0.0, 1.0))
def test_stability_is_the_spectral_radius_of_the_step(beta, omega):
    def radius(a):
        return np.abs(np.linalg.eigvals(step_matrix(beta, omega, a))).max()

    a_max = float(quasi_hyperbolic_stability(beta, omega))
    assert radius(a_max * (1 + 1e-3)) > 1
    assert radius(a_max * (1 - 1e-3)) < 1 + 1e-9


@given(rates, st.floats(0.0, 1.0), st.floats(0.0, 50.0))
def test_contraction_is_the_spectral_radius_of_the_step(beta, omega, a):
    radius = np.abs(np.linalg.eigvals(step_matrix(beta, omega, a))).max()
    assert quasi_hyperbolic_contraction(beta, omega, a) == pytest.approx(radius, rel=1e-6, abs=1e-6)


def test_gradient_descent_is_stable_up_to_two():
    assert quasi_hyperbolic_stability(0.0, 0.0) == 2
    assert quasi_hyperbolic_stability(0.7, 0.0) == 2


def test_lag_is_the_mean_age_of_the_gradients_in_a_step():
    """How old an impulse is when it moves the parameters, weighted by how far it moves them."""
    betas, omegas = np.array([0.5, 0.9]), np.array([0.25, 0.5])
    u, age = (1 - betas) * 1.0, 0.0
    for n in range(1, 600):
        u = betas * u
        age += n * float(omegas @ u)
    assert beta_omega(betas, omegas) == pytest.approx(age)
    assert beta_omega([0.9], [0.0]) == 0


def test_lemma_2_the_virtual_iterates_lead_by_no_more_than_the_lag():
    """``z_t^j = (x_t^j - beta_j x_(t-1)^j) / (1 - beta_j)`` moves by ``-eta g``; the lead is largest at constant g."""
    rng, betas, omegas, eta = np.random.default_rng(0), np.array([0.5, 0.9]), np.array([0.4, 0.6]), 0.1
    for gradients in (rng.normal(size=(400, 3)), np.ones((400, 3))):
        x, before, u = np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((2, 3))
        z, lead = np.zeros(3), 0.0
        for g in gradients:
            u = betas[:, None] * u + (1 - betas[:, None]) * g
            before, x = x, x - eta * u
            after = omegas @ ((x - betas[:, None] * before) / (1 - betas[:, None]))
            assert np.allclose(after - z, -eta * g)
            z = after
            lead += np.square(z - omegas @ x).sum()
        bound = eta**2 * float(beta_omega(betas, omegas)) ** 2 * np.square(gradients).sum()
        assert lead <= bound
    assert lead > 0.9 * bound


@given(st.floats(0.01, 0.99), rates, st.floats(0, 1), st.floats(0, 1))
def test_psi_is_the_fixed_point_of_its_proof(p_x, beta, omega, p_j):
    """The recursion of the momenta's deviations, and Young's parameter s by a search."""

    def factor(s):
        left = 1 - (1 - p_x) * (1 + s)
        return (1 - p_x) * (1 + 1 / s) / left if left > 0 else np.inf

    best = minimize_scalar(factor, bounds=(1e-9, p_x / (1 - p_x)), method="bounded", options={"xatol": 1e-12}).fun
    apart = 0.0
    for _ in range(20_000 if beta > 0.9 else 400):
        apart = (1 - p_j) * (beta * apart + (1 - beta))
    expected = best * (omega * apart + (1 - omega))
    assert drift_factor(p_x, beta, omega, p_j, form="tight") == pytest.approx(expected, rel=1e-4)
    assert drift_factor(p_x, beta, omega, p_j) >= expected * (1 - 1e-4)


def test_psi_where_all_or_nothing_is_averaged():
    assert drift_factor(1.0, 0.9, 0.5, 0.0) == 0  # parameters in each step
    assert drift_factor(0.0, [0.9], [1.0], [1.0]) == 0  # what moves them in each step
    assert np.isinf(drift_factor(0.0, 0.9, 1.0, 0.5))
    assert np.isinf(drift_factor(0.0, 0.9, 0.95, 1.0))  # the gradient's share is its worker's own
    with pytest.raises(SpecError, match="form: got"):
        drift_factor(0.5, 0.9, 1.0, 0.5, form="exact")
    with pytest.raises(SpecError, match="betas: got"):
        drift_factor(0.5, 1.0, 1.0, 0.5)
    with pytest.raises(SpecError, match="omegas"):
        beta_omega([0.9, 0.9], [0.6, 0.6])


def noise_of(rng, scale=1.0):
    return lambda x: scale * rng.normal(size=x.shape)


@pytest.mark.parametrize(
    "states",
    [
        {"betas": [], "omegas": [], "momentum_rates": []},
        {"betas": [0.8], "omegas": [1.0], "momentum_rates": [0.0]},
        {"betas": [0.8], "omegas": [0.7], "momentum_rates": [0.3]},
        TWO,
    ],
)
def test_drift_on_flat_ground_is_what_algorithm_4_does(states):
    """In units of eta^2 sigma^2 (1 - 1/M), the last of 300 steps, within five standard errors; and within Lemma 3."""
    rng, workers, p_x, eta, d = np.random.default_rng(0), 4, 0.2, 0.5, 50
    found = random_averages(
        noise_of(rng), np.zeros((400, d)), rng, steps=300, eta=eta, workers=workers, params_rate=p_x, **states
    )
    drift = found.drift[-1] / (eta**2 * d * (1 - 1 / workers))
    expected = float(flat_drift(p_x, **states))
    assert drift.mean() == pytest.approx(expected, abs=5 * drift.std() / 400**0.5)
    assert expected < 4 * drift_factor(p_x, **states)


def test_a_step_that_averages_leaves_no_drift():
    assert flat_drift(1.0, 0.9, 0.9, 0.1) == 0
    assert flat_drift(0.1, 0.9, 1.0, 1.0) == 0
    with pytest.raises(SpecError, match="params_rate: got 0"):
        flat_drift(0.0, 0.9, 1.0, 1.0)


def test_averaging_parameters_always_is_averaging_what_moves_them_always():
    """Section 3, where the momenta have all the weight. The same noise for both."""

    def ends(p_x, p_j, omega=1.0):
        rng, coins = np.random.default_rng(1), np.random.default_rng(2)
        tilt = np.linspace(-1, 1, 4)[:, None]  # workers differ
        found = random_averages(
            lambda x: x + tilt + rng.normal(size=x.shape), np.ones((3, 2)), coins, steps=50, eta=0.1, workers=4,
            params_rate=p_x, betas=[0.9], omegas=[omega], momentum_rates=[p_j],
        )  # fmt: skip
        return found

    one, other = ends(1.0, 0.0), ends(0.0, 1.0)
    assert np.allclose(one.mean, other.mean, atol=1e-13)
    assert one.drift.max() == other.drift.max() == pytest.approx(0, abs=1e-25)
    assert ends(0.0, 1.0, omega=0.9).drift[-1].min() > 1e-3  # not so with a share of the gradient


@given(st.floats(1e-3, 1e3), st.floats(0, 1e3), st.floats(0, 1e4), st.floats(0, 50))
def test_the_mended_steps_keep_the_proof_s_conditions(smoothness, lag, drift, dissimilarity):
    apart = drift * max(1.0, dissimilarity - 1)
    steps = {f: float(mt_dao_step_size(smoothness, lag, drift, dissimilarity, f)) for f in ("mended", "largest")}
    for eta in steps.values():
        x = eta * smoothness
        assert 24 * x**2 * apart <= 1 + 1e-9
        assert x + 2 * x**2 * lag**2 <= 0.5 + 1e-9
    x = steps["largest"] * smoothness
    assert max(24 * x**2 * apart, 2 * (x + 2 * x**2 * lag**2)) == pytest.approx(1)  # one of them is reached
    assert steps["mended"] <= steps["largest"] * (1 + 1e-9)


@pytest.mark.parametrize(("lag", "broken"), [(0.1, True), (0.66, True), (0.67, False), (9.0, False)])
def test_the_printed_step_breaks_its_condition_below_a_lag_of_two_thirds(lag, broken):
    x = float(mt_dao_step_size(1.0, lag, 0.0, form="printed"))
    assert (x + 2 * x**2 * lag**2 > 0.5) == broken
    assert np.isinf(mt_dao_step_size(1.0, 0.0, 0.0, form="printed"))


def quadratic_run(beta, eta, steps, *, curvature, rng, workers=4, p_x=1.0, noise=0.0):
    """Mean squared gradient norm along the averaged iterates of ``curvature / 2 x^2`` from 1, per replica."""
    gradient = noise_of(rng, noise)
    found = random_averages(
        lambda x: curvature * x + gradient(x), np.ones((20, 1)), rng, steps=steps, eta=eta, workers=workers,
        params_rate=p_x, betas=[beta], omegas=[1.0], momentum_rates=[p_x],
    )  # fmt: skip
    return np.square(curvature * found.mean[:-1]).sum(-1).mean(0)


@pytest.mark.parametrize("beta", [0.0, 0.9])
@pytest.mark.parametrize("p_x", [1.0, 0.25])
def test_theorem_1_holds_for_algorithm_4(beta, p_x):
    rng, steps, curvature, noise = np.random.default_rng(0), 1000, 2.0, 1.0
    lag, drift = beta_omega(beta, 1.0), drift_factor(p_x, beta, 1.0, p_x)
    problem = {"gap": 0.5 * curvature, "smoothness": curvature, "noise_variance": noise**2, "workers": 4}
    for form in ("mended", "largest"):
        eta = float(np.minimum(mt_dao_step_size(curvature, lag, drift, form=form), steps**-0.5))
        found = quadratic_run(beta, eta, steps, curvature=curvature, rng=rng, p_x=p_x, noise=noise)
        bound = mt_dao_bound(eta, steps, lag=lag, drift=drift, **problem)
        assert found.mean() + 5 * found.std() / 20**0.5 < bound
        assert bound <= mt_dao_rate(steps, lag=lag, drift=drift, form=form, **problem) * (1 + 1e-12)


def test_theorem_1_fails_at_the_printed_step():
    """Plain descent, averaged in every step: eta_0 is infinite, so eta is 1 / sqrt(T), beyond 2 / L."""
    steps, curvature = 100, 100.0
    assert np.isinf(mt_dao_step_size(curvature, 0.0, 0.0, form="printed"))
    found = quadratic_run(0.0, steps**-0.5, steps, curvature=curvature, rng=np.random.default_rng(0)).mean()
    bound = mt_dao_rate(
        steps, gap=50.0, smoothness=curvature, noise_variance=0.0, workers=4, lag=0.0, drift=0.0, form="printed"
    )
    assert bound == pytest.approx(4 * 50 / 10)
    assert found > 1e100 * bound


def test_the_rate_by_hand():
    """T 10^4, Delta 1, L 1, sigma^2 4, M 4, lag 9, psi 3000: .06 + 4 * 24 sqrt(3000) / T + .0324 + 9.6."""
    same = {"gap": 1.0, "smoothness": 1.0, "noise_variance": 4.0, "workers": 4, "lag": 9.0, "drift": 3000.0}
    by_hand = 0.06 + 4 * 24 * 3000**0.5 / 1e4 + 4 * 81 / 1e4 + 8 * 3000 * 4 / 1e4
    assert mt_dao_rate(1e4, **same) == pytest.approx(by_hand)
    assert mt_dao_rate(1e4, **same, heterogeneity=2.0) == pytest.approx(by_hand + 8 * 3000 * 6 / 1e4)
    with pytest.raises(SpecError, match="smoothness: got 0"):
        mt_dao_rate(1e4, **same | {"smoothness": 0.0})
    with pytest.raises(SpecError, match="form: got"):
        mt_dao_step_size(1.0, 1.0, 1.0, form="exact")
