"""The events of a pipeline, compiled; importing this module imports numba and loads them.

The module does what `syncline.sim.events` does with the programs of `syncline.sim.pipelines.run`, step by step and in
the same order, for stages on a star of full-duplex links. There a stage's outgoing link carries one message at a time,
and its incoming link at most two, from the stage before and the stage after, so max-min shares need no search for flows
that share channels. Times are the same sums, quotients and maxima of the same numbers, and simultaneous events happen
in the same order: the two histories are equal to the last bit.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from syncline.kernels import compiled

BEGIN, COMPUTED, FLOW, DRAINED, ARRIVED, SETTLE, DECIDE = range(7)
NORMAL, SETTLING, DECIDING = 1, 10, 11
"""Priorities of simultaneous events: flows that begin or end are settled after all else, and then stages decide."""

SOONEST = 1 << 40
"""Number of turns per priority."""


WHOLE = np.dtype(
    [("microbatches", "i8"), ("chunks", "i8"), ("greedy", "?"), ("nbytes", "f8"), ("left_over", "f8"), ("turns", "i8"),
     ("changes", "i8"), ("ahead", "i8")]
)  # fmt: skip
"""Record of the pipeline: M, v, whether stages choose their next task; bytes of every message, and the part of them
that counts as a rounding error; number of turns given out, and number of links that have changed at this instant;
number of messages behind a message that NCCL's buffers hold, see `syncline.sim.events.messages`.
"""

STAGE = np.dtype(
    [("latency_s", "f8", 2), ("rate", "f8", 2), ("overhead_s", "f8"), ("up", "f8"), ("down", "f8"), ("limit", "i8"),
     ("task", "i8"), ("forwards", "i8"), ("backwards", "i8"), ("waits", "i8"), ("deciding", "?"), ("lacks_input", "?"),
     ("sends", "i8"), ("to", "i8"), ("input", "i8"), ("back", "i8"), ("version", "i8"), ("share", "f8"),
     ("left", "f8"), ("since_s", "f8"), ("incoming", "i8"), ("other_incoming", "i8"), ("changed", "i8", 2),
     ("queued", "i8", 2), ("waiting", "i8", 2), ("first", "i8", 2)]
)  # fmt: skip
"""Record of each stage, ``(K,)``: its links to the next stage and to the stage before; the in-flight limit of a
greedy stage.

``task`` is its current task, ``forwards`` and ``backwards`` are the counts so far; it ``waits`` for the input of this
task, or -1. ``deciding`` says whether it decides after all else of the instant; ``lacks_input`` says whether it waits
for any input that it can use.

``sends`` is the task whose message is on the outgoing link, or -1; ``to`` is the receiving stage, ``input`` the task
there, ``back`` says whether the message goes back (1) or forth (0); ``version`` is the valid end event, ``share`` the
rate, ``left`` the remaining bytes, ``since_s`` the time since when.

``incoming`` and ``other_incoming`` are the stages whose messages are on its incoming link, in turn, or -1. ``changed``
belongs to the pipeline: outgoing (k) and incoming (K + k) links whose messages have changed, in turn.

``queued`` counts the messages to the next stage and to the stage before that have not left; ``waiting`` counts those
that have left and wait for messages behind them, of which ``first`` is the task of the first.
"""

TASK = np.dtype(
    [("number", "i4"), ("begin_s", "f8"), ("end_s", "f8"), ("leave_s", "f8"), ("left_s", "f8"), ("seconds", "f8"),
     ("has_input", "?")]
)  # fmt: skip
"""Record of each stage and task, ``(K, N)``. Fields of the i-th task that a stage runs: its number, see `Orders`,
noted by a greedy stage as it decides; its begin and end; the times when its message gets the outgoing link and has
left. Fields of the task with number i: its duration, and whether its input has arrived.
"""


@compiled
def _push(pipeline: Any, heap: Any, time_s: float, priority: int, kind: int, stage: int, number: int) -> None:
    heapq.heappush(heap, (time_s, priority * SOONEST + pipeline.turns, kind, stage, number))
    pipeline.turns += 1


@compiled
def _receiver(pipeline: Any, stages: int, stage: int, number: int, step: int) -> tuple[int, int]:
    """Return the stage and the task that receive a task's output (step 1) or send its input (-1); -1, -1 if none."""
    block = number // pipeline.microbatches
    kind = block // pipeline.chunks
    part = block % pipeline.chunks * stages + stage + (step if kind == 0 else -step)
    if stages == 1 or kind == 2 or part < 0 or part >= pipeline.chunks * stages:
        return -1, -1
    return part % stages, (
        kind * pipeline.chunks + part // stages
    ) * pipeline.microbatches + number % pipeline.microbatches


