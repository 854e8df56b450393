"""A simulation of MT-DAO's Algorithm 4, for which Theorem 1 is proved: each state is averaged when its coin says so.

`flat_drift` is the drift of its workers on a flat loss, exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from replication.theory.mt_dao import with_gradient
from syncline.analysis.curves import FloatArray
from syncline.costmodel.numerics.arrays import require


class RandomAverages(NamedTuple):
    """The trajectory of a run of Algorithm 4.

    Attributes:
        mean: (T + 1, R, d) the workers' mean parameters, the start first.
        drift: (T + 1, R) mean over the workers of the squared distance from ``mean``.
    """

    mean: FloatArray
    drift: FloatArray


def random_averages(
    gradient: Callable[[FloatArray], FloatArray],
    start: ArrayLike,
    rng: np.random.Generator,
    *,
    steps: int,
    eta: float,
    workers: int,
    params_rate: float,
    betas: ArrayLike = (),
    omegas: ArrayLike = (),
    momentum_rates: ArrayLike = (),
) -> RandomAverages:
    """Run MT-DAO-SGDM in which a coin decides, per step and state, whether the workers average.

    Each momentum takes the gradient, ``u_j <- beta_j u_j + (1 - beta_j) g``, and becomes its mean over the workers with
    probability p_j; then ``x <- x - eta [sum_j omega_j u_j + (1 - sum_j omega_j) g]``, which becomes its mean with
    probability p_x. Many replicas run at once, each with its own coins.

    Args:
        gradient: stochastic gradients ``(R, M, d)`` at parameters ``(R, M, d)``.
        start: (R, d), the same for all workers of a replica.
        rng: random generator of the coins.
        steps: T, the number of steps.
        eta: step size.
        workers: M, the number of workers.
        params_rate: p_x, the probability of averaging the parameters.
        betas: (N,) decay rates.
        omegas: (N,) weights; the gradient has the rest.
        momentum_rates: (N,) p_j.

    Raises:
        SpecError: not as many weights and probabilities as decay rates.

    Source: MT-DAO, Algorithm 4, its gradient share a momentum of beta 0 that is never averaged.
    """
    decay, weight, rate = (np.asarray(values, dtype=float) for values in (betas, omegas, momentum_rates))
    require(decay.shape == weight.shape == rate.shape, "omegas", np.asarray(weight.size), f"{decay.size}, as betas")
    x = np.repeat(np.asarray(start, dtype=float)[:, None, :], workers, axis=1)
    u = np.zeros((decay.size, *x.shape))
    mean, drift = [x.mean(1)], [np.zeros(len(x))]
    for _ in range(steps):
        g = gradient(x)
        step = (1 - weight.sum()) * g
        for j in range(decay.size):
            u[j] = _averaged(decay[j] * u[j] + (1 - decay[j]) * g, rng.random(len(x)) < rate[j])
            step += weight[j] * u[j]
        x = _averaged(x - eta * step, rng.random(len(x)) < params_rate)
        mean.append(x.mean(1))
        drift.append(np.square(x - mean[-1][:, None]).sum(-1).mean(-1))
    return RandomAverages(np.array(mean), np.array(drift))


def _averaged(x: FloatArray, due: np.ndarray) -> FloatArray:
    """Replace each replica's workers by their mean where an average is due."""
    return np.where(due[:, None, None], x.mean(1, keepdims=True), x)


def flat_drift(params_rate: ArrayLike, betas: ArrayLike, omegas: ArrayLike, momentum_rates: ArrayLike) -> FloatArray:
    """Return the exact drift of the workers on a flat loss, which Lemma 3 bounds by ``4 psi``.

    ``E ||x^m - x||^2 / (eta^2 sigma^2 (1 - 1/M))`` in the steady state of Algorithm 4 under noise alone, independent
    between steps and workers, each state averaged with a coin of its own. With ``S_ij`` the covariance of two momenta's
    deviations, ``q_j = (1 - p_j) beta_j`` and ``C_j = sum_i omega_i S_ij / (1 - (1 - p_x) q_j)``:

    ``(1 - p_x) / p_x [sum_ij omega_i omega_j S_ij + 2 (1 - p_x) sum_j omega_j q_j C_j]``

    Args:
        params_rate: p_x, in (0, 1].
        betas: (..., N) decay rates in [0, 1).
        omegas: (..., N) weights; the gradient has the rest.
        momentum_rates: (..., N) p_j.

    Raises:
        SpecError: parameters that are never averaged, for which there is no steady state.

    >>> float(flat_drift(1 / 32, 0.0, 0.0, 0.0))  # no momentum: as many steps as have passed, K - 1 on average
    31.0

    Source: second moments of MT-DAO's Algorithm 4.
    """
    decay, weight, rate = with_gradient(betas, omegas, momentum_rates)
    p_x = np.asarray(params_rate, dtype=float)
    require((p_x > 0) & (p_x <= 1), "params_rate", p_x, "a probability in (0, 1]")
    not_averaged = (1 - rate)[..., :, None] * (1 - rate)[..., None, :]
    diagonal = np.arange(decay.shape[-1])
    not_averaged[..., diagonal, diagonal] = 1 - rate  # one momentum has one coin, not two
    decay_product = decay[..., :, None] * decay[..., None, :]
    new = (1 - decay)[..., :, None] * (1 - decay)[..., None, :]
    covariance = not_averaged * new / (1 - not_averaged * decay_product)
    weighted_covariance = (weight[..., :, None] * covariance).sum(-2)
    retention = (1 - rate) * decay
    path_covariance = weight * retention * weighted_covariance / (1 - (1 - p_x)[..., None] * retention)
    return np.asarray(
        (1 - p_x) / p_x * ((weight * weighted_covariance).sum(-1) + 2 * (1 - p_x) * path_covariance.sum(-1))
    )
