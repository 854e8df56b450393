"""The events of a pipeline, compiled; importing this module imports numba and loads them.

What `syncline.sim.events` does with the programs of `syncline.sim.pipelines.run`, step by step and in the same order,
for stages on a star of full-duplex links: there a stage's way out carries one message at a time, and its way in at
most two, from the stage before and the one after, so max-min shares need no search for who shares with whom. Times are
the same sums, quotients and maxima of the same numbers, and what happens together happens in the same turn: the two
histories are equal to the last bit.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from syncline.kernels import compiled

BEGIN, COMPUTED, FLOW, DRAINED, ARRIVED, SETTLE, DECIDE = range(7)
NORMAL, SETTLING, DECIDING = 1, 10, 11
"""The order of what happens together: flows that begin and end are settled after all else, and then stages decide."""

SOONEST = 1 << 40
"""Turns of one priority."""


WHOLE = np.dtype(
    [("microbatches", "i8"), ("chunks", "i8"), ("greedy", "?"), ("nbytes", "f8"), ("left_over", "f8"), ("turns", "i8"),
     ("changes", "i8")]
)  # fmt: skip
"""Of the pipeline: M, v, whether stages decide what is next; bytes of every message, and the part of them that is an
error of rounding; how many turns were given out, and how many ways have changed at this instant."""

STAGE = np.dtype(
    [("latency_s", "f8", 2), ("rate", "f8", 2), ("overhead_s", "f8"), ("up", "f8"), ("down", "f8"), ("limit", "i8"),
     ("at", "i8"), ("forwards", "i8"), ("backwards", "i8"), ("waits", "i8"), ("deciding", "?"), ("asked", "?"),
     ("sends", "i8"), ("to", "i8"), ("input", "i8"), ("back", "i8"), ("version", "i8"), ("share", "f8"),
     ("left", "f8"), ("since_s", "f8"), ("on", "i8"), ("on_too", "i8"), ("changed", "i8", 2)]
)  # fmt: skip
"""Of each stage, ``(K,)``: its links, to the next stage and to the one before; of a greedy one its limit.

At which task it is; its ``forwards`` and ``backwards`` so far; which input it ``waits`` for, or -1. Whether it decides
when all else of the instant has happened; whether it was asked before for what has not arrived.

The task whose message is on its way out, or -1: to whom, the input of which task there, whether ``back`` (1) or forth
(0); which of its ends counts, its share of the ways, the bytes that are left, since when.

