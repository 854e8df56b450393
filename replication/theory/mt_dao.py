"""MT-DAO's theory: how well a momentum keeps the common direction, its convergence, and its largest step size.

Read Theorem 1 from `beta_omega` and `drift_factor` through `mt_dao_step_size` to `mt_dao_rate`; `flat_drift` is
the exact value, on a flat loss, of the drift that Lemma 3 bounds. Decay rates, weights and probabilities of N momenta
lie along the last axis; everything else broadcasts. Weights whose sum is below 1 leave the rest to the gradient, which
is a momentum that forgets at once and is never averaged (Algorithm 4 and section 3).
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from syncline import SpecError
from syncline.analysis.curves import FloatArray
from syncline.costmodel.numerics.arrays import require
from syncline.errors import one_of

StepForm = Literal["printed", "mended", "largest"]


def momentum_noise_variance(beta: ArrayLike, period: ArrayLike, gradient_variance: ArrayLike = 1.0) -> FloatArray:
    """Return the variance that K local steps add to a worker's momentum ``u <- beta u + (1 - beta) g``.

    ``Var = (1 - beta) / (1 + beta) (1 - beta^(2 K)) sigma^2``

    Args:
        beta: decay rate, below 1.
        period: K, steps since the momentum was averaged.
        gradient_variance: sigma^2 of a gradient's coordinate, independent from step to step and between workers.

    >>> round(float(momentum_noise_variance(0.9, 32)), 4), round(float(momentum_noise_variance(0.999, 32)), 7)
    (0.0526, 3.1e-05)

    Source: MT-DAO, section 2.1 and Appendix F.1.
    """
    decay = np.asarray(beta, dtype=float)
    forgotten = 1 - decay ** (2 * np.asarray(period))
    return np.asarray((1 - decay) / (1 + decay) * forgotten * gradient_variance)


def shared_batch_variance(
    beta: ArrayLike, period: ArrayLike, workers: ArrayLike, batch: ArrayLike, sample_variance: ArrayLike = 1.0
) -> FloatArray:
    """Return `momentum_noise_variance` for M workers that share a batch of B_G samples.

    ``(1 - beta)/(1 + beta) (1 - beta^(2 K)) sigma^2 M / B_G``

    Args:
        beta: decay rate, below 1.
        period: K, steps since the momentum was averaged.
        workers: M, the number of workers.
        batch: B_G, samples of all workers in a step.
        sample_variance: sigma^2 of one sample's gradient, per coordinate.

    Raises:
        SpecError: a worker without a sample.

    >>> float(shared_batch_variance(0.0, 1, workers=8, batch=64))
    0.125

    Source: MT-DAO, Appendix H.3, equation (7).
    """
    m, samples = np.broadcast_arrays(np.asarray(workers, dtype=float), np.asarray(batch, dtype=float))
    require((m >= 1) & (samples >= m), "batch", samples, "at least a sample for each of at least one worker")
    return momentum_noise_variance(beta, period, np.multiply(sample_variance, m / samples))


def momentum_information_nats(
    beta: ArrayLike, period: ArrayLike, signal_variance: ArrayLike, noise_variance: ArrayLike
) -> FloatArray:
    """Return the mutual information of a local momentum and the common one, K steps after they were the same.

    ``I = 1/2 ln(1 + beta^(2 K) S / L)`` nats per coordinate, for gaussian ``u_K = beta^K u_0 + l``.

    Args:
        beta: decay rate.
        period: K steps.
        signal_variance: S, of the common momentum's coordinate.
        noise_variance: L, of the noise that the local steps add; ``momentum_noise_variance`` for independent noise.

    >>> round(float(momentum_information_nats(0.5, 1, 4.0, 1.0)), 4)  # half of ln 2
    0.3466

    Source: MT-DAO, Appendix F.2.
    """
    signal = np.asarray(beta, dtype=float) ** (2 * np.asarray(period)) * signal_variance
    return np.asarray(0.5 * np.log1p(signal / np.asarray(noise_variance, dtype=float)))


def covariance_information_nats(beta: float, period: int, signal: ArrayLike, noise: ArrayLike) -> FloatArray:
    """Return `momentum_information_nats` for vectors whose coordinates are correlated.

    ``1/2 ln det(I + beta^(2 K) Sigma_U Sigma_L^-1)``

    Args:
        beta: decay rate.
        period: K steps.
        signal: (..., d, d) covariance of the common momentum.
        noise: (..., d, d) covariance of the noise that the local steps add; every direction has some.

    Raises:
        SpecError: noise that is not positive definite: the information would be infinite.

    >>> round(float(covariance_information_nats(0.5, 1, [[4.0, 0.0], [0.0, 4.0]], np.eye(2))), 4)  # ln 2
    0.6931

    Source: MT-DAO, section 2.1 and Appendix F.2.
    """
    noise_covariance = np.asarray(noise, dtype=float)
    least_eigenvalue = np.linalg.eigvalsh(noise_covariance)[..., 0]
    require(least_eigenvalue > 0, "noise", least_eigenvalue, "a covariance whose least eigenvalue is above 0")
    information_ratio = np.linalg.solve(noise_covariance, beta ** (2 * period) * np.asarray(signal, dtype=float))
    return np.asarray(0.5 * np.linalg.slogdet(np.eye(noise_covariance.shape[-1]) + information_ratio)[1])


def quasi_hyperbolic_stability(beta: ArrayLike, omega: ArrayLike) -> FloatArray:
    """Return the largest ``a = lr * curvature`` at which a mix of gradient and momentum converges on a quadratic.

    ``a_max = min[2 (1 + beta) / (1 + beta - 2 omega beta), (1 + 1 / beta) / (1 - omega)]`` for
    ``u <- beta u + (1 - beta) g``, ``x <- x - lr [(1 - omega) g + omega u]``: where an eigenvalue of the step reaches
    -1, and where a pair of them leaves the unit circle.

    Args:
        beta: decay rate in [0, 1).
        omega: weight of the momentum in [0, 1].

    >>> quasi_hyperbolic_stability([0.9, 0.9, 0.999, 0.999], [1, 0.95, 1, 0.95]).round(2).tolist()
    [38.0, 20.0, 3998.0, 39.62]
    >>> float(quasi_hyperbolic_stability(0.0, 0.0))  # gradient descent
    2.0

    Source: the Jury conditions on the step's 2 x 2 matrix; MT-DAO, Figure 2.
    """
    decay, weight = np.asarray(beta, dtype=float), np.asarray(omega, dtype=float)
    with np.errstate(divide="ignore"):  # infinite where that boundary does not exist
        flip = 2 * (1 + decay) / (1 + decay - 2 * weight * decay)
        spiral = (1 + 1 / decay) / (1 - weight)
    return np.asarray(np.minimum(flip, spiral))


def quasi_hyperbolic_contraction(beta: ArrayLike, omega: ArrayLike, a: ArrayLike) -> FloatArray:
    """Return the factor by which a step with mixed gradient and momentum shrinks the distance in the long run.

    It is the larger root, in magnitude, of ``z^2 - (1 + beta - a (1 - omega beta)) z + beta (1 - a (1 - omega))``.
    Below 1 the iteration is stable; it takes ``1 / (1 - factor)`` steps per factor of e.

    Args:
        beta: decay rate in [0, 1).
        omega: weight of the momentum in [0, 1].
        a: learning rate times curvature, at least 0.

    >>> quasi_hyperbolic_contraction([0.0, 0.999, 0.999], [0.0, 1.0, 0.95], 1.0).round(4).tolist()
    [0.0, 0.9995, 0.9742]

    Source: the characteristic polynomial of the step's 2 x 2 matrix; MT-DAO, Figure 2.
    """
    decay, weight, step = np.asarray(beta, dtype=float), np.asarray(omega, dtype=float), np.asarray(a, dtype=float)
    half = (1 + decay - step * (1 - weight * decay)) / 2
    product = decay * (1 - step * (1 - weight))
    discriminant = half**2 - product
    real = np.abs(half) + np.sqrt(np.maximum(discriminant, 0.0))
    return np.asarray(np.where(discriminant < 0, np.sqrt(np.maximum(product, 0.0)), real))


def with_gradient(
    betas: ArrayLike, omegas: ArrayLike, rates: ArrayLike = 0.0
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return decay rates, weights and averaging probabilities ``(..., N + 1)``, the gradient's last."""
    decay, weight, rate = np.broadcast_arrays(
        np.asarray(betas, dtype=float), np.asarray(omegas, dtype=float), np.asarray(rates, dtype=float)
    )
    if decay.ndim == 0:
        decay, weight, rate = decay[None], weight[None], rate[None]
    require((decay >= 0) & (decay < 1), "betas", decay, "decay rates in [0, 1)")
    require((rate >= 0) & (rate <= 1), "momentum_rates", rate, "probabilities in [0, 1]")
    rest = 1 - weight.sum(-1, keepdims=True)
    require((weight >= 0) & (rest > -1e-9), "omegas", weight, "weights of at least 0 whose sum is at most 1")
    rest, none = np.maximum(rest, 0.0), np.zeros_like(rest)
    return np.concatenate([decay, none], -1), np.concatenate([weight, rest], -1), np.concatenate([rate, none], -1)


