"""Records that compiled code writes, because they are many and alike."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

import numpy as np

from syncline.sim.events import views
from syncline.sim.events.compiled import entry
from syncline.sim.events.heap import KIND_BITS, NORMAL, PRIORITY_BIT


@entry("void(int64, float64[::1])")
def write_starts(addresses, starts_s):
    """Schedule each worker's beginning; workers that begin together do so in their order."""
    core, heap, waits = views.core(addresses), views.heap(addresses), views.waits(addresses)
    for w in range(len(starts_s)):
        event = heap[core.leaves + w]
        event.time, event.place, waits[w].a = starts_s[w], w, w
        event.key = (NORMAL << PRIORITY_BIT) | ((w + 1) << KIND_BITS)
    core.places = core.number = len(starts_s)


@entry("void(int64, int64[::1], int64, int64[:, ::1], int64[:, ::1], int64[:, ::1], int64)")
def write_shared(addresses, workers, begin, named, places, numbered, first):
    """Write the parts of workers that all run one program; its operations begin at ``begin``."""
    table, parts = views.workers(addresses), views.parts(addresses)
    p = first
    for i in range(len(workers)):
        w = workers[i]
        table[w].operation, table[w].parts = begin, p
        for n in range(len(named)):
            part = parts[p]
            part.worker, part.place, part.numbered = w, places[n, i], numbered[n, i]
            part.kind, part.key, part.operation = named[n, 1], named[n, 2], named[n, 6]
            part.port = named[n, 4] + w - workers[0]
            part.rank = part.next_number = part.next_of_key = part.after = -1
            p += 1


@entry(
    "UniTuple(int64, 2)(int64, float64[::1], int64[:, ::1], float64[::1], float64[::1], int64, int64, boolean, boolean,"
    "float64)"
)
def write_routes(addresses, bandwidth, channels, latency_s, overhead_s, first, hop, eager, adds, added_s):
    """Write routes, each channel once; return the place after the last hop, and the longest length."""
    routes, hops = views.routes(addresses), views.hops(addresses)
    longest = 0
    for i in range(len(channels)):
        route = routes[first + i]
        route.hop0 = hop
        rate = np.inf
        for j in range(channels.shape[1]):
            channel = channels[i, j]
            if channel >= 0:
                is_repeated = False
                for k in range(j):
                    is_repeated |= channels[i, k] == channel
                if not is_repeated:
                    rate = min(rate, bandwidth[channel])
                    hops[hop] = channel
                    hop += 1
        route.hops = hop - route.hop0
        route.rate = rate
        longest = max(longest, route.hops)
        before, after = (overhead_s[i], latency_s[i]) if eager else (latency_s[i] + overhead_s[i], 0.0)
        if adds:
            before, after = 0.0, before + after + added_s
        route.before, route.after = before, after
        route.queued = route.waiting = 0
        route.behind = 0.0
    return hop, longest
