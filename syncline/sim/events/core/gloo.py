"""Collectives of gloo, message by message: a message leaves only after its receiver has posted it.

A rank comes to a round after all its messages up to ``ahead`` rounds before have arrived, and in a ring after all its
sends up to then have left. It posts its receives of that round, each of which sends a clear-to-send to the sender, and
issues its sends. A message that is issued and clear to send queues on the connection of the two ranks, as the
clear-to-send did in the other direction. A connection carries one message at a time each way; connections share links
by max-min fairness, as many TCP connections do; no rank has a port. A direct exchange
(`syncline.sim.collectives.direct`) is the same without clears-to-send.

Messages that a rank posts and issues at one instant queue in the order of its program: a round's clear-to-send comes
before its message in collectives that sum, and behind it in others. Messages that the rank had issued before, and that
become clear to send at that instant, go first. A route's overhead counts as latency, of messages and of clears-to-send.
The software's time (`GlooCosts`) is likewise per message and clear-to-send; its time per call and byte comes before a
rank's first round. `syncline.sim.collectives.gloo` says how far ahead each round is; here a plan's entry is one round,
and holds the number of messages that must have arrived and left before it.

Source: as `syncline.costmodel.collectives.gloo.times`.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

from syncline.sim.events import codes
from syncline.sim.events.core import views
from syncline.sim.events.core.compiling import core_function
from syncline.sim.events.core.heap import number, push
from syncline.sim.events.core.messages import free, put
from syncline.sim.events.core.ranks import note_arrival

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
