"""A simulation of MT-DAO's Algorithm 4, for which Theorem 1 is proved: each state is averaged when its coin says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from syncline.analysis.statistics.curves import FloatArray
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