Whose messages are ``on`` its way in, in turn, or -1. ``changed`` is of the pipeline: ways out (k) and in (K + k) whose
messages have changed, in turn."""

TASK = np.dtype(
    [("number", "i4"), ("begin_s", "f8"), ("end_s", "f8"), ("leave_s", "f8"), ("left_s", "f8"), ("seconds", "f8"),
     ("here", "?")]
)  # fmt: skip
"""Of each stage and task, ``(K, N)``. Of the i-th that it runs: its number, see `Orders`, noted by a greedy stage as it
decides; when it begins and ends, when its message gets the way out and has left. Of the one with number i: how long it
takes, and whether its input has arrived."""


@compiled
def _push(whole: Any, heap: Any, time_s: float, priority: int, what: int, stage: int, which: int) -> None:
    heapq.heappush(heap, (time_s, priority * SOONEST + whole.turns, what, stage, which))
    whole.turns += 1


@compiled
def _receiver(whole: Any, stages: int, stage: int, number: int, step: int) -> tuple[int, int]:
    """The stage that a task's output goes to (step 1) or its input comes from (-1), and its task; -1 if none."""
    way = number // whole.microbatches
    kind = way // whole.chunks
    part = way % whole.chunks * stages + stage + (step if kind == 0 else -step)
    if stages == 1 or kind == 2 or part < 0 or part >= whole.chunks * stages:
        return -1, -1
    return part % stages, (kind * whole.chunks + part // stages) * whole.microbatches + number % whole.microbatches


@compiled
def _is_here(whole: Any, tasks: Any, stage: int, number: int) -> bool:
    return tasks[stage, number].here or _receiver(whole, len(tasks), stage, number, -1)[0] < 0


@compiled
def _go_on(whole: Any, stages: Any, tasks: Any, heap: Any, stage: int, now: float) -> None:
    """Begin the next task, if there is one and its input has arrived."""
    if stages[stage].at == tasks.shape[1]:
        return
    if whole.greedy:
        _decide(whole, stages, tasks, heap, stage, now, False)
        return
    number = tasks[stage, stages[stage].at].number
    if _is_here(whole, tasks, stage, number):
        _compute(whole, stages, tasks, heap, stage, now, number)
    else:
        stages[stage].waits = number


@compiled
def _compute(whole: Any, stages: Any, tasks: Any, heap: Any, stage: int, now: float, number: int) -> None:
    stages[stage].waits = -1
    tasks[stage, stages[stage].at].begin_s = now
    _push(whole, heap, now + tasks[stage, number].seconds, NORMAL, COMPUTED, stage, 0)


@compiled
def _decide(whole: Any, stages: Any, tasks: Any, heap: Any, stage: int, now: float, last: bool) -> None:
    """A greedy stage takes a backward whose input has arrived, else a forward; with both in question, at last."""
    own = stages[stage]
    number, count = whole.microbatches + own.backwards, whole.microbatches
    may_backward = own.backwards < own.forwards
    may_forward = own.forwards < count and own.forwards - own.backwards < own.limit
    if not (may_backward and _is_here(whole, tasks, stage, number)):
        if may_backward and may_forward and not last:
            if not own.deciding:
                own.deciding = True
                _push(whole, heap, now, DECIDING, DECIDE, stage, 0)
            return
        if not (may_forward and _is_here(whole, tasks, stage, own.forwards)):
            own.asked = True
            return
        number = own.forwards
    own.asked = False
    tasks[stage, own.at].number = number
    if number < count:
        own.forwards += 1
    else:
        own.backwards += 1
    _compute(whole, stages, tasks, heap, stage, now, number)


@compiled
def _computed(whole: Any, stages: Any, tasks: Any, heap: Any, stage: int, now: float) -> None:
    task = stages[stage].at
    tasks[stage, task].end_s = now
    stages[stage].at += 1
    if stages[stage].sends < 0:
        _send(whole, stages, tasks, heap, stage, task, now)
    _go_on(whole, stages, tasks, heap, stage, now)


@compiled
def _send(whole: Any, stages: Any, tasks: Any, heap: Any, stage: int, task: int, now: float) -> bool:
    """The way out is the message's own, if the task has one."""
    own, number = stages[stage], tasks[stage, task].number
    to, which = _receiver(whole, len(stages), stage, number, 1)
    if to < 0:
        return False
    own.sends, own.to, own.input, own.back = task, to, which, number // (whole.microbatches * whole.chunks)
    tasks[stage, task].leave_s = now
    if own.overhead_s:
        _push(whole, heap, now + own.overhead_s, NORMAL, FLOW, stage, 0)
    else:
        _carry(whole, stages, heap, stage, now)
    return True


@compiled
def _carry(whole: Any, stages: Any, heap: Any, stage: int, now: float) -> None:
    """Let the bytes of its message flow."""
    own = stages[stage]
    way_in = stages[own.to]
    own.left, own.since_s = whole.nbytes, now
    own.version += 1
    alone = True
    if whole.nbytes:
        alone = way_in.on < 0
        if alone:
            way_in.on = stage
        else:
            way_in.on_too = stage
    if alone:
        own.share = own.rate[own.back]
        _push(whole, heap, now + whole.nbytes / own.share, NORMAL, DRAINED, stage, own.version)
    else:
        own.share = 0.0
        _change(whole, stages, heap, stage, now)
        _change(whole, stages, heap, len(stages) + own.to, now)


@compiled
def _change(whole: Any, stages: Any, heap: Any, way: int, now: float) -> None:
    if not whole.changes:
        _push(whole, heap, now, SETTLING, SETTLE, 0, 0)
    for i in range(whole.changes):
        if stages[i // 2].changed[i % 2] == way:
            return
    stages[whole.changes // 2].changed[whole.changes % 2] = way
    whole.changes += 1


@compiled
def _way_in(stages: Any, i: int) -> int:
    """Whose way in the i-th change is about."""
    way = stages[i // 2].changed[i % 2]
    return way - len(stages) if way >= len(stages) else stages[way].to


@compiled
def _settle(whole: Any, stages: Any, heap: Any, now: float) -> None:
    """New shares for all whose way in has other messages than before."""
    count, whole.changes = whole.changes, 0
    for i in range(count):
        to, fresh = _way_in(stages, i), True
        for before in range(i):
            fresh = fresh and _way_in(stages, before) != to
        first, other, way = stages[to].on, stages[to].on_too, stages[i // 2].changed[i % 2]
        if fresh and first >= 0:
            if way == other:
                first, other = other, first
            _share(whole, stages, heap, to, first, other, now)


@compiled
def _share(whole: Any, stages: Any, heap: Any, to: int, first: int, other: int, now: float) -> None:
    """Max-min fair rates of one message on a way in, or of two: all grow together until a way is full."""
    down, up = stages[to].down, stages[first].up
    if other < 0:
        _hasten(whole, stages, heap, first, min(up, down), now)
        return
    level = min(up, stages[other].up, down / 2)
    for stage in (first, other):
        held = down / 2 == level or stages[stage].up == level
        _hasten(whole, stages, heap, stage, level if held else min(down - level, stages[stage].up), now)


@compiled
def _hasten(whole: Any, stages: Any, heap: Any, stage: int, rate: float, now: float) -> None:
    own = stages[stage]
    if rate == own.share:
        return
    own.left -= (now - own.since_s) * own.share
    if own.left <= whole.left_over * whole.nbytes + np.spacing(now) * own.share:
        own.left = 0.0
    own.version += 1
    own.share, own.since_s = rate, now
    _push(whole, heap, now + own.left / rate, NORMAL, DRAINED, stage, own.version)


@compiled
def _drained(whole: Any, stages: Any, tasks: Any, heap: Any, stage: int, now: float) -> None:
    """The last byte has left: the ways are free."""
    own = stages[stage]
    way_in, task = stages[own.to], own.sends
    if whole.nbytes:
        if way_in.on == stage:
            way_in.on = way_in.on_too
        way_in.on_too = -1
        if way_in.on >= 0:
            _change(whole, stages, heap, len(stages) + own.to, now)
    _push(whole, heap, now + own.latency_s[own.back], NORMAL, ARRIVED, own.to, own.input)
    tasks[stage, task].left_s = now
    own.sends = -1
    for following in range(task + 1, own.at):
        if _send(whole, stages, tasks, heap, stage, following, now):
            return


@compiled
def _arrived(whole: Any, stages: Any, tasks: Any, heap: Any, stage: int, number: int, now: float) -> None:
    own = stages[stage]
    tasks[stage, number].here = True
    if own.waits == number:
        _compute(whole, stages, tasks, heap, stage, now, number)
    elif own.asked and not own.deciding:
        may_forward = own.forwards < whole.microbatches and own.forwards - own.backwards < own.limit
        if number == whole.microbatches + own.backwards or (may_forward and number == own.forwards):
            _decide(whole, stages, tasks, heap, stage, now, False)


@compiled
def play(of: Any, stages: Any, tasks: Any) -> int:
    """Play to the end, or until nothing goes on; how many tasks are left then.

    Args:
        of: ``(1,)`` of ``WHOLE``.
        stages: ``(K,)`` of ``STAGE``.
        tasks: ``(K, N)`` of ``TASK``.
    """
    whole = of[0]
    heap = [(0.0, NORMAL * SOONEST + stage, BEGIN, stage, 0) for stage in range(len(stages))]
    whole.turns = len(stages)
    while heap:
        now, _, what, stage, which = heapq.heappop(heap)
        if what == COMPUTED:
            _computed(whole, stages, tasks, heap, stage, now)
        elif what == FLOW:
            _carry(whole, stages, heap, stage, now)
        elif what == DRAINED:
            if which == stages[stage].version:
                _drained(whole, stages, tasks, heap, stage, now)
        elif what == ARRIVED:
            _arrived(whole, stages, tasks, heap, stage, which, now)
        elif what == SETTLE:
            _settle(whole, stages, heap, now)
        elif what == DECIDE:
            stages[stage].deciding = False
            _decide(whole, stages, tasks, heap, stage, now, True)
        else:
            _go_on(whole, stages, tasks, heap, stage, now)
    left = tasks.size
    for stage in range(len(stages)):
        left -= stages[stage].at
    return left
