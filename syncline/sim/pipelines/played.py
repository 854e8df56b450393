"""Pipelines played from arrays to arrays, where nothing but their tasks and messages happens.

The general events would do, and say what these must: they know effects, collectives, shared channels, delays. Here no
instruction and no span is an object, a greedy stage decides without a callback, and a history is columns from the
start; so 64 stages with 1,024 micro-batches take tens of milliseconds and megabytes, where lists of instructions take
seconds and hundreds. It is the same history to the last bit, which a property test holds; what cannot go on is left to
the events, which say why. Where the compiled loop is not worth its loading, and on other networks, they play as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.topology import Star, topology
from syncline.kernels import Kernels
from syncline.sim.events.state import LEFT_OVER
from syncline.sim.pipelines.deadlocks import tag_of
from syncline.sim.pipelines.schedules import TASK_KINDS, Numbering, Orders, Schedule
from syncline.sim.timeline import Timeline, Words

if TYPE_CHECKING:
    from syncline.sim.pipelines.run import NetworkLike, Pipeline

KERNELS = Kernels("syncline.sim.pipelines.compiled", worth=2**16)
"""The loop over tasks and messages, compiled; work counts in both."""


def played(of: Pipeline, network: NetworkLike) -> Timeline | None:
    """What happens when the stages play a schedule whose orders were checked; None if that is left to the events.

    Raises:
        SpecError: times that cannot be, or a network that is not for so many stages.
    """
    schedule, stages = of.schedule, of.stages
    kinds, fixed = len(schedule.kinds), len(schedule.orders) > 0
    tasks = schedule.microbatches * schedule.chunks * kinds
    if of.effects or of.replicas > 1 or not (math.isfinite(of.activation_bytes) and of.activation_bytes >= 0):
        return None
    if not fixed and (schedule.chunks > 1 or schedule.splits_backward):
        return None
    seconds = of.durations.of(stages, schedule.microbatches)
    joined = topology(network, stages)
    if not isinstance(joined, Star) or joined.half_duplex.any():
        return None
    kernels = KERNELS.for_work(2 * stages * tasks)
    if kernels is None:
        return None
    made = np.zeros((stages, tasks), dtype=kernels.TASK)
    if fixed:
        made["number"] = Orders.of(schedule.orders, Numbering(schedule.microbatches, schedule.chunks)).numbers
    for number, kind in enumerate(schedule.kinds):
        every = np.tile(seconds[kind], (1, schedule.chunks))
        made["seconds"][:, number * every.shape[1] : (number + 1) * every.shape[1]] = every
    whole = np.zeros(1, dtype=kernels.WHOLE)
    whole["microbatches"], whole["chunks"], whole["greedy"] = schedule.microbatches, schedule.chunks, not fixed
    whole["nbytes"], whole["left_over"] = of.activation_bytes, LEFT_OVER
    if kernels.play(whole, _stages(joined, schedule.limits, kernels.STAGE), made):
        return None
    return _timeline(schedule, made, float(of.activation_bytes))


def _stages(joined: Star, limits: Sequence[int], kind: np.dtype[Any]) -> NDArray[Any]:
    """The stages before anything has happened, with what their messages find on the way to the stages beside them."""
    stage, made = np.arange(joined.workers), np.zeros(joined.workers, dtype=kind)
    up, down = joined.bandwidth_bytes_per_s.reshape(2, -1)
    for back, to in enumerate(((stage + 1) % len(stage), (stage - 1) % len(stage))):
        made["latency_s"][:, back] = joined.paths(stage, to).latency_s
        made["rate"][:, back] = np.minimum(up, down[to])
    made["overhead_s"], made["up"], made["down"] = joined.overhead_s, up, down
    if limits:
        made["limit"] = limits
    for name in ("waits", "sends", "on", "on_too"):
        made[name] = -1
    return made


def _timeline(schedule: Schedule, made: NDArray[Any], nbytes: float) -> Timeline:
    """The spans of each stage: before its computing each task's wait for its input; then all messages."""
    (stages, tasks), chunks, count = made.shape, schedule.chunks, schedule.microbatches
    numbers = np.ascontiguousarray(made["number"])
    kinds = len(schedule.kinds)
    way, step = np.divmod(numbers, np.int32(count))
    forth, part = way < chunks, way % chunks * stages + np.arange(stages)[:, None]
    first, last = part == 0, part == chunks * stages - 1
    moves = (way < 2 * chunks) & (stages > 1)
    receives, sends = moves & ~np.where(forth, first, last), moves & ~np.where(forth, last, first)
    to_chunk = (part + np.where(forth, 1, -1)) // stages
    sent = (way // chunks * chunks + to_chunk) * count + step

    # For each stage a wait and a task in turn, then its messages.
    there = np.empty((stages, 3 * tasks), dtype=np.bool_)
    there[:, : 2 * tasks : 2], there[:, 1 : 2 * tasks : 2], there[:, 2 * tasks :] = receives, True, sends

    def column(wait: Any, task: Any, message: Any, dtype: type) -> Any:
        every = np.empty((stages, 3 * tasks), dtype=dtype)
        every[:, : 2 * tasks : 2], every[:, 1 : 2 * tasks : 2], every[:, 2 * tasks :] = wait, task, message
        return every[there]

    names = [kind if chunks == 1 else f"{kind}.{chunk}" for kind in schedule.kinds for chunk in range(chunks)]
    tags = [tag_of(kind, i, chunk) for kind in TASK_KINDS[:kinds] for chunk in range(chunks) for i in range(count)]
    came_s = np.concatenate([np.zeros((stages, 1)), made["end_s"][:, :-1]], axis=1)
    return Timeline(
        workers=stages,
        worker=np.repeat(np.arange(stages), there.sum(axis=1)),
        stream=Words(column(0, 0, 1, np.int8), np.array(["compute", "send"])),
        what=Words(column(0, way + 2, 1, np.int16), np.array(["recv", "send", *names])),
        label=Words(column(numbers + len(names), way, sent + len(names), np.int32), np.array([*names, *tags])),
        start_s=column(came_s, made["begin_s"], made["leave_s"], np.float64),
        end_s=column(made["begin_s"], made["end_s"], made["left_s"], np.float64),
        nbytes=column(nbytes, 0.0, nbytes, np.float64),
        step=column(step, step, step, np.int64),
    )
