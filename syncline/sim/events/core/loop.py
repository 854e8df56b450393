"""The loop of the event core: it runs events until Python must act.

Python must act when an instruction with an effect is done, when a program comes to a choice, when messages that may be
late start, when a table is full, and when SimPy has the next event.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

import numpy as np

from syncline.sim.events import codes
from syncline.sim.events.core import views
from syncline.sim.events.core.collectives import (
    begin_rounds,
    complete_instruction,
    enter_collective,
    finish_all_ranks,
    finish_rank,
    join_collective,
    list_new_parts,
    record_span,
    release_streams,
)
from syncline.sim.events.core.compiling import core_function, entry
from syncline.sim.events.core.fetching import MANY_LEVELS, fetch_for_queue
from syncline.sim.events.core.flows import begin_flow, end_flow, settle_rates
from syncline.sim.events.core.heap import (
    next_number,
    push_arrival,
    push_event,
    remove_first,
    replay_all_games,
    schedule,
)
from syncline.sim.events.core.messages import (
    await_message,
    free_incoming_port,
    free_port,
    process_arrival,
    process_clear_to_send,
    process_departure,
    process_gloo_departure,
    queue_message,
    schedule_arrivals,
    start_late_message,
    take_route,
)

BY_RECV, BY_FIRST = 1, 2
"""Values of a message's field ``awaited_by``: the kind of instruction that waits for the message."""


@core_function("boolean")
def lacks_room(addresses):
    """Return whether the tables of events could be full before the next instruction or event ends."""
    core = views.core(addresses)
    return core.places + core.messages + codes.SPARE > core.heap_room


@core_function("boolean", "int64")
def send(addresses, stream_id):
    """Queue the message of a stream's `Send` on its port; return False if a message with its tag is under way."""
    core, stream = views.core(addresses), views.streams(addresses)[stream_id]
    operation = views.operations(addresses)[stream.operation]
    message = views.messages(addresses)[operation.number]
    if message.sent:  # the message before with this tag has not been received yet
        return False
    message.kind, message.sent, message.offered, message.arrived = codes.OF_PROGRAM, 1, 0, 0
    message.nbytes, message.port = operation.amount, operation.port
    take_route(addresses, operation.number, operation.route)
    message.operation, message.sender = stream.operation, stream.worker
    message.turn = core.num_sends
    core.num_sends += 1
    stream.operation += 1
    views.route_queues(addresses)[message.route].queued += 1
    queue_message(addresses, message.port, operation.number)
    return True


@core_function("boolean", "int64")
def receive(addresses, stream_id):
    """Complete a stream's `Recv` and return True if its message has arrived; else let the stream wait."""
    stream = views.streams(addresses)[stream_id]
    message_id = views.operations(addresses)[stream.operation].number
    message = views.messages(addresses)[message_id]
    message.reading_stream = stream_id
    if not message.sent:  # its sender has not come to it yet
        message.awaited_by = BY_RECV
        return False
    if not message.arrived:
        await_message(addresses, message_id, BY_RECV)
        return False
    message.sent = message.awaited_by = 0  # the record is free for the next message with this tag
    complete_instruction(addresses, stream_id, message.nbytes)
    return True


@core_function("void", "int64")
def set_mark(addresses, mark_id):
    """Set a mark of a stream's progress, and let the streams that wait for the mark go on."""
    mark = views.marks(addresses)[mark_id]
    mark.done = 1
    if mark.first_waiting:
        first_waiting, mark.first_waiting = mark.first_waiting, 0
        number = next_number(addresses)  # before the numbers of the events by which other streams go on
        stream_id = release_streams(addresses, first_waiting)
        push_event(addresses, views.core(addresses).now, codes.NORMAL, number, codes.GO_ON, stream_id, 0)


@core_function("boolean", "int64, int64")
def wait_for_part(addresses, stream_id, part_id):
    """Complete a stream's `Wait` and return True if its worker is done with the collective; else let it wait."""
    part = views.parts(addresses)[part_id]
    if part.state != codes.PART_DONE:
        # The stream becomes the first of the list; its streams are numbered from 1.
        views.streams(addresses)[stream_id].next_waiting, part.first_waiting = part.first_waiting, stream_id + 1
        return False
    complete_instruction(addresses, stream_id, 0.0)
    return True


