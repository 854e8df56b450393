"""CurvaDion's theory: the relative change of a momentum's norm (RMMC) under curvature, and its other causes.

Momentum is ``m <- mu m + g``, a step ``x <- x - eta m``. Theorem 1 is `rmmc_leading_order`, without its approximations
`rmmc_exact`. Three cases show what drives RMMC: `steady_rmmc` along a slow direction, `build_up_rmmc` in the first
steps, `noise_rmmc` where gradients are noise.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from syncline import SpecError
from syncline.analysis.curves import FloatArray
from syncline.costmodel.numerics.arrays import require


def rmmc_exact(mu: ArrayLike, along: ArrayLike, across: ArrayLike) -> FloatArray:
    """Return CurvaDion's relative momentum change for a next gradient along and across the momentum.

    ``RMMC = | sqrt((mu + g_par)^2 + g_perp^2) - 1 |`` for ``m <- mu m + g``.

    Args:
        mu: decay of the momentum.
        along: ``g_par = <g, m_hat> / ||m||``, the gradient along the momentum, in units of the momentum's norm.
        across: ``g_perp``, the norm of the rest in the same units.

    >>> float(rmmc_exact(0.95, 0.05, 0.0))  # in equilibrium the gradient replaces what is forgotten
    0.0

    Source: the definition in CurvaDion, equation (1), worked out.
    """
    length = np.hypot(np.asarray(mu, dtype=float) + along, across)
    return np.asarray(np.abs(length - 1))


def rmmc_leading_order(eta: ArrayLike, curvature: ArrayLike, bias: ArrayLike) -> FloatArray:
    """Return CurvaDion's relative momentum change to leading order in the step size: ``RMMC = | eta kappa - b |``.

    Args:
        eta: step size of ``x <- x - eta m``.
        curvature: ``kappa = m_hat^T H m_hat``, in 1 / eta's unit.
        bias: ``b = <g_before, m_hat> / ||m|| - (1 - mu)``, the deviation from equilibrium of the gradient
            before the step.

    >>> round(float(rmmc_leading_order(0.1, 0.5, -0.95)), 3)
    1.0

    Source: CurvaDion, Theorem 1.
    """
    return np.asarray(np.abs(np.multiply(eta, curvature) - bias))


def rmmc_bias_over_curvature(mu: ArrayLike) -> FloatArray:
    """Return the ratio of Theorem 1's bias to its curvature term once only one slow direction remains.

    ``|b| / (eta kappa) = mu / (1 - mu)``: there ``m = g / (1 - mu)``, so per step the momentum shrinks by
    ``eta kappa / (1 - mu)``; ``eta kappa`` is the curvature term. This holds for ``eta kappa`` well below
    ``(1 - mu)^2``.

    >>> round(float(rmmc_bias_over_curvature(0.95)), 6)
    19.0
    """
    decay = np.asarray(mu, dtype=float)
    return np.asarray(decay / (1 - decay))


def directional_curvature(hessian: ArrayLike, momentum: ArrayLike) -> FloatArray:
    """Return the curvature that a step along the momentum meets: ``kappa = m_hat^T H m_hat``.

    Args:
        hessian: (..., d, d).
        momentum: (..., d), not zero.

    Raises:
        SpecError: a momentum without a direction.

    >>> float(directional_curvature([[20.0, 0.0], [0.0, 1.0]], [3.0, 3.0]))
    10.5

    Source: CurvaDion, Theorem 1.
    """
    m = np.asarray(momentum, dtype=float)
    squared = np.square(m).sum(-1)
    require(squared > 0, "momentum", squared, "a momentum that is not zero")
    return np.asarray(np.einsum("...i,...ij,...j->...", m, np.asarray(hessian, dtype=float), m) / squared)


def steady_rmmc(step_curvature: ArrayLike, mu: ArrayLike) -> FloatArray:
    """Return the exact RMMC along one direction once it has settled.

    It is ``1 - z``, with z the larger root of ``z^2 - (1 + mu - a) z + mu`` with ``a = eta kappa``. To leading order it
    is
    ``a / (1 - mu)``: the curvature term of Theorem 1 and its bias, which is ``mu / (1 - mu)`` times as large, add
    up. So RMMC does show the curvature of a slow direction, ``1 / (1 - mu)`` times.

    Args:
        step_curvature: a, from 0 to ``(1 - sqrt(mu))^2``; beyond, the momentum swings and RMMC has no limit.
        mu: decay of the momentum, in [0, 1).

    Raises:
        SpecError: a step curvature outside that range.

    >>> float(steady_rmmc(1e-5, 0.95).round(6))
    0.000201

    Source: the characteristic polynomial of ``m_(t+1) = (1 + mu - a) m_t - mu m_(t-1)``.
    """
    a, decay = np.asarray(step_curvature, dtype=float), np.asarray(mu, dtype=float)
    limit = (1 - np.sqrt(decay)) ** 2
    require((a >= 0) & (a <= limit * (1 + 1e-12)), "step_curvature", a + 0 * limit, "from 0 to (1 - sqrt(mu))^2")
    # 1 - z without cancelling: w = 1 - z solves w^2 - (1 - mu + a) w + a = 0, whose smaller root it is
    half = (1 - decay + a) / 2
    return np.asarray(a / (half + np.sqrt(np.maximum(half**2 - a, 0.0))))


def build_up_rmmc(mu: ArrayLike, step: ArrayLike, gradients: Literal["same", "noise"] = "same") -> FloatArray:
    """Return RMMC while a momentum builds up from zero, with no curvature at all.

    At the t-th gradient, t from 2, it is ``mu^(t-1) (1 - mu) / (1 - mu^(t-1))`` if gradients do not change, about
    ``1 / (t - 1)``; if they are noise in many dimensions ``sqrt((1 - mu^(2 t)) / (1 - mu^(2 t - 2))) - 1``, about half.

    Args:
        mu: decay of the momentum, in (0, 1).
        step: t, from 2.
        gradients: ``same`` or ``noise``.

    Raises:
        SpecError: a first step, which has no momentum before it, or other gradients.

    >>> build_up_rmmc(0.95, [2, 10, 100]).round(3).tolist(), build_up_rmmc(0.95, 10, "noise").round(3).tolist()
    ([0.95, 0.085, 0.0], 0.032)

    Source: CurvaDion, equation (1), of a geometric sum.
    """
    if gradients not in ("same", "noise"):
        raise SpecError("gradients", gradients, "'same' or 'noise'")
    t, decay = np.asarray(step, dtype=float), np.asarray(mu, dtype=float)
    require(t >= 2, "step", t, "2 or later")
    if gradients == "same":
        return np.asarray(decay ** (t - 1) * (1 - decay) / (1 - decay ** (t - 1)))
    return np.asarray(np.sqrt((1 - decay ** (2 * t)) / (1 - decay ** (2 * t - 2))) - 1)


def noise_rmmc(mu: ArrayLike, parameters: ArrayLike, signal: ArrayLike = 0.0) -> FloatArray:
    """Return the standard deviation of the signed RMMC from gradient noise beside a constant signal, for large n.

        s = sqrt((1 - mu^2 + 2 q (1 + mu)) / n) / (1 + q (1 + mu) / (1 - mu))

    Without a signal, ``||m'||^2 / ||m||^2 - 1`` has three independent parts, of variances ``4 mu^2 (1 - mu^2) / n``
    (the gradient along the momentum), ``2 (1 - mu^2)^2 / n`` (its length) and as much again (the length before); RMMC
    is half of it, whatever the size of the noise. A signal adds ``2 q (1 + mu) / n`` and lengthens the momentum. As q
    grows with the batch, s falls like ``1 / sqrt(batch)`` from ``q = (1 - mu) / (1 + mu)`` on, and not before.

    Args:
        mu: decay of the momentum, in [0, 1).
        parameters: n, the number of parameters of a layer; where the noise has a covariance C, ``tr(C)^2 / tr(C^2)``.
        signal: q, the squared norm of the mean gradient over the trace of a worker's gradient noise, ``tr(C)``.

    >>> noise_rmmc(0.95, [64, 768 * 768]).round(5).tolist()
    [0.03903, 0.00041]
    >>> noise_rmmc(0.95, 64, [0.01, 1, 100]).round(5).tolist()
    [0.03322, 0.00625, 0.00063]

    Source: CurvaDion, equation (1), for gaussian gradients that are independent and alike.
    """
    q, decay = np.asarray(signal, dtype=float), np.asarray(mu, dtype=float)
    lengthened = 1 + q * (1 + decay) / (1 - decay)
    variance = (1 - np.square(decay) + 2 * q * (1 + decay)) / np.asarray(parameters, dtype=float)
    return np.asarray(np.sqrt(variance) / lengthened)


def noise_trigger_rate(
    threshold: ArrayLike, mu: ArrayLike, parameters: ArrayLike, signal: ArrayLike = 0.0
) -> FloatArray:
    """Return the probability that noise alone exceeds the threshold in some layer of some worker in a step.

    ``1 - prod_l [1 - 2 Q(tau / s_l)]``

    Args:
        threshold: tau, the threshold on RMMC.
        mu: decay of the momentum.
        parameters: (..., L) n of every layer, once per worker; s_l is their `noise_rmmc`.
        signal: (..., L) q of every layer, or one for all.

    >>> noise_trigger_rate(0.1, 0.95, [64] * 8).round(3).tolist()
    0.08

    Source: the trigger of CurvaDion's Algorithm 2.
    """
    deviation = noise_rmmc(mu, parameters, signal)
    silent = 1 - 2 * ndtr(-np.asarray(threshold, dtype=float)[..., None] / deviation)
    return np.asarray(1 - silent.prod(-1))
