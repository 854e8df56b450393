"""Messages: the state machine that all kinds share, and when the messages of a collective's ranks are sent.

    queued on a port  ->  offered  ->  started  ->  its bytes flow  ->  drained  ->  arrived

A message is offered when it has the port, and starts when its receiver is ready as well; kinds of messages differ only
in this condition. It is drained when its last byte has left, which frees both ports. It arrives ``alpha`` later. On a
line that stays busy, a message that NCCL sends from one worker to another arrives when as many messages behind it have
left as `syncline.costmodel.network.software_costs.messages_ahead` says, or when its route has none in the queue.

Python computes the lateness of messages after the event in which they start. Until then they are noted in the order in
which they start, each with the number that its next event will have.

**Ranks by the eager and the rendezvous rule.** A worker has an outgoing port, which serves one message at a time in the
order of queueing, and an incoming port, which serves messages in the order in which the worker's program receives them.
A message starts when it has both ports. By the rendezvous rule a worker comes to one round after another, which keeps
the ports in order. A rank of NCCL is eager under either rule, and may be ``ahead`` messages ahead of those that have
arrived, see `syncline.sim.program.library_rounds`. No other rank sends on a worker's stream meanwhile. So a rank has
one message at its outgoing port, and counts those that wait behind it; the plan says which they are.

**Ranks of gloo.** A message leaves only after its receiver has posted it. A rank comes to a round after all its
messages up to ``ahead`` rounds before have arrived, and in a ring after all its sends up to then have left. It posts
its receives of that round, and issues its sends. Each post sends a clear-to-send to the sender. A message that is
issued and clear to send queues on the connection of the two ranks, as the clear-to-send did in the other direction. A
connection carries one message at a time each way. Connections share links by max-min fairness, as TCP connections do.
No rank has a port. A direct exchange (`syncline.sim.program.rounds`) is the same without clears-to-send.

Messages that a rank of gloo posts and issues at one instant queue in the order of its program: a round's clear-to-send
comes before its message in collectives that sum, and behind it in others. Messages that the rank had issued before, and
that become clear to send at that instant, go first. The latency of messages and of clears-to-send contains the route's
overhead and the software's time per message (`GlooCosts`). Its time per call and byte comes before a rank's first
round. Here a plan's entry is one round, and holds the numbers of messages that must have arrived and left before it.

Source: as `syncline.costmodel.collectives.gloo`.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

from syncline.sim.events import codes
from syncline.sim.events.core import views
from syncline.sim.events.core.compiling import core_function
from syncline.sim.events.core.flows import begin_flow
from syncline.sim.events.core.heap import next_number, push_event, schedule

ISSUED, CLEAR = 1, 2
"""Values of a message's field ``gloo_state``: its sender has issued it, or its receiver has posted it."""

POSTS_FIRST, PUSHES = 1, 3
"""Values of a plan's field ``gloo``: receives are posted before sends are issued, or messages need no clear-to-send."""


@core_function("void", "int64, int64, float64")
def begin_flow_after(addresses, message_id, number, delay_s):
    """Begin the flow of a message's bytes in ``delay_s`` seconds, by the event ``number``; at once without a delay."""
    if delay_s != 0.0:
        begin_s = views.core(addresses).now + delay_s
        push_event(addresses, begin_s, codes.NORMAL, number, codes.FLOW, message_id, 0)
    else:
        begin_flow(addresses, message_id, number)


@core_function("void", "int64, int64")
def take_route(addresses, message_id, route_id):
    """Let a message take a route: copy the times, rate and channels of the route into the message's records."""
    message, route = views.messages(addresses)[message_id], views.routes(addresses)[route_id]
    hops, links, shift = views.hops(addresses), views.links(addresses), views.core(addresses).shift
    message.route, message.hops = route_id, route.hops
    message.before_s, message.after_s, message.rate = route.before_s, route.after_s, route.rate
    for hop in range(route.hops):
        links[(message_id << shift) + hop].channel = hops[route.hop0 + hop]


@core_function("void", "int64")
def start_message(addresses, message_id):
    """Start a message whose ports are free, or note it for Python if Python has to compute its lateness first."""
    core, message = views.core(addresses), views.messages(addresses)[message_id]
    number = next_number(addresses)
    message.start = core.now
    if core.delays:  # Python adds a delay to each message
        message.key = number
        views.late(addresses)[core.num_late] = message_id
        core.num_late += 1
        return
    begin_flow_after(addresses, message_id, number, message.before_s)


@core_function("void", "int64, float64")
def start_late_message(addresses, message_id, late_s):
    """Start a message ``late_s`` seconds late, before or after its flow: where the rule has the message's latency."""
    core, message = views.core(addresses), views.messages(addresses)[message_id]
    before_s = message.before_s
    is_nccl = message.kind == codes.OF_RANK and views.ranks(addresses)[message.sender].nccl
    if core.eager or message.kind == codes.OF_GLOO or is_nccl:
        message.after_s += late_s
    else:
        before_s += late_s
    begin_flow_after(addresses, message_id, message.key, before_s)


