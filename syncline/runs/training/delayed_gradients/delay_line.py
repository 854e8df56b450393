"""Trainings with late gradients, and the delay line for stages that stash their weights: all seeds side by side."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

from syncline.comm import Communicator
from syncline.costmodel.pipeline.closed_form import stage_delays
from syncline.errors import SpecError
from syncline.methods.parts.remedies import BackwardWeights, RemedySpec
from syncline.optim import DelayCompensation, Method, discounted, look_ahead, wsd_factor
from syncline.problems import DelayedTask, Problem, Task, coordinate_delays, parameter_stages
from syncline.specs import MethodBase
from syncline.specs.experiment import ScheduleSpec


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
        warmup, cooldown = self.schedule.warmup_steps, self.schedule.cooldown_steps
        anneal = self.remedy.anneal_steps if self.remedy and self.remedy.kind == "discount" else 0
        delays = [group["delay"] for group in optimizer.param_groups]
        return discounted(optimizer, delays, anneal or 0, lambda t: wsd_factor(t, self.steps, warmup, cooldown))


class DelayedParts(NamedTuple):
    """The inputs of the training loop: the task with late gradients, its optimizer, and torch's scheduler."""

    task: DelayedTask
    optimizer: Method
    schedule: Any


def delays_of(task: Task, stages: int, kind: str) -> dict[str, int | Tensor]:
    """Return the delay of each parameter's gradient, in updates; on a landscape, each coordinate's.

    Raises:
        SpecError: more stages than the model has blocks or coordinates.
    """
    names = list(task.params)
    if kind == "uniform" or stages == 1:
        return dict.fromkeys(names, stages - 1)
    per_stage = stage_delays(stages).tolist()
    if names == ["x"]:
        count = task.params["x"][0].numel()
        if stages > count:
            raise SpecError("stages", stages, f"at most {count}, as many as there are coordinates")
        return {"x": coordinate_delays(count, stages, per_stage).to(task.params["x"].device)}
    return {name: per_stage[stage] for name, stage in parameter_stages(names, stages).items()}


def delay_groups(task: Task, delays: dict[str, Any]) -> list[dict[str, Any]]:
    """Return torch's parameter groups: runs of parameters of one delay that are matrices, or are not."""

    def key(item: tuple[str, Any]) -> tuple[int, bool]:
        delay = delays[item[0]]
        return (delay if isinstance(delay, int) else int(delay.max())), item[0] in task.matrices

    runs = groupby(task.params.items(), key=key)
    return [{"params": list(run), "matrix": matrix, "delay": delay} for (delay, matrix), run in runs]


def delayed_parts(training: DelayedTraining, task: Task, comm: Communicator) -> DelayedParts:
    """Return a task with late gradients, its optimizer and its scheduler.

    Raises:
        SpecError: more stages than the model has blocks or coordinates.
    """
    delays = delays_of(task, training.stages, training.delay)
    optimizer = training.method.build(delay_groups(task, delays), comm)
    remedy, prediction = training.remedy, None
    if remedy and remedy.kind == "look-ahead":

        def prediction(name: str, _: Tensor) -> Tensor:
            return look_ahead(optimizer, task.params[name], delays[name])

    delayed = DelayedTask(task, delays, prediction)
    if remedy and remedy.kind == "compensation":
        names = [name for group in optimizer.param_groups for name in group["param_names"]]
        assert remedy.strength is not None
        optimizer.reducer = DelayCompensation(
            lambda number: delayed.stale[names[number]], remedy.strength, optimizer.reducer
        )
    return DelayedParts(delayed, optimizer, training.rates(optimizer))
