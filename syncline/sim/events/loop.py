"""The loop of the event core: it runs events until Python must act.

Python must act when an instruction with an effect is done, when a program comes to a choice, when messages that may be
late start, when a table is full, and when the next event is SimPy's.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

import numpy as np

from syncline.sim.events import views
from syncline.sim.events.arrivals import arrive
from syncline.sim.events.collectives import (
    DONE,
    begin_rounds,
    complete,
    enter,
    finish,
    finish_all,
    join,
    number_parts,
    record,
    release,
)
from syncline.sim.events.compiled import core_function, entry
from syncline.sim.events.flows import carry, leave, settle
from syncline.sim.events.gloo import gloo_arrival, gloo_departure, process_clear_to_send
from syncline.sim.events.heap import KIND_MASK, NORMAL, close, compete_all, number, push
from syncline.sim.events.messages import ask_for, free, put, start_late
from syncline.sim.events.ranks import free_port_in, process_arrival, process_departure
from syncline.sim.events.state import (
    ARRIVED,
    BEGIN,
    CHOICE,
    CHOSEN,
    CLEARED,
    COMPUTE,
    COMPUTED,
    DELIVERED,
    DRAINED,
    EFFECT,
    END,
    ENTER,
    FIRST,
    FLOW,
    GO_ON,
    HOLD,
    IDLE,
    JOIN,
    JUMP,
    LATE,
    MARK,
    OF_PROGRAM,
    OF_RANK,
    QUEUE,
    RECV,
    REFUSED,
    ROOM,
    SEND,
    SETTLE,
    TAKEN,
    THEN,
    TIMER,
    TWICE,
    WAIT,
)

SPARE = 64
"""Number of places on the heap beyond one per message, which is more than one event takes."""

BY_RECV, BY_FIRST = 1, 2


@core_function("int64", "int64")
def go_on(addresses, w):
    """Run a stream of a worker's program until it has to wait; return the reason if Python must act."""
    core, worker = views.core(addresses), views.workers(addresses)[w]
    operations, messages, parts, marks = (
        views.operations(addresses), views.messages(addresses), views.parts(addresses), views.marks(addresses)
    )  # fmt: skip
    if not core.keeps_start:
        worker.start = core.now
    core.keeps_start = 0
    core.worker = w
    while True:
        if core.places + core.messages + SPARE > core.heap_room:
            core.resume, core.keeps_start = w, 1
            return ROOM
        current = worker.at
        operation = operations[current]
        code = operation.code
        if code == COMPUTE:
            if operation.effect:
                return TIMER
            push(addresses, core.now + operation.x, NORMAL, number(addresses), COMPUTED, w, 0)
            return IDLE
        if code == SEND:
            m = operation.a
            message = messages[m]
            if message.sent:
                return TWICE
            message.kind, message.sent, message.offered, message.arrived = OF_PROGRAM, 1, 0, 0
            message.nbytes, message.port, message.route = operation.x, operation.b, operation.c
            message.operation, message.sender = current, worker.of
            message.turn = core.sends
            core.sends += 1
            worker.at = current + 1
            views.routes(addresses)[message.route].queued += 1
            put(addresses, message.port, m)
        elif code == RECV:
            m = operation.a
            message = messages[m]
            message.reads = w
            if not message.sent:
                message.reader = BY_RECV
                return IDLE
            if not message.arrived:
                ask_for(addresses, m, BY_RECV)
                return IDLE
            message.sent = message.reader = 0
            complete(addresses, w, message.nbytes)
        elif code == JOIN:
            p = worker.parts + operation.a
            why = join(addresses, p)
            if why != 0:
                if why == ROOM:
                    core.resume, core.keeps_start = w, 1
                return why
            worker.at = current + 1
        elif code == WAIT:
            part = parts[worker.parts + operation.a]
            if part.state != DONE:
                worker.next, part.waits = part.waits, w + 1
                return IDLE
            complete(addresses, w, 0.0)
        elif code == MARK:
            mark = marks[operation.a]
            mark.done = 1
            worker.at = current + 1
            if mark.waits:
                waits, mark.waits = mark.waits, 0
                push(addresses, core.now, NORMAL, number(addresses), GO_ON, release(addresses, waits), 0)
        elif code == HOLD:
            mark = marks[operation.a]
            if not mark.done:
                worker.next, mark.waits = mark.waits, w + 1
                return IDLE
            worker.at = current + 1
        elif code == JUMP:
            worker.at = operation.a
        elif code == END:
            return IDLE
        elif code == FIRST:
            return CHOICE
        elif code == THEN:
            return CHOSEN
        else:
            return REFUSED
        if core.effect >= 0:
            core.resume = w
            return EFFECT


