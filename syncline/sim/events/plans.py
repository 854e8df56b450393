"""A collective rank by rank: what each sends and receives, as tables.

Rounds that follow each other and are one and the same, as those of a ring, are one *run*. An entry of a rank is a run
in which it sends or receives; where it does neither, it has none, so a rank that idles costs nothing. In the k-th round
of a run a message's turn, its place among all that its receiver gets, is ``turn + k stride``.
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
from syncline.sim.events.state import ENTRY, PLACE, SENDING, Records

KEPT, LARGEST_KEPT = 32, 2**18
"""So many plans are kept from one simulation to the next, of at most so many messages."""


class Plan(NamedTuple):
    """Who does what, whoever the workers are and whatever joins them.

    Attributes:
        places: a record per rank.
        entries: of all ranks.
        sendings: of all ranks; the route of each is that of its place in ``senders``.
        senders: ``(N,)`` ranks, round by round.
        receivers: likewise.
    """

    places: Records
    entries: Records
    sendings: Records
    senders: Ints
    receivers: Ints


@entry("(int64[::1], int64[::1], int64[::1], int64[::1], float64[::1], int64)")
def _by_rank(first, times, senders, receivers, sizes, ranks):
    """The places, entries and sendings of so many ranks."""
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
    told, sendings = np.zeros(total, ENTRY), np.zeros(len(senders), SENDING)
    at, placed = 0, np.zeros(ranks, np.int64)
    for rank in range(ranks):  # where its next sending goes
        at, sends[rank] = at + sends[rank], at
    seen[:] = -1
    for run in range(len(times)):
        for i in range(first[run], first[run + 1]):
            for end in range(2):
                rank = receivers[i] if end else senders[i]
                place = places[rank]
                if seen[rank] != run:
                    seen[rank] = run
                    own = told[place.entry1]
                    place.entry1 += 1
                    own.send0, own.times, own.round = sends[rank], times[run], run
                if end:
                    told[place.entry1 - 1].receives += 1
                else:
                    told[place.entry1 - 1].sends += 1
        for i in range(first[run], first[run + 1]):
            rank, to = senders[i], receivers[i]
            sending = sendings[sends[rank]]
            sends[rank] += 1
            sending.to, sending.nbytes, sending.route = to, sizes[i], i
            sending.turn, sending.stride = places[to].receives + placed[to], told[places[to].entry1 - 1].receives
            placed[to] += 1
        for i in range(first[run], first[run + 1]):
            to = receivers[i]
            if placed[to]:
                places[to].receives += times[run] * placed[to]
                placed[to] = 0
    before = 0
    for rank in range(ranks):
        place = places[rank]
        place.place0 = before
        before += place.receives
        for e in range(place.entry0, place.entry1):
            own = told[e]
            once = 0.0
            for s in range(own.send0, own.send0 + own.sends):
                once += sendings[s].nbytes
            place.nbytes += own.times * once
            place.sends += own.times * own.sends
    return places, told, sendings


_kept: OrderedDict[tuple[int, int, bool], tuple[Sequence[Round], Plan]] = OrderedDict()


def plan_of(of: Sequence[Round], ranks: int, one_by_one: bool = False) -> Plan:
    """The plan of these rounds, of so many ranks; those of one tuple of rounds are kept.

    Args:
        of: the rounds.
        ranks: how many there are.
        one_by_one: whether each round is a run of its own.
    """
    key = id(of), ranks, one_by_one
    known = _kept.get(key)
    if known is not None:
        _kept.move_to_end(key)
        return known[1]
    plan = _plan(of, ranks, one_by_one)
    lasting = isinstance(of, (tuple, RoundTable))
    if lasting and len(plan.senders) <= LARGEST_KEPT:  # its rounds too: so the number stays theirs
        _kept[key] = of, plan
        if len(_kept) > KEPT:
            _kept.popitem(last=False)
    return plan


def _plan(of: Sequence[Round], ranks: int, one_by_one: bool) -> Plan:
    if isinstance(of, RoundTable):  # whose rounds all differ
        each, senders, receivers = np.diff(of.first), of.senders.astype(np.int64), of.receivers.astype(np.int64)
        return _made(each, np.ones(len(each), np.int64), senders, receivers, np.repeat(of.nbytes, each), ranks)
    runs: list[Round] = []
    times: list[int] = []
    last: Any = None
    for one in of:
        same = id(one.senders), id(one.receivers), one.nbytes if isinstance(one.nbytes, float) else id(one.nbytes)
        if same == last and not one_by_one:
            times[-1] += 1
        else:
            runs.append(one)
            times.append(1)
            last = same
    each = np.array([len(one.senders) for one in runs], dtype=np.int64)
    senders = _joined([one.senders for one in runs], np.int64)
    receivers = _joined([one.receivers for one in runs], np.int64)
    if all(isinstance(one.nbytes, (int, float)) for one in runs):
        sizes = np.repeat(np.array([one.nbytes for one in runs], dtype=np.float64), each)
    else:
        sizes = _joined([np.broadcast_to(one.nbytes, one.senders.shape) for one in runs], np.float64)
    return _made(each, np.array(times, dtype=np.int64), senders, receivers, sizes, ranks)


def _made(each: Ints, times: Ints, senders: Ints, receivers: Ints, sizes: NDArray[np.float64], ranks: int) -> Plan:
    first = np.zeros(len(each) + 1, dtype=np.int64)
    np.cumsum(each, out=first[1:])
    places, entries, sendings = _by_rank(first, times, senders, receivers, sizes, ranks)
    return Plan(places, entries, sendings, senders, receivers)


def _joined(columns: Sequence[NDArray[Any]], kind: type) -> NDArray[Any]:
    return np.concatenate(columns).astype(kind, copy=False) if columns else np.zeros(0, dtype=kind)