def beta_omega(betas: ArrayLike, omegas: ArrayLike) -> FloatArray:
    """Return the lag of the momenta in steps: ``beta_omega = sum_j omega_j beta_j / (1 - beta_j)``.

    Args:
        betas: (..., N) decay rates in [0, 1).
        omegas: (..., N) weights, sum at most 1.

    Raises:
        SpecError: a decay rate of 1, or weights that are negative or sum to more than 1.

    >>> [round(float(beta_omega(*of)), 2) for of in ((0.9, 1), (0.999, 0.95), ([0.9, 0.999], [0.05, 0.95]))]
    [9.0, 949.05, 949.5]

    Source: MT-DAO, Theorem 1, equation (1).
    """
    decay, weight, _ = with_gradient(betas, omegas)
    return np.asarray((weight * decay / (1 - decay)).sum(-1))


def drift_factor(
    params_rate: ArrayLike,
    betas: ArrayLike,
    omegas: ArrayLike,
    momentum_rates: ArrayLike,
    form: Literal["printed", "tight"] = "printed",
) -> FloatArray:
    """Return ``psi``, to which the bound on the workers' drift apart is proportional.

    ``psi = 4 (1 - p_x) / p_x^2 sum_j omega_j (1 - beta_j) (1 - p_j) / (1 - (1 - p_j) beta_j)``

    Args:
        params_rate: p_x = 1 / K_x, the probability that a step ends with averaged parameters. At 0 psi is infinite,
            unless each step averages everything that moves the parameters.
        betas: (..., N) decay rates in [0, 1).
        omegas: (..., N) weights; the gradient has the rest and is not averaged.
        momentum_rates: (..., N) p_j = 1 / K_j.
        form: ``tight`` has the proof's ``(1 + sqrt(1 - p_x))^2`` where the theorem rounds it up to 4.

    Raises:
        SpecError: a probability outside [0, 1], a decay rate of 1, or weights that sum to more than 1.

    >>> round(float(drift_factor(1 / 32, 0.9, 1.0, 1 / 32))), round(float(drift_factor(1 / 32, 0.999, 1.0, 1 / 32)))
    (3000, 119)

    Source: MT-DAO, Theorem 1, equation (1), and Lemma 3.
    """
    if form not in ("printed", "tight"):
        raise SpecError("form", form, one_of(("printed", "tight"), form))
    decay, weight, rate = with_gradient(betas, omegas, momentum_rates)
    p_x = np.asarray(params_rate, dtype=float)
    require((p_x >= 0) & (p_x <= 1), "params_rate", p_x, "a probability in [0, 1]")
    momentum_drift = (weight * (1 - decay) * (1 - rate) / (1 - (1 - rate) * decay)).sum(-1)
    rounded = 4.0 if form == "printed" else (1 + np.sqrt(1 - p_x)) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(momentum_drift * (1 - p_x) == 0, 0.0, rounded * (1 - p_x) / p_x**2 * momentum_drift))


