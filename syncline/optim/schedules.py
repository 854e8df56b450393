"""Learning-rate schedules beyond torch's own, as factors for torch's ``LambdaLR``."""

from __future__ import annotations

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from syncline.errors import SpecError


def wsd_factor(t: int, steps: int, warmup_steps: int, cooldown_steps: int) -> float:
    """Return the factor of warmup-stable-decay: linear up, constant, then ``1 - sqrt(progress)`` down to 0.

    Step ``t`` counts from 0; the first warmup step has ``1 / warmup_steps``, the last cooldown step is
    still above 0.

    >>> [round(wsd_factor(t, 8, 2, 4), 3) for t in range(8)]
    [0.5, 1.0, 1.0, 1.0, 1.0, 0.5, 0.293, 0.134]

    Source: Hägele et al. (2024), 1-sqrt cooldown.
    """
    if t < warmup_steps:
        return (t + 1) / warmup_steps
    into = t - (steps - cooldown_steps)
    return 1.0 if into <= 0 else max(0.0, 1.0 - (into / cooldown_steps) ** 0.5)


def warmup_stable_decay(optimizer: Optimizer, steps: int, warmup_steps: int = 0, cooldown_steps: int = 0) -> LambdaLR:
    """Return the schedule of ``wsd_factor`` on an optimizer; call its ``step`` after each step.

    Raises:
        SpecError: if warmup and cooldown do not fit into ``steps``.
    """
    if warmup_steps < 0 or cooldown_steps < 0 or warmup_steps + cooldown_steps > steps:
        raise SpecError("warmup_steps, cooldown_steps", (warmup_steps, cooldown_steps), f"sum at most {steps} steps")
    return LambdaLR(optimizer, lambda t: wsd_factor(t, steps, warmup_steps, cooldown_steps))
