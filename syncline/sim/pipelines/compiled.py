"""The events of a pipeline as compiled functions; importing this module imports numba and loads these functions.

The module does what `syncline.sim.events` does with the programs of `syncline.sim.pipelines.run`, step by step and in
the same order, for K stages on a star of full-duplex links. On a star a stage's outgoing link carries one message at a
time, and its incoming link at most two, from the stage before and the stage after, so max-min fair rates need no search
for flows that share channels. Times are the same sums, quotients and maxima of the same numbers, and simultaneous
events happen in the same order: the two histories are equal to the last bit.

The functions share parameters: ``pipeline`` (a ``PIPELINE`` record), ``stages`` (records ``STAGE``), ``tasks`` (records
``TASK``), ``heap`` (events in the order of time), ``stage`` (from 0), ``number`` (of a task, see
`syncline.sim.pipelines.orders`), ``position`` (of a task in the stage's order, from 0), and ``now_s`` (the time of the
present event in seconds). Each row of ``tasks`` has fields of the task at this position and of that with this number.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from syncline.acceleration import compiled

FORWARD, BACKWARD, WEIGHT = range(3)
"""Kinds of tasks, as in `syncline.sim.pipelines.orders`."""

BEGIN, TASK_ENDS, FLOW_BEGINS, FLOW_ENDS, MESSAGE_ARRIVES, SETTLE, CHOOSE = range(7)
AT_ONCE, SETTLING, CHOOSING = 1, 10, 11
"""Priorities of simultaneous events: rates of flows settle after all other events, and then stages choose tasks."""

NO_NUMBER = 0
"""Number of an event whose kind needs none."""

INPUT, OUTPUT = -1, 1
"""Directions from a task to its neighbours: to the task that sends its input, or to the one that gets its output."""

EVENTS_PER_PRIORITY = 1 << 40
"""Factor that orders simultaneous events by priority, and then by the number of events created before."""


PIPELINE = np.dtype(
    [("microbatches", "i8"), ("chunks", "i8"), ("greedy", "?"), ("nbytes", "f8"), ("tolerance", "f8"),
     ("num_events", "i8"), ("num_changed", "i8"), ("messages_ahead", "i8")]
)  # fmt: skip
"""Record of the pipeline: numbers of micro-batches and of chunks; whether stages choose their next task; bytes of every
message, and the fraction of these bytes that counts as a rounding error; number of events created, and number of stages
whose incoming flows have changed at this instant; number of messages behind a message that NCCL's buffers hold, see
`syncline.sim.events.core.messages`.
"""

STAGE = np.dtype(
    [("latency_s", "f8", 2), ("route_bytes_per_s", "f8", 2), ("overhead_s", "f8"), ("up_bytes_per_s", "f8"),
     ("down_bytes_per_s", "f8"), ("limit", "i8"), ("num_done", "i8"), ("forwards", "i8"), ("backwards", "i8"),
     ("awaited_task", "i8"), ("choosing", "?"), ("awaits_any", "?"), ("sending_task", "i8"), ("receiver", "i8"),
     ("route", "i8"), ("flow_number", "i8"), ("flow_rate", "f8"), ("remaining_bytes", "f8"), ("since_s", "f8"),
     ("incoming", "i8"), ("other_incoming", "i8"), ("changed_receiver", "i8"), ("changed_by", "i8"),
     ("queued", "i8", 2), ("waiting", "i8", 2), ("first_waiting", "i8", 2)]
)  # fmt: skip
"""Record of each stage, ``(K,)``: latency and bandwidth of the routes to the next stage and to the stage before;
seconds of a message before its flow; bandwidths of its links out and in; the in-flight limit of a greedy stage.

``num_done`` counts the tasks that the stage has done, ``forwards`` and ``backwards`` those that it has chosen.
``awaited_task`` is the number of the task whose input the stage awaits, or -1. ``choosing`` says whether a greedy stage
chooses its task after all other events of this instant, ``awaits_any`` whether it waits for any input that it can use.

Of the message on the outgoing link: ``sending_task`` is the position of its task, or -1 without a message; ``receiver``
is the receiving stage; ``route`` is the index of its route, 0 of an activation, 1 of a gradient; ``flow_number`` counts
rates of flows, so that only the last rate's end is valid; the message flows at ``flow_rate`` bytes per second since
``since_s``, when it had ``remaining_bytes``.

