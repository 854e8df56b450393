"""Trainings of a model that is cut into stages: their math in the order of the events, and the work of their stages.

The events decide the math where backward passes do not use the forward's weights; otherwise a delay line does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from torch import Tensor, nn
from torch.nn import functional as F

from syncline.comm import SimulatedCommunicator
from syncline.comm.devices import training_device
from syncline.costmodel.layouts.stage_sizes import stage_flops
from syncline.costmodel.pipeline.closed_form import stage_delays
from syncline.errors import SpecError
from syncline.methods import MethodBase
from syncline.methods.parts.remedies import remedy_of
from syncline.optim import Method
from syncline.problems import Rows, Task, TextGPT, cut
from syncline.runs.training.delayed_gradients.delay_line import DelayedTraining
from syncline.runs.training.delayed_gradients.updates import StageWork, TrainedStages, added_s, stage_work
from syncline.runs.training.trained import Trained, base_s, build_task, histories_in_turn, task_tensors, throttled
from syncline.seeds import seed64
from syncline.sim import Durations, Pipeline, run_pipeline, schedule
from syncline.sim.pipelines.gradients import PipelineMath
from syncline.specs import RunSpec, Training
from syncline.specs.pipeline import FREE
from syncline.specs.stages import TimedModelSpec, gpt_shape
from syncline.training import History, Recorder, StepLog

FP32_BYTES, OTHER_BYTES = 4, 2
"""Bytes of a number that stages send each other, computed in fp32 or in 16 bits."""


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
    """Train one seed; a stage makes its updates at other times than its neighbours, in the order of the events."""
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
    weights: dict[int, dict[str, Tensor]] = {}  # of the stages, by number of updates, until an evaluation
    recorder, num_updates = Recorder(), 0

    def evaluate_at(stage: int, done: int) -> None:
        """Store a stage's weights if they are to be evaluated; stage 0 is the last to have ``done`` updates."""
        if done in (0, training.steps) or (training.eval_every and done % training.eval_every == 0):
            named = {name: p.detach().clone()[None] for name, p in parts[stage].named_parameters()}
            weights.setdefault(done, {}).update(named)
            if stage == 0:
                recorder.eval_step.append(done)
                for name, value in task.evaluate(weights.pop(done)).items():
                    recorder.evaluation.setdefault(name, StepLog()).append(value.cpu())

    def inputs(i: int) -> Tensor:
        x, y = task.batch(i)
        targets[i] = y[0]
        return x[0]

    def loss(logits: Tensor, i: int) -> Tensor:
        return F.cross_entropy(logits.flatten(0, -2), targets.pop(i).flatten())

    def after_update(stage: int, done: int) -> None:
        nonlocal num_updates
        rates[stage].step()
        if stage == 0:
            num_updates = done
        evaluate_at(stage, done)
        if stage == 0 and on_step and done < training.steps:
            on_step(done)

    for stage in reversed(range(stages)):
        evaluate_at(stage, 0)
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
        interrupted = num_updates < training.steps
    for i in range(num_updates):
        recorder.losses.append(math.losses[i][None])
    return recorder.history((seed,), interrupted)


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


def delayed_training_of(spec: Training, method: MethodBase) -> DelayedTraining:
    """Return the late-gradient configuration of a run; in a synchronous pipeline no gradient is late."""
    assert spec.pipeline is not None
    return DelayedTraining(
        spec.problem,
        method,
        spec.pipeline.stages if spec.pipeline.has_delayed_gradients else 1,
        spec.steps,
        remedy_of(method),
        spec.pipeline.backward_weights,
        schedule=spec.schedule,
        eval_every=spec.eval_every,
        device=training_device(spec.device),
    )


def goes_by_events(spec: Training) -> bool:
    """Return whether a training runs stage by stage, because the delay line only supports stashed weights."""
    return spec.pipeline is not None and spec.pipeline.backward_weights != "stashed" and spec.pipeline.stages > 1


def train_stages(spec: Training, method: MethodBase, on_step: Callable[[int], None] | None) -> Trained:
    """Train stage by stage in the order of the events, seed by seed.

    Raises:
        SpecError: the problem is not a model that can be cut into stages.
    """
    start_s = time.perf_counter()
    device = training_device(spec.device)
    task = build_task(spec.problem, Rows.whole_group(1, spec.seeds[:1]), device)
    base_s(spec, task.flops_per_step)  # raises an error now rather than after the training
    report = throttled(spec.steps, on_step) if on_step else None
    history = train_by_events(delayed_training_of(spec, method), spec.seeds, report)
    wall_s = time.perf_counter() - start_s
    shapes = tuple(task_tensors(task))
    staged = stages_of_run(spec, method, task.flops_per_step, history.steps)
    return Trained(method.name, history, [], task.describe(), task.flops_per_step, wall_s, shapes, stages=staged)


def stages_of_run(spec: Training, method: MethodBase, flops: float | None, steps: int) -> TrainedStages:
    """Return the stages of a run, with a batch's seconds divided in proportion to FLOPs, a third of them forward.

    Raises:
        SpecError: nothing gives the seconds of a batch.
    """
    pipeline, problem = spec.pipeline, spec.problem
    assert pipeline is not None
    model, machine = gpt_shape(problem), spec.compute.machine
    if spec.compute.mfu is not None:
        machine = replace(machine, mfu=spec.compute.mfu)
    of_stages = np.array(stage_flops(model, pipeline.stages))
    forward_s = base_s(spec, flops) / 3 * of_stages / of_stages.sum()
    width_bytes = FP32_BYTES if spec.number_format == "fp32" else OTHER_BYTES
    activation_bytes = float(width_bytes * problem.batch_size * problem.context * model.width)
    update_s = added_s(method, model, machine, pipeline.stages)
    return _in_steps(spec, StageWork(tuple(forward_s.tolist()), activation_bytes, update_s), steps)


def timed_stages(spec: RunSpec, method: MethodBase, timed: TimedModelSpec | None) -> TrainedStages:
    """Return the stages of a run in all of its steps, with the work of the timed model if there is one."""
    assert spec.pipeline is not None
    clock = timed or TimedModelSpec(hardware=spec.compute.machine)
    work = stage_work(method, *clock.model_and_tokens(spec.problem), clock.hardware, spec.pipeline.stages)
    return _in_steps(spec, work, spec.steps)


def _in_steps(spec: Training, work: StageWork, steps: int) -> TrainedStages:
    """Return the stages with the work of some steps, which a synchronous pipeline splits into micro-batches."""
    assert spec.pipeline is not None
    microbatches = None if spec.pipeline.has_delayed_gradients else spec.pipeline.microbatches
    return TrainedStages(work, steps, spec.timeline_steps, microbatches)