@core_function("boolean", "int64")
def offer_message(addresses, message_id):
    """Give a message the port for which it queued; return whether the port is free again, since it has left at once.

    By the rendezvous rule, a message of a program starts only when its receiver reads it, too.
    """
    core, message = views.core(addresses), views.messages(addresses)[message_id]
    if message.kind == codes.CLEAR_TO_SEND:  # without bytes, it takes no time to leave
        schedule(addresses, message.after_s, codes.CLEARED, message_id)
        return True
    if message.kind != codes.OF_PROGRAM or core.eager or message.awaited_by:
        start_message(addresses, message_id)
    else:
        message.offered = 1
    return False


@core_function("void", "int64")
def free_port(addresses, port_id):
    """Free a port whose message has left, and offer the port to the next message in its queue."""
    port, messages = views.ports(addresses)[port_id], views.messages(addresses)
    while True:
        message_id = port.head
        if message_id < 0:
            port.busy = 0
            return
        port.head = messages[message_id].next
        if not offer_message(addresses, message_id):
            return


@core_function("void", "int64, int64")
def queue_message(addresses, port_id, message_id):
    """Queue a message on a port; a free port takes the message at once."""
    port, messages = views.ports(addresses)[port_id], views.messages(addresses)
    if port.busy:
        messages[message_id].next = -1
        if port.head < 0:
            port.head = message_id
        else:
            messages[port.tail].next = message_id
        port.tail = message_id
        return
    port.busy = 1
    if offer_message(addresses, message_id):
        free_port(addresses, port_id)


@core_function("void", "int64, int64")
def await_message(addresses, message_id, awaited_by):
    """Note which instruction waits for a message, and start the message if it has its port."""
    message = views.messages(addresses)[message_id]
    message.awaited_by = awaited_by
    if message.offered:
        message.offered = 0
        start_message(addresses, message_id)


@core_function("void", "int64")
def schedule_arrivals(addresses, message_id):
    """Schedule the arrivals that are certain now because a program's message has left.

    On a line that stays busy, a message waits on its route until NCCL's buffers are full of the messages behind it,
    which hold ``ahead`` messages or ``ahead_bytes`` bytes, or until no more messages are queued for the route.
    """
    core, messages = views.core(addresses), views.messages(addresses)
    nbytes = messages[message_id].nbytes
    queue = views.route_queues(addresses)[messages[message_id].route]
    queue.queued -= 1
    if queue.waiting:
        messages[queue.last].next = message_id
        queue.bytes_behind += nbytes
    else:
        queue.first, queue.bytes_behind = message_id, 0.0
    queue.last = message_id
    queue.waiting += 1
    while queue.waiting and (
        not queue.queued or queue.waiting > core.ahead or queue.bytes_behind + nbytes > core.ahead_bytes
    ):
        first = queue.first
        schedule(addresses, messages[first].after_s, codes.DELIVERED, first)
        queue.waiting -= 1
        if queue.waiting:
            queue.first = messages[first].next
            queue.bytes_behind -= messages[queue.first].nbytes


# Ranks by the eager and the rendezvous rule.


@core_function("void", "int64")
def send_next(addresses, rank_id):
    """Send a rank's next queued message, or free its outgoing port if there is none."""
    ranks = views.ranks(addresses)
    rank = ranks[rank_id]
    if not rank.queued:
        rank.busy = 0
        return
    entries = views.entries(addresses)
    rank.busy = 1
    rank.queued -= 1
    # Find the next message in the plan: the rank's next entry (a run of equal rounds) that sends, and its repetition.
    entry_number = rank.send_entry
    while not entries[entry_number].sends:
        entry_number += 1
    entry, sending = entries[entry_number], views.sendings(addresses)[rank.sending]
    turn = sending.turn + rank.send_repetition * sending.stride
    rank.sending += 1  # after an entry's last sending comes the first one of the next entry
    if rank.sending == entry.send0 + entry.sends:
        rank.send_repetition += 1
        if rank.send_repetition == entry.times:
            rank.send_repetition = 0
            entry_number += 1
        else:
            rank.sending = entry.send0
    rank.send_entry = entry_number
    message = views.messages(addresses)[rank.message]
    receiver = rank.rank0 + sending.to
    message.receiver, message.turn = receiver, turn
    message.nbytes = sending.nbytes
    take_route(addresses, rank.message, sending.route)
    receiving_rank = ranks[receiver]
    if turn < receiving_rank.admitted:
        start_message(addresses, rank.message)
    else:  # the message waits until the receiver's incoming port is free
        views.slots(addresses)[receiving_rank.slot0 + turn] = rank.message + 1


