"""Learning-rate schedules that torch does not have, as factors for torch's ``LambdaLR``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from syncline.errors import SpecError

COOLDOWNS: dict[str, Callable[[float], float]] = {
    "1-sqrt": lambda progress: 1.0 - progress**0.5,
    "cosine": lambda progress: 0.5 * (1.0 + math.cos(math.pi * progress)),
}
"""Learning-rate factors by the progress of a cooldown, from 0 to 1."""


def wsd_factor(t: int, steps: int, warmup_steps: int, cooldown_steps: int, shape: str = "1-sqrt") -> float:
    """Return the learning-rate factor of a warmup-stable-decay schedule at step ``t`` (from 0).

    It grows linearly in the warmup, and is 1 until the cooldown. There it is ``1 - sqrt(progress)``, or with the shape
    ``cosine`` ``(1 + cos(pi progress)) / 2``.

    >>> [round(wsd_factor(t, 8, 2, 4), 3) for t in range(8)]
    [0.5, 1.0, 1.0, 1.0, 1.0, 0.5, 0.293, 0.134]
    >>> [round(wsd_factor(t, 8, 2, 6, "cosine"), 3) for t in range(8)]
    [0.5, 1.0, 1.0, 0.933, 0.75, 0.5, 0.25, 0.067]

    Source: Hägele et al. (2024), 1-sqrt cooldown; Loshchilov and Hutter (2017), cosine.
    """
    if t < warmup_steps:
        return (t + 1) / warmup_steps
    cooldown_step = t - (steps - cooldown_steps)
    if cooldown_step <= 0:
        return 1.0
    progress = cooldown_step / cooldown_steps
    return max(0.0, COOLDOWNS[shape](progress))


def warmup_stable_decay(
    optimizer: Optimizer, steps: int, warmup_steps: int = 0, cooldown_steps: int = 0, shape: str = "1-sqrt"
) -> LambdaLR:
    """Return a warmup-stable-decay schedule for an optimizer, see ``wsd_factor``; call its ``step`` after each step.

    Raises:
        SpecError: warmup and cooldown together are longer than ``steps``.
    """
    if warmup_steps < 0 or cooldown_steps < 0 or warmup_steps + cooldown_steps > steps:
        raise SpecError("warmup_steps, cooldown_steps", (warmup_steps, cooldown_steps), f"sum at most {steps} steps")
    return LambdaLR(optimizer, lambda t: wsd_factor(t, steps, warmup_steps, cooldown_steps, shape))


def discount(t: int, delay: int, anneal_steps: int) -> float:
    """Return the learning-rate factor for a gradient delay of tau updates: ``tau^-(1 - min(t / T, 1))``.

    The factor is 1 for a delay of 0 or 1.

    Args:
        delay: tau, number of updates by which the gradient is late.
        anneal_steps: T, number of steps until the factor is 1 again; with 0 it is always 1.

    Source: B. Yang et al., "PipeMare" (2021), section 3.1 (T1); Basis Rotation calls it PipeDream-LR.

    >>> [round(discount(t, 16, 100), 3) for t in (0, 50, 100, 200)]
    [0.062, 0.25, 1.0, 1.0]
    """
    if anneal_steps <= 0:
        return 1.0
    return float(max(delay, 1) ** -(1 - min(t / anneal_steps, 1.0)))


def discounted(
    optimizer: Optimizer, delays: Sequence[int], anneal_steps: int, factor: Callable[[int], float] = lambda t: 1.0
) -> LambdaLR:
    """Return a learning-rate schedule that multiplies the rate of each parameter group by `discount` of its delay.

    Args:
        optimizer: optimizer with at least one parameter group per stage.
        delays: tau, number of updates by which the gradients of each parameter group are late.
        anneal_steps: T of `discount`.
        factor: function of the step t that gives the learning-rate factor of all groups.

    Raises:
        SpecError: there is not one delay per group, or a delay is negative.
    """
    if len(delays) != len(optimizer.param_groups):
        raise SpecError("delays", delays, f"one per parameter group ({len(optimizer.param_groups)})")
    if min(delays) < 0:
        raise SpecError("delays", delays, "updates, at least 0")

    def rate_factor(delay: int) -> Callable[[int], float]:
        return lambda t: factor(t) * discount(t, delay, anneal_steps)

    return LambdaLR(optimizer, [rate_factor(delay) for delay in delays])
