"""Messages: the common part of those of collectives, of programs and of gloo.

    queued on a port  ->  offered  ->  started  ->  its bytes flow  ->  drained  ->  arrived

A message is offered when it has the port, and starts when its receiver is ready as well; kinds of messages differ only
in this condition. It is drained when its last byte has left, which frees both ports.

A message arrives ``alpha`` after it has left. On a line that stays busy, a message that NCCL sends from one worker to
another arrives when as many messages behind it have left as `syncline.costmodel.network.software_costs.messages_ahead`
says, or when its route has none in the queue.

Python computes the lateness of a message. Until the event is over, or Python must do something else, such messages are
noted in the order in which they start, each with the number that its next event will have.

Ranks: the part of each worker in a collective under way, by the eager and the rendezvous rule.

A worker has a port out, which serves one message at a time in the order of queueing, and a port in, which serves
messages in the order in which the worker's program receives them. A message starts when it has both ports. By the
rendezvous rule a worker comes to one round after another, which keeps the ports in order by itself.

A rank of NCCL is eager under either rule, and may be ``ahead`` messages ahead of those that have arrived, see
`syncline.sim.program.library_rounds`.

No other rank sends on a worker's stream while this rank is under way, so the rank has one message at its port out, and
the messages that wait behind it are a count: the plan says which ones they are.

Collectives of gloo, message by message: a message leaves only after its receiver has posted it.

A rank comes to a round after all its messages up to ``ahead`` rounds before have arrived, and in a ring after all its
sends up to then have left. It posts its receives of that round, each of which sends a clear-to-send to the sender, and
issues its sends. A message that is issued and clear to send queues on the connection of the two ranks, as the
clear-to-send did in the other direction. A connection carries one message at a time each way; connections share links
by max-min fairness, as many TCP connections do; no rank has a port. A direct exchange
(`syncline.sim.program.rounds`) is the same without clears-to-send.

Messages that a rank posts and issues at one instant queue in the order of its program: a round's clear-to-send comes
before its message in collectives that sum, and behind it in others. Messages that the rank had issued before, and that
become clear to send at that instant, go first. A route's overhead counts as latency, of messages and of clears-to-send.
The software's time (`GlooCosts`) is likewise per message and clear-to-send; its time per call and byte comes before a
rank's first round. `syncline.sim.program.library_rounds` says how far ahead each round is; here a plan's entry is one
round, and holds the number of messages that must have arrived and left before it.

Source: as `syncline.costmodel.collectives.gloo`.
"""

from __future__ import annotations

from syncline.sim.events import codes
from syncline.sim.events.core import views
from syncline.sim.events.core.compiling import core_function
from syncline.sim.events.core.flows import carry
from syncline.sim.events.core.heap import number, push

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"


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


@core_function("void", "int64")
def send_next(addresses, r):
    """Give the port out to the next queued message, if there is one."""
    ranks = views.ranks(addresses)
    rank = ranks[r]
    if not rank.queued:
        rank.busy = 0
        return
    entries = views.entries(addresses)
    rank.busy = 1
    rank.queued -= 1
    entry_number = rank.send_entry
    while not entries[entry_number].sends:
        entry_number += 1
    entry = entries[entry_number]
    sending = views.sendings(addresses)[entry.send0 + rank.send_place]
    turn = sending.turn + rank.send_turn * sending.stride
    rank.send_place += 1
    if rank.send_place == entry.sends:
        rank.send_place = 0
        rank.send_turn += 1
        if rank.send_turn == entry.times:
            rank.send_turn = 0
            entry_number += 1
    rank.send_entry = entry_number
    message = views.messages(addresses)[rank.message]
    receiver = rank.base + sending.to
    message.receiver, message.turn = receiver, turn
    message.nbytes, message.route = sending.nbytes, sending.route
    other = ranks[receiver]
    if turn < other.admitted:
        start(addresses, rank.message)
    else:
        views.slots(addresses)[other.place0 + turn] = rank.message + 1


