"""The plan of a collective: the messages that each rank sends and receives, as tables.

Equal rounds that follow each other, as those of a ring, are one *run*. An entry of a rank is a run in which it sends or
receives; a rank has no entry for a run in which it does neither, so an idle rank costs nothing. In the k-th round of a
run a message's turn, its place among all messages to its receiver, is ``turn + k stride``.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.collectives.algorithms import Round, RoundTable
from syncline.costmodel.network.topology import Ints
from syncline.sim.events.compiled import entry
from syncline.sim.events.state import TABLES, Records

PLACE, ENTRY, SENDING = TABLES["places"], TABLES["entries"], TABLES["sendings"]

KEPT, LARGEST_KEPT = 32, 2**18
"""Number of plans that are kept from one simulation to the next, and the largest number of messages of a kept plan."""


class Plan(NamedTuple):
    """The messages of a collective by rank, independent of the workers and the network.

    Attributes:
        places: a record per rank.
        entries: entries of all ranks.
        sendings: sendings of all ranks; the route of each is that of its place in ``senders``.
        senders: rank of each message's sender, ``(N,)``, round by round.
        receivers: rank of each message's receiver, ``(N,)``, round by round.
    """

    places: Records
    entries: Records
    sendings: Records
    senders: Ints
    receivers: Ints


@entry("(int64[::1], int64[::1], int64[::1], int64[::1], float64[::1], int64)")
def _by_rank(first, times, senders, receivers, sizes, ranks):
    """Return the places, entries and sendings of ``ranks`` ranks."""
    sends, entries, seen = np.zeros(ranks, np.int64), np.zeros(ranks, np.int64), np.full(ranks, -1)
    for run in range(len(times)):
        for i in range(first[run], first[run + 1]):
            sends[senders[i]] += 1
            for rank in (senders[i], receivers[i]):
                if seen[rank] != run:
                    seen[rank] = run
                    entries[rank] += 1
    places = np.zeros(ranks, PLACE)
    total = 0
    for rank in range(ranks):
        places[rank].entry0 = places[rank].entry1 = total
        total += entries[rank]
    entry_table, sendings = np.zeros(total, ENTRY), np.zeros(len(senders), SENDING)
    next_sending, placed = 0, np.zeros(ranks, np.int64)
    for rank in range(ranks):  # index of the rank's next sending
        next_sending, sends[rank] = next_sending + sends[rank], next_sending
    seen[:] = -1
    for run in range(len(times)):
        for i in range(first[run], first[run + 1]):
            for end in range(2):
                rank = receivers[i] if end else senders[i]
                place = places[rank]
                if seen[rank] != run:
                    seen[rank] = run
                    entry_of_run = entry_table[place.entry1]
                    place.entry1 += 1
                    entry_of_run.send0, entry_of_run.times, entry_of_run.round = sends[rank], times[run], run
                if end:
                    entry_table[place.entry1 - 1].receives += 1
                else:
                    entry_table[place.entry1 - 1].sends += 1
        for i in range(first[run], first[run + 1]):
            rank, receiver = senders[i], receivers[i]
            sending = sendings[sends[rank]]
            sends[rank] += 1
            sending.to, sending.nbytes, sending.route = receiver, sizes[i], i
            sending.turn = places[receiver].receives + placed[receiver]
            sending.stride = entry_table[places[receiver].entry1 - 1].receives
            placed[receiver] += 1
        for i in range(first[run], first[run + 1]):
            receiver = receivers[i]
            if placed[receiver]:
                places[receiver].receives += times[run] * placed[receiver]
                placed[receiver] = 0
    before = 0
    for rank in range(ranks):
        place = places[rank]
        place.place0 = before
        before += place.receives
        for e in range(place.entry0, place.entry1):
            entry_of_run = entry_table[e]
            bytes_per_round = 0.0
            for s in range(entry_of_run.send0, entry_of_run.send0 + entry_of_run.sends):
                bytes_per_round += sendings[s].nbytes
            place.nbytes += entry_of_run.times * bytes_per_round
            place.sends += entry_of_run.times * entry_of_run.sends
    return places, entry_table, sendings


_kept: OrderedDict[tuple[int, int, bool], tuple[Sequence[Round], Plan]] = OrderedDict()


def plan_of(rounds: Sequence[Round], ranks: int, one_by_one: bool = False) -> Plan:
    """Return the plan of these rounds among ``ranks`` ranks; the plan of a tuple of rounds is cached.

    Args:
        rounds: the rounds.
        ranks: number of ranks.
        one_by_one: whether each round is a run of its own.
    """
    key = id(rounds), ranks, one_by_one
    cached = _kept.get(key)
    if cached is not None:
        _kept.move_to_end(key)
        return cached[1]
    plan = _plan(rounds, ranks, one_by_one)
    lasting = isinstance(rounds, (tuple, RoundTable))
    if lasting and len(plan.senders) <= LARGEST_KEPT:  # the rounds are kept too, so that their id stays theirs
        _kept[key] = rounds, plan
        if len(_kept) > KEPT:
            _kept.popitem(last=False)
    return plan


def _plan(rounds: Sequence[Round], ranks: int, one_by_one: bool) -> Plan:
    num_messages: Ints
    times: Ints
    senders: Ints
    receivers: Ints
    if isinstance(rounds, RoundTable):  # no two rounds of a table are equal
        num_messages, times = np.diff(rounds.first), np.ones(len(rounds), np.int64)
        senders, receivers = rounds.senders.astype(np.int64), rounds.receivers.astype(np.int64)
        sizes = np.repeat(rounds.nbytes, num_messages)
    else:
        runs, times = _runs(rounds, one_by_one)
        num_messages = np.array([len(round_.senders) for round_ in runs], dtype=np.int64)
        senders = _joined([round_.senders for round_ in runs], np.int64)
        receivers = _joined([round_.receivers for round_ in runs], np.int64)
        if all(isinstance(round_.nbytes, (int, float)) for round_ in runs):
            sizes = np.repeat(np.array([round_.nbytes for round_ in runs], dtype=np.float64), num_messages)
        else:
            sizes = _joined([np.broadcast_to(round_.nbytes, round_.senders.shape) for round_ in runs], np.float64)
    first = np.zeros(len(num_messages) + 1, dtype=np.int64)
    np.cumsum(num_messages, out=first[1:])
    places, entries, sendings = _by_rank(first, times, senders, receivers, sizes, ranks)
    return Plan(places, entries, sendings, senders, receivers)


def _runs(rounds: Sequence[Round], one_by_one: bool) -> tuple[list[Round], Ints]:
    """Return the first round of each run of equal rounds, and the number of rounds in the run."""
    runs: list[Round] = []
    times: list[int] = []
    last: Any = None
    for round_ in rounds:
        nbytes = round_.nbytes if isinstance(round_.nbytes, float) else id(round_.nbytes)
        same = id(round_.senders), id(round_.receivers), nbytes
        if same == last and not one_by_one:
            times[-1] += 1
        else:
            runs.append(round_)
            times.append(1)
            last = same
    return runs, np.array(times, dtype=np.int64)


def _joined(columns: Sequence[NDArray[Any]], kind: type) -> NDArray[Any]:
    return np.concatenate(columns).astype(kind, copy=False) if columns else np.zeros(0, dtype=kind)
