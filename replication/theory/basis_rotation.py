"""Basis Rotation's theory of delayed gradients: bounds of asynchronous Adam, its path, and curved valleys that trap it.

All functions broadcast over NumPy arrays. Bounds omit the constant factor, which the paper does not give: they show how
a rate grows, and the ratio of two bounds is meaningful. At the end are Appendix A's number of stages, one delay for
stages of several, and the step at which delayed gradient descent is stable. Appendix H's memory is in
`syncline.costmodel` (`rotation_elements`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from syncline import SpecError
from syncline.analysis.curves import FloatArray
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray, require


def delayed_adam_bound(
    steps: ArrayLike, delay: ArrayLike, smoothness: ArrayLike, gap: ArrayLike, noise: ArrayLike, dimension: ArrayLike
) -> FloatArray:
    """Return the bound on Adam's least gradient norm after T steps with gradients tau updates late, at beta1 = 0.

    ``min_t E |grad f(w_t)|_1 = O( sqrt(R) + sqrt(sigma) R^(1/4) + sigma (log T / T)^(1/4) )`` with
    ``R = (1 + d tau) Delta_0 C / T``. A delay of 0 is Adam without delay. Delay and misalignment multiply each other.

    Args:
        steps: T, above 1.
        delay: tau, in updates; for stages of different delays, take `effective_delay`.
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


def delay_step_factor(delay: ArrayLike, dimension: ArrayLike) -> FloatArray:
    """Return the factor of extra steps that a delay costs in the bound without noise: ``1 + d tau``.

    The factor does not depend on the curvature, so in the bound the slowdown does not grow with misalignment; only the
    number of added steps does, ``d tau Delta_0 C / eps^2``.

    >>> float(delay_step_factor(2, 2))
    5.0
    """
    return np.asarray(1 + np.multiply(dimension, delay, dtype=float))


def delayed_adam_step(
    steps: ArrayLike, delay: ArrayLike, smoothness: ArrayLike, gap: ArrayLike, dimension: ArrayLike
) -> FloatArray:
    """Return the order of the step size that reaches the delayed bounds: ``sqrt(Delta_0 / (T (1 + d tau) C))``.

    Args:
        steps: T, the number of steps.
        delay: tau, in updates.
        smoothness: C, as `delayed_adam_bound`.
        gap: Delta_0.
        dimension: d, the number of parameters.

    >>> round(float(delayed_adam_step(10_000, 2, 21, 450, 2)), 4)
    0.0207

    Source: Basis Rotation, Appendix E; Theorem E.8 has it with ``d (1 + tau)``.
    """
    scaled_curvature = delay_step_factor(delay, dimension) * np.asarray(smoothness, dtype=float)
    return np.asarray(np.sqrt(np.asarray(gap, dtype=float) / (np.asarray(steps, dtype=float) * scaled_curvature)))


def momentum_adam_bound(
    steps: ArrayLike,
    delay: ArrayLike,
    smoothness: ArrayLike,
    gap: ArrayLike,
    noise: ArrayLike,
    dimension: ArrayLike,
    largest_gradient: ArrayLike,
) -> FloatArray:
    """Return the bound of `delayed_adam_bound` with momentum, for any fixed beta1 below beta2.

    ``min_t E |grad f(w_t)|_1 = O( sqrt(R) + sqrt(sigma) R^(1/4) + sqrt(G d sigma) (log T / T)^(1/4) )`` with
    ``R = d (1 + tau) Delta_0 C / T``, for ``T >= 4 / (1 - beta1)``.

    At ``beta1 = 0`` this bound does not become `delayed_adam_bound`: without delay its R is d times as large.

    Args:
        steps: T, above 1.
        delay: tau, in updates.
        smoothness: C = sum_i C_i.
        gap: Delta_0.
        noise: sigma = sum_i sigma_i.
        dimension: d, parameters.
        largest_gradient: G, the largest coordinate of a stochastic gradient (Assumption E.7).

    >>> [round(float(momentum_adam_bound(10_000, tau, 21, 450, 0, 2, 1)), 2) for tau in (0, 2)]
    [1.37, 2.38]

    Source: Basis Rotation, Theorem E.8.
    """
    t, sigma, d = (np.asarray(value, dtype=float) for value in (steps, noise, dimension))
    rate = d * (1 + np.asarray(delay, dtype=float)) * np.multiply(gap, smoothness) / t
    noise_term = np.sqrt(np.asarray(largest_gradient, dtype=float) * d * sigma) * (np.log(t) / t) ** 0.25
    return np.asarray(np.sqrt(rate) + np.sqrt(sigma) * rate**0.25 + noise_term)


def momentum_delay_step_factor(beta1: ArrayLike, delay: ArrayLike, dimension: ArrayLike) -> FloatArray:
    """Return `late_factor` with momentum, including the beta1 that Theorem E.8 hides in its constant.

    ``D_beta / (1 - beta1) = 1 + d tau + beta1 d / (1 - beta1)^2``, the last term being the lag of the momentum.
    R grows by this factor under the fourth root; under the square root it grows by another ``1 / (1 - beta1)``.

    Args:
        beta1: decay of the momentum, in [0, 1).
        delay: tau, in updates.
        dimension: d, the number of parameters.

    Raises:
        SpecError: a beta1 out of range.

    >>> momentum_delay_step_factor([0.0, 0.5, 0.9], 2, 2).round(6).tolist()
    [5.0, 9.0, 185.0]

    Source: Basis Rotation, proof of Theorem E.8: equation (53) at its best eta, for beta2 near 1, and (56).
    """
    decay, d = np.asarray(beta1, dtype=float), np.asarray(dimension, dtype=float)
    require((decay >= 0) & (decay < 1), "beta1", decay, "a decay in [0, 1)")
    return np.asarray(delay_step_factor(delay, d) + decay * d / (1 - decay) ** 2)


