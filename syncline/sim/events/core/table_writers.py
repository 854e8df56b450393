"""Records that compiled code writes, because they are many and alike.

The tables of a collective's plan, see `syncline.sim.events.plans`.
"""

from __future__ import annotations

import numpy as np

from syncline.sim.events.codes import KIND_BITS, NORMAL, PRIORITY_BIT
from syncline.sim.events.core import views
from syncline.sim.events.core.compiling import entry

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"


@entry
def write_starts(addresses, starts_at, num_streams):
    """Schedule the beginning of each worker's stream; those that begin together do so in their order."""
    core, heap, waits = views.core(addresses), views.heap(addresses), views.waits(addresses)
    starts_s = views.floats(starts_at)
    for w in range(num_streams):
        event = heap[core.leaves + w]
        event.time, event.place, waits[w].a = starts_s[w], w, w
        event.key = (NORMAL << PRIORITY_BIT) | ((w + 1) << KIND_BITS)
    core.places = core.number = num_streams
    return 0


@entry
def write_shared(addresses, workers_at, num_workers, begin, named_at, num_named, places_at, numbered_at, first):
    """Write the parts of workers that all run one program; its operations begin at ``begin``.

    ``named`` has seven numbers per part, and ``places`` and ``numbered`` one per part and worker.
    """
    table, parts = views.workers(addresses), views.parts(addresses)
    workers, named = views.integers(workers_at), views.integers(named_at)
    places, numbered = views.integers(places_at), views.integers(numbered_at)
    p = first
    for i in range(num_workers):
        w = workers[i]
        table[w].operation, table[w].parts = begin, p
        for n in range(num_named):
            part = parts[p]
            part.worker, part.place, part.numbered = w, places[n * num_workers + i], numbered[n * num_workers + i]
            part.kind, part.key, part.operation = named[7 * n + 1], named[7 * n + 2], named[7 * n + 6]
            part.port = named[7 * n + 4] + w - workers[0]
            part.rank = part.next_number = part.next_of_key = part.after = -1
            p += 1
    return 0


@entry
def write_routes(
    addresses, bandwidth_at, channels_at, num_routes, width, latency_at, overhead_at, first, hop, eager, adds, added_s
):
    """Write routes, each channel once, and return the number of hops.

    ``channels`` has ``width`` numbers per route, -1 where a route is shorter.
    """
    routes, hops = views.routes(addresses), views.hops(addresses)
    bandwidth, channels = views.floats(bandwidth_at), views.integers(channels_at)
    latency_s, overhead_s = views.floats(latency_at), views.floats(overhead_at)
    first_hop = hop
    for i in range(num_routes):
        route = routes[first + i]
        route.hop0 = hop
        rate = np.inf
        for j in range(i * width, (i + 1) * width):
            channel = channels[j]
            if channel >= 0:
                is_repeated = False
                for k in range(i * width, j):
                    is_repeated |= channels[k] == channel
                if not is_repeated:
                    rate = min(rate, bandwidth[channel])
                    hops[hop] = channel
                    hop += 1
        route.hops = hop - route.hop0
        route.rate = rate
        if eager:
            before, after = overhead_s[i], latency_s[i]
        else:
            before, after = latency_s[i] + overhead_s[i], 0.0
        if adds:
            before, after = 0.0, before + after + added_s
        route.before, route.after = before, after
        route.queued = route.waiting = 0
        route.behind = 0.0
    return hop - first_hop


@entry
def count_entries(first_at, num_runs, senders_at, receivers_at, scratch_at, num_ranks):
    """Count the sends and entries of each rank, and return the number of all entries.

    ``scratch`` has three zeroed blocks of a number per rank: sends, entries, and the last run seen, from 1.
    """
    first, senders, receivers = views.integers(first_at), views.integers(senders_at), views.integers(receivers_at)
    scratch = views.integers(scratch_at)
    entries, seen, total = num_ranks, 2 * num_ranks, 0
    for run in range(num_runs):
        for i in range(first[run], first[run + 1]):
            scratch[senders[i]] += 1
            for end in range(2):
                rank = receivers[i] if end else senders[i]
                if scratch[seen + rank] != run + 1:
                    scratch[seen + rank] = run + 1
                    scratch[entries + rank] += 1
                    total += 1
    return total


@entry
def write_plan(first_at, times_at, num_runs, senders_at, receivers_at, sizes_at, scratch_at, num_ranks, tables_at):
    """Write the zeroed places, entries and sendings of the ranks; ``scratch`` is as ``count_entries`` has left it."""
    first, times, sizes = views.integers(first_at), views.integers(times_at), views.floats(sizes_at)
    senders, receivers, scratch = (
        views.integers(senders_at), views.integers(receivers_at), views.integers(scratch_at)
    )  # fmt: skip
    tables = views.integers(tables_at)
    places, entries, sendings = (
        views.place_records(tables[0]), views.entry_records(tables[1]), views.sending_records(tables[2])
    )  # fmt: skip
    placed, seen = num_ranks, 2 * num_ranks
    total, next_sending = 0, 0
    for rank in range(num_ranks):
        places[rank].entry0 = places[rank].entry1 = total
        total += scratch[placed + rank]
        scratch[placed + rank] = scratch[seen + rank] = 0
        next_sending, scratch[rank] = next_sending + scratch[rank], next_sending  # index of the rank's next sending
    for run in range(num_runs):
        for i in range(first[run], first[run + 1]):
            for end in range(2):
                rank = receivers[i] if end else senders[i]
                place = places[rank]
                if scratch[seen + rank] != run + 1:
                    scratch[seen + rank] = run + 1
                    entry_of_run = entries[place.entry1]
                    place.entry1 += 1
                    entry_of_run.send0, entry_of_run.times, entry_of_run.round = scratch[rank], times[run], run
                if end:
                    entries[place.entry1 - 1].receives += 1
                else:
                    entries[place.entry1 - 1].sends += 1
        for i in range(first[run], first[run + 1]):
            rank, receiver = senders[i], receivers[i]
            sending = sendings[scratch[rank]]
            scratch[rank] += 1
            sending.to, sending.nbytes, sending.route = receiver, sizes[i], i
            sending.turn = places[receiver].receives + scratch[placed + receiver]
            sending.stride = entries[places[receiver].entry1 - 1].receives
            scratch[placed + receiver] += 1
        for i in range(first[run], first[run + 1]):
            receiver = receivers[i]
            if scratch[placed + receiver]:
                places[receiver].receives += times[run] * scratch[placed + receiver]
                scratch[placed + receiver] = 0
    before = 0
    for rank in range(num_ranks):
        place = places[rank]
        place.place0 = before
        before += place.receives
        for e in range(place.entry0, place.entry1):
            entry_of_run = entries[e]
            bytes_per_round = 0.0
            for s in range(entry_of_run.send0, entry_of_run.send0 + entry_of_run.sends):
                bytes_per_round += sendings[s].nbytes
            place.nbytes += entry_of_run.times * bytes_per_round
            place.sends += entry_of_run.times * entry_of_run.sends
    return 0
