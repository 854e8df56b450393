"""When the updates of a pipeline are done: asynchronous and synchronous 1F1B, by the event simulation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from syncline.costmodel import Hardware, ModelShape, Network, compute_s
from syncline.costmodel.pipeline.closed_form import stage_delays
from syncline.costmodel.pipeline.stage_sizes import stage_blocks, stage_flops
from syncline.sim import Durations, Pipeline, Timeline, run_pipeline, schedule
from syncline.specs import MethodBase

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

LENGTH = 4
"""Micro-batches per stage of the shorter simulation from which the steady state is read; the longer has twice that."""


@dataclass(frozen=True)
class UpdateTimes:
    """When a pipeline's updates are done: the t-th, from 1, after ``first_s + (t - 1) update_s``.

    Args:
        update_s: between two updates in steady state, in seconds.
        first_s: until the first one, in seconds, such that the line holds for late updates; the first few can be
            earlier.
    """

    update_s: float
    first_s: float

    def at(self, done: ArrayLike) -> np.ndarray:
        """Seconds until so many updates are done; 0 for none."""
        count = np.asarray(done, dtype=float)
        return np.where(count > 0, self.first_s + (count - 1) * self.update_s, 0.0)


@dataclass(frozen=True)
class StageWork:
    """What a batch is to a pipeline.

    Args:
        forward_s: of each stage, ``(K,)`` seconds; a backward pass takes twice that.
        activation_bytes: what a batch sends from one stage to the next, and its gradient back.
        update_s: what a method adds to each stage's update, ``(K,)`` seconds.
    """

    forward_s: tuple[float, ...]
    activation_bytes: float
    update_s: tuple[float, ...]


def stage_work(method: MethodBase, model: ModelShape, tokens: int, machine: Hardware, stages: int) -> StageWork:
    """Of a batch of so many tokens, from the model's FLOPs on hardware.

    Activations have as many bytes as the hardware's precision: 4 for fp32, else 2.
    """
    forward_s = tuple(float(compute_s(flops * tokens, machine)) for flops in stage_flops(model, stages))
    width_bytes = 4 if machine.precision == "fp32" else 2
    return StageWork(forward_s, float(width_bytes * tokens * model.width), added_s(method, model, machine, stages))


def added_s(method: MethodBase, model: ModelShape, machine: Hardware, stages: int) -> tuple[float, ...]:
    """What a method's own arithmetic adds to each stage's update, ``(K,)`` seconds: all of it is of blocks."""
    block = [tensor for tensor in model.tensors if tensor.name.partition(".")[0] == "0"]
    counts, delays = stage_blocks(model, stages), stage_delays(stages).tolist()
    of_block = [method.added_update_s(block, machine, delay, stages) for delay in delays]
    return tuple(count * seconds for count, seconds in zip(counts, of_block, strict=True))


@lru_cache(maxsize=1024)
def asynchronous(work: StageWork, network: Network) -> UpdateTimes:
    """Asynchronous 1F1B: every micro-batch is a batch, and each stage updates after each.

    The steady state is the difference of two lengths of the simulation.
    """
    stages = len(work.forward_s)
    short, long = LENGTH * stages, 2 * LENGTH * stages
    ends_s = [max(_ends_s("async-1f1b", work, network, batches)) for batches in (short, long)]
    update_s = (ends_s[1] - ends_s[0]) / (long - short)
    return UpdateTimes(update_s, ends_s[1] - (long - 1) * update_s)


@lru_cache(maxsize=1024)
def synchronous(work: StageWork, network: Network, microbatches: int) -> UpdateTimes:
    """Synchronous 1F1B: a batch is cut into micro-batches, all stages update after the last, and it starts anew."""
    ends_s = _ends_s("1f1b", _parts_of(work, microbatches), network, microbatches)
    update_s = max(end_s + added for end_s, added in zip(ends_s, work.update_s, strict=True))
    return UpdateTimes(update_s, update_s)


def updates_of(work: StageWork, network: Network, microbatches: int | None = None) -> UpdateTimes:
    """Of a synchronous pipeline whose batches are cut into micro-batches; of an asynchronous one if none is given."""
    return asynchronous(work, network) if microbatches is None else synchronous(work, network, microbatches)


def timeline_of_stages(work: StageWork, network: Network, batches: int, microbatches: int | None = None) -> Timeline:
    """What stages do in so many batches of an asynchronous pipeline, or in the first one of a synchronous."""
    if microbatches is None:
        return _played("async-1f1b", work, network, batches)
    return _played("1f1b", _parts_of(work, microbatches), network, microbatches)


def _parts_of(work: StageWork, microbatches: int) -> StageWork:
    return StageWork(
        tuple(seconds / microbatches for seconds in work.forward_s),
        work.activation_bytes / microbatches,
        work.update_s,
    )


def _ends_s(name: str, work: StageWork, network: Network, microbatches: int) -> list[float]:
    """When each stage is through with so many micro-batches, ``(K,)``; synchronous updates are left out."""
    timeline = _played(name, work, network, microbatches)
    stages = range(len(work.forward_s))
    return [float(timeline.end_s[timeline.computes & (timeline.worker == stage)].max()) for stage in stages]


def _played(name: str, work: StageWork, network: Network, microbatches: int) -> Timeline:
    stages = len(work.forward_s)
    forward = np.asarray(work.forward_s)[:, None] * np.ones((stages, microbatches))
    backward = 2 * forward
    if name == "async-1f1b":
        for stage, added in enumerate(work.update_s):
            # Before the first forward that comes after an update: the gradient is sent on without waiting for it.
            forward[stage, stages - stage :] += added
    return run_pipeline(
        Pipeline(schedule(name, stages, microbatches), stages, Durations(forward, backward), work.activation_bytes),
        network,
    )