@compiled
def _has_input(pipeline: Any, tasks: Any, stage: int, number: int) -> bool:
    return tasks[stage, number].has_input or _receiver(pipeline, len(tasks), stage, number, -1)[0] < 0


@compiled
def _go_on(pipeline: Any, stages: Any, tasks: Any, heap: Any, stage: int, now: float) -> None:
    """Begin the next task, if there is one and its input has arrived."""
    if stages[stage].task == tasks.shape[1]:
        return
    if pipeline.greedy:
        _decide(pipeline, stages, tasks, heap, stage, now, False)
        return
    number = tasks[stage, stages[stage].task].number
    if _has_input(pipeline, tasks, stage, number):
        _compute(pipeline, stages, tasks, heap, stage, now, number)
    else:
        stages[stage].waits = number


@compiled
def _compute(pipeline: Any, stages: Any, tasks: Any, heap: Any, stage: int, now: float, number: int) -> None:
    stages[stage].waits = -1
    tasks[stage, stages[stage].task].begin_s = now
    _push(pipeline, heap, now + tasks[stage, number].seconds, NORMAL, COMPUTED, stage, 0)


@compiled
def _decide(pipeline: Any, stages: Any, tasks: Any, heap: Any, stage: int, now: float, last: bool) -> None:
    """Choose a greedy stage's next task: a backward whose input has arrived, else a forward.

    If both may still come, the stage decides after all else of the instant (``last``).
    """
    state = stages[stage]
    number, count = pipeline.microbatches + state.backwards, pipeline.microbatches
    may_backward = state.backwards < state.forwards
    may_forward = state.forwards < count and state.forwards - state.backwards < state.limit
    if not (may_backward and _has_input(pipeline, tasks, stage, number)):
        if may_backward and may_forward and not last:
            if not state.deciding:
                state.deciding = True
                _push(pipeline, heap, now, DECIDING, DECIDE, stage, 0)
            return
        if not (may_forward and _has_input(pipeline, tasks, stage, state.forwards)):
            state.lacks_input = True
            return
        number = state.forwards
    state.lacks_input = False
    tasks[stage, state.task].number = number
    if number < count:
        state.forwards += 1
    else:
        state.backwards += 1
    _compute(pipeline, stages, tasks, heap, stage, now, number)


@compiled
def _computed(pipeline: Any, stages: Any, tasks: Any, heap: Any, stage: int, now: float) -> None:
    task = stages[stage].task
    tasks[stage, task].end_s = now
    stages[stage].task += 1
    receiver, _ = _receiver(pipeline, len(stages), stage, tasks[stage, task].number, 1)
    if receiver >= 0:
        stages[stage].queued[_side(stages, stage, receiver)] += 1
    if stages[stage].sends < 0:
        _send(pipeline, stages, tasks, heap, stage, task, now)
    _go_on(pipeline, stages, tasks, heap, stage, now)


@compiled
def _send(pipeline: Any, stages: Any, tasks: Any, heap: Any, stage: int, task: int, now: float) -> bool:
    """Start the message of a completed task, if it has one; return whether it has."""
    state, number = stages[stage], tasks[stage, task].number
    receiver, receiver_task = _receiver(pipeline, len(stages), stage, number, 1)
    if receiver < 0:
        return False
    state.sends, state.to, state.input, state.back = (
        task,
        receiver,
        receiver_task,
        number // (pipeline.microbatches * pipeline.chunks),
    )
    tasks[stage, task].leave_s = now
    if state.overhead_s:
        _push(pipeline, heap, now + state.overhead_s, NORMAL, FLOW, stage, 0)
    else:
        _carry(pipeline, stages, heap, stage, now)
    return True


