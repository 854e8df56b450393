"""Pipelines simulated from arrays to arrays, if they consist of tasks and messages alone.

The event simulation could do this too, and defines the result, but it also handles effects, collectives, shared
channels and delays. In this module no instruction and no span is an object, a greedy stage chooses without a callback,
and a timeline is columns from the start. So 64 stages with 1,024 micro-batches take tens of milliseconds and megabytes,
where lists of instructions take seconds and hundreds of megabytes. The timeline is the same to the last bit, which a
property test checks. The event simulation runs all other pipelines: those that deadlock, for which it reports the
reason, those on other networks, and those too small to be worth loading the compiled loop.
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
from syncline.sim.pipelines.schedules import Numbering, Orders, Schedule
from syncline.sim.program.timeline import Timeline, Words

KERNELS = Kernels("syncline.sim.pipelines.compiled", break_even_units=2**16)
"""The compiled loop over tasks and messages; its work is the number of both."""


def array_timeline(pipeline: Pipeline, network: NetworkLike) -> Timeline | None:
    """Return the timeline of stages that run a schedule with checked orders; None if the events must simulate it.

    Raises:
        SpecError: invalid times, or a network that does not fit the number of stages.
    """
    schedule, stages = pipeline.schedule, pipeline.stages
    has_fixed_order = len(schedule.orders) > 0
    tasks = schedule.microbatches * schedule.chunks * len(schedule.kinds)
    if (
        pipeline.effects
        or pipeline.replicas > 1
        or any(pipeline.updates_s())
        or not (math.isfinite(pipeline.activation_bytes) and pipeline.activation_bytes >= 0)
    ):
        return None
    if not has_fixed_order and (schedule.chunks > 1 or schedule.splits_backward):
        return None
    seconds = pipeline.durations.seconds_by_kind(stages, schedule.microbatches)
    joined = topology(network, stages)
    if not isinstance(joined, Star) or joined.half_duplex.any():
        return None
    kernels = KERNELS.for_work(2 * stages * tasks)
    if kernels is None:
        return None
    tasks_table = np.zeros((stages, tasks), dtype=kernels.TASK)
    if has_fixed_order:
        numbering = Numbering(schedule.microbatches, schedule.chunks)
        tasks_table["number"] = Orders.from_lists(schedule.orders, numbering).numbers
    tasks_table["seconds"] = np.concatenate(
        [np.tile(seconds[kind], (1, schedule.chunks)) for kind in schedule.kinds], axis=1
    )
    pipeline_table = np.zeros(1, dtype=kernels.PIPELINE)
    pipeline_table["microbatches"], pipeline_table["chunks"] = schedule.microbatches, schedule.chunks
    pipeline_table["greedy"] = not has_fixed_order
    pipeline_table["nbytes"], pipeline_table["tolerance"] = pipeline.activation_bytes, LEFT_OVER
    pipeline_table["messages_ahead"] = messages_ahead(joined, pipeline.activation_bytes)
    if kernels.simulate(pipeline_table, _stages(joined, schedule.limits, kernels.STAGE), tasks_table):
        return None
    return _timeline(schedule, tasks_table, float(pipeline.activation_bytes))


def _stages(joined: Star, limits: Sequence[int], kind: np.dtype[Any]) -> NDArray[Any]:
    """Return the initial records of the stages, with latency and bandwidth of the routes to their neighbours."""
    stage, records = np.arange(joined.workers), np.zeros(joined.workers, dtype=kind)
    up, down = joined.bandwidth_bytes_per_s.reshape(2, -1)
    for direction, neighbour in enumerate(((stage + 1) % len(stage), (stage - 1) % len(stage))):
        records["latency_s"][:, direction] = joined.paths(stage, neighbour).latency_s
        records["route_bytes_per_s"][:, direction] = np.minimum(up, down[neighbour])
    records["overhead_s"], records["up_bytes_per_s"], records["down_bytes_per_s"] = joined.overhead_s, up, down
    if limits:
        records["limit"] = limits
    for name in ("awaited_task", "sending_task", "incoming", "other_incoming"):
        records[name] = -1
    return records


def _timeline(schedule: Schedule, tasks_table: NDArray[Any], nbytes: float) -> Timeline:
    """Return the spans of each stage: each task's wait for its input and its computing, then all messages.

    ``tasks_table`` has the simulated records, ``(stages, tasks)``; ``nbytes`` are the bytes of a message.
    """
    (stages, tasks), chunks, microbatches = tasks_table.shape, schedule.chunks, schedule.microbatches
    numbers = np.ascontiguousarray(tasks_table["number"])
    block, step = np.divmod(numbers, np.int32(microbatches))  # a block is a kind and a chunk
    is_forward, part = block < chunks, block % chunks * stages + np.arange(stages)[:, None]
    is_first, is_last = part == 0, part == chunks * stages - 1
    has_neighbours = (block < 2 * chunks) & (stages > 1)
    receives = has_neighbours & ~np.where(is_forward, is_first, is_last)
    sends = has_neighbours & ~np.where(is_forward, is_last, is_first)
    receiving_chunk = (part + np.where(is_forward, 1, -1)) // stages
    receiving_task = (block // chunks * chunks + receiving_chunk) * microbatches + step

    # For each stage a wait and a task in turn, then its messages.
    exists = np.empty((stages, 3 * tasks), dtype=np.bool_)
    exists[:, : 2 * tasks : 2], exists[:, 1 : 2 * tasks : 2], exists[:, 2 * tasks :] = receives, True, sends

    def column(wait: Any, task: Any, message: Any, dtype: type) -> Any:
        rows = np.empty((stages, 3 * tasks), dtype=dtype)
        rows[:, : 2 * tasks : 2], rows[:, 1 : 2 * tasks : 2], rows[:, 2 * tasks :] = wait, task, message
        return rows[exists]

    blocks = [(kind, chunk) for kind in schedule.kinds for chunk in range(chunks)]
    names = [kind if chunks == 1 else f"{kind}.{chunk}" for kind, chunk in blocks]
    tags = [tag_of(kind, microbatch, chunk) for kind, chunk in blocks for microbatch in range(microbatches)]
    wait_begin_s = np.concatenate([np.zeros((stages, 1)), tasks_table["end_s"][:, :-1]], axis=1)
    labels = column(numbers + len(names), block, receiving_task + len(names), np.int32)
    return Timeline(
        workers=stages,
        worker=np.repeat(np.arange(stages), exists.sum(axis=1)),
        stream=Words(column(0, 0, 1, np.int8), np.array(["compute", "send"])),
        what=Words(column(0, block + 2, 1, np.int16), np.array(["recv", "send", *names])),
        label=Words(labels, np.array([*names, *tags])),
        start_s=column(wait_begin_s, tasks_table["begin_s"], tasks_table["send_begin_s"], np.float64),
        end_s=column(tasks_table["begin_s"], tasks_table["end_s"], tasks_table["send_end_s"], np.float64),
        nbytes=column(nbytes, 0.0, nbytes, np.float64),
        step=column(step, step, step, np.int64),
    )
