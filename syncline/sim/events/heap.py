"""The heap of events: four below each, so that it is half as deep as one of two.

Events of one instant come by priority, then in the order in which they were numbered. A number is drawn when an event
is scheduled, also by SimPy, so both queues together have the one order that SimPy's alone would.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

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


@core_function("int64", "float64, int64, int64, int64, int64, int64")
def push(addresses, time, priority, turn, kind, a, b):
    """Schedule an event; returns its key."""
    core, heap = views.core(addresses), views.heap(addresses)
    key = (priority << PRIORITY_BIT) | (turn << KIND_BITS) | kind
    at = core.waiting
    core.waiting = at + 1
    while at > 0:
        above = (at - 1) >> 2
        above_time = heap[above].time
        if above_time < time or (above_time == time and heap[above].key < key):
            break
        heap[at].time, heap[at].key = above_time, heap[above].key
        heap[at].a, heap[at].b = heap[above].a, heap[above].b
        at = above
    heap[at].time, heap[at].key, heap[at].a, heap[at].b = time, key, a, b
    return key


@core_function("void")
def drop(addresses):
    """Take the first event off the heap."""
    core, heap = views.core(addresses), views.heap(addresses)
    last = core.waiting - 1
    core.waiting = last
    time, key = heap[last].time, heap[last].key
    at = 0
    while True:
        first = 4 * at + 1
        if first >= last:
            break
        best, best_time, best_key = first, heap[first].time, heap[first].key
        for below in range(first + 1, min(first + 4, last)):
            other_time = heap[below].time
            if other_time < best_time or (other_time == best_time and heap[below].key < best_key):
                best, best_time, best_key = below, other_time, heap[below].key
        if time < best_time or (time == best_time and key < best_key):
            break
        heap[at].time, heap[at].key = best_time, best_key
        heap[at].a, heap[at].b = heap[best].a, heap[best].b
        at = best
    heap[at].time, heap[at].key = time, key
    heap[at].a, heap[at].b = heap[last].a, heap[last].b
