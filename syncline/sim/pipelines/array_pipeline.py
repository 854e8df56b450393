"""Pipelines simulated from arrays to arrays, if they consist of tasks and messages alone.

The general events could do this too, and define the result, but they also handle effects, collectives, shared channels
and delays. Here no instruction and no span is an object, a greedy stage decides without a callback, and a history is
columns from the start. So 64 stages with 1,024 micro-batches take tens of milliseconds and megabytes, where lists of
instructions take seconds and hundreds of megabytes. The history is the same to the last bit, which a property test
checks. A pipeline that cannot go on is left to the events, which report the reason. The events also simulate pipelines
on other networks, and those too small to be worth loading the compiled loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.nccl_costs import messages_ahead
from syncline.costmodel.network.topology import Star, topology
from syncline.kernels import Kernels
from syncline.sim.events.codes import LEFT_OVER
from syncline.sim.pipelines.deadlocks import tag_of
from syncline.sim.pipelines.pipeline import NetworkLike, Pipeline
from syncline.sim.pipelines.schedules import TASK_KINDS, Numbering, Orders, Schedule
from syncline.sim.program.timeline import Timeline, Words

KERNELS = Kernels("syncline.sim.pipelines.compiled", break_even_units=2**16)
"""The compiled loop over tasks and messages; its work is the number of both."""


def array_timeline(pipeline: Pipeline, network: NetworkLike) -> Timeline | None:
    """Return the timeline of stages that run a schedule with checked orders; None if this is left to the events.

    Raises:
        SpecError: invalid times, or a network that does not fit the number of stages.
    """
    schedule, stages = pipeline.schedule, pipeline.stages
    kinds, fixed = len(schedule.kinds), len(schedule.orders) > 0
    tasks = schedule.microbatches * schedule.chunks * kinds
    if (
        pipeline.effects
        or pipeline.replicas > 1
        or any(pipeline.updates_s())
        or not (math.isfinite(pipeline.activation_bytes) and pipeline.activation_bytes >= 0)
    ):
        return None
    if not fixed and (schedule.chunks > 1 or schedule.splits_backward):
        return None
    seconds = pipeline.durations.seconds_by_kind(stages, schedule.microbatches)
    joined = topology(network, stages)
    if not isinstance(joined, Star) or joined.half_duplex.any():
        return None
    kernels = KERNELS.for_work(2 * stages * tasks)
    if kernels is None:
        return None
    tasks_table = np.zeros((stages, tasks), dtype=kernels.TASK)
    if fixed:
        tasks_table["number"] = Orders.from_lists(
            schedule.orders, Numbering(schedule.microbatches, schedule.chunks)
        ).numbers
    for number, kind in enumerate(schedule.kinds):
        task_s = np.tile(seconds[kind], (1, schedule.chunks))
        tasks_table["seconds"][:, number * task_s.shape[1] : (number + 1) * task_s.shape[1]] = task_s
    pipeline_table = np.zeros(1, dtype=kernels.WHOLE)
    pipeline_table["microbatches"], pipeline_table["chunks"], pipeline_table["greedy"] = (
        schedule.microbatches,
        schedule.chunks,
        not fixed,
    )
    pipeline_table["nbytes"], pipeline_table["left_over"] = pipeline.activation_bytes, LEFT_OVER
    pipeline_table["ahead"] = messages_ahead(joined, pipeline.activation_bytes)
    if kernels.simulate(pipeline_table, _stages(joined, schedule.limits, kernels.STAGE), tasks_table):
        return None
    return _timeline(schedule, tasks_table, float(pipeline.activation_bytes))


def _stages(joined: Star, limits: Sequence[int], kind: np.dtype[Any]) -> NDArray[Any]:
    """Return the initial records of the stages, with latency and bandwidth of the routes to their neighbours."""
    stage, records = np.arange(joined.workers), np.zeros(joined.workers, dtype=kind)
    up, down = joined.bandwidth_bytes_per_s.reshape(2, -1)
    for direction, neighbour in enumerate(((stage + 1) % len(stage), (stage - 1) % len(stage))):
        records["latency_s"][:, direction] = joined.paths(stage, neighbour).latency_s
        records["rate"][:, direction] = np.minimum(up, down[neighbour])
    records["overhead_s"], records["up"], records["down"] = joined.overhead_s, up, down
    if limits:
        records["limit"] = limits
    for name in ("waits", "sends", "incoming", "other_incoming"):
        records[name] = -1
    return records


def _timeline(schedule: Schedule, tasks_table: NDArray[Any], nbytes: float) -> Timeline:
    """Return the spans of each stage: each task's wait for its input and its computing, then all messages."""
    (stages, tasks), chunks, count = tasks_table.shape, schedule.chunks, schedule.microbatches
    numbers = np.ascontiguousarray(tasks_table["number"])
    kinds = len(schedule.kinds)
    block, step = np.divmod(numbers, np.int32(count))
    forth, part = block < chunks, block % chunks * stages + np.arange(stages)[:, None]
    first, last = part == 0, part == chunks * stages - 1
    moves = (block < 2 * chunks) & (stages > 1)
    receives, sends = moves & ~np.where(forth, first, last), moves & ~np.where(forth, last, first)
    to_chunk = (part + np.where(forth, 1, -1)) // stages
    sent = (block // chunks * chunks + to_chunk) * count + step

    # For each stage a wait and a task in turn, then its messages.
    exists = np.empty((stages, 3 * tasks), dtype=np.bool_)
    exists[:, : 2 * tasks : 2], exists[:, 1 : 2 * tasks : 2], exists[:, 2 * tasks :] = receives, True, sends

    def column(wait: Any, task: Any, message: Any, dtype: type) -> Any:
        rows = np.empty((stages, 3 * tasks), dtype=dtype)
        rows[:, : 2 * tasks : 2], rows[:, 1 : 2 * tasks : 2], rows[:, 2 * tasks :] = wait, task, message
        return rows[exists]

    names = [kind if chunks == 1 else f"{kind}.{chunk}" for kind in schedule.kinds for chunk in range(chunks)]
    tags = [tag_of(kind, i, chunk) for kind in TASK_KINDS[:kinds] for chunk in range(chunks) for i in range(count)]
    came_s = np.concatenate([np.zeros((stages, 1)), tasks_table["end_s"][:, :-1]], axis=1)
    return Timeline(
        workers=stages,
        worker=np.repeat(np.arange(stages), exists.sum(axis=1)),
        stream=Words(column(0, 0, 1, np.int8), np.array(["compute", "send"])),
        what=Words(column(0, block + 2, 1, np.int16), np.array(["recv", "send", *names])),
        label=Words(column(numbers + len(names), block, sent + len(names), np.int32), np.array([*names, *tags])),
        start_s=column(came_s, tasks_table["begin_s"], tasks_table["leave_s"], np.float64),
        end_s=column(tasks_table["begin_s"], tasks_table["end_s"], tasks_table["left_s"], np.float64),
        nbytes=column(nbytes, 0.0, nbytes, np.float64),
        step=column(step, step, step, np.int64),
    )