@compiled
def _carry(pipeline: Any, stages: Any, heap: Any, stage: int, now: float) -> None:
    """Let the bytes of a stage's message flow.

    If another message already flows to the same receiver, the two share its link, and both rates are computed again.
    Links are numbered: those out of the stages, then those into them.
    """
    state = stages[stage]
    way_in = stages[state.to]
    state.left, state.since_s = pipeline.nbytes, now
    state.version += 1
    alone = True
    if pipeline.nbytes:
        alone = way_in.incoming < 0
        if alone:
            way_in.incoming = stage
        else:
            way_in.other_incoming = stage
    if alone:
        state.share = state.rate[state.back]
        _push(pipeline, heap, now + pipeline.nbytes / state.share, NORMAL, DRAINED, stage, state.version)
    else:
        state.share = 0.0
        _change(pipeline, stages, heap, stage, now)
        _change(pipeline, stages, heap, len(stages) + state.to, now)


@compiled
def _change(pipeline: Any, stages: Any, heap: Any, link: int, now: float) -> None:
    if not pipeline.changes:
        _push(pipeline, heap, now, SETTLING, SETTLE, 0, 0)
    for i in range(pipeline.changes):
        if stages[i // 2].changed[i % 2] == link:
            return
    stages[pipeline.changes // 2].changed[pipeline.changes % 2] = link
    pipeline.changes += 1


@compiled
def _incoming_stage(stages: Any, i: int) -> int:
    """Return the stage whose incoming link the i-th change concerns."""
    link = stages[i // 2].changed[i % 2]
    return link - len(stages) if link >= len(stages) else stages[link].to


@compiled
def _settle(pipeline: Any, stages: Any, heap: Any, now: float) -> None:
    """Compute new shares on all incoming links whose messages have changed."""
    count, pipeline.changes = pipeline.changes, 0
    for i in range(count):
        receiver, fresh = _incoming_stage(stages, i), True
        for before in range(i):
            fresh = fresh and _incoming_stage(stages, before) != receiver
        first, other, link = stages[receiver].incoming, stages[receiver].other_incoming, stages[i // 2].changed[i % 2]
        if fresh and first >= 0:
            if link == other:
                first, other = other, first
            _share(pipeline, stages, heap, receiver, first, other, now)


@compiled
def _share(pipeline: Any, stages: Any, heap: Any, receiver: int, first: int, other: int, now: float) -> None:
    """Set the max-min fair rates of one or two messages on an incoming link: all grow together until a link is full."""
    down, up = stages[receiver].down, stages[first].up
    if other < 0:
        _hasten(pipeline, stages, heap, first, min(up, down), now)
        return
    level = min(up, stages[other].up, down / 2)
    for stage in (first, other):
        is_bottleneck = down / 2 == level or stages[stage].up == level
        _hasten(pipeline, stages, heap, stage, level if is_bottleneck else min(down - level, stages[stage].up), now)


@compiled
def _hasten(pipeline: Any, stages: Any, heap: Any, stage: int, rate: float, now: float) -> None:
    state = stages[stage]
    if rate == state.share:
        return
    state.left -= (now - state.since_s) * state.share
    if state.left <= pipeline.left_over * pipeline.nbytes + np.spacing(now) * state.share:
        state.left = 0.0
    state.version += 1
    state.share, state.since_s = rate, now
    _push(pipeline, heap, now + state.left / rate, NORMAL, DRAINED, stage, state.version)


@compiled
def _drained(pipeline: Any, stages: Any, tasks: Any, heap: Any, stage: int, now: float) -> None:
    """Free the links of a message whose last byte has left, and start the next message."""
    state = stages[stage]
    way_in, task = stages[state.to], state.sends
    if pipeline.nbytes:
        if way_in.incoming == stage:
            way_in.incoming = way_in.other_incoming
        way_in.other_incoming = -1
        if way_in.incoming >= 0:
            _change(pipeline, stages, heap, len(stages) + state.to, now)
    _arrive(pipeline, stages, tasks, heap, stage, task, now)
    tasks[stage, task].left_s = now
    state.sends = -1
    for following in range(task + 1, state.task):
        if _send(pipeline, stages, tasks, heap, stage, following, now):
            return


@compiled
def _side(stages: Any, stage: int, receiver: int) -> int:
    """Return 0 for messages to the next stage, and 1 for those to the stage before."""
    return 0 if receiver == (stage + 1) % len(stages) else 1


@compiled
def _arrive(pipeline: Any, stages: Any, tasks: Any, heap: Any, stage: int, task: int, now: float) -> None:
    """Schedule the arrival of a message that has left, and of those before it that waited for it."""
    state = stages[stage]
    side = _side(stages, stage, state.to)
    state.queued[side] -= 1
    if not state.waiting[side]:
        state.first[side] = task
    state.waiting[side] += 1
    while state.waiting[side] and (not state.queued[side] or state.waiting[side] > pipeline.ahead):
        number = tasks[stage, state.first[side]].number
        receiver, receiver_task = _receiver(pipeline, len(stages), stage, number, 1)
        back = number // (pipeline.microbatches * pipeline.chunks)
        _push(pipeline, heap, now + state.latency_s[back], NORMAL, ARRIVED, receiver, receiver_task)
        state.waiting[side] -= 1
        while state.waiting[side]:
            state.first[side] += 1
            number = tasks[stage, state.first[side]].number
            receiver, _ = _receiver(pipeline, len(stages), stage, number, 1)
            if receiver >= 0 and _side(stages, stage, receiver) == side:
                break


@compiled
def _arrived(pipeline: Any, stages: Any, tasks: Any, heap: Any, stage: int, number: int, now: float) -> None:
    state = stages[stage]
    tasks[stage, number].has_input = True
    if state.waits == number:
        _compute(pipeline, stages, tasks, heap, stage, now, number)
    elif state.lacks_input and not state.deciding:
        may_forward = state.forwards < pipeline.microbatches and state.forwards - state.backwards < state.limit
        if number == pipeline.microbatches + state.backwards or (may_forward and number == state.forwards):
            _decide(pipeline, stages, tasks, heap, stage, now, False)


@compiled
def simulate(pipeline_table: Any, stages: Any, tasks: Any) -> int:
    """Simulate to the end, or until nothing goes on; return the number of tasks that are not done.

    Args:
        pipeline_table: ``(1,)`` of ``WHOLE``.
        stages: ``(K,)`` of ``STAGE``.
        tasks: ``(K, N)`` of ``TASK``.
    """
    pipeline = pipeline_table[0]
    heap = [(0.0, NORMAL * SOONEST + stage, BEGIN, stage, 0) for stage in range(len(stages))]
    pipeline.turns = len(stages)
    while heap:
        now, _, kind, stage, number = heapq.heappop(heap)
        if kind == COMPUTED:
            _computed(pipeline, stages, tasks, heap, stage, now)
        elif kind == FLOW:
            _carry(pipeline, stages, heap, stage, now)
        elif kind == DRAINED:
            if number == stages[stage].version:
                _drained(pipeline, stages, tasks, heap, stage, now)
        elif kind == ARRIVED:
            _arrived(pipeline, stages, tasks, heap, stage, number, now)
        elif kind == SETTLE:
            _settle(pipeline, stages, heap, now)
        elif kind == DECIDE:
            stages[stage].deciding = False
            _decide(pipeline, stages, tasks, heap, stage, now, True)
        else:
            _go_on(pipeline, stages, tasks, heap, stage, now)
    remaining = tasks.size
    for stage in range(len(stages)):
        remaining -= stages[stage].task
    return remaining
