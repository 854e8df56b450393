"""The queue of events: a tournament tree, in which the earlier of two events goes on to the next level.

The leaves of the tree are places, each with an event or empty, which means an infinite time. The next scheduled event
takes the place of the first event, and only the games on the way from there to the top are played again: as many as
there are levels, whatever their results. The games on that way are known before they are played, unlike those of a
binary heap. Arrivals that come in the order of their scheduling, as on equal links, wait in a queue beside the tree.

Events of one instant come by priority, then in the order of their numbers. A number is drawn when an event is
scheduled, also by SimPy, so both queues together have the order that SimPy's queue alone would have.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

import numpy as np

from syncline.sim.events.codes import ARRIVED, KIND_BITS, NORMAL, PRIORITY_BIT
from syncline.sim.events.core import views
from syncline.sim.events.core.compiling import core_function
from syncline.sim.events.core.fetching import MANY_LEVELS, fetch_ahead


@core_function("int64")
def next_number(addresses):
    """Return the next number of an event."""
    core = views.core(addresses)
    core.number += 1
    return core.number


@core_function("void", "int64, float64, int64, int64, int64")
def replay_games(addresses, node, time, key, place, subject):
    """Put an event on a leaf of the tournament tree, and play its games against other events up to the top.

    Args:
        node: index of the leaf; the parent of a node has half its index, and the top has the index 1.
        time: seconds at which the event happens; infinite to empty the leaf.
        key: order of the event within its instant.
        subject: number of the record to which the event happens.
    """
    heap = views.heap(addresses)
    heap[node].time, heap[node].key, heap[node].place, heap[node].subject = time, key, place, subject
    while node > 1:
        other = heap[node ^ 1]
        if other.time < time or (other.time == time and other.key < key):
            time, key, place, subject = other.time, other.key, other.place, other.subject
            if heap[node >> 1].key == key:  # it had won before, so nothing changes above
                return
        node >>= 1
        heap[node].time, heap[node].key, heap[node].place, heap[node].subject = time, key, place, subject


@core_function("void")
def replay_all_games(addresses):
    """Play all games of the tournament tree of events, from the leaves up."""
    core, heap = views.core(addresses), views.heap(addresses)
    leaves = core.leaves
    for place in range(core.places, leaves):
        heap[leaves + place].time, heap[leaves + place].key, heap[leaves + place].place = np.inf, 0, place
    for node in range(leaves - 1, 0, -1):
        first, other = heap[2 * node], heap[2 * node + 1]
        if other.time < first.time or (other.time == first.time and other.key < first.key):
            first = other
        heap[node].time, heap[node].key = first.time, first.key
        heap[node].place, heap[node].subject = first.place, first.subject


@core_function("void")
def double_leaves(addresses):
    """Double the number of leaves of the tournament tree of events."""
    core, heap = views.core(addresses), views.heap(addresses)
    leaves = core.leaves
    for node in range(leaves, 2 * leaves):
        heap[node + leaves].time, heap[node + leaves].key = heap[node].time, heap[node].key
        heap[node + leaves].place, heap[node + leaves].subject = heap[node].place, heap[node].subject
    core.leaves, core.levels = 2 * leaves, core.levels + 1
    replay_all_games(addresses)


@core_function("int64", "float64, int64, int64, int64, int64, int64")
def push_event(addresses, time, priority, number, kind, subject, turn):
    """Schedule an event at ``time`` seconds and return its key, by which events of one instant are ordered.

    Args:
        time: seconds from the beginning of the simulation.
        priority: events of one instant with a smaller priority come first.
        number: number of the event, see `next_number`; among equal priorities the smaller comes first.
        kind: kind of the event, as in `syncline.sim.events.codes`.
        subject: number of the record to which the event happens.
        turn: of an arrival, the number of the message among those of its receiver.
    """
    core = views.core(addresses)
    key = (priority << PRIORITY_BIT) | (number << KIND_BITS) | kind
    reuses_place = core.reusable_place >= 0
    if reuses_place:  # the place of the event that is being processed
        place = core.reusable_place
        core.reusable_place = -1
    elif core.free_place >= 0:  # the first of a list of empty places
        place = core.free_place
        core.free_place = views.heap(addresses)[core.leaves + place].subject
    else:
        place = core.places
        if place == core.leaves:
            double_leaves(addresses)
        core.places = place + 1
    views.turns(addresses)[place] = turn
    replay_games(addresses, core.leaves + place, time, key, place, subject)
    if reuses_place and core.levels >= MANY_LEVELS:
        fetch_ahead(addresses, core.leaves + place)
    return key


@core_function("void", "float64, int64, int64, int64")
def push_arrival(addresses, time, number, rank_id, turn):
    """Append an arrival to the queue of arrivals if it is the latest; else schedule it in the tree of events.

    Arguments as in `push_event`.
    """
    core, arrivals = views.core(addresses), views.arrivals(addresses)
    mask, num_arrivals = core.arrival_room - 1, core.end_arrival - core.first_arrival
    if num_arrivals > mask or (num_arrivals and time < arrivals[(core.end_arrival - 1) & mask].time):
        push_event(addresses, time, NORMAL, number, ARRIVED, rank_id, turn)
        return
    arrival = arrivals[core.end_arrival & mask]
    core.end_arrival += 1
    arrival.time, arrival.key = time, (NORMAL << PRIORITY_BIT) | (number << KIND_BITS) | ARRIVED
    arrival.rank, arrival.turn = rank_id, turn


@core_function("void", "float64, int64, int64")
def schedule(addresses, delay_s, kind, subject):
    """Schedule an event of normal priority in ``delay_s`` seconds; arguments as in `push_event`."""
    number = next_number(addresses)
    push_event(addresses, views.core(addresses).now + delay_s, NORMAL, number, kind, subject, 0)


@core_function("void")
def remove_first(addresses):
    """Empty the place of the event that was processed last, if no new event has taken it."""
    core = views.core(addresses)
    place, next_free = core.reusable_place, core.free_place
    core.reusable_place, core.free_place = -1, place
    replay_games(addresses, core.leaves + place, np.inf, 0, place, next_free)
    if core.levels >= MANY_LEVELS:
        fetch_ahead(addresses, core.leaves + place)