def mt_dao_step_size(
    smoothness: ArrayLike, lag: ArrayLike, drift: ArrayLike, dissimilarity: ArrayLike = 1.0, form: StepForm = "mended"
) -> FloatArray:
    """Return ``eta_0``, the largest step size for which the paper claims Theorem 1.

    ``printed``: ``1 / (4 L max(beta_omega, 6 sqrt(psi max(1, B^2 - 1))))``. The proof needs ``24 eta^2 L^2 psi max(1,
    B^2 - 1) <= 1`` and ``eta L + 2 eta^2 L^2 beta_omega^2 <= 1/2``, and the printed eta_0 breaks the second where both
    arguments of the maximum are small: without drift below ``beta_omega = 2/3``. ``mended`` puts 1 into the maximum;
    ``largest`` is the largest step that both conditions allow, ``eta L = min[(sqrt(1 + 4 beta_omega^2) - 1) / (4
    beta_omega^2), 1 / sqrt(24 psi max(1, B^2 - 1))]``.

    Args:
        smoothness: L, in loss per squared parameter.
        lag: `beta_omega`.
        drift: psi, `drift_factor`.
        dissimilarity: B^2 of Assumption 3, 1 for workers with the same data.
        form: ``printed``, ``mended`` or ``largest``.

    Raises:
        SpecError: an unknown form, or a smoothness that is not above 0.

    >>> [round(float(mt_dao_step_size(1.0, 0.1, 0.0, form=form)), 3) for form in ("printed", "mended", "largest")]
    [2.5, 0.25, 0.495]

    Source: MT-DAO, Theorem 1 and step 4 of its proof; the last two follow from the proof's conditions.
    """
    if form not in get_args(StepForm):
        raise SpecError("form", form, one_of(get_args(StepForm), form))
    curvature, momentum_lag = np.asarray(smoothness, dtype=float), np.asarray(lag, dtype=float)
    require(curvature > 0, "smoothness", curvature, "above 0")
    drift_term = np.asarray(drift, dtype=float) * np.maximum(1.0, np.asarray(dissimilarity, dtype=float) - 1)
    with np.errstate(divide="ignore"):
        if form == "largest":
            # x + 2 b^2 x^2 = 1/2, written so that nothing cancels where b is small
            lag_limit = 1 / (1 + np.sqrt(1 + 4 * momentum_lag**2))
            return np.asarray(np.minimum(lag_limit, 1 / np.sqrt(24 * drift_term)) / curvature)
        largest_term = np.maximum(momentum_lag, 6 * np.sqrt(drift_term))
        return np.asarray(1 / (4 * curvature * (np.maximum(largest_term, 1.0) if form == "mended" else largest_term)))


