"""Messages: the common part of those of collectives, of programs and of gloo.

    queued on a port  ->  offered  ->  started  ->  its bytes flow  ->  drained  ->  arrived

A message is offered when it has the port, and starts when its receiver is ready as well; kinds of messages differ only
in this condition. It is drained when its last byte has left, which frees both ports.

A message arrives ``alpha`` after it has left. On a line that stays busy, a message that NCCL sends from one worker to
another arrives when as many messages behind it have left as `syncline.costmodel.network.nccl_costs.messages_ahead`
says, or when its route has none in the queue.

Python computes the lateness of a message. Until the event is over, or Python must do something else, such messages are
noted in the order in which they start, each with the number that its next event will have.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

from syncline.sim.events import codes
from syncline.sim.events.core import views
from syncline.sim.events.core.compiling import core_function
from syncline.sim.events.core.flows import carry
from syncline.sim.events.core.heap import number, push


@core_function("void", "int64")
def start(addresses, m):
    """Start a message whose ports are free."""
    core, message = views.core(addresses), views.messages(addresses)[m]
    turn = number(addresses)
    message.start = core.now
    if core.delays:
        message.key = turn
        views.late(addresses)[core.late] = m
        core.late += 1
        return
    route = views.routes(addresses)[message.route]
    message.after = route.after
    if route.before != 0.0:
        push(addresses, core.now + route.before, codes.NORMAL, turn, codes.FLOW, m, 0)
    else:
        carry(addresses, m, turn)


@core_function("void", "int64, float64")
def start_late(addresses, m, late_s):
    """Start a message that is late by ``late_s`` seconds."""
    core, message = views.core(addresses), views.messages(addresses)[m]
    route = views.routes(addresses)[message.route]
    turn, before = message.key, route.before
    nccl = message.kind == codes.OF_RANK and views.ranks(addresses)[message.sender].nccl
    if core.eager or message.kind == codes.OF_GLOO or nccl:
        message.after = route.after + late_s
    else:
        before, message.after = route.before + late_s, route.after
    if before != 0.0:
        push(addresses, core.now + before, codes.NORMAL, turn, codes.FLOW, m, 0)
    else:
        carry(addresses, m, turn)


@core_function("boolean", "int64")
def offer(addresses, m):
    """Give a message its port; return whether it has left at once."""
    core, message = views.core(addresses), views.messages(addresses)[m]
    if message.kind == codes.CLEAR_TO_SEND:  # without bytes, it takes no time to leave
        after = views.routes(addresses)[message.route].after
        push(addresses, core.now + after, codes.NORMAL, number(addresses), codes.CLEARED, m, 0)
        return True
    if message.kind != codes.OF_PROGRAM or core.eager or message.reader:
        start(addresses, m)
    else:
        message.offered = 1
    return False


@core_function("void", "int64")
def free(addresses, p):
    """Free a port whose message has left, and offer it to the next message."""
    port, messages = views.ports(addresses)[p], views.messages(addresses)
    while True:
        m = port.head
        if m < 0:
            port.busy = 0
            return
        port.head = messages[m].next
        if not offer(addresses, m):
            return


@core_function("void", "int64, int64")
def put(addresses, p, m):
    """Queue a message on a port."""
    port, messages = views.ports(addresses)[p], views.messages(addresses)
    if port.busy:
        messages[m].next = -1
        if port.head < 0:
            port.head = m
        else:
            messages[port.tail].next = m
        port.tail = m
        return
    port.busy = 1
    if offer(addresses, m):
        free(addresses, p)


@core_function("void", "int64, int64")
def ask_for(addresses, m, reader):
    """Note which instruction of the receiver waits for a message, and start the message if it is offered."""
    message = views.messages(addresses)[m]
    message.reader = reader
    if message.offered:
        message.offered = 0
        start(addresses, m)


@core_function("void", "int64")
def arrive(addresses, m):
    """Schedule the arrival of a program's message that has left, and of those before it that waited for it."""
    core, messages = views.core(addresses), views.messages(addresses)
    nbytes = messages[m].nbytes
    route = views.routes(addresses)[messages[m].route]
    route.queued -= 1
    if route.waiting:
        messages[route.last].next = m
        route.behind += nbytes
    else:
        route.first, route.behind = m, 0.0
    route.last = m
    route.waiting += 1
    while route.waiting and (
        not route.queued or route.waiting > core.ahead or route.behind + nbytes > core.ahead_bytes
    ):
        first = route.first
        push(addresses, core.now + messages[first].after, codes.NORMAL, number(addresses), codes.DELIVERED, first, 0)
        route.waiting -= 1
        if route.waiting:
            route.first = messages[first].next
            route.behind -= messages[route.first].nbytes
