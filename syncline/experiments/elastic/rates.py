"""Learning rates of workers at their own pace: P steps of whichever workers are one step of the training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from syncline.optim import Method
    from syncline.specs import Training


class Rates:
    """An optimizer's rates, as the schedule has them.

    Args:
        optimizer: as it was built.
        factors: see `lr_factors`.
        spec: of the training.
    """

    def __init__(self, optimizer: Method, factors: Sequence[float] | None, spec: Training) -> None:
        self.optimizer, self.factors, self.workers, self.steps = optimizer, factors, spec.workers, spec.steps
        self.whole = [group["lr"] for group in optimizer.param_groups]

    def set(self, count: int) -> None:
        """That of the training's step in which number ``count`` of all workers' steps is, from 0."""
        if self.factors is not None:
            factor = self.factors[min(count // self.workers, self.steps - 1)]
            for group, lr in zip(self.optimizer.param_groups, self.whole, strict=True):
                group["lr"] = lr * factor


def lr_factors(spec: Training) -> list[float] | None:
    """By what the learning rate is multiplied in each step; None: by 1 in all."""
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