@core_function("boolean", "int64, int64")
def wait_for_mark(addresses, stream_id, mark_id):
    """Let a stream pass a `StreamWait` and return True if its mark is set; else let it wait."""
    stream, mark = views.streams(addresses)[stream_id], views.marks(addresses)[mark_id]
    if not mark.done:
        stream.next_waiting, mark.first_waiting = mark.first_waiting, stream_id + 1
        return False
    stream.operation += 1
    return True


@core_function("int64", "int64")
def reason_to_stop(addresses, code):
    """Return the reason why a stream stops at an instruction with a code that compiled code does not run."""
    if code == codes.END:  # events of other streams go on
        return codes.IDLE
    if code == codes.FIRST:
        return codes.CHOICE
    if code == codes.AFTER_CHOICE:
        return codes.CHOSEN
    return codes.REFUSED


@core_function("int64", "int64")
def run_stream(addresses, stream_id):
    """Run a stream of a worker's program until it has to wait; return the reason if Python must act, else ``IDLE``."""
    core, stream, operations = views.core(addresses), views.streams(addresses)[stream_id], views.operations(addresses)
    if not core.keeps_start:  # otherwise the stream goes on with an instruction that has begun before
        stream.start = core.now
    core.keeps_start = 0
    core.stream = stream_id
    while core.effect < 0:
        if lacks_room(addresses):
            core.resume, core.keeps_start = stream_id, 1
            return codes.ROOM
        operation = operations[stream.operation]
        code = operation.code
        if code == codes.COMPUTE:
            if operation.effect:
                return codes.TIMER
            schedule(addresses, operation.amount, codes.COMPUTED, stream_id)
            return codes.IDLE
        if code == codes.SEND:
            if not send(addresses, stream_id):
                return codes.TWICE
        elif code == codes.RECV:
            if not receive(addresses, stream_id):
                return codes.IDLE
        elif code == codes.JOIN:
            reason = join_collective(addresses, stream.parts + operation.number)
            if reason == codes.ROOM:
                core.resume, core.keeps_start = stream_id, 1
            if reason != 0:
                return reason
            stream.operation += 1
        elif code == codes.WAIT:
            if not wait_for_part(addresses, stream_id, stream.parts + operation.number):
                return codes.IDLE
        elif code == codes.MARK:
            stream.operation += 1
            set_mark(addresses, operation.number)
        elif code == codes.WAIT_FOR_MARK:
            if not wait_for_mark(addresses, stream_id, operation.number):
                return codes.IDLE
        elif code == codes.JUMP:
            stream.operation = operation.number
        else:
            return reason_to_stop(addresses, code)
    core.resume = stream_id
    return codes.EFFECT


@core_function("void")
def take_over_changes(addresses):
    """Take over what Python has written since the last call: parts, late messages, choices, a completed instruction."""
    core = views.core(addresses)
    if not core.heap_is_built:  # at the first call, the queue of events has no order yet
        core.heap_is_built = 1
        replay_all_games(addresses)
    if core.known_parts < core.parts:
        list_new_parts(addresses)
    num_late = core.num_late
    core.num_late = 0
    for i in range(num_late):
        start_late_message(addresses, views.late(addresses)[i], views.late_s(addresses)[i])
    for i in range(core.num_awaited):
        await_message(addresses, views.awaited(addresses)[i], BY_FIRST)
    core.num_awaited = 0
    if core.compute_is_done:  # SimPy has timed the end of this instruction
        core.compute_is_done = 0
        complete_instruction(addresses, core.resume, 0.0)


@core_function("int64", "int64")
def drain_message(addresses, message_id):
    """End a message's flow; return the sending rank if it is done with its collective, or -1."""
    core, message = views.core(addresses), views.messages(addresses)[message_id]
    end_flow(addresses, message_id)
    if message.kind == codes.OF_PROGRAM:
        schedule_arrivals(addresses, message_id)
        record_span(addresses, message.sender, message.operation, message.start, message.nbytes)
        free_port(addresses, message.port)
        return -1
    arrival_s, sender = core.now + message.after_s, message.sender
    number = next_number(addresses)
    if message.kind == codes.OF_GLOO:  # with the queue of arrivals, rings of gloo took 1.2 to 1.3 times as long
        push_event(addresses, arrival_s, codes.NORMAL, number, codes.ARRIVED, message.receiver, message.turn)
        return sender if process_gloo_departure(addresses, message_id) else -1
    push_arrival(addresses, arrival_s, number, message.receiver, message.turn)
    core.freed_receiver = message.receiver + 1  # its incoming port is freed after this event
    return sender if process_departure(addresses, sender) else -1


