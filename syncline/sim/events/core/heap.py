"""The queue of events: a tournament, in which the earlier of two events goes on to the next level.

The leaves are places, each with an event or empty, which means an infinite time. The next scheduled event takes the
place of the first event, and only the games on the way from there to the top are played again: as many as there are
levels, whatever their results. The games on that way are known before they are played, unlike those of a heap.

Events of one instant come by priority, then in the order of their numbers. A number is drawn when an event is
scheduled, also by SimPy, so both queues together have the one order that SimPy's alone would have.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

import numpy as np

from syncline.sim.events.codes import KIND_BITS, PRIORITY_BIT
from syncline.sim.events.core import views
from syncline.sim.events.core.compiling import core_function


@core_function("int64")
def number(addresses):
    """Return the next number of an event."""
    core = views.core(addresses)
    core.number += 1
    return core.number


@core_function("void", "int64, float64, int64, int64")
def compete(addresses, node, time, key, place):
    """Put an event, or an empty one, on a leaf and play its games up to the top."""
    heap = views.heap(addresses)
    heap[node].time, heap[node].key, heap[node].place = time, key, place
    while node > 1:
        other = heap[node ^ 1]
        if other.time < time or (other.time == time and other.key < key):
            time, key, place = other.time, other.key, other.place
        node >>= 1
        heap[node].time, heap[node].key, heap[node].place = time, key, place


@core_function("void")
def compete_all(addresses):
    """Play all games for the used leaves; the other leaves are empty."""
    core, heap = views.core(addresses), views.heap(addresses)
    leaves = core.leaves
    for place in range(core.places, leaves):
        heap[leaves + place].time, heap[leaves + place].key, heap[leaves + place].place = np.inf, 0, place
    for node in range(leaves - 1, 0, -1):
        first, other = heap[2 * node], heap[2 * node + 1]
        if other.time < first.time or (other.time == first.time and other.key < first.key):
            first = other
        heap[node].time, heap[node].key, heap[node].place = first.time, first.key, first.place


@core_function("void")
def double(addresses):
    """Double the number of leaves."""
    core, heap = views.core(addresses), views.heap(addresses)
    leaves = core.leaves
    for node in range(leaves, 2 * leaves):
        heap[node + leaves].time, heap[node + leaves].key = heap[node].time, heap[node].key
        heap[node + leaves].place = node - leaves
    core.leaves = 2 * leaves
    compete_all(addresses)


@core_function("int64", "float64, int64, int64, int64, int64, int64")
def push(addresses, time, priority, turn, kind, a, b):
    """Schedule an event and return its key."""
    core, waits = views.core(addresses), views.waits(addresses)
    key = (priority << PRIORITY_BIT) | (turn << KIND_BITS) | kind
    if core.hole >= 0:
        place = core.hole
        core.hole = -1
    elif core.free >= 0:
        place = core.free
        core.free = waits[place].a
    else:
        place = core.places
        if place == core.leaves:
            double(addresses)
        core.places = place + 1
    waits[place].a, waits[place].b = a, b
    compete(addresses, core.leaves + place, time, key, place)
    return key


@core_function("void")
def close(addresses):
    """Empty the place of the event that was the first, because no new event took it."""
    core, waits = views.core(addresses), views.waits(addresses)
    place = core.hole
    core.hole = -1
    waits[place].a = core.free
    core.free = place
    compete(addresses, core.leaves + place, np.inf, 0, place)