``incoming`` and ``other_incoming`` are the stages whose messages are on the incoming link, in the order of their begin,
or -1. ``changed_receiver`` and ``changed_by`` are a list of the pipeline, an entry a stage: the stages whose incoming
flows have changed at this instant, in this order, and the stage whose flow has begun, or -1.

To the next stage and to the stage before: ``queued`` counts the messages that have not left, and ``waiting`` those that
have left and wait for messages behind them; ``first_waiting`` is the position of the task of the first of the latter.
"""

TASK = np.dtype(
    [("number", "i4"), ("begin_s", "f8"), ("end_s", "f8"), ("send_begin_s", "f8"), ("send_end_s", "f8"),
     ("seconds", "f8"), ("has_input", "?")]
)  # fmt: skip
"""Record of each stage and task, ``(K, N)``. Fields of the task at position i: its number, see `Orders`, which a greedy
stage writes when it chooses the task; its begin and end; the times when its message gets the outgoing link and has
left. Fields of the task with number i: its duration, and whether its input has arrived.
"""


@compiled
def _add_event(pipeline: Any, heap: Any, time_s: float, priority: int, kind: int, stage: int, number: int) -> None:
    """Add a stage's event to the heap; simultaneous events happen by priority, then in the order of insertion."""
    heapq.heappush(heap, (time_s, priority * EVENTS_PER_PRIORITY + pipeline.num_events, kind, stage, number))
    pipeline.num_events += 1


