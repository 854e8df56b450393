"""The queue of events: a tournament, in which the earlier of two goes on, so that the earliest of all is at its top.

The leaves are places, each with an event or with none, which is at no time. Where the first event was, the next that is
scheduled goes, and only the games on the way from there to the top are played again: as many as there are levels,
whatever comes of them. The games on that way are known before they are played, which a heap's are not.

Events of one instant come by priority, then in the order in which they were numbered. A number is drawn when an event
is scheduled, also by SimPy, so both queues together have the one order that SimPy's alone would.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

import numpy as np

from syncline.sim.events import views
from syncline.sim.events.compiled import core_function, inlined

NORMAL = 1
AFTER_ALL = 10
"""Happens when all else of its instant has: SimPy's own priorities are smaller."""

PRIORITY_BIT, KIND_BITS = 58, 4
KIND_MASK = (1 << KIND_BITS) - 1


@inlined
def number(addresses):
    """The next number of an event."""
    core = views.core(addresses)
    core.number += 1
    return core.number


@inlined
def compete(heap, at, time, key, place):
    """Put an event, or none, on a leaf."""
    heap[at].time, heap[at].key, heap[at].place = time, key, place
    while at > 1:
        other = heap[at ^ 1]
        if other.time < time or (other.time == time and other.key < key):
            time, key, place = other.time, other.key, other.place
        at >>= 1
        heap[at].time, heap[at].key, heap[at].place = time, key, place


@core_function("void")
def compete_all(addresses):
    """Play all games, of as many leaves as are used; the others are empty."""
    core, heap = views.core(addresses), views.heap(addresses)
    leaves = core.leaves
    for place in range(core.places, leaves):
        heap[leaves + place].time, heap[leaves + place].key, heap[leaves + place].place = np.inf, 0, place
    for at in range(leaves - 1, 0, -1):
        one, other = heap[2 * at], heap[2 * at + 1]
        if other.time < one.time or (other.time == one.time and other.key < one.key):
            one = other
        heap[at].time, heap[at].key, heap[at].place = one.time, one.key, one.place


@core_function("void")
def double(addresses):
    """Twice as many leaves."""
    core, heap = views.core(addresses), views.heap(addresses)
    leaves = core.leaves
    for at in range(leaves, 2 * leaves):
        heap[at + leaves].time, heap[at + leaves].key = heap[at].time, heap[at].key
        heap[at + leaves].place = at - leaves
    core.leaves = 2 * leaves
    compete_all(addresses)


@core_function("int64", "float64, int64, int64, int64, int64, int64")
def push(addresses, time, priority, turn, kind, a, b):
    """Schedule an event; returns its key."""
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
    compete(views.heap(addresses), core.leaves + place, time, key, place)
    return key


@core_function("void")
def close(addresses):
    """Nothing has come in the place of the event that was the first."""
    core, waits = views.core(addresses), views.waits(addresses)
    place = core.hole
    core.hole = -1
    waits[place].a = core.free
    core.free = place
    compete(views.heap(addresses), core.leaves + place, np.inf, 0, place)
