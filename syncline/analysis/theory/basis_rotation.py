"""Basis Rotation's theory of late gradients: bounds of asynchronous Adam, its path, where a bent valley traps it.

All broadcast over NumPy arrays. Bounds are without the constant in front, which the paper does not give: they tell how
a rate grows, and ratios of two of them. Appendix A's stages and Appendix H's memory are in `syncline.costmodel`
(`stages_needed`, `rotation_elements`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from syncline.analysis.statistics.curves import FloatArray
from syncline.costmodel.numerics.arrays import require


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


def delayed_adam_step(
    steps: ArrayLike, delay: ArrayLike, smoothness: ArrayLike, gap: ArrayLike, dimension: ArrayLike
) -> FloatArray:
    """The order of the step size with which these bounds are reached: ``sqrt(Delta_0 / (T (1 + d tau) C))``.

    Args:
        steps: T.
        delay: tau, in updates.
        smoothness: C, as `delayed_adam_bound`.
        gap: Delta_0.
        dimension: d.

    >>> round(float(delayed_adam_step(10_000, 2, 21, 450, 2)), 4)
    0.0207

    Source: Basis Rotation, Appendix E; Theorem E.8 has it with ``d (1 + tau)``.
    """
    curved = late_factor(delay, dimension) * np.asarray(smoothness, dtype=float)
    return np.asarray(np.sqrt(np.asarray(gap, dtype=float) / (np.asarray(steps, dtype=float) * curved)))


def momentum_adam_bound(
    steps: ArrayLike,
    delay: ArrayLike,
    smoothness: ArrayLike,
    gap: ArrayLike,
    noise: ArrayLike,
    dimension: ArrayLike,
    largest_gradient: ArrayLike,
) -> FloatArray:
    """The same with momentum, for any fixed beta1 below beta2.

    ``min_t E |grad f(w_t)|_1 = O( sqrt(R) + sqrt(sigma) R^(1/4) + sqrt(G d sigma) (log T / T)^(1/4) )`` with
    ``R = d (1 + tau) Delta_0 C / T``, for ``T >= 4 / (1 - beta1)``.

    It does not contain `delayed_adam_bound` at ``beta1 = 0``: without delay its R is d times as large.

    Args:
        steps: T, above 1.
        delay: tau, in updates.
        smoothness: C = sum_i C_i.
        gap: Delta_0.
        noise: sigma = sum_i sigma_i.
        dimension: d, parameters.
        largest_gradient: G, no coordinate of a stochastic gradient is larger (Assumption E.7).

    >>> [round(float(momentum_adam_bound(10_000, tau, 21, 450, 0, 2, 1)), 2) for tau in (0, 2)]
    [1.37, 2.38]

    Source: Basis Rotation, Theorem E.8.
    """
    t, sigma, d = (np.asarray(of, dtype=float) for of in (steps, noise, dimension))
    rate = d * (1 + np.asarray(delay, dtype=float)) * np.multiply(gap, smoothness) / t
    last = np.sqrt(np.asarray(largest_gradient, dtype=float) * d * sigma) * (np.log(t) / t) ** 0.25
    return np.asarray(np.sqrt(rate) + np.sqrt(sigma) * rate**0.25 + last)


def momentum_late_factor(beta1: ArrayLike, delay: ArrayLike, dimension: ArrayLike) -> FloatArray:
    """What momentum makes of `late_factor`, with the beta1 that Theorem E.8 leaves to its constant.

    ``D_beta / (1 - beta1) = 1 + d tau + beta1 d / (1 - beta1)^2``, the momentum's own lag beside the delay. By so much
    R grows under the fourth root; under the square root by another ``1 / (1 - beta1)``.

    Args:
        beta1: decay of the momentum, in [0, 1).
        delay: tau, in updates.
        dimension: d.

    Raises:
        SpecError: a beta1 out of range.

    >>> momentum_late_factor([0.0, 0.5, 0.9], 2, 2).round(6).tolist()
    [5.0, 9.0, 185.0]

    Source: Basis Rotation, proof of Theorem E.8: equation (53) at its best eta, for beta2 near 1, and (56).
    """
    decay, d = np.asarray(beta1, dtype=float), np.asarray(dimension, dtype=float)
    require((decay >= 0) & (decay < 1), "beta1", decay, "a decay in [0, 1)")
    return np.asarray(late_factor(delay, d) + decay * d / (1 - decay) ** 2)


def constant_gradient_step(beta1: ArrayLike, beta2: ArrayLike, step: ArrayLike) -> FloatArray:
    """How far Adam without bias correction moves in its t-th step, if gradients do not change.

    ``(1 - beta1^t) / sqrt(1 - beta2^t)`` learning rates. Appendix B takes ``1 - beta1`` and ``1 - beta2`` for each of
    the first tau + 1 steps, which is this for the first alone.

    Args:
        beta1: decay of the momentum.
        beta2: decay of the second moment, below 1.
        step: t, from 1.

    >>> constant_gradient_step(0.9, 0.999, [1, 32, 10_000]).round(2).tolist()
    [3.16, 5.44, 1.0]

    Source: equation (11) with one gradient; Basis Rotation, Appendix B, equation (13).
    """
    t = np.asarray(step, dtype=float)
    return np.asarray((1 - np.asarray(beta1, dtype=float) ** t) / np.sqrt(1 - np.asarray(beta2, dtype=float) ** t))


def delay_deviation(updates: ArrayLike, delay: int) -> FloatArray:
    """Where a delay of tau updates leads off the path, by Appendix B: ``sum_(s <= t) (u_max(s - tau, 1) - u_s)``.

    If the delayed optimizer repeats the first update tau times and then follows tau updates behind. 0 for
    updates that do not change, and ``tau (u_1 - u_t)`` to leading order for those that change slowly.

    Args:
        updates: (T, d), of the optimizer without delay.
        delay: tau.

    Returns:
        (T, d), the delayed path minus the path.

    Raises:
        SpecError: a negative delay.

    >>> delay_deviation([[1.0], [0.5], [0.25], [0.125]], 1).ravel().tolist()
    [0.0, 0.5, 0.75, 0.875]

    Source: Basis Rotation, Appendix B, its induction without the last approximation.
    """
    require(np.asarray(delay >= 0), "delay", np.asarray(delay), "at least 0")
    u = np.asarray(updates, dtype=float)
    late = u[np.maximum(np.arange(len(u)) - delay, 0)]
    return np.asarray(np.cumsum(late - u, axis=0))


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
