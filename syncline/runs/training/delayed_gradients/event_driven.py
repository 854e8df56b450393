"""Training stage by stage in the order of the events, for backward passes that do not use the forward's weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from syncline.comm import SimulatedCommunicator
from syncline.costmodel.pipeline.closed_form import stage_delays
from syncline.errors import SpecError
from syncline.methods import MethodBase
from syncline.optim import Method
from syncline.problems import Rows, Task, TextGPT, cut
from syncline.runs.training.delayed_gradients.delay_line import DelayedTraining
from syncline.runs.training.trained import histories_in_turn
from syncline.seeds import seed64
from syncline.sim import Durations, Pipeline, run_pipeline, schedule
from syncline.sim.pipelines.gradients import PipelineMath
from syncline.specs.pipeline import FREE
from syncline.training import History, diverged_at


def train_by_events(
    training: DelayedTraining, seeds: tuple[int, ...], on_step: Callable[[int], None] | None = None
) -> History:
    """Train seed by seed, each stage with its own optimizer, and return the history.

    Raises:
        SpecError: the problem is not a model that can be cut into stages.
    """
    if not isinstance(training.problem, TextGPT):
        expected = "'text-gpt' where weights are not stashed: a model of stages"
        raise SpecError("problem.kind", training.problem.name, expected)
    return histories_in_turn(partial(_train_seed, training), seeds, training.steps, on_step)


def _train_seed(training: DelayedTraining, seed: int, on_step: Callable[[int], None] | None) -> History:
    stages, problem = training.stages, training.problem
    assert isinstance(problem, TextGPT)
    task = problem.build(Rows.whole_group(1, (seed,)), device=training.device)
    parts = cut(problem.weighted(seed).to(training.device), stages)
    delays = stage_delays(stages).tolist()
    optimizers = [
        stage_optimizer(training.method, task, list(part.named_parameters()), stage, delays, seed)
        for stage, part in enumerate(parts)
    ]
    rates = [training.rates(optimizer) for optimizer in optimizers]
    pipeline_schedule = schedule("async-1f1b", stages, training.steps)
    targets: dict[int, Tensor] = {}
    record = _Record(training, task, parts)

    def inputs(i: int) -> Tensor:
        x, y = task.batch(i)
        targets[i] = y[0]
        return x[0]

    def loss(logits: Tensor, i: int) -> Tensor:
        return F.cross_entropy(logits.flatten(0, -2), targets.pop(i).flatten())

    def after_update(stage: int, done: int) -> None:
        rates[stage].step()
        record.update(stage, done)
        if stage == 0 and on_step and done < training.steps:
            on_step(done)

    math = PipelineMath(
        pipeline_schedule, parts, inputs, loss, optimizers, training.backward_weights, after_update=after_update
    )
    interrupted = False
    try:
        if on_step:
            on_step(0)
        # The order of an asynchronous schedule, and so its math, is the same on every network.
        run_pipeline(Pipeline(pipeline_schedule, stages, Durations(), effects=math.effect), FREE)
        if on_step:
            on_step(training.steps)
    except KeyboardInterrupt:
        interrupted = record.done < training.steps
    losses = torch.stack([math.losses[i] for i in range(record.done)]).cpu().numpy() if record.done else np.zeros(0)
    return record.history(seed, losses[:, None], interrupted)


class _Record:
    """The evaluations of a training whose stages make each update at different times.

    Each stage stores its weights when it reaches the step of an evaluation.
    """

    def __init__(self, training: DelayedTraining, task: Task, parts: list[nn.Module]) -> None:
        self._of, self._task, self._parts = training, task, parts
        self._weights: dict[int, dict[str, Tensor]] = {}
        self._evaluations: dict[int, dict[str, Any]] = {}
        self.done = 0
        for stage in reversed(range(len(parts))):
            self.update(stage, 0)

    def update(self, stage: int, done: int) -> None:
        """Store a stage's weights after ``done`` updates; stage 0 is the last to have them and evaluates the model."""
        interval, steps = self._of.eval_every, self._of.steps
        if stage == 0:
            self.done = done
        if done not in (0, steps) and not (interval and done % interval == 0):
            return
        weights = self._weights.setdefault(done, {})
        weights |= {name: p.detach().clone()[None] for name, p in self._parts[stage].named_parameters()}
        if stage == 0:
            measured = self._task.evaluate(self._weights.pop(done))
            self._evaluations[done] = {name: value.cpu().numpy() for name, value in measured.items()}

    def history(self, seed: int, losses: np.ndarray, interrupted: bool) -> History:
        """Return the history of this seed."""
        steps = sorted(self._evaluations)
        evaluation = {name: np.stack([self._evaluations[s][name] for s in steps]) for name in self._evaluations[0]}
        history = History(
            seeds=(seed,),
            steps=self.done,
            loss=losses,
            trace={},
            eval_step=np.array(steps, dtype=np.int64),
            evaluation=evaluation,
            diverged_at=(),
            interrupted=interrupted,
        )
        history.diverged_at = diverged_at(history)
        return history


def stage_optimizer(
    method: MethodBase, task: Task, named: list[tuple[str, nn.Parameter]], stage: int, delays: list[int], seed: int
) -> Method:
    """Return the optimizer of a stage, with its matrices and its other parameters in separate groups."""
    groups = [
        {"params": [p for p in named if (p[0] in task.matrices) == matrix], "matrix": matrix}
        | {"delay": delays[stage], "delays": tuple(delays)}
        for matrix in (True, False)
    ]
    built = method.build([g for g in groups if g["params"]], SimulatedCommunicator(1), worker_axis=False)
    built.seeds = (seed64(seed, "stage", stage),)  # each stage has its own draws
    return built