def constant_gradient_step(beta1: ArrayLike, beta2: ArrayLike, step: ArrayLike) -> FloatArray:
    """Return the distance that Adam without bias correction moves in its t-th step if gradients do not change.

    The unit is the learning rate: ``(1 - beta1^t) / sqrt(1 - beta2^t)``. Appendix B takes ``1 - beta1`` and
    ``1 - beta2`` for each of the first tau + 1 steps, which is right for the first step only.

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
    """Return the path with a delay of tau updates minus the path without: ``sum_(s <= t) (u_max(s - tau, 1) - u_s)``.

    The delayed optimizer repeats the first update tau times and then follows tau updates behind. The deviation is 0 if
    updates do not change, and ``tau (u_1 - u_t)`` to leading order if they change slowly.

    Args:
        updates: (T, d) updates of the optimizer without delay.
        delay: tau, in updates.

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
    delayed = u[np.maximum(np.arange(len(u)) - delay, 0)]
    return np.asarray(np.cumsum(delayed - u, axis=0))


def trap_radius(lr: ArrayLike, curvature: ArrayLike = 2 * (20.0 * 4.0) ** 2, slope: ArrayLike = 0.5) -> FloatArray:
    """Return the radius below which a circular valley traps Adam along an axis: ``r* = lambda lr^2 / (4 s)``.

    Without momentum, Adam swings by ``lr / 2`` to both sides in each coordinate. Where the steep direction is at an
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


def effective_delay(delays: Sequence[float] | np.ndarray, curvature: Sequence[float] | np.ndarray = (1.0,)) -> float:
    """Return the delay, equal for all stages, with the convergence bound of these delays.

    It is ``sqrt(sum C_k^2 tau_k^2 / sum C_k^2)``.

    Args:
        delays: tau_k, delays of stages or of coordinates, in updates.
        curvature: C_k, coordinate-wise smoothness; the weight of a stage is the sum of C_k^2 over its coordinates. A
            single value means equal weights: ``sqrt((K - 1)(2 K - 1) / 6)`` for stages with delays 0, ..., K - 1.

    Raises:
        SpecError: no delay, or only weights of 0.

    Source: Basis Rotation, equation (3) and Theorem E.6.

    >>> f"{effective_delay(range(32)):.2f}"
    '18.04'
    """
    tau, weight = np.broadcast_arrays(np.asarray(delays, dtype=float), np.square(np.asarray(curvature, dtype=float)))
    if tau.size == 0 or weight.sum() <= 0:
        raise SpecError("delays", delays, "at least one delay, with a curvature above 0")
    return float(np.sqrt((weight * tau**2).sum() / weight.sum()))


def delayed_sgd_limit(delay: IntOrArray) -> FloatOrArray:
    """Return the largest stable step size times curvature of delayed gradient descent: ``2 sin(pi / (2 (2 tau + 1)))``.

    With a delay of tau steps, x_{t+1} = x_t - a x_{t - tau} is stable for 0 < a < limit. The limit is 2 without delay
    and 1 with delay 1.

    Source: S. A. Levin, R. May, "A note on difference-delay equations", Theoretical Population Biology 9 (1976).

    >>> [round(float(delayed_sgd_limit(delay)), 4) for delay in (0, 1, 2, 31)]
    [2.0, 1.0, 0.618, 0.0499]
    """
    return 2 * np.sin(np.pi / (2 * (2 * np.asarray(delay) + 1)))


def block_bytes(parameters: float, *, sequence: int, width: int, heads: int, batch: int = 1) -> float:
    """Return the bytes to train one transformer block with AdamW in mixed precision: ``16 W + 34 s b h + 5 b a s^2``.

    A parameter takes two bytes for the weight, two for the gradient, and twelve for the master weight and both moments;
    activations are as V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2023),
    count them.

    Args:
        parameters: W, parameters of the block.
        sequence: s, tokens of a sequence.
        width: h, width of the model.
        heads: a, attention heads of the block.
        batch: b, sequences in a batch.

    Source: Basis Rotation, Appendix A, equation (7).
    """
    return 16 * parameters + 34 * sequence * batch * width + 5 * batch * heads * sequence**2


def stages_needed(blocks: int, bytes_per_block: float, memory_bytes: float) -> int:
    """Return the number of stages that hold L blocks of b bytes: ``ceil(L / floor(m / b))``, or 2 L if no block fits.

    Args:
        blocks: L, number of blocks.
        bytes_per_block: b, by `block_bytes`.
        memory_bytes: m, memory of one device.

    The formula gives 31 of the 35 cells of Appendix A's table with decimal memories (8 GB is 8e9 bytes), and 24 with
    2^30 bytes per GB. The other four cells are those of the 405B model where a block does not fit: the formula gives
    2 * 126 = 252, the table has 512, twice 256, although its last cell, with one block per device, has 126.

    Source: Basis Rotation, Appendix A.

    >>> llama_7b = block_bytes(202e6, sequence=4096, width=4096, heads=32)
    >>> [stages_needed(32, llama_7b, memory) for memory in (8e9, 16e9, 24e9, 48e9, 80e9)]
    [32, 16, 11, 5, 3]
    """
    blocks_per_device = int(memory_bytes // bytes_per_block)
    return 2 * blocks if blocks_per_device == 0 else -(-blocks // blocks_per_device)