@compiled
def _neighbour(pipeline: Any, stages: int, stage: int, number: int, direction: int) -> tuple[int, int]:
    """Return the pair (stage, task number) that gets a task's ``OUTPUT`` or sends its ``INPUT``; -1, -1 without one."""
    block, microbatch = number // pipeline.microbatches, number % pipeline.microbatches
    kind, chunk = block // pipeline.chunks, block % pipeline.chunks
    step = direction if kind == FORWARD else -direction  # backwards pass the parts of the model in reverse
    part = chunk * stages + stage + step  # the neighbour's part
    if stages == 1 or kind == WEIGHT or part < 0 or part >= pipeline.chunks * stages:
        return -1, -1
    return part % stages, (kind * pipeline.chunks + part // stages) * pipeline.microbatches + microbatch


@compiled
def _has_input(pipeline: Any, tasks: Any, stage: int, number: int) -> bool:
    """Return whether a task's input has arrived, or the task needs none."""
    sender, _ = _neighbour(pipeline, len(tasks), stage, number, INPUT)
    return tasks[stage, number].has_input or sender < 0


@compiled
def _begin_next(pipeline: Any, stages: Any, tasks: Any, heap: Any, stage: int, now_s: float) -> None:
    """Begin the stage's next task if its input has arrived; else note that the stage waits for this input."""
    if stages[stage].num_done == tasks.shape[1]:  # the stage has done all its tasks
        return
    if pipeline.greedy:
        _choose_task(pipeline, stages, tasks, heap, stage, now_s, at_end=False)
        return
    number = tasks[stage, stages[stage].num_done].number
    if _has_input(pipeline, tasks, stage, number):
        _begin_task(pipeline, stages, tasks, heap, stage, now_s, number)
    else:
        stages[stage].awaited_task = number


@compiled
def _begin_task(pipeline: Any, stages: Any, tasks: Any, heap: Any, stage: int, now_s: float, number: int) -> None:
    """Begin to compute a task of a stage, and add the event at which the task ends."""
    stages[stage].awaited_task = -1
    tasks[stage, stages[stage].num_done].begin_s = now_s
    _add_event(pipeline, heap, now_s + tasks[stage, number].seconds, AT_ONCE, TASK_ENDS, stage, NO_NUMBER)


@compiled
def _may_forward(pipeline: Any, state: Any) -> bool:
    """Return whether a greedy stage, a record of ``STAGE``, has a forward left and is below its in-flight limit."""
    return state.forwards < pipeline.microbatches and state.forwards - state.backwards < state.limit


@compiled
def _choose_task(pipeline: Any, stages: Any, tasks: Any, heap: Any, stage: int, now_s: float, at_end: bool) -> None:
    """Choose and begin a greedy stage's next task: a backward whose input has arrived, else a forward if possible.

    The backward's input may still arrive at this instant, so a stage chooses a forward only at the end of the instant,
    when ``at_end`` is true. If no task can begin, the stage waits for any input.
    """
    state = stages[stage]
    next_forward, next_backward = state.forwards, pipeline.microbatches + state.backwards  # numbers of tasks
    may_backward = state.backwards < state.forwards
    may_forward = _may_forward(pipeline, state)
    runs_backward = may_backward and _has_input(pipeline, tasks, stage, next_backward)
    if not runs_backward:
        if may_backward and may_forward and not at_end:
            if not state.choosing:  # otherwise the event is there already
                state.choosing = True
                _add_event(pipeline, heap, now_s, CHOOSING, CHOOSE, stage, NO_NUMBER)
            return
        if not (may_forward and _has_input(pipeline, tasks, stage, next_forward)):
            state.awaits_any = True
            return
    state.awaits_any = False
    number = next_backward if runs_backward else next_forward
    tasks[stage, state.num_done].number = number  # at its position in the order
    if runs_backward:
        state.backwards += 1
    else:
        state.forwards += 1
    _begin_task(pipeline, stages, tasks, heap, stage, now_s, number)


@compiled
def _end_task(pipeline: Any, stages: Any, tasks: Any, heap: Any, stage: int, now_s: float) -> None:
    """End the computing of a stage's task: queue its output, and begin the next task."""
    position = stages[stage].num_done
    tasks[stage, position].end_s = now_s
    stages[stage].num_done += 1
    receiver, _ = _neighbour(pipeline, len(stages), stage, tasks[stage, position].number, OUTPUT)
    if receiver >= 0:
        stages[stage].queued[_side(stages, stage, receiver)] += 1
    if stages[stage].sending_task < 0:  # the outgoing link is free
        _send_output(pipeline, stages, tasks, heap, stage, position, now_s)
    _begin_next(pipeline, stages, tasks, heap, stage, now_s)


@compiled
def _send_output(pipeline: Any, stages: Any, tasks: Any, heap: Any, stage: int, position: int, now_s: float) -> bool:
    """Start the message with the output of the task at a position; return False if the task sends none."""
    state, number = stages[stage], tasks[stage, position].number
    receiver, _ = _neighbour(pipeline, len(stages), stage, number, OUTPUT)
    if receiver < 0:
        return False
    state.sending_task, state.receiver = position, receiver
    state.route = number // (pipeline.microbatches * pipeline.chunks)  # that of the task's kind, FORWARD or BACKWARD
    tasks[stage, position].send_begin_s = now_s
    if state.overhead_s:
        _add_event(pipeline, heap, now_s + state.overhead_s, AT_ONCE, FLOW_BEGINS, stage, NO_NUMBER)
    else:
        _begin_flow(pipeline, stages, heap, stage, now_s)
    return True


@compiled
def _begin_flow(pipeline: Any, stages: Any, heap: Any, stage: int, now_s: float) -> None:
    """Begin the flow of a stage's message.

    If another message already flows to the same receiver, the two share its link, and both rates are computed again.
    """
    state = stages[stage]
    target = stages[state.receiver]
    state.remaining_bytes, state.since_s = pipeline.nbytes, now_s
    state.flow_number += 1
    is_alone = True
    if pipeline.nbytes:
        is_alone = target.incoming < 0
        if is_alone:
            target.incoming = stage
        else:
            target.other_incoming = stage
    if is_alone:
        state.flow_rate = state.route_bytes_per_s[state.route]
        end_s = now_s + pipeline.nbytes / state.flow_rate
        _add_event(pipeline, heap, end_s, AT_ONCE, FLOW_ENDS, stage, state.flow_number)
    else:
        state.flow_rate = 0.0
        _mark_changed(pipeline, stages, heap, state.receiver, stage, now_s)


@compiled
def _mark_changed(pipeline: Any, stages: Any, heap: Any, receiver: int, sender: int, now_s: float) -> None:
    """Note that the flows to a stage have changed, so that their rates are computed again at the end of this instant.

    ``sender`` is the stage whose flow has begun, or -1 if a flow has ended.
    """
    if not pipeline.num_changed:  # the first change of this instant; the event needs no stage
        _add_event(pipeline, heap, now_s, SETTLING, SETTLE, 0, NO_NUMBER)
    for i in range(pipeline.num_changed):
        if stages[i].changed_receiver == receiver:  # it is on the list already
            return
    stages[pipeline.num_changed].changed_receiver, stages[pipeline.num_changed].changed_by = receiver, sender
    pipeline.num_changed += 1


@compiled
def _settle_rates(pipeline: Any, stages: Any, heap: Any, now_s: float) -> None:
    """Compute new rates of the messages to all stages whose incoming flows have changed."""
    count, pipeline.num_changed = pipeline.num_changed, 0
    for i in range(count):
        receiver = stages[i].changed_receiver
        first, second = stages[receiver].incoming, stages[receiver].other_incoming
        if second >= 0 and stages[i].changed_by == second:  # the order in which the event simulation finds the flows
            first, second = second, first
        if first >= 0:
            _set_fair_rates(pipeline, stages, heap, receiver, first, second, now_s)


@compiled
def _set_fair_rates(pipeline: Any, stages: Any, heap: Any, receiver: int, first: int, other: int, now_s: float) -> None:
    """Set the max-min fair rates of the messages from ``first`` and ``other`` (-1: none) on an incoming link.

    Both rates grow together until a link is full; then the other rate grows alone.
    """
    down_bytes_per_s, up_bytes_per_s = stages[receiver].down_bytes_per_s, stages[first].up_bytes_per_s
    if other < 0:
        _set_rate(pipeline, stages, heap, first, min(up_bytes_per_s, down_bytes_per_s), now_s)
        return
    common_rate = min(up_bytes_per_s, stages[other].up_bytes_per_s, down_bytes_per_s / 2)
    for stage in (first, other):
        rate = common_rate
        if common_rate not in (down_bytes_per_s / 2, stages[stage].up_bytes_per_s):  # no link of the message is full
            rate = min(down_bytes_per_s - common_rate, stages[stage].up_bytes_per_s)
        _set_rate(pipeline, stages, heap, stage, rate, now_s)


@compiled
def _set_rate(pipeline: Any, stages: Any, heap: Any, stage: int, rate: float, now_s: float) -> None:
    """Set the rate of a stage's message in bytes per second, and schedule the new end of its flow."""
    state = stages[stage]
    if rate == state.flow_rate:
        return
    state.remaining_bytes -= (now_s - state.since_s) * state.flow_rate
    # A remainder as small as a rounding error counts as zero bytes.
    if state.remaining_bytes <= pipeline.tolerance * pipeline.nbytes + np.spacing(now_s) * state.flow_rate:
        state.remaining_bytes = 0.0
    state.flow_number += 1
    state.flow_rate, state.since_s = rate, now_s
    _add_event(pipeline, heap, now_s + state.remaining_bytes / rate, AT_ONCE, FLOW_ENDS, stage, state.flow_number)


@compiled
def _end_flow(pipeline: Any, stages: Any, tasks: Any, heap: Any, stage: int, now_s: float) -> None:
    """Free the links of a message whose last byte has left, and start the next message."""
    state = stages[stage]
    target, position = stages[state.receiver], state.sending_task
    if pipeline.nbytes:
        if target.incoming == stage:
            target.incoming = target.other_incoming
        target.other_incoming = -1
        if target.incoming >= 0:  # the other message has the link to itself now
            _mark_changed(pipeline, stages, heap, state.receiver, -1, now_s)
    _release_arrivals(pipeline, stages, tasks, heap, stage, now_s)
    tasks[stage, position].send_end_s = now_s
    state.sending_task = -1
    for following in range(position + 1, state.num_done):  # the first of these tasks that has an output for a stage
        if _send_output(pipeline, stages, tasks, heap, stage, following, now_s):
            return


@compiled
def _side(stages: Any, stage: int, receiver: int) -> int:
    """Return the side of a stage's receiver: 0 for the next stage on the ring of stages, 1 for the stage before."""
    return 0 if receiver == (stage + 1) % len(stages) else 1


@compiled
def _release_arrivals(pipeline: Any, stages: Any, tasks: Any, heap: Any, stage: int, now_s: float) -> None:
    """Schedule the arrivals of a stage's messages that wait no longer, now that its present message has left.

    The library delivers a message once ``messages_ahead`` later messages have left, or none is queued.
    """
    state = stages[stage]
    side = _side(stages, stage, state.receiver)
    state.queued[side] -= 1
    if not state.waiting[side]:
        state.first_waiting[side] = state.sending_task
    state.waiting[side] += 1
    while state.waiting[side] and (not state.queued[side] or state.waiting[side] > pipeline.messages_ahead):
        number = tasks[stage, state.first_waiting[side]].number
        receiver, receiver_task = _neighbour(pipeline, len(stages), stage, number, OUTPUT)
        route = number // (pipeline.microbatches * pipeline.chunks)  # that of the task's kind, FORWARD or BACKWARD
        arrival_s = now_s + state.latency_s[route]
        _add_event(pipeline, heap, arrival_s, AT_ONCE, MESSAGE_ARRIVES, receiver, receiver_task)
        state.waiting[side] -= 1
        # Find the next waiting message to the same side: the output of a later task.
        while state.waiting[side]:
            state.first_waiting[side] += 1
            number = tasks[stage, state.first_waiting[side]].number
            receiver, _ = _neighbour(pipeline, len(stages), stage, number, OUTPUT)
            if receiver >= 0 and _side(stages, stage, receiver) == side:
                break


@compiled
def _receive(pipeline: Any, stages: Any, tasks: Any, heap: Any, stage: int, number: int, now_s: float) -> None:
    """Note that a task's input has arrived, and begin the task if its stage waits for it."""
    state = stages[stage]
    tasks[stage, number].has_input = True
    if state.awaited_task == number:
        _begin_task(pipeline, stages, tasks, heap, stage, now_s, number)
    elif state.awaits_any and not state.choosing:  # otherwise it chooses at the end of this instant anyway
        next_forward, next_backward = state.forwards, pipeline.microbatches + state.backwards  # numbers of tasks
        if number == next_backward or (number == next_forward and _may_forward(pipeline, state)):
            _choose_task(pipeline, stages, tasks, heap, stage, now_s, at_end=False)


@compiled
def simulate(pipeline_table: Any, stages: Any, tasks: Any) -> int:
    """Simulate a pipeline until no event is left; return the number of tasks that are not done.

    The number is 0 unless the stages deadlock.

    Args:
        pipeline_table: one record ``PIPELINE``, ``(1,)``.
        stages: a record ``STAGE`` for each of K stages, ``(K,)``.
        tasks: records ``TASK`` for the N tasks of each stage, ``(K, N)``.
    """
    pipeline = pipeline_table[0]
    # As `_add_event` would write them; Numba takes the type of the heap from this list.
    heap = [(0.0, AT_ONCE * EVENTS_PER_PRIORITY + stage, BEGIN, stage, NO_NUMBER) for stage in range(len(stages))]
    pipeline.num_events = len(stages)
    while heap:
        now_s, _, kind, stage, number = heapq.heappop(heap)
        if kind == TASK_ENDS:
            _end_task(pipeline, stages, tasks, heap, stage, now_s)
        elif kind == FLOW_BEGINS:
            _begin_flow(pipeline, stages, heap, stage, now_s)
        elif kind == FLOW_ENDS:
            if number == stages[stage].flow_number:  # otherwise the rate has changed since
                _end_flow(pipeline, stages, tasks, heap, stage, now_s)
        elif kind == MESSAGE_ARRIVES:
            _receive(pipeline, stages, tasks, heap, stage, number, now_s)
        elif kind == SETTLE:
            _settle_rates(pipeline, stages, heap, now_s)
        elif kind == CHOOSE:
            stages[stage].choosing = False
            _choose_task(pipeline, stages, tasks, heap, stage, now_s, at_end=True)
        else:  # BEGIN
            _begin_next(pipeline, stages, tasks, heap, stage, now_s)
    remaining = tasks.size
    for stage in range(len(stages)):
        remaining -= stages[stage].num_done
    return remaining
