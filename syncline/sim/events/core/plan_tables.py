"""The tables of a collective's plan, see `syncline.sim.events.plans`."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

from syncline.sim.events.core import views
from syncline.sim.events.core.compiling import entry


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