@core_function("int64", "int64")
def deliver_message(addresses, message_id):
    """Hand a program's message to its receiver when it arrives; return the reason if Python must act."""
    core, message = views.core(addresses), views.messages(addresses)[message_id]
    message.arrived = 1
    if message.awaited_by == BY_RECV:
        message.sent = message.awaited_by = 0
        complete_instruction(addresses, message.reading_stream, message.nbytes)
        core.resume = message.reading_stream
    elif message.awaited_by == BY_FIRST:
        core.stream = message.receiver
        return codes.CHOICE
    return codes.IDLE


@core_function("int64", "int64, int64, int64")
def process_event(addresses, kind, subject, turn):
    """Process one event; return the reason if Python must act, else ``IDLE``.

    Args:
        kind: kind of the event, as in `syncline.sim.events.codes`.
        subject: number of the message, rank, stream, part or instance to which the event happens.
        turn: of an arrival, the number of the message in the order in which the rank takes its messages.
    """
    core, done_rank = views.core(addresses), -1  # a rank that is done with its collective
    if kind == codes.DRAINED:
        done_rank = drain_message(addresses, subject)
    elif kind == codes.ARRIVED:
        if process_arrival(addresses, subject, turn):
            done_rank = subject
    elif kind == codes.FLOW:
        begin_flow(addresses, subject, next_number(addresses))
    elif kind == codes.SETTLE:
        settle_rates(addresses)
    elif kind == codes.DELIVERED:
        return deliver_message(addresses, subject)
    elif kind == codes.GO_ON:
        core.resume = subject
    elif kind == codes.COMPUTED:
        complete_instruction(addresses, subject, 0.0)
        core.resume = subject
    elif kind == codes.ENTER:
        core.resume = enter_collective(addresses, subject)
    elif kind == codes.BEGIN:
        if begin_rounds(addresses, subject):
            done_rank = subject
    elif kind == codes.CLEARED:
        process_clear_to_send(addresses, views.messages(addresses)[subject].turn)
    elif kind == codes.DURATION_OVER:
        finish_all_ranks(addresses, subject)
    elif kind == codes.QUEUE:
        queue_message(addresses, views.messages(addresses)[subject].port, subject)
    if done_rank >= 0:
        core.resume = finish_rank(addresses, done_rank)
    return codes.IDLE


@entry
def run_core(addresses, until, until_key):
    """Run all events before SimPy's next event; return the reason for which Python must act.

    Args:
        until: time of SimPy's next event in seconds.
        until_key: key of this event, which orders the events of one instant.
    """
    core, messages = views.core(addresses), views.messages(addresses)
    heap, turns, arrivals = views.heap(addresses), views.turns(addresses), views.arrivals(addresses)
    take_over_changes(addresses)
    reason = codes.IDLE
    while reason == codes.IDLE:
        if core.effect >= 0:
            return codes.EFFECT
        stream_id = core.resume
        if stream_id >= 0:
            core.resume = -1
            reason = run_stream(addresses, stream_id)
            if reason != codes.IDLE:
                break
        if core.freed_receiver:  # one more than the number of the rank
            rank_id = core.freed_receiver - 1
            core.freed_receiver = 0
            free_incoming_port(addresses, rank_id)
        if core.num_late:
            return codes.LATE
        if core.reusable_place >= 0:
            remove_first(addresses)
        time, key, place, subject = heap[1].time, heap[1].key, heap[1].place, heap[1].subject
        arrival = arrivals[core.first_arrival & (core.arrival_room - 1)]
        is_queued = core.first_arrival < core.end_arrival and (
            arrival.time < time or (arrival.time == time and arrival.key < key)
        )
        if is_queued:
            time, key, subject = arrival.time, arrival.key, arrival.rank
        if time == np.inf or time > until or (time == until and key > until_key):
            break
        if lacks_room(addresses):
            return codes.ROOM
        if is_queued:
            turn = arrival.turn
            core.first_arrival += 1
            if core.levels >= MANY_LEVELS:
                fetch_for_queue(addresses)
        else:
            turn = turns[place]
            core.reusable_place = place
        kind = key & codes.KIND_MASK
        if kind == codes.DRAINED and not (messages[subject].is_scheduled and messages[subject].key == key):
            continue  # the message has drained, or will drain, at another time
        core.now = time
        reason = process_event(addresses, kind, subject, turn)
    return reason