def mt_dao_bound(
    eta: ArrayLike,
    steps: ArrayLike,
    *,
    gap: ArrayLike,
    smoothness: ArrayLike,
    noise_variance: ArrayLike,
    workers: ArrayLike,
    lag: ArrayLike,
    drift: ArrayLike,
    heterogeneity: ArrayLike = 0.0,
) -> FloatArray:
    """Return the bound on the mean squared gradient norm of MT-DAO-SGDM's averaged iterates, at a step up to eta_0.

    ``4 Delta / (eta T) + 2 eta L sigma^2 / M + 4 eta^2 L^2 [beta_omega^2 sigma^2 / M + 2 psi (sigma^2 + 3 G^2)]``

    Args:
        eta: step size, at most `mt_dao_step_size`.
        steps: T, the number of steps.
        gap: Delta = f(x_0) - f*, in units of the loss.
        smoothness: L, in loss per squared parameter.
        noise_variance: sigma^2, of the whole gradient of one worker.
        workers: M, the number of workers.
        lag: `beta_omega`.
        drift: psi, `drift_factor`.
        heterogeneity: G^2 of Assumption 3, a squared gradient.

    >>> float(mt_dao_bound(0.1, 400, gap=1.0, smoothness=1.0, noise_variance=1.0, workers=4, lag=0.0, drift=0.0))
    0.15000000000000002

    Source: MT-DAO, Appendix D, the last bound before the choice of eta, with all its constants.
    """
    rate, curvature = np.asarray(eta, dtype=float), np.asarray(smoothness, dtype=float)
    mean_noise = np.asarray(noise_variance, dtype=float) / workers
    worker_noise = np.asarray(noise_variance, dtype=float) + 3 * np.asarray(heterogeneity, dtype=float)
    bound = 4 * np.asarray(gap, dtype=float) / (rate * steps) + 2 * rate * curvature * mean_noise
    return np.asarray(
        bound + (2 * rate * curvature) ** 2 * (np.square(lag) * mean_noise + 2 * np.asarray(drift) * worker_noise)
    )


