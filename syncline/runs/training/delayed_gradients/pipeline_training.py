"""Runs with a model cut into the stages of a pipeline: their configuration, training and clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from syncline.comm.devices import training_device
from syncline.costmodel.layouts.stage_sizes import stage_flops
from syncline.methods.parts.remedies import remedy_of
from syncline.problems import Rows
from syncline.runs.training.delayed_gradients.delay_line import DelayedTraining
from syncline.runs.training.delayed_gradients.event_driven import train_by_events
from syncline.runs.training.delayed_gradients.updates import (
    StageWork,
    TrainedStages,
    added_s,
    stage_work,
)
from syncline.runs.training.trained import Trained, base_s, build_task, task_tensors, throttled
from syncline.specs import MethodBase, RunSpec, Training
from syncline.specs.stages import TimedModelSpec, gpt_shape

FP32_BYTES, OTHER_BYTES = 4, 2
"""Bytes of a number that stages send each other, computed in fp32 or in 16 bits."""


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
    return Trained(method.name, history, [], task.describe(), task.flops_per_step, wall_s, shapes, staged=staged)


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
    """Return the stages with their work in each of these steps; a synchronous pipeline divides it by micro-batches."""
    assert spec.pipeline is not None
    microbatches = None if spec.pipeline.has_delayed_gradients else spec.pipeline.microbatches
    return TrainedStages(work, steps, spec.timeline_steps, microbatches)
