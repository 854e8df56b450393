"""Closed forms of the papers' theory, to be drawn beside what a training measured.

All broadcast over NumPy arrays. Momenta here are numbers or norms in the units of a gradient; periods and half-lives
are in steps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from syncline.analysis.curves import FloatArray


def rmmc_exact(mu: ArrayLike, along: ArrayLike, across: ArrayLike) -> FloatArray:
    """CurvaDion's relative momentum change, from where the next gradient points.

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
    """The same to leading order in the step size: ``RMMC = | eta kappa - b |``.

    Args:
        eta: step size of ``x <- x - eta m``.
        curvature: ``kappa = m_hat^T H m_hat``, in 1 / eta's unit.
        bias: ``b = <g_before, m_hat> / ||m|| - (1 - mu)``, what the gradient before the step was short of equilibrium.

    >>> round(float(rmmc_leading_order(0.1, 0.5, -0.95)), 3)
    1.0

    Source: CurvaDion, Theorem 1.
    """
    return np.asarray(np.abs(np.multiply(eta, curvature) - bias))


def rmmc_bias_over_curvature(mu: ArrayLike) -> FloatArray:
    """How much larger the bias of Theorem 1 is than its curvature term, once one slow direction is left.

    ``|b| / (eta kappa) = mu / (1 - mu)``: there ``m = g / (1 - mu)``, so per step the momentum shrinks by
    ``eta kappa / (1 - mu)``, of which ``eta kappa`` is the curvature term. For ``eta kappa`` well below ``(1 - mu)^2``.

    >>> round(float(rmmc_bias_over_curvature(0.95)), 6)
    19.0
    """
    decay = np.asarray(mu, dtype=float)
    return np.asarray(decay / (1 - decay))


def top_k_error_bound(k: ArrayLike, dimension: ArrayLike) -> FloatArray:
    """The largest share of a vector's norm that its k largest entries can miss: ``sqrt(1 - k / d)``.

    Reached by vectors whose entries are equally large, in any orthonormal basis.

    >>> float(top_k_error_bound(48, 64))
    0.5

    Source: DeMo, Lemma 8.1.
    """
    return np.asarray(np.sqrt(1 - np.divide(k, dimension)))


def momentum_noise_variance(beta: ArrayLike, period: ArrayLike, gradient_variance: ArrayLike = 1.0) -> FloatArray:
    """Variance that K local steps put into a worker's momentum ``u <- beta u + (1 - beta) g``.

    ``Var = (1 - beta) / (1 + beta) (1 - beta^(2 K)) sigma^2``

    Args:
        beta: decay rate, below 1.
        period: K, steps since the momentum was averaged.
        gradient_variance: sigma^2 of a gradient's coordinate, independent from step to step and between workers.

    >>> round(float(momentum_noise_variance(0.9, 32)), 4), round(float(momentum_noise_variance(0.999, 32)), 7)
    (0.0526, 3.1e-05)

    Source: MT-DAO, section 2 and Appendix F.
    """
    decay = np.asarray(beta, dtype=float)
    forgotten = 1 - decay ** (2 * np.asarray(period))
    return np.asarray((1 - decay) / (1 + decay) * forgotten * gradient_variance)


def momentum_information_nats(
    beta: ArrayLike, period: ArrayLike, signal_variance: ArrayLike, noise_variance: ArrayLike
) -> FloatArray:
    """What a local momentum still tells about the common one, K steps after they were the same.

    ``I = 1/2 ln(1 + beta^(2 K) S / L)`` nats per coordinate, for gaussian ``u_K = beta^K u_0 + l``.

    Args:
        beta: decay rate.
        period: K steps.
        signal_variance: S, of the common momentum's coordinate.
        noise_variance: L, of what the local steps added; ``momentum_noise_variance`` for independent noise.

    >>> round(float(momentum_information_nats(0.5, 1, 4.0, 1.0)), 4)  # half of ln 2
    0.3466

    Source: MT-DAO, Appendix F.2.
    """
    kept = np.asarray(beta, dtype=float) ** (2 * np.asarray(period)) * signal_variance
    return np.asarray(0.5 * np.log1p(kept / np.asarray(noise_variance, dtype=float)))


def quasi_hyperbolic_stability(beta: ArrayLike, omega: ArrayLike) -> FloatArray:
    """The largest ``a = lr * curvature`` at which a mixture of gradient and momentum converges on a quadratic.

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
