"""Tables that compiled code writes, because their records are many: routes, and the plans of collectives.

Each function takes the addresses of its arrays as one array of integers, ``columns``, in the order that it unpacks.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

import numpy as np

from syncline.sim.events.core import views
from syncline.sim.events.core.compiling import entry


@entry
def write_routes(addresses, columns_at, num_routes, width, first_route, first_hop):
    """Write routes between workers into the tables, each channel of a route once; return the number of hops.

    Args:
        columns_at: address of ``columns``: bandwidth of each channel in bytes per second; channels of each route,
            ``width`` numbers, -1 where a route has fewer; seconds of each route before and after the bytes.
        width: largest number of channels of a route.
        first_route: place of the first of these routes in the table ``routes``.
        first_hop: place of the first of their channels in the table ``hops``.
    """
    columns = views.integers(columns_at)
    bandwidth, channels = views.floats(columns[0]), views.integers(columns[1])
    before_s, after_s = views.floats(columns[2]), views.floats(columns[3])
    routes, hops = views.routes(addresses), views.hops(addresses)
    hop = first_hop
    for i in range(num_routes):
        route = routes[first_route + i]
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
        route.rate, route.before_s, route.after_s = rate, before_s[i], after_s[i]
    return hop - first_hop


@entry
def count_entries(columns_at, num_runs, num_ranks):
    """Count the sends and entries of each rank, and return the number of all entries.

    ``columns`` are as in `write_plan`; the tables need not be there yet. Of ``scratch`` this function uses three zeroed
    blocks of a number per rank: sends, entries, and the last run in which the rank was seen, from 1.
    """
    columns = views.integers(columns_at)
    first, senders, receivers = views.integers(columns[0]), views.integers(columns[2]), views.integers(columns[3])
    scratch = views.integers(columns[5])
    entries0, seen0 = num_ranks, 2 * num_ranks  # begin of the second and of the third block of ``scratch``
    num_entries = 0
    for run in range(num_runs):
        for i in range(first[run], first[run + 1]):
            scratch[senders[i]] += 1
            for is_receiver in range(2):
                rank = receivers[i] if is_receiver else senders[i]
                if scratch[seen0 + rank] != run + 1:
                    scratch[seen0 + rank] = run + 1
                    scratch[entries0 + rank] += 1
                    num_entries += 1
    return num_entries


@entry
def write_plan(columns_at, num_runs, num_ranks):
    """Write the places, entries and sendings of the ranks of a plan into zeroed tables; sort senders and receivers.

    A *run* is a number of equal rounds that follow each other, see `syncline.sim.events.plans`.

    Args:
        columns_at: address of ``columns``: index of each run's first message, and the number of messages; number of
            rounds of each run; sender, receiver and bytes of each message; scratch memory, as `count_entries` has left
            it; the tables of places, entries and sendings.
    """
    columns = views.integers(columns_at)
    first, times = views.integers(columns[0]), views.integers(columns[1])
    senders, receivers, sizes = views.integers(columns[2]), views.integers(columns[3]), views.floats(columns[4])
    scratch, places = views.integers(columns[5]), views.place_records(columns[6])
    entries, sendings = views.entry_records(columns[7]), views.sending_records(columns[8])
    # Blocks of ``scratch``: next sending of each rank; messages of a run to each rank so far; last run of each rank.
    received0, seen0 = num_ranks, 2 * num_ranks
    next_entry, next_sending = 0, 0
    for rank in range(num_ranks):
        places[rank].entry0 = places[rank].entry1 = next_entry
        next_entry += scratch[received0 + rank]
        scratch[received0 + rank] = scratch[seen0 + rank] = 0
        num_sends = scratch[rank]
        scratch[rank] = places[rank].send0 = next_sending
        next_sending += num_sends
    for run in range(num_runs):
        # The entry of each rank that sends or receives in the run.
        for i in range(first[run], first[run + 1]):
            for is_receiver in range(2):
                rank = receivers[i] if is_receiver else senders[i]
                place = places[rank]
                if scratch[seen0 + rank] != run + 1:
                    scratch[seen0 + rank] = run + 1
                    entry_of_run = entries[place.entry1]
                    place.entry1 += 1
                    entry_of_run.send0, entry_of_run.times, entry_of_run.round = scratch[rank], times[run], run
                if is_receiver:
                    entries[place.entry1 - 1].receives += 1
                else:
                    entries[place.entry1 - 1].sends += 1
        # The messages of the run, each with its turn among all messages to its receiver.
        for i in range(first[run], first[run + 1]):
            rank, receiver = senders[i], receivers[i]
            sending = sendings[scratch[rank]]
            scratch[rank] += 1
            sending.to, sending.nbytes = receiver, sizes[i]
            sending.turn = places[receiver].receives + scratch[received0 + receiver]
            sending.stride = entries[places[receiver].entry1 - 1].receives
            scratch[received0 + receiver] += 1
        for i in range(first[run], first[run + 1]):
            receiver = receivers[i]
            if scratch[received0 + receiver]:
                places[receiver].receives += times[run] * scratch[received0 + receiver]
                scratch[received0 + receiver] = 0
    # The sums over all runs.
    next_slot = 0
    for rank in range(num_ranks):
        place = places[rank]
        place.slot0 = next_slot
        next_slot += place.receives
        for e in range(place.entry0, place.entry1):
            entry_of_run = entries[e]
            bytes_per_round = 0.0
            for s in range(entry_of_run.send0, entry_of_run.send0 + entry_of_run.sends):
                senders[s], receivers[s], sendings[s].route = rank, sendings[s].to, s
                bytes_per_round += sendings[s].nbytes
            place.nbytes += entry_of_run.times * bytes_per_round
            place.sends += entry_of_run.times * entry_of_run.sends
    return 0  # every function that Python calls returns a number
