"""The clock of a training in pipeline stages: simulated update times of asynchronous and synchronous 1F1B."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from syncline.costmodel import Hardware, ModelShape, Network
from syncline.costmodel.layouts.partition import blocks_of_stages
from syncline.costmodel.layouts.pipelines import stage_delays
from syncline.costmodel.network.network_links import slow_down
from syncline.methods import MethodBase
from syncline.planner.bounds import AS_PREDICTED, Factors
from syncline.sim import Clock, Durations, Pipeline, Timeline, run_pipeline, schedule

BACKWARD_PER_FORWARD = 2
"""Seconds of a backward pass over those of a forward pass, by their FLOPs."""

MICROBATCHES_PER_STAGE = 4
"""Micro-batches per stage in the shorter of the two simulations that give the steady state."""


@dataclass(frozen=True)
class UpdateTimes:
    """The times of a pipeline's updates: update t = 1, 2, ... ends after ``first_s + (t - 1) update_s``.

    Args:
        update_s: seconds between two updates in steady state.
        first_s: seconds until the first update, extrapolated from the steady state; the first few updates can end
            earlier.
    """

    update_s: float
    first_s: float

    def seconds_until(self, num_updates: ArrayLike) -> np.ndarray:
        """Return the seconds after which ``num_updates`` updates have ended; 0 for no update."""
        updates = np.asarray(num_updates, dtype=float)
        return np.where(updates > 0, self.first_s + (updates - 1) * self.update_s, 0.0)


@dataclass(frozen=True)
class StageWork:
    """The computing time and the traffic of a batch in a pipeline of K stages.

    Args:
        forward_s: forward seconds of each stage, ``(K,)``; a backward pass takes `BACKWARD_PER_FORWARD` times as long.
        activation_bytes: bytes of a batch's activations, or of their gradient, between two stages.
        update_s: seconds that a method adds to each stage's update, ``(K,)``.
    """

    forward_s: tuple[float, ...]
    activation_bytes: float
    update_s: tuple[float, ...]

    def part(self, microbatches: int) -> StageWork:
        """Return the work of one micro-batch, if the batch is cut into ``microbatches``; updates are not divided."""
        forward_s = tuple(seconds / microbatches for seconds in self.forward_s)
        return StageWork(forward_s, self.activation_bytes / microbatches, self.update_s)


def added_update_s(method: MethodBase, model: ModelShape, machine: Hardware, stages: int) -> tuple[float, ...]:
    """Return the seconds that a method's arithmetic adds to each stage's update, ``(K,)``.

    Only the model's blocks count, not its embedding and head.
    """
    one_block = [tensor for tensor in model.tensors if tensor.name.startswith("0.")]  # all blocks have equal tensors
    seconds = []
    for blocks, delay in zip(blocks_of_stages(model, stages), stage_delays(stages).tolist(), strict=True):
        seconds.append(len(blocks) * method.added_update_s(one_block, machine, delay, stages))
    return tuple(seconds)


@lru_cache(maxsize=1024)
def async_update_times(work: StageWork, network: Network) -> UpdateTimes:
    """Return the update times of asynchronous 1F1B, in which each stage updates after each batch.

    The time between updates is the difference of the times of a long and a short simulation, per additional update.
    """
    short_updates = MICROBATCHES_PER_STAGE * len(work.forward_s)
    long_updates = 2 * short_updates
    short_s = max(_stage_ends_s("async-1f1b", work, network, microbatches=short_updates))
    long_s = max(_stage_ends_s("async-1f1b", work, network, microbatches=long_updates))
    update_s = (long_s - short_s) / (long_updates - short_updates)
    return UpdateTimes(update_s, first_s=long_s - (long_updates - 1) * update_s)  # backwards from the last one


@lru_cache(maxsize=1024)
def sync_update_times(work: StageWork, network: Network, microbatches: int) -> UpdateTimes:
    """Return the update times of synchronous 1F1B, in which all stages update after a batch's last micro-batch."""
    ends_s = _stage_ends_s("1f1b", work.part(microbatches), network, microbatches)
    # The next batch begins when the last stage has updated.
    batch_s = max(end_s + update_s for end_s, update_s in zip(ends_s, work.update_s, strict=True))
    return UpdateTimes(update_s=batch_s, first_s=batch_s)