def mt_dao_rate(
    steps: ArrayLike,
    *,
    gap: ArrayLike,
    smoothness: ArrayLike,
    noise_variance: ArrayLike,
    workers: ArrayLike,
    lag: ArrayLike,
    drift: ArrayLike,
    heterogeneity: ArrayLike = 0.0,
    dissimilarity: ArrayLike = 1.0,
    form: StepForm = "mended",
) -> FloatArray:
    """Return Theorem 1's rate with the constants that its O() hides, at ``eta = min(eta_0, 1 / sqrt(T))``.

    ``4 / sqrt(T) (Delta + L sigma^2 / (2 M)) + [4 Delta / eta_0 + 4 L^2 beta_omega^2 sigma^2 / M + 8 L^2 psi (sigma^2 +
    3 G^2)] / T``

    Args:
        steps: T, the number of steps.
        gap: Delta = f(x_0) - f*.
        smoothness: L, the smoothness of the loss.
        noise_variance: sigma^2, of the whole gradient of one worker.
        workers: M, the number of workers.
        lag: `beta_omega`.
        drift: psi, `drift_factor`.
        heterogeneity: G^2 of Assumption 3.
        dissimilarity: B^2 of Assumption 3.
        form: form of eta_0, as in `mt_dao_step_size`.

    >>> settings = {"gap": 1.0, "smoothness": 1.0, "noise_variance": 4.0, "workers": 4, "lag": 9.0}
    >>> mt_dao_rate([1e4, 1e8], drift=3000.0, **settings).round(3).tolist()
    [10.218, 0.002]

    Source: MT-DAO, Theorem 1, equation (2), and the last lines of its proof.
    """
    constant_bound = mt_dao_bound(
        1.0, 1, gap=0.0, smoothness=smoothness, noise_variance=noise_variance, workers=workers, lag=lag, drift=drift,
        heterogeneity=heterogeneity,
    )  # fmt: skip
    first = 2 * np.asarray(smoothness, dtype=float) * noise_variance / np.asarray(workers, dtype=float)
    eta_0 = mt_dao_step_size(smoothness, lag, drift, dissimilarity, form)
    t, delta = np.asarray(steps, dtype=float), np.asarray(gap, dtype=float)
    return np.asarray((4 * delta + first) / np.sqrt(t) + (4 * delta / eta_0 + constant_bound - first) / t)