@core_function("void", "int64")
def admit(addresses, r):
    """Let one more message to this rank start."""
    rank, slots = views.ranks(addresses)[r], views.slots(addresses)
    place = rank.place0 + rank.admitted
    rank.admitted += 1
    waits = slots[place]
    if waits > 0:
        slots[place] = 0
        start(addresses, waits - 1)


@core_function("boolean", "int64")
def advance(addresses, r):
    """Advance a rank until it has to wait; return whether it has nothing more to do."""
    core, rank, entries = views.core(addresses), views.ranks(addresses)[r], views.entries(addresses)
    ahead_of_all = core.eager or rank.nccl
    while rank.have + rank.ahead >= rank.need and (ahead_of_all or not rank.unsent):
        entry_number = rank.entry
        if entry_number == rank.end:
            return not rank.unsent and rank.have >= rank.need
        entry = entries[entry_number]
        rank.turn += 1
        if rank.turn == entry.times:
            rank.entry, rank.turn = entry_number + 1, 0
        rank.need += entry.receives
        if entry.sends:
            rank.unsent += entry.sends
            rank.queued += entry.sends
            if not rank.busy:
                send_next(addresses, r)
        if not ahead_of_all:
            for _ in range(entry.receives):
                admit(addresses, r)
    return False


@core_function("void", "int64")
def serve(addresses, p):
    """Give a free port in to the next collective of its worker, if that is known."""
    parts, port = views.parts(addresses), views.ports(addresses)[p]
    while port.serving >= 0 and parts[port.serving].rank >= 0:
        part = parts[port.serving]
        if part.receives:
            admit(addresses, part.rank)
            return
        port.serving = part.next_number


@core_function("void", "int64")
def free_port_in(addresses, r):
    """Free the port in of a rank, because the bytes of a message to it are through."""
    rank = views.ranks(addresses)[r]
    if (views.core(addresses).eager or rank.nccl) and not rank.gloo:
        if rank.admitted < rank.receives:
            admit(addresses, r)
        else:
            part = views.parts(addresses)[rank.part]
            views.ports(addresses)[part.port].serving = part.next_number
            serve(addresses, part.port)


@core_function("boolean", "int64")
def process_departure(addresses, r):
    """Handle the event that a message has left its sender r; return whether rank r has nothing more to do."""
    rank = views.ranks(addresses)[r]
    rank.unsent -= 1
    send_next(addresses, r)
    return not rank.unsent and rank.have + rank.ahead >= rank.need and advance(addresses, r)


@core_function("boolean", "int64, int64")
def note_arrival(addresses, r, turn):
    """Record that a message to rank r has arrived; return whether all earlier messages to it have arrived, too.

    Args:
        addresses: addresses of the tables of the simulation.
        r: the receiving rank.
        turn: number of the message in the order in which rank r takes its messages, from 0.
    """
    rank = views.ranks(addresses)[r]
    if turn != rank.have:
        views.slots(addresses)[rank.place0 + turn] = -1
        rank.early += 1
        return False
    rank.have = turn + 1
    if rank.early:
        slots = views.slots(addresses)
        while rank.early and slots[rank.place0 + rank.have] == -1:
            slots[rank.place0 + rank.have] = 0
            rank.have += 1
            rank.early -= 1
    return True


@core_function("boolean", "int64, int64")
def process_arrival(addresses, r, turn):
    """Handle the event that message ``turn`` has arrived at rank r; return whether rank r has nothing more to do."""
    rank = views.ranks(addresses)[r]
    return note_arrival(addresses, r, turn) and rank.have + rank.ahead >= rank.need and advance(addresses, r)


ISSUED, CLEAR = 1, 2
POSTS_FIRST, PUSHES = 1, 3


@core_function("void", "int64")
def queue_last(addresses, m):
    """Queue a message in the order of the program, after all else of this instant."""
    push(addresses, views.core(addresses).now, codes.AFTER_ALL, number(addresses), codes.QUEUE, m, 0)


