"""Runs with a model cut into the stages of a pipeline: their configuration, training and clock."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from syncline.comm.devices import training_device
from syncline.costmodel import Network
from syncline.costmodel.network.slowdown import slowed
from syncline.costmodel.layouts.stage_sizes import stage_flops
from syncline.planner.bounds import AS_PREDICTED, Factors
from syncline.runs.training.delayed_gradients.config import LateTraining
from syncline.runs.training.delayed_gradients.event_driven import train_by_events
from syncline.runs.training.delayed_gradients.updates import (
    StageWork,
    added_s,
    stage_work,
    timeline_of_stages,
    updates_of,
)
from syncline.runs.training.train_and_time import Trained, base_s, build_task, seldom, task_tensors
from syncline.methods.parts.remedies import remedy_of
from syncline.problems import Rows
from syncline.sim import Clock
from syncline.specs.stages import TimedModelSpec, shape_of

if TYPE_CHECKING:
    from syncline.specs import MethodBase, RunSpec, Training

FP32_BYTES, OTHER_BYTES = 4, 2
"""Bytes of a number that stages send each other, computed in fp32 or in 16 bits."""


def late_training_of(spec: Training, method: MethodBase) -> LateTraining:
    """Return the late-gradient configuration of a run; in a synchronous pipeline no gradient is late."""
    assert spec.pipeline is not None
    return LateTraining(
        spec.problem,
        method,
        spec.pipeline.stages if spec.pipeline.is_late else 1,
        spec.steps,
        remedy_of(method),
        spec.pipeline.weights,
        schedule=spec.schedule,
        eval_every=spec.eval_every,
        device=training_device(spec.device),
    )


def goes_by_events(spec: Training) -> bool:
    """Return whether a training runs stage by stage, because the delay line only supports stashed weights."""
    return spec.pipeline is not None and spec.pipeline.weights != "stashed" and spec.pipeline.stages > 1


def train_stages(spec: Training, method: MethodBase, on_step: Callable[[int], None] | None) -> Trained:
    """Train stage by stage in the order of the events, seed by seed.

    Raises:
        SpecError: the problem is not a model that can be cut into stages.
    """
    start_s = time.perf_counter()
    device = training_device(spec.device)
    task = build_task(spec.problem, Rows.whole_group(1, spec.seeds[:1]), device)
    base_s(spec, task.flops_per_step)  # raises an error now rather than after the training
    report = seldom(on_step, spec.steps) if on_step else None
    history = train_by_events(late_training_of(spec, method), spec.seeds, report)
    wall_s = time.perf_counter() - start_s
    shapes = tuple(task_tensors(task))
    staged = stages_of_run(spec, method, task.flops_per_step, history.steps)
    return Trained(method.name, history, [], task.describe(), task.flops_per_step, wall_s, shapes, staged=staged)


@dataclass(frozen=True)
class TrainedStages:
    """The work of each stage of a training in each batch, from which its clock follows.

    Args:
        work: work of a batch.
        steps: number of completed steps.
        kept_steps: number of steps that the timeline keeps.
        microbatches: micro-batches of a synchronous batch; None: the pipeline is asynchronous.
    """

    work: StageWork
    steps: int
    kept_steps: int
    microbatches: int | None

    def time(self, network: Network, off: Factors = AS_PREDICTED) -> Clock:
        """Return the clock on a network, with computing and communication times multiplied by factors.

        The time in which a stage does not compute counts as waiting, for the network or for a neighbour.
        """
        work, slower = self.work, float(off.computing)
        if off != AS_PREDICTED:
            network = slowed(network, float(off.communication))
            work = dataclasses.replace(
                work,
                forward_s=tuple(slower * seconds for seconds in work.forward_s),
                update_s=tuple(slower * seconds for seconds in work.update_s),
            )
        stages = len(work.forward_s)
        ends_s = updates_of(work, network, self.microbatches).at(np.arange(1, self.steps + 1))
        wall_s = float(ends_s[-1])
        compute_s = (3 * sum(work.forward_s) + sum(work.update_s)) / stages
        waited_s = max(wall_s / self.steps - compute_s, 0.0)
        shown_steps = min(self.steps, max(self.kept_steps, 1))
        return Clock(
            step_end_s=ends_s,
            end_s=np.full(stages, wall_s),
            step_time_s=wall_s / self.steps,
            compute_s=compute_s,
            encode_s=0.0,
            trigger_s=0.0,
            optimizer_s=0.0,
            communication_s=waited_s,
            exposed_communication_s=waited_s,
            bytes_per_worker=2 * (stages - 1) * work.activation_bytes / stages,
            wall_s=wall_s,
            evaluator="events",
            timeline=timeline_of_stages(work, network, shown_steps, self.microbatches),
        )


def stages_of_run(spec: Training, method: MethodBase, flops: float | None, steps: int) -> TrainedStages:
    """Return the stages of a run, with a batch's seconds divided in proportion to FLOPs, a third of them forward.

    Raises:
        SpecError: nothing gives the seconds of a batch.
    """
    pipeline, problem = spec.pipeline, spec.problem
    assert pipeline is not None
    model, machine = shape_of(problem), spec.compute.machine
    if spec.compute.mfu is not None:
        machine = dataclasses.replace(machine, mfu=spec.compute.mfu)
    of_stages = np.array(stage_flops(model, pipeline.stages))
    forward_s = base_s(spec, flops) / 3 * of_stages / of_stages.sum()
    width_bytes = FP32_BYTES if spec.number_format == "fp32" else OTHER_BYTES
    work = StageWork(
        tuple(forward_s.tolist()),
        float(width_bytes * problem.batch_size * problem.context * model.width),
        added_s(method, model, machine, pipeline.stages),
    )
    return TrainedStages(work, steps, spec.timeline_steps, None if pipeline.is_late else pipeline.microbatches)


def timed_stages(spec: RunSpec, method: MethodBase, timed: TimedModelSpec | None) -> TrainedStages:
    """Return the stages of a run in all of its steps, with the work of the timed model if there is one."""
    pipeline = spec.pipeline
    assert pipeline is not None
    clock = timed or TimedModelSpec(hardware=spec.compute.machine)
    work = stage_work(method, *clock.timed(spec.problem), clock.hardware, pipeline.stages)
    return TrainedStages(work, spec.steps, spec.timeline_steps, None if pipeline.is_late else pipeline.microbatches)
