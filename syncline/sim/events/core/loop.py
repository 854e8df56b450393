"""The loop of the event core: it runs events until Python must act.

Python must act when an instruction with an effect is done, when a program comes to a choice, when messages that may be
late start, when a table is full, and when the next event is SimPy's.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

import numpy as np

from syncline.sim.events import codes
from syncline.sim.events.core import views
from syncline.sim.events.core.collectives import (
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
from syncline.sim.events.core.compiling import core_function, entry
from syncline.sim.events.core.flows import carry, leave, settle
from syncline.sim.events.core.heap import close, compete_all, number, push
from syncline.sim.events.core.messages import (
    arrive,
    ask_for,
    free,
    free_port_in,
    gloo_arrival,
    gloo_departure,
    process_arrival,
    process_clear_to_send,
    process_departure,
    put,
    start_late,
)

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
        if core.places + core.messages + codes.SPARE > core.heap_room:
            core.resume, core.keeps_start = w, 1
            return codes.ROOM
        current = worker.operation
        operation = operations[current]
        code = operation.code
        if code == codes.COMPUTE:
            if operation.effect:
                return codes.TIMER
            push(addresses, core.now + operation.x, codes.NORMAL, number(addresses), codes.COMPUTED, w, 0)
            return codes.IDLE
        if code == codes.SEND:
            m = operation.a
            message = messages[m]
            if message.sent:
                return codes.TWICE
            message.kind, message.sent, message.offered, message.arrived = codes.OF_PROGRAM, 1, 0, 0
            message.nbytes, message.port, message.route = operation.x, operation.b, operation.c
            message.operation, message.sender = current, worker.worker
            message.turn = core.sends
            core.sends += 1
            worker.operation = current + 1
            views.routes(addresses)[message.route].queued += 1
            put(addresses, message.port, m)
        elif code == codes.RECV:
            m = operation.a
            message = messages[m]
            message.reads = w
            if not message.sent:
                message.reader = BY_RECV
                return codes.IDLE
            if not message.arrived:
                ask_for(addresses, m, BY_RECV)
                return codes.IDLE
            message.sent = message.reader = 0
            complete(addresses, w, message.nbytes)
        elif code == codes.JOIN:
            p = worker.parts + operation.a
            why = join(addresses, p)
            if why != 0:
                if why == codes.ROOM:
                    core.resume, core.keeps_start = w, 1
                return why
            worker.operation = current + 1
        elif code == codes.WAIT:
            part = parts[worker.parts + operation.a]
            if part.state != DONE:
                worker.next, part.waits = part.waits, w + 1
                return codes.IDLE
            complete(addresses, w, 0.0)
        elif code == codes.MARK:
            mark = marks[operation.a]
            mark.done = 1
            worker.operation = current + 1
            if mark.waits:
                waits, mark.waits = mark.waits, 0
                push(addresses, core.now, codes.NORMAL, number(addresses), codes.GO_ON, release(addresses, waits), 0)
        elif code == codes.HOLD:
            mark = marks[operation.a]
            if not mark.done:
                worker.next, mark.waits = mark.waits, w + 1
                return codes.IDLE
            worker.operation = current + 1
        elif code == codes.JUMP:
            worker.operation = operation.a
        elif code == codes.END:
            return codes.IDLE
        elif code == codes.FIRST:
            return codes.CHOICE
        elif code == codes.THEN:
            return codes.CHOSEN
        else:
            return codes.REFUSED
        if core.effect >= 0:
            core.resume = w
            return codes.EFFECT


@entry
def run_core(addresses, until, until_key):
    """Run all events before SimPy's next event; return the reason if Python must act."""
    core, messages, ranks = views.core(addresses), views.messages(addresses), views.ranks(addresses)
    heap, waits = views.heap(addresses), views.waits(addresses)
    if not core.built:
        core.built = 1
        compete_all(addresses)
    if core.known_parts < core.parts:
        number_parts(addresses)
    num_late = core.late
    core.late = 0
    for i in range(num_late):
        start_late(addresses, views.late(addresses)[i], views.late_s(addresses)[i])
    for i in range(core.asked):
        ask_for(addresses, views.asked(addresses)[i], BY_FIRST)
    core.asked = 0
    if core.completes:
        core.completes = 0
        complete(addresses, core.resume, 0.0)
    while True:
        if core.effect >= 0:
            return codes.EFFECT
        w = core.resume
        if w >= 0:
            core.resume = -1
            why = go_on(addresses, w)
            if why != codes.IDLE:
                return why
        if core.freed:
            r = core.freed - 1
            core.freed = 0
            free_port_in(addresses, r)
        if core.late:
            return codes.LATE
        if core.hole >= 0:
            close(addresses)
        time, key, place = heap[1].time, heap[1].key, heap[1].place
        if time == np.inf or time > until or (time == until and key > until_key):
            return codes.IDLE
        if core.places + core.messages + codes.SPARE > core.heap_room:
            return codes.ROOM
        core.hole = place
        a, b = waits[place].a, waits[place].b
        kind = key & codes.KIND_MASK
        if kind == codes.DRAINED and not (messages[a].due and messages[a].key == key):
            continue  # it has drained, or will drain, at another time
        core.now = time
        r = -1  # the rank that is done with a collective
        if kind == codes.DRAINED:
            message = messages[a]
            leave(addresses, a)
            if message.kind == codes.OF_PROGRAM:
                arrive(addresses, a)
                record(addresses, message.sender, message.operation, message.start, message.nbytes)
                free(addresses, message.port)
            else:
                sender = message.sender
                push(
                    addresses,
                    time + message.after,
                    codes.NORMAL,
                    number(addresses),
                    codes.ARRIVED,
                    message.receiver,
                    message.turn,
                )
                if message.kind == codes.OF_RANK:
                    core.freed = message.receiver + 1
                    if process_departure(addresses, sender):
                        r = sender
                elif gloo_departure(addresses, a):
                    r = sender
        elif kind == codes.ARRIVED:
            if gloo_arrival(addresses, a, b) if ranks[a].gloo else process_arrival(addresses, a, b):
                r = a
        elif kind == codes.FLOW:
            carry(addresses, a, number(addresses))
        elif kind == codes.SETTLE:
            settle(addresses)
        elif kind == codes.DELIVERED:
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
                return codes.CHOICE
        elif kind == codes.GO_ON:
            core.resume = a
        elif kind == codes.COMPUTED:
            complete(addresses, a, 0.0)
            core.resume = a
        elif kind == codes.ENTER:
            core.resume = enter(addresses, a)
        elif kind == codes.BEGIN:
            if begin_rounds(addresses, a):
                r = a
        elif kind == codes.CLEARED:
            process_clear_to_send(addresses, messages[a].turn)
        elif kind == codes.TAKEN:
            finish_all(addresses, a)
        elif kind == codes.QUEUE:
            put(addresses, messages[a].port, a)
        if r >= 0:
            core.resume = finish(addresses, r)
