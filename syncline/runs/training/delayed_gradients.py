"""Trainings in the stages of a pipeline, whose gradients are late: their math, and the work of their stages.

If stages stash the weights of forward passes for the backward passes, a delay line gives the late gradients, and all
seeds train side by side. Otherwise the stages train in the order of simulated events, one seed after another.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from syncline.comm import Communicator, SimulatedCommunicator
from syncline.comm.devices import training_device
from syncline.costmodel.layouts.partition import stage_flops
from syncline.costmodel.layouts.pipelines import stage_delays
from syncline.errors import SpecError
from syncline.methods import MethodBase
from syncline.methods.parts.asynchronous import BackwardWeights, RemedySpec, remedy_of
from syncline.optim import DelayCompensation, Method, discounted, look_ahead, wsd_factor
from syncline.problems import (
    DelayedTask,
    Problem,
    Rows,
    Task,
    TextGPT,
    coordinate_delays,
    parameter_stages,
    split_into_stages,
)
from syncline.runs.training.stage_updates import BACKWARD_PER_FORWARD, StageWork, TrainedStages, added_update_s
from syncline.runs.training.trained import (
    Trained,
    build_task,
    sequential_history,
    task_tensors,
    throttled,
    undisturbed_step_s,
)
from syncline.seeds import seed64
from syncline.sim import Durations, Pipeline, run_pipeline, schedule
from syncline.sim.pipelines.gradients import PipelineMath
from syncline.specs import Training
from syncline.specs.experiment import ScheduleSpec
from syncline.specs.pipeline import FREE
from syncline.specs.stages import gpt_shape
from syncline.training import History, Recorder, StepLog, parameter_groups


@dataclass(frozen=True)
class DelayedTraining:
    """The settings of a training in which stage k of K (from 0) gets each gradient ``K - 1 - k`` updates late.

    Args:
        stages: K, the number of stages.
        remedy: correction for late gradients, in addition to the method's own.
        backward_weights: weights of the backward passes, see `StagesSpec`.
        delay: ``per-stage``, or ``uniform`` for a delay of K - 1 in all stages.
        eval_every: steps between evaluations; 0: only before and after.
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

    def learning_rate_scheduler(self, optimizer: Any) -> Any:
        """Return torch's scheduler of the learning rates; the remedy ``discount`` lowers those of late gradients."""
        anneal_steps = 0  # no discount
        if self.remedy is not None and self.remedy.anneal_steps is not None:
            anneal_steps = self.remedy.anneal_steps
        schedule = self.schedule

        def schedule_factor(step: int) -> float:
            return wsd_factor(step, self.steps, schedule.warmup_steps, schedule.cooldown_steps, schedule.shape)

        delays = [group["delay"] for group in optimizer.param_groups]
        return discounted(optimizer, delays, anneal_steps=anneal_steps, factor=schedule_factor)


def delays_of(task: Task, stages: int, kind: str) -> dict[str, int | Tensor]:
    """Return the delay of each parameter's gradient, in updates, by the parameter's name.

    The only parameter of a landscape, a function of a point, is the point ``x``. Its coordinates lie in different
    stages, so that its delay is a tensor with the delay of each coordinate.

    Args:
        kind: ``per-stage``, or ``uniform`` for the first stage's delay everywhere.

    Raises:
        SpecError: there are more stages than the model has blocks or coordinates.
    """
    names = list(task.params)
    if kind == "uniform" or stages == 1:
        return dict.fromkeys(names, stages - 1)
    delay_of_stage = stage_delays(stages).tolist()
    is_landscape = names == ["x"]
    if is_landscape:
        num_coordinates = task.params["x"][0].numel()  # of the first worker
        if stages > num_coordinates:
            raise SpecError("stages", stages, f"at most {num_coordinates}, as many as there are coordinates")
        return {"x": coordinate_delays(num_coordinates, stages, delay_of_stage).to(task.params["x"].device)}
    return {name: delay_of_stage[stage] for name, stage in parameter_stages(names, stages).items()}


