"""CurvaDion's theory: what the relative change of a momentum's norm tells of curvature."""

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