@entry("int64(int64, float64, int64)")
def run_core(addresses, until, until_key):
    """Run all events before SimPy's next event; return the reason if Python must act."""
    core, messages, ranks = views.core(addresses), views.messages(addresses), views.rank_table(addresses)
    heap, waits = views.heap(addresses), views.waits(addresses)
    if not core.played:
        core.played = 1
        compete_all(addresses)
    if core.known_parts < core.parts:
        number_parts(addresses)
    num_late = core.late
    core.late = 0
    for i in range(num_late):
        start_late(addresses, views.late(addresses)[i], views.late_s(addresses)[i])
    for i in range(core.ask):
        ask_for(addresses, views.asked(addresses)[i], BY_FIRST)
    core.ask = 0
    if core.completes:
        core.completes = 0
        complete(addresses, core.resume, 0.0)
    while True:
        if core.effect >= 0:
            return EFFECT
        w = core.resume
        if w >= 0:
            core.resume = -1
            why = go_on(addresses, w)
            if why != IDLE:
                return why
        if core.take:
            r = core.take - 1
            core.take = 0
            free_port_in(addresses, r)
        if core.late:
            return LATE
        if core.hole >= 0:
            close(addresses)
        time, key, place = heap[1].time, heap[1].key, heap[1].place
        if time == np.inf or time > until or (time == until and key > until_key):
            return IDLE
        if core.places + core.messages + SPARE > core.heap_room:
            return ROOM
        core.hole = place
        a, b = waits[place].a, waits[place].b
        kind = key & KIND_MASK
        if kind == DRAINED and not (messages[a].due and messages[a].key == key):
            continue  # it has drained, or will drain, at another time
        core.now = time
        r = -1  # the rank that is done with a collective
        if kind == DRAINED:
            message = messages[a]
            leave(addresses, a)
            after = time + message.after
            if message.kind == OF_PROGRAM:
                arrive(addresses, a)
                record(addresses, message.sender, message.operation, message.start, message.nbytes)
                free(addresses, message.port)
            else:
                sender = message.sender
                push(addresses, after, NORMAL, number(addresses), ARRIVED, message.receiver, message.turn)
                if message.kind == OF_RANK:
                    core.take = message.receiver + 1
                    if process_departure(addresses, sender):
                        r = sender
                elif gloo_departure(addresses, a):
                    r = sender
        elif kind == ARRIVED:
            if gloo_arrival(addresses, a, b) if ranks[a].gloo else process_arrival(addresses, a, b):
                r = a
        elif kind == FLOW:
            carry(addresses, a, number(addresses))
        elif kind == SETTLE:
            settle(addresses)
        elif kind == DELIVERED:
            message = messages[a]
            message.arrived = 1
            w = message.receiver
            if message.reader == BY_RECV:
                w = message.reads
                message.sent = message.reader = 0
                complete(addresses, w, message.nbytes)
                core.resume = w
            elif message.reader == BY_FIRST:
                core.worker = w
                return CHOICE
        elif kind == GO_ON:
            core.resume = a
        elif kind == COMPUTED:
            complete(addresses, a, 0.0)
            core.resume = a
        elif kind == ENTER:
            core.resume = enter(addresses, a)
        elif kind == BEGIN:
            if begin_rounds(addresses, a):
                r = a
        elif kind == CLEARED:
            process_clear_to_send(addresses, messages[a].turn)
        elif kind == TAKEN:
            finish_all(addresses, a)
        elif kind == QUEUE:
            put(addresses, messages[a].port, a)
        if r >= 0:
            core.resume = finish(addresses, r)