def delayed_setup(training: DelayedTraining, task: Task, comm: Communicator) -> tuple[DelayedTask, Method, Any]:
    """Return a task with late gradients, its optimizer, and torch's scheduler of the learning rates.

    Raises:
        SpecError: there are more stages than the model has blocks or coordinates.
    """
    delays = delays_of(task, training.stages, training.delay)
    optimizer = training.method.build(parameter_groups(task, delays), comm)
    names = [name for group in optimizer.param_groups for name in group["param_names"]]
    remedy_kind = None if training.remedy is None else training.remedy.kind

    def look_ahead_weights(name: str, _: Tensor) -> Tensor:
        return look_ahead(optimizer, task.params[name], delays[name])

    delayed_task = DelayedTask(task, delays, look_ahead_weights if remedy_kind == "look-ahead" else None)

    def stale_weights(parameter_index: int) -> Tensor:
        return delayed_task.stale[names[parameter_index]]

    if training.remedy is not None and training.remedy.strength is not None:  # only ``compensation`` has one
        optimizer.reducer = DelayCompensation(stale_weights, training.remedy.strength, optimizer.reducer)
    return delayed_task, optimizer, training.learning_rate_scheduler(optimizer)


def train_by_events(
    training: DelayedTraining, seeds: tuple[int, ...], on_step: Callable[[int], None] | None = None
) -> History:
    """Train a model in stages in the order of simulated events, one seed after another, and return the history.

    Each stage has its own optimizer.
    """
    if not isinstance(training.problem, TextGPT):
        expected = "'text-gpt' where weights are not stashed: a model of stages"
        raise SpecError("problem.kind", training.problem.name, expected)
    return sequential_history(partial(_train_seed, training), seeds, training.steps, on_step)


def _train_seed(training: DelayedTraining, seed: int, on_step: Callable[[int], None] | None) -> History:
    """Train one seed: a simulation of asynchronous 1F1B decides the order of all stages' passes and updates."""
    stages, problem = training.stages, training.problem
    assert isinstance(problem, TextGPT)
    task = problem.build(Rows.whole_group(world_size=1, seeds=(seed,)), device=training.device)
    modules = split_into_stages(problem.initial_network(seed).to(training.device), stages)
    delays = stage_delays(stages).tolist()
    optimizers = []
    for stage, module in enumerate(modules):
        named_params = list(module.named_parameters())
        optimizers.append(stage_optimizer(training.method, task, named_params, stage=stage, delays=delays, seed=seed))
    schedulers = [training.learning_rate_scheduler(optimizer) for optimizer in optimizers]
    targets: dict[int, Tensor] = {}  # by batch, until its loss is computed
    snapshots: dict[int, dict[str, Tensor]] = {}  # by number of updates: weights of stages
    recorder, completed_updates = Recorder(), 0

    def evaluate_if_due(stage: int, updates: int) -> None:
        """Store a stage's weights after ``updates`` updates; stage 0 updates last, and evaluates the whole model."""
        is_due = training.eval_every and updates % training.eval_every == 0
        if not is_due and updates not in (0, training.steps):
            return
        # (1, *s), because a task has a row for each seed, here the only one.
        stage_weights = {name: p.detach().clone().unsqueeze(0) for name, p in modules[stage].named_parameters()}
        snapshots.setdefault(updates, {}).update(stage_weights)
        if stage == 0:
            recorder.eval_step.append(updates)
            for name, value in task.evaluate(snapshots.pop(updates)).items():
                recorder.evaluation.setdefault(name, StepLog()).append(value.cpu())

    def inputs(batch: int) -> Tensor:
        x, y = task.batch(batch)
        targets[batch] = y[0]  # the only row
        return x[0]

    def loss(logits: Tensor, batch: int) -> Tensor:
        return F.cross_entropy(logits.flatten(0, -2), targets.pop(batch).flatten())

    def after_update(stage: int, updates: int) -> None:
        """Move a stage's learning rate on after its update, evaluate if it is time, and report progress."""
        nonlocal completed_updates
        schedulers[stage].step()
        if stage == 0:
            completed_updates = updates
        evaluate_if_due(stage, updates)
        if stage == 0 and on_step and updates < training.steps:  # the last one is reported when all tasks have ended
            on_step(updates)

    for stage in reversed(range(stages)):
        evaluate_if_due(stage, updates=0)
    pipeline_schedule = schedule("async-1f1b", stages, training.steps)
    math = PipelineMath(
        pipeline_schedule, modules, inputs, loss, optimizers, training.backward_weights, after_update=after_update
    )
    interrupted = False
    try:
        if on_step:
            on_step(0)
        # The order of an asynchronous schedule, and so its math, is the same for all durations and networks.
        run_pipeline(Pipeline(pipeline_schedule, stages, Durations(), effects=math.effect), FREE)
        if on_step:
            on_step(training.steps)
    except KeyboardInterrupt:
        interrupted = completed_updates < training.steps
    for update in range(completed_updates):
        recorder.losses.append(math.losses[update].unsqueeze(0))
    return recorder.history((seed,), interrupted)


