"""Fetching of records into the processor's cache before the events that need them.

With 10^5 waiting events a record is in main memory when its event comes, and the wait for it is longer than the event's
computation. But the tournament tree of events tells which events come soon: the winners ``LEVEL`` levels below the top.
When such a node has a new winner, this event is noted and the records of its subject are fetched. The records that
these name are fetched ``DISTANCE`` events later, and so on, so that no step waits for the step before it. ``step``
counts these steps of a noted event, from 1.

Fetching changes no record, and any record may be fetched; a record is only read here if it exists.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

from syncline.sim.events.codes import ARRIVED, DRAINED, GO_ON, KIND_BITS, KIND_MASK, NOTED, OF_PROGRAM
from syncline.sim.events.core import views
from syncline.sim.events.core.compiling import core_function

LEVEL, DISTANCE, QUEUE_AHEAD = 7, 3, 32

MANY_LEVELS = 12
"""Levels of the tree of events from which on records are fetched; the records of fewer events stay in the cache."""


@core_function("void", "int64")
def fetch_ahead(addresses, leaf):
    """Note the event that a changed leaf has brought near to the top, and fetch records for noted events."""
    core = views.core(addresses)
    event = views.heap(addresses)[leaf >> (core.levels - LEVEL)]
    if not event.key:  # an empty place
        return
    node = core.leaves + event.place
    for _ in range(core.levels - MANY_LEVELS + 1):  # the nodes near the top are in the cache
        views.fetch_heap(addresses, node)
        views.fetch_heap(addresses, node ^ 1)
        node >>= 1
    views.fetch_turns(addresses, event.place)
    note_event(addresses, event.key & KIND_MASK, event.subject)


@core_function("void")
def fetch_for_queue(addresses):
    """Note the arrival that is ``QUEUE_AHEAD`` places from the front of the queue, and fetch records."""
    core = views.core(addresses)
    number = core.first_arrival + QUEUE_AHEAD
    if number < core.end_arrival:
        note_event(addresses, ARRIVED, views.arrivals(addresses)[number & (core.arrival_room - 1)].rank)


@core_function("void", "int64, int64")
def note_event(addresses, kind, subject):
    """Note an event that comes soon, and fetch records for it and for those that were noted before."""
    core, noted = views.core(addresses), views.noted(addresses)
    latest = core.noted + 1
    core.noted = latest
    noted[latest % NOTED] = (subject << KIND_BITS) | kind
    if kind == DRAINED:
        fetch_message(addresses, subject)
    elif kind == ARRIVED:
        views.fetch_ranks(addresses, subject)
    elif kind == GO_ON:
        views.fetch_streams(addresses, subject)
    for step in range(1, 6):  # a drained message has the most steps, five
        event = noted[(latest - step * DISTANCE) % NOTED]
        kind, subject = event & KIND_MASK, event >> KIND_BITS
        if kind == ARRIVED:
            fetch_for_arrived(addresses, subject, step)
        elif kind == DRAINED and views.messages(addresses)[subject].kind != OF_PROGRAM:
            fetch_for_drained(addresses, subject, step)
        elif kind == GO_ON and step == 1:
            fetch_for_stream(addresses, subject)


@core_function("void", "int64")
def fetch_message(addresses, message_id):
    """Fetch a message and its links."""
    views.fetch_messages(addresses, message_id)
    views.fetch_links(addresses, message_id << views.core(addresses).shift)


@core_function("void", "int64")
def fetch_channels_of(addresses, message_id):
    """Fetch the channels of a message that has taken its route."""
    first = message_id << views.core(addresses).shift
    for link in range(first, first + views.messages(addresses)[message_id].hops):
        views.fetch_channels(addresses, views.links(addresses)[link].channel)


@core_function("void", "int64, int64")
def fetch_for_send(addresses, rank_id, step):
    """Fetch what a rank's next message needs: its sending, then receiver and route, then channels."""
    rank = views.ranks(addresses)[rank_id]
    if step == 1:
        views.fetch_entries(addresses, rank.send_entry)
        views.fetch_sendings(addresses, rank.sending)
        return
    sending = views.sendings(addresses)[rank.sending]
    receiver_id = rank.rank0 + sending.to
    if step == 2:
        views.fetch_ranks(addresses, receiver_id)
        views.fetch_routes(addresses, sending.route)
    elif step == 3:
        route = views.routes(addresses)[sending.route]
        views.fetch_hops(addresses, route.hop0)
        views.fetch_slots(addresses, views.ranks(addresses)[receiver_id].slot0 + sending.turn)
    elif step == 4:
        route = views.routes(addresses)[sending.route]
        for hop in range(route.hop0, route.hop0 + route.hops):
            views.fetch_channels(addresses, views.hops(addresses)[hop])


@core_function("void", "int64, int64")
def fetch_for_arrived(addresses, rank_id, step):
    """Fetch what a rank needs at the arrival of a message: it may send its next message, or be done."""
    if step == 1:
        rank = views.ranks(addresses)[rank_id]
        views.fetch_entries(addresses, rank.entry)
        views.fetch_slots(addresses, rank.slot0 + rank.received)
        fetch_message(addresses, rank.message)
        if rank.entry == rank.end:
            views.fetch_parts(addresses, rank.part)
    fetch_for_send(addresses, rank_id, step)


@core_function("void", "int64, int64")
def fetch_for_drained(addresses, message_id, step):
    """Fetch what the end of a message's flow needs: its sender sends the next, and its receiver admits another."""
    message, ranks = views.messages(addresses)[message_id], views.ranks(addresses)
    if step == 1:
        views.fetch_ranks(addresses, message.sender)
        views.fetch_ranks(addresses, message.receiver)
        fetch_channels_of(addresses, message_id)
        return
    if ranks[message.sender].queued:
        fetch_for_send(addresses, message.sender, step - 1)
    receiver = ranks[message.receiver]
    if receiver.admitted < receiver.receives:
        slot = receiver.slot0 + receiver.admitted
        if step == 2:
            views.fetch_slots(addresses, slot)
            return
        waiting = views.slots(addresses)[slot]
        if waiting > 0 and step == 3:
            fetch_message(addresses, waiting - 1)
        elif waiting > 0 and step == 4:
            fetch_channels_of(addresses, waiting - 1)


@core_function("void", "int64")
def fetch_for_stream(addresses, stream_id):
    """Fetch the collective that a stream joins."""
    stream = views.streams(addresses)[stream_id]
    operation = views.operations(addresses)[stream.operation]
    views.fetch_parts(addresses, stream.parts + operation.number)