@core_function("void", "int64, int64")
def post(addresses, r, entry_number):
    """Send a clear-to-send to the sender of each message of a round."""
    entry = views.entries(addresses)[entry_number]
    rank, sources, messages = views.ranks(addresses)[r], views.sources(addresses), views.messages(addresses)
    instance = views.instances(addresses)[rank.instance]
    plan = views.plans(addresses)[instance.kind]
    place = views.places(addresses)[plan.rank0 + r - rank.base]
    for turn in range(rank.admitted, rank.admitted + entry.receives):
        m = instance.message0 + plan.total + place.place0 + turn
        message = messages[m]
        connection = sources[place.from0 + turn]
        message.kind, message.turn = codes.CLEAR_TO_SEND, instance.message0 + place.place0 + turn
        message.route, message.port = plan.route0 + connection, instance.port0 + connection
        queue_last(addresses, m)
    rank.admitted += entry.receives


@core_function("void", "int64, int64")
def issue(addresses, r, entry_number):
    """Issue a round's sends; messages that are clear to send queue at once."""
    entry = views.entries(addresses)[entry_number]
    rank, ranks, messages = views.ranks(addresses)[r], views.ranks(addresses), views.messages(addresses)
    instance = views.instances(addresses)[rank.instance]
    plan = views.plans(addresses)[instance.kind]
    for s in range(entry.send0, entry.send0 + entry.sends):
        sending = views.sendings(addresses)[s]
        receiver = rank.base + sending.to
        m = instance.message0 + ranks[receiver].place0 - instance.place0 + sending.turn
        message = messages[m]
        message.kind, message.sender, message.receiver, message.turn = codes.OF_GLOO, r, receiver, sending.turn
        message.nbytes, message.route = sending.nbytes, sending.route
        message.port = instance.port0 + sending.route - plan.route0
        message.start = views.core(addresses).now
        rank.issues += 1
        if message.sent == CLEAR or plan.gloo == PUSHES:
            message.sent = 0
            queue_last(addresses, m)
        else:
            message.sent = ISSUED


@core_function("boolean", "int64")
def gloo_advance(addresses, r):
    """Advance a rank until it has to wait; return whether it has nothing more to do."""
    rank, entries = views.ranks(addresses)[r], views.entries(addresses)
    plan = views.plans(addresses)[views.instances(addresses)[rank.instance].kind]
    while rank.need == 0 and rank.entry < rank.end:
        entry_number = rank.entry
        entry = entries[entry_number]
        if rank.have < entry.have or rank.sent < entry.sent:
            break
        rank.entry = entry_number + 1
        if plan.gloo == PUSHES:
            issue(addresses, r, entry_number)
        elif plan.gloo == POSTS_FIRST:
            post(addresses, r, entry_number)
            issue(addresses, r, entry_number)
        else:
            issue(addresses, r, entry_number)
            post(addresses, r, entry_number)
    if rank.need == 0 and rank.entry == rank.end and rank.have == rank.receives and rank.sent == rank.issues:
        rank.need = 1  # the rank has finished
        return True
    return False


@core_function("void", "int64")
def process_clear_to_send(addresses, m):
    """Process that a message is clear to send."""
    message = views.messages(addresses)[m]
    if message.sent != ISSUED:
        message.sent = CLEAR
        return
    message.sent = 0
    if message.start < views.core(addresses).now:
        put(addresses, message.port, m)
    else:
        queue_last(addresses, m)


@core_function("boolean", "int64")
def gloo_departure(addresses, m):
    """Process that a rank's message has left; return whether the rank has nothing more to do."""
    message = views.messages(addresses)[m]
    views.ranks(addresses)[message.sender].sent += 1
    free(addresses, message.port)
    return gloo_advance(addresses, message.sender)


@core_function("boolean", "int64, int64")
def gloo_arrival(addresses, r, turn):
    """Process that a message to a rank has arrived; return whether the rank has nothing more to do."""
    note_arrival(addresses, r, turn)
    return gloo_advance(addresses, r)