def stage_optimizer(
    method: MethodBase,
    task: Task,
    named_params: list[tuple[str, nn.Parameter]],
    stage: int,
    delays: list[int],
    seed: int,
) -> Method:
    """Return the optimizer of a pipeline's stage, with its matrices and its other parameters in separate groups.

    Args:
        task: the task of the whole model, which names the matrices.
        stage: number of the stage, from 0.
        delays: delay of each stage's gradients in updates; some optimizers need those of all stages.
        seed: seed of the training; each stage has random numbers of its own.
    """
    groups = []
    for is_matrix in (True, False):
        params = [(name, p) for name, p in named_params if (name in task.matrices) == is_matrix]
        if params:
            groups.append({"params": params, "matrix": is_matrix, "delay": delays[stage], "delays": tuple(delays)})
    # The parameters of a stage's module have no leading axis for workers and seeds.
    optimizer = method.build(groups, SimulatedCommunicator(workers=1), worker_axis=False)
    optimizer.seeds = (seed64(seed, "stage", stage),)
    return optimizer


def delayed_training_of(spec: Training, method: MethodBase) -> DelayedTraining:
    """Return the settings of a run with late gradients; a synchronous pipeline counts as one stage, without delay."""
    pipeline = spec.pipeline
    assert pipeline is not None
    return DelayedTraining(
        spec.problem, method, stages=pipeline.stages if pipeline.has_delayed_gradients else 1, steps=spec.steps,
        remedy=remedy_of(method), backward_weights=pipeline.backward_weights, schedule=spec.schedule,
        eval_every=spec.eval_every, device=training_device(spec.device),
    )  # fmt: skip


def trains_by_events(spec: Training) -> bool:
    """Return whether stages train in the order of simulated events, as needed if weights are not stashed."""
    return spec.pipeline is not None and spec.pipeline.backward_weights != "stashed" and spec.pipeline.stages > 1


def train_run_by_events(spec: Training, method: MethodBase, on_step: Callable[[int], None] | None) -> Trained:
    """Train a run's method in stages by `train_by_events`, and return the results."""
    start_s = time.perf_counter()
    device = training_device(spec.device)
    task = build_task(spec.problem, Rows.whole_group(world_size=1, seeds=spec.seeds[:1]), device)  # only for its facts
    undisturbed_step_s(spec, task.flops_per_step)  # a wrong spec raises an error here rather than after the training
    report = throttled(spec.steps, on_step) if on_step else None
    history = train_by_events(delayed_training_of(spec, method), spec.seeds, report)
    return Trained(
        method.name, history, ledger=[], facts=task.describe(), flops_per_step=task.flops_per_step,
        wall_s=time.perf_counter() - start_s, tensors=tuple(task_tensors(task)),
        stages=stages_of_run(spec, method, task.flops_per_step, history.steps),
    )  # fmt: skip


FP32_BYTES, SIXTEEN_BIT_BYTES = 4, 2
"""Bytes of a number that stages send each other, computed in fp32 or in 16 bits."""


def stages_of_run(spec: Training, method: MethodBase, flops: float | None, steps: int) -> TrainedStages:
    """Return the work of a run's stages; each has a share of a batch's seconds in proportion to its FLOPs.

    Args:
        method: method whose update adds to the seconds.
        flops: FLOPs of a batch; None if they cannot be counted.
        steps: number of completed steps.
    """
    pipeline, problem = spec.pipeline, spec.problem
    assert pipeline is not None
    model = gpt_shape(problem)
    flops_by_stage = np.array(stage_flops(model, pipeline.stages))
    # A step is a forward pass, and a backward pass that takes as long as BACKWARD_PER_FORWARD forward passes.
    all_forwards_s = undisturbed_step_s(spec, flops) / (1 + BACKWARD_PER_FORWARD)
    forward_s = all_forwards_s * flops_by_stage / flops_by_stage.sum()
    bytes_per_number = FP32_BYTES if spec.number_format == "fp32" else SIXTEEN_BIT_BYTES
    activation_bytes = float(bytes_per_number * problem.batch_size * problem.context * model.width)
    update_s = added_update_s(method, model, spec.compute.machine_at_mfu, pipeline.stages)
    return trained_stages(spec, StageWork(tuple(forward_s.tolist()), activation_bytes, update_s), steps)


def trained_stages(spec: Training, work: StageWork, steps: int) -> TrainedStages:
    """Return the stages of a run with their work and number of steps; a synchronous pipeline has micro-batches."""
    assert spec.pipeline is not None
    microbatches = None if spec.pipeline.has_delayed_gradients else spec.pipeline.microbatches
    return TrainedStages(work, steps, spec.timeline_steps, microbatches)
