"""Ranks: the part of each worker in a collective under way, by the eager and the rendezvous rule.

A worker has a port out, which serves one message at a time in the order of queueing, and a port in, which serves
messages in the order in which the worker's program receives them. A message starts when it has both ports. By the
rendezvous rule a worker comes to one round after another, which keeps the ports in order by itself.

A rank of NCCL is eager under either rule, and may be ``ahead`` messages ahead of those that have arrived, see
`syncline.sim.collectives.nccl`.

No other rank sends on a worker's stream while this rank is under way, so the rank has one message at its port out, and
the messages that wait behind it are a count: the plan says which ones they are.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

from syncline.sim.events.core import views
from syncline.sim.events.core.compiling import core_function
from syncline.sim.events.core.messages import start


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
