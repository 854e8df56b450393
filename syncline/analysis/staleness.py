"""What theory says of late gradients: convergence bounds of asynchronous Adam, and where a curved valley traps it.

All broadcast over NumPy arrays. Bounds are without the constant in front, which the papers do not give: they tell how a
rate grows, and ratios of two of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from syncline.analysis.curves import FloatArray


def delayed_adam_bound(
    steps: ArrayLike, delay: ArrayLike, smoothness: ArrayLike, gap: ArrayLike, noise: ArrayLike, dimension: ArrayLike
) -> FloatArray:
    """How large Adam's least gradient is after T steps with gradients tau updates late, beta1 = 0.

    ``min_t E |grad f(w_t)|_1 = O( sqrt(R) + sqrt(sigma) R^(1/4) + sigma (log T / T)^(1/4) )`` with
    ``R = (1 + d tau) Delta_0 C / T``. A delay of 0 is Adam without delay. Delay and misalignment multiply each other.

    Args:
        steps: T, above 1.
        delay: tau, in updates; as `effective_delay` for stages of different delays.
        smoothness: C = sum_i C_i, in loss per squared parameter: the (1,1)-norm of the Hessian, locally.
        gap: Delta_0 = f(w_0) - min f, in units of the loss.
        noise: sigma = sum_i sigma_i, standard deviations of the gradient's coordinates, in loss per parameter.
        dimension: d, parameters.

    Source: Basis Rotation, Theorem 2.3.

    >>> [round(float(delayed_adam_bound(10_000, tau, 21, 450, 0, 2)), 2) for tau in (0, 2)]  # without noise
    [0.97, 2.17]
    """
    t, sigma = np.asarray(steps, dtype=float), np.asarray(noise, dtype=float)
    rate = (1 + np.multiply(dimension, delay)) * np.multiply(gap, smoothness) / t
    return np.asarray(np.sqrt(rate) + np.sqrt(sigma) * rate**0.25 + sigma * (np.log(t) / t) ** 0.25)


def late_factor(delay: ArrayLike, dimension: ArrayLike) -> FloatArray:
    """By how much more steps the bound without noise takes under a delay: ``1 + d tau``, whatever the curvature.

    So the bound itself has no slowdown that grows with misalignment: only the steps that are added,
    ``d tau Delta_0 C / eps^2``, do.

    >>> float(late_factor(2, 2))
    5.0
    """
    return np.asarray(1 + np.multiply(dimension, delay, dtype=float))


def trap_radius(lr: ArrayLike, curvature: ArrayLike = 2 * (20.0 * 4.0) ** 2, slope: ArrayLike = 0.5) -> FloatArray:
    """Below which radius a circular valley traps Adam where it runs along an axis: ``r* = lambda lr^2 / (4 s)``.

    Without momentum Adam swings by ``lr / 2`` to both sides in each coordinate. Where the steep direction is at an
    angle phi to an axis, and both coordinates swing in step, that costs ``lambda lr^2 / 8 (1 + |sin 2 phi|)``
    on average, a cusp at phi = 0, whose sides have the slope ``lambda lr^2 / (4 r)`` along a valley that bends with
    ``phi' = 1 / r``. The valley's own slope is overcome where r is small.

    Args:
        lr: the learning rate, in units of the coordinates.
        curvature: lambda across the valley; of the spiral, ``2 (20 * 4)^2`` to leading order in 1 / r.
        slope: s, by which the loss falls along the valley; of the spiral, ``2 r dr/ds = 1/2``.

    >>> trap_radius([0.1, 0.01]).round(9).tolist()
    [64.0, 0.64]
    """
    return np.asarray(np.multiply(curvature, np.square(lr)) / (4 * np.asarray(slope, dtype=float)))
