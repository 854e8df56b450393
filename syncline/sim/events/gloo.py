"""Collectives of gloo, message by message: what leaves is what its receiver has posted.

A rank comes to a round when all has arrived that it was to receive up to ``ahead`` rounds before, and in a ring all
has left that it was to send up to then: it posts its receives of that round, each of which tells the sender so by a
clear-to-send, and issues its sends. A message that is issued and clear to send queues on the connection of the two, as
the clear-to-send did in the other direction. A connection carries one message at a time each way; connections share
links by max-min fairness, as many TCP connections do; no rank has a port.

What a rank posts and issues at one instant queues in the order of its program, a round's clear-to-send before its
message where it sums, behind it elsewhere; messages that it had issued before, which become clear to send at that
instant, go first. A route's overhead counts as latency, of messages and of clears-to-send. What the software takes
(`GlooCosts`) is likewise per message and clear-to-send; per call and byte it comes before a rank's first round. Which
rounds are how far ahead, `syncline.sim.collectives.gloo` says; here a plan's entry is one round, and says what must
have arrived and left before it.

Source: as `syncline.costmodel.collectives.gloo.times`.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

from syncline.sim.events import views
from syncline.sim.events.compiled import core_function
from syncline.sim.events.heap import AFTER_ALL, number, push
from syncline.sim.events.messages import free, put
from syncline.sim.events.ranks import note_arrival
from syncline.sim.events.state import CLEAR_TO_SEND, OF_GLOO, QUEUE

ISSUED, CLEAR = 1, 2
POSTS_FIRST = 1


@core_function("void", "int64")
def queue_last(addresses, m):
    """In the order of the program, when all else of this instant has happened."""
    push(addresses, views.core(addresses).now, AFTER_ALL, number(addresses), QUEUE, m, 0)


@core_function("void", "int64, int64")
def post(addresses, r, at):
    """Tell the senders of a round's messages that there is room for them."""
    entry = views.entries(addresses)[at]
    rank, sources, messages = views.rank_table(addresses)[r], views.sources(addresses), views.messages(addresses)
    instance = views.instances(addresses)[rank.instance]
    plan = views.plans(addresses)[instance.what]
    place = views.places(addresses)[plan.rank0 + r - rank.base]
    for turn in range(rank.admitted, rank.admitted + entry.receives):
        m = instance.message0 + plan.total + place.place0 + turn
        message = messages[m]
        connection = sources[place.from0 + turn]
        message.kind, message.turn = CLEAR_TO_SEND, instance.message0 + place.place0 + turn
        message.route, message.port = plan.route0 + connection, instance.port0 + connection
        queue_last(addresses, m)
    rank.admitted += entry.receives


@core_function("void", "int64, int64")
def issue(addresses, r, at):
    """Send a round's messages, those at once that are clear to send."""
    entry = views.entries(addresses)[at]
    rank, ranks, messages = views.rank_table(addresses)[r], views.rank_table(addresses), views.messages(addresses)
    instance = views.instances(addresses)[rank.instance]
    plan = views.plans(addresses)[instance.what]
    for s in range(entry.send0, entry.send0 + entry.sends):
        sending = views.sendings(addresses)[s]
        receiver = rank.base + sending.to
        m = instance.message0 + ranks[receiver].place0 - instance.place0 + sending.turn
        message = messages[m]
        message.kind, message.sender, message.receiver, message.turn = OF_GLOO, r, receiver, sending.turn
        message.nbytes, message.route = sending.nbytes, sending.route
        message.port = instance.port0 + sending.route - plan.route0
        message.start = views.core(addresses).now
        rank.issues += 1
        if message.sent == CLEAR:
            message.sent = 0
            queue_last(addresses, m)
        else:
            message.sent = ISSUED


@core_function("boolean", "int64")
def gloo_advance(addresses, r):
    """Go on until something has to be waited for; whether there is nothing more to do."""
    rank, entries = views.rank_table(addresses)[r], views.entries(addresses)
    plan = views.plans(addresses)[views.instances(addresses)[rank.instance].what]
    while rank.need == 0 and rank.at < rank.end:
        at = rank.at
        entry = entries[at]
        if rank.have < entry.have or rank.sent < entry.sent:
            break
        rank.at = at + 1
        if plan.gloo == POSTS_FIRST:
            post(addresses, r, at)
            issue(addresses, r, at)
        else:
            issue(addresses, r, at)
            post(addresses, r, at)
    if rank.need == 0 and rank.at == rank.end and rank.have == rank.receives and rank.sent == rank.issues:
        rank.need = 1  # it is through
        return True
    return False


@core_function("void", "int64")
def cleared(addresses, m):
    """There is room for a message at its receiver."""
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
def gloo_left(addresses, m):
    """A message of a rank has left; whether that has nothing more to do."""
    message = views.messages(addresses)[m]
    views.rank_table(addresses)[message.sender].sent += 1
    free(addresses, message.port)
    return gloo_advance(addresses, message.sender)


@core_function("boolean", "int64, int64")
def gloo_got(addresses, r, turn):
    """A message to a rank has arrived; whether that has nothing more to do."""
    note_arrival(addresses, r, turn)
    return gloo_advance(addresses, r)
