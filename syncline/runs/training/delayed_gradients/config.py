"""The configuration of a training with late gradients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from syncline.methods.parts.remedies import BackwardWeights, RemedySpec
from syncline.specs import MethodBase
from syncline.specs.experiment import ScheduleSpec

if TYPE_CHECKING:
    import torch

    from syncline.problems import Problem


@dataclass(frozen=True)
class DelayedTraining:
    """A training whose stage k of K gets gradients ``K - 1 - k`` updates late.

    Args:
        problem: the problem to optimise.
        method: the method of all stages.
        stages: K, the number of stages.
        steps: number of updates of each stage.
        remedy: correction for late gradients, in addition to the method's own.
        backward_weights: weights that backward passes use.
        delay: ``per-stage``, or ``uniform``: K - 1 for all.
        schedule: schedule of the learning rate.
        eval_every: steps between evaluations; 0: only before and after.
        device: device that computes.
    """

    problem: Problem
    method: MethodBase
    stages: int
    steps: int
    remedy: RemedySpec | None = None
    backward_weights: BackwardWeights = "stashed"
    delay: str = "per-stage"
    schedule: ScheduleSpec = field(default_factory=ScheduleSpec)
    eval_every: int = 0
    device: torch.device | str = "cpu"

    def rates(self, optimizer: Any) -> Any:
        """Return torch's scheduler of the learning rate over the steps, discounted by delay if that is the remedy."""
        from syncline.optim import discounted, wsd_factor

        warmup, cooldown = self.schedule.warmup_steps, self.schedule.cooldown_steps
        anneal = self.remedy.anneal_steps if self.remedy and self.remedy.kind == "discount" else 0
        delays = [group["delay"] for group in optimizer.param_groups]
        return discounted(optimizer, delays, anneal or 0, lambda t: wsd_factor(t, self.steps, warmup, cooldown))
