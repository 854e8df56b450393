"""Learning rates of workers at their own pace: every P local steps of any workers count as one step of the training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from syncline.optim import Method
    from syncline.specs import Training


class Rates:
    """The learning rates of an optimizer, following the schedule.

    Args:
        optimizer: the optimizer, with its initial learning rates.
        factors: learning-rate factor of each step, see `lr_factors`.
        spec: specification of the training.
    """

    def __init__(self, optimizer: Method, factors: Sequence[float] | None, spec: Training) -> None:
        self.optimizer, self.factors, self.workers, self.steps = optimizer, factors, spec.workers, spec.steps
        self.whole = [group["lr"] for group in optimizer.param_groups]

    def set(self, count: int) -> None:
        """Set the rate of the training's step that contains number ``count`` of all workers' steps, counted from 0."""
        if self.factors is not None:
            factor = self.factors[min(count // self.workers, self.steps - 1)]
            for group, lr in zip(self.optimizer.param_groups, self.whole, strict=True):
                group["lr"] = lr * factor


def lr_factors(spec: Training) -> list[float] | None:
    """Return the factor of the learning rate in each step, or None if it is 1 in all steps."""
    probe = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = spec.schedule.build(probe, spec.steps)
    if schedule is None:
        return None
    factors = []
    for _ in range(spec.steps):
        factors.append(float(probe.param_groups[0]["lr"]))
        probe.step()
        schedule.step()
    return factors