@core_function("void", "int64")
def admit_message(addresses, rank_id):
    """Let one more message to a rank start, on the worker's free incoming port."""
    rank, slots = views.ranks(addresses)[rank_id], views.slots(addresses)
    place = rank.slot0 + rank.admitted
    rank.admitted += 1
    waiting = slots[place]  # one more than the number of the message; 0 if the message has not come yet
    if waiting > 0:
        slots[place] = 0
        start_message(addresses, waiting - 1)


@core_function("boolean", "int64")
def advance_rank(addresses, rank_id):
    """Advance a rank from round to round until it has to wait; return whether the rank is done with its collective.

    A rank comes to a round when it has received the messages of the rounds before; a rank of NCCL may lack the last
    ``ahead`` of these messages. By the rendezvous rule, the rank's own messages must have left as well.
    """
    core, rank, entries = views.core(addresses), views.ranks(addresses)[rank_id], views.entries(addresses)
    is_eager = core.eager or rank.nccl
    while rank.received + rank.ahead >= rank.needed and (is_eager or not rank.unsent):
        entry_number = rank.entry
        if entry_number == rank.end:
            return not rank.unsent and rank.received >= rank.needed
        entry = entries[entry_number]
        rank.repetition += 1
        if rank.repetition == entry.times:
            rank.entry, rank.repetition = entry_number + 1, 0
        rank.needed += entry.receives  # before the rank comes to the round after this one
        if entry.sends:
            rank.unsent += entry.sends
            rank.queued += entry.sends
            if not rank.busy:
                send_next(addresses, rank_id)
        if not is_eager:
            for _ in range(entry.receives):
                admit_message(addresses, rank_id)
    return False


@core_function("void", "int64")
def serve_next_part(addresses, port_id):
    """Let a free incoming port serve the next collective of the worker's program that has begun and sends to it."""
    parts, port = views.parts(addresses), views.ports(addresses)[port_id]
    while port.serving >= 0 and parts[port.serving].rank >= 0:
        part = parts[port.serving]
        if part.receives:
            admit_message(addresses, part.rank)
            return
        port.serving = part.next_on_port


@core_function("void", "int64")
def free_incoming_port(addresses, rank_id):
    """Free a worker's incoming port after a message has drained, so that the next message may start.

    By the rendezvous rule and in gloo, incoming ports do not admit messages.
    """
    rank = views.ranks(addresses)[rank_id]
    is_eager = views.core(addresses).eager or rank.nccl
    if rank.gloo or not is_eager:
        return
    if rank.admitted < rank.receives:
        admit_message(addresses, rank_id)
    else:  # no message to this rank is left, so the port serves the worker's next collective
        part = views.parts(addresses)[rank.part]
        views.ports(addresses)[part.port].serving = part.next_on_port
        serve_next_part(addresses, part.port)


@core_function("boolean", "int64")
def process_departure(addresses, rank_id):
    """Process that a rank's message has left; return whether the rank is done with its collective."""
    rank = views.ranks(addresses)[rank_id]
    rank.unsent -= 1
    send_next(addresses, rank_id)
    if rank.unsent or rank.received + rank.ahead < rank.needed:
        return False
    return advance_rank(addresses, rank_id)


@core_function("boolean", "int64, int64")
def note_arrival(addresses, rank_id, turn):
    """Record that a message has arrived at a rank; return whether all earlier messages to the rank have arrived, too.

    ``turn`` is the number of the message in the order in which the rank takes its messages, from 0.
    """
    rank = views.ranks(addresses)[rank_id]
    if turn != rank.received:
        views.slots(addresses)[rank.slot0 + turn] = -1  # it has arrived before its turn
        rank.received_early += 1
        return False
    rank.received = turn + 1
    if rank.received_early:
        slots = views.slots(addresses)
        while rank.received_early and slots[rank.slot0 + rank.received] == -1:
            slots[rank.slot0 + rank.received] = 0
            rank.received += 1
            rank.received_early -= 1
    return True


# Ranks of gloo.


@core_function("void", "int64")
def queue_at_end_of_instant(addresses, message_id):
    """Queue a message on its connection after all else of this instant, so that messages queue in program order."""
    now, number = views.core(addresses).now, next_number(addresses)
    push_event(addresses, now, codes.AFTER_ALL, number, codes.QUEUE, message_id, 0)