def updates_of(work: StageWork, network: Network, microbatches: int | None) -> UpdateTimes:
    """Return the update times of a synchronous pipeline, or of an asynchronous one if ``microbatches`` is None."""
    if microbatches is None:
        return async_update_times(work, network)
    return sync_update_times(work, network, microbatches)


def _stage_ends_s(schedule_name: str, work: StageWork, network: Network, microbatches: int) -> list[float]:
    """Return the end in seconds of each stage's last micro-batch, ``(K,)``; updates of 1f1b come after it."""
    timeline = _simulated_schedule(schedule_name, work, network, microbatches)
    ends_s = []
    for stage in range(len(work.forward_s)):
        is_task_of_stage = timeline.computes & (timeline.worker == stage)
        ends_s.append(float(timeline.end_s[is_task_of_stage].max()))
    return ends_s


def _simulated_schedule(schedule_name: str, work: StageWork, network: Network, microbatches: int) -> Timeline:
    """Return the simulated timeline of a pipeline schedule, ``1f1b`` or ``async-1f1b``."""
    stages = len(work.forward_s)
    forward_s = np.asarray(work.forward_s)[:, None] * np.ones((stages, microbatches))
    backward_s = BACKWARD_PER_FORWARD * forward_s
    if schedule_name == "async-1f1b":
        for stage, update_s in enumerate(work.update_s):
            # The update delays the next forward pass, but not the gradient, which the stage sends on at once.
            passes_before_first_update = stages - stage
            forward_s[stage, passes_before_first_update:] += update_s
    tasks = schedule(schedule_name, stages, microbatches)
    return run_pipeline(Pipeline(tasks, stages, Durations(forward_s, backward_s), work.activation_bytes), network)


@dataclass(frozen=True)
class TrainedStages:
    """The work of a training in pipeline stages, for its clock.

    Args:
        work: work of a batch.
        timeline_steps: number of steps that the timeline keeps.
        microbatches: number of micro-batches of a synchronous batch; None if the pipeline is asynchronous.
    """

    work: StageWork
    steps: int
    timeline_steps: int
    microbatches: int | None

    def time(self, network: Network, factors: Factors = AS_PREDICTED) -> Clock:
        """Return the clock on a network, with computing and communication times multiplied by factors.

        All time in which a stage does not compute counts as communication. Seconds and bytes per worker are means over
        the stages.
        """
        work, slowdown = self.work, float(factors.computing)
        if factors != AS_PREDICTED:
            network = slow_down(network, float(factors.communication))
            work = replace(
                work,
                forward_s=tuple(slowdown * seconds for seconds in work.forward_s),
                update_s=tuple(slowdown * seconds for seconds in work.update_s),
            )
        stages = len(work.forward_s)
        ends_s = updates_of(work, network, self.microbatches).seconds_until(np.arange(1, self.steps + 1))
        wall_s = float(ends_s[-1])
        compute_s = ((1 + BACKWARD_PER_FORWARD) * sum(work.forward_s) + sum(work.update_s)) / stages
        waited_s = max(wall_s / self.steps - compute_s, 0.0)
        if self.microbatches is None:  # asynchronous stages
            shown_steps = min(self.steps, max(self.timeline_steps, 1))
            timeline = _simulated_schedule("async-1f1b", work, network, microbatches=shown_steps)
        else:  # the first batch, because all batches take equally long
            timeline = _simulated_schedule("1f1b", work.part(self.microbatches), network, self.microbatches)
        # Between two neighbouring stages, a batch's activations travel forward and their gradients back.
        sent_bytes = 2 * (stages - 1) * work.activation_bytes
        return Clock(
            step_end_s=ends_s, end_s=np.full(stages, wall_s), step_time_s=wall_s / self.steps, compute_s=compute_s,
            encode_s=0.0, trigger_s=0.0, optimizer_s=0.0, communication_s=waited_s, exposed_communication_s=waited_s,
            bytes_per_worker=sent_bytes / stages, wall_s=wall_s, evaluator="events", timeline=timeline,
        )  # fmt: skip