@core_function("void", "int64, int64")
def post_receives(addresses, rank_id, entry_number):
    """Post a gloo rank's receives of a round: send a clear-to-send to the sender of each message."""
    entry = views.entries(addresses)[entry_number]
    rank, sources, messages = views.ranks(addresses)[rank_id], views.sources(addresses), views.messages(addresses)
    instance = views.instances(addresses)[rank.instance]
    plan = views.plans(addresses)[instance.kind]
    place = views.places(addresses)[plan.rank0 + rank_id - rank.rank0]
    # The clears-to-send are behind the instance's messages, in the same order: by receiving rank, then by turn.
    for turn in range(rank.admitted, rank.admitted + entry.receives):
        message_id = instance.message0 + plan.num_messages + place.slot0 + turn
        message = messages[message_id]
        connection = sources[place.source0 + turn]
        message.kind, message.turn = codes.CLEAR_TO_SEND, instance.message0 + place.slot0 + turn
        message.port = instance.port0 + connection
        message.after_s = views.routes(addresses)[plan.route0 + connection].after_s  # no bytes flow before this time
        queue_at_end_of_instant(addresses, message_id)
    rank.admitted += entry.receives


@core_function("void", "int64, int64")
def issue_sends(addresses, rank_id, entry_number):
    """Issue a gloo rank's sends of a round; messages that are clear to send queue at once."""
    entry = views.entries(addresses)[entry_number]
    rank, ranks, messages = views.ranks(addresses)[rank_id], views.ranks(addresses), views.messages(addresses)
    instance = views.instances(addresses)[rank.instance]
    plan = views.plans(addresses)[instance.kind]
    for s in range(entry.send0, entry.send0 + entry.sends):
        sending = views.sendings(addresses)[s]
        receiver = rank.rank0 + sending.to
        message_id = instance.message0 + ranks[receiver].slot0 - instance.slot0 + sending.turn
        message = messages[message_id]
        message.kind, message.sender, message.receiver, message.turn = codes.OF_GLOO, rank_id, receiver, sending.turn
        message.nbytes = sending.nbytes
        take_route(addresses, message_id, sending.route)
        message.port = instance.port0 + sending.route - plan.route0
        message.start = views.core(addresses).now
        rank.issued += 1
        if message.gloo_state == CLEAR or plan.gloo == PUSHES:  # waits for nothing
            message.gloo_state = 0
            queue_at_end_of_instant(addresses, message_id)
        else:
            message.gloo_state = ISSUED


@core_function("boolean", "int64")
def advance_gloo_rank(addresses, rank_id):
    """Advance a rank of gloo from round to round until it has to wait; return whether it is done with its collective.

    Each entry of the plan is a round. The field ``needed`` is 0 from the rank's first round to the end of its last.
    """
    rank, entries = views.ranks(addresses)[rank_id], views.entries(addresses)
    plan = views.plans(addresses)[views.instances(addresses)[rank.instance].kind]
    while rank.needed == 0 and rank.entry < rank.end:
        entry_number = rank.entry
        entry = entries[entry_number]
        if rank.received < entry.needs_received or rank.departed < entry.needs_departed:
            break
        rank.entry = entry_number + 1
        if plan.gloo == PUSHES:
            issue_sends(addresses, rank_id, entry_number)
        elif plan.gloo == POSTS_FIRST:
            post_receives(addresses, rank_id, entry_number)
            issue_sends(addresses, rank_id, entry_number)
        else:
            issue_sends(addresses, rank_id, entry_number)
            post_receives(addresses, rank_id, entry_number)
    if rank.needed == 0 and rank.entry == rank.end and rank.received == rank.receives and rank.departed == rank.issued:
        rank.needed = 1  # the rank has finished, and later calls return False
        return True
    return False


@core_function("void", "int64")
def process_clear_to_send(addresses, message_id):
    """Process that a message is clear to send: queue it if its sender has issued it."""
    message = views.messages(addresses)[message_id]
    if message.gloo_state != ISSUED:
        message.gloo_state = CLEAR
        return
    message.gloo_state = 0
    if message.start < views.core(addresses).now:  # issued before this instant, so it goes first, see the module
        queue_message(addresses, message.port, message_id)
    else:
        queue_at_end_of_instant(addresses, message_id)


@core_function("boolean", "int64")
def process_gloo_departure(addresses, message_id):
    """Process that a message of gloo has left; return whether its sender is done with the collective."""
    message = views.messages(addresses)[message_id]
    views.ranks(addresses)[message.sender].departed += 1
    free_port(addresses, message.port)
    return advance_gloo_rank(addresses, message.sender)


@core_function("boolean", "int64, int64")
def process_arrival(addresses, rank_id, turn):
    """Process the arrival of a message at a rank; return whether the rank is done with its collective."""
    rank, is_in_order = views.ranks(addresses)[rank_id], note_arrival(addresses, rank_id, turn)
    if rank.gloo:
        return advance_gloo_rank(addresses, rank_id)
    if not is_in_order or rank.received + rank.ahead < rank.needed:
        return False
    return advance_rank(addresses, rank_id)
