"""A collective rank by rank: what each sends and receives in each round, and over which route."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, groupby, repeat
from typing import NamedTuple

import numpy as np

from syncline.costmodel.collectives.algorithms import Round
from syncline.costmodel.network.paths import Topology
from tests.sim.oracle.flows import Route


class RankRound(NamedTuple):
    """What a rank does in one round.

    Attributes:
        sends: of each message, the place of its receiver in the group, its place among the messages that the receiver
            gets in this round, its bytes, and its route.
        receives: how many messages it gets.
    """

    sends: Sequence[tuple[int, int, float, Route]]
    receives: int


class RankRounds(NamedTuple):
    """What a rank does in a collective.

    Attributes:
        rounds: what it does in each.
        before: how many messages it gets before each round; one more, the last: in all.
        nbytes: that it sends.
    """

    rounds: list[RankRound]
    before: list[int]
    nbytes: float


IDLE_ROUND = RankRound((), 0)


class Routes:
    """The routes between workers, each looked up once.

    Args:
        over: the topology.
        eager: whether the latency comes after the bytes have flown, or before.
    """

    def __init__(self, over: Topology, eager: bool) -> None:
        self._over, self._eager = over, eager
        self._bandwidth = over.bandwidth_bytes_per_s.tolist()
        self._known: dict[tuple[int, int], Route] = {}

    def between(self, sender: int, receiver: int) -> Route:
        """The route from one worker to another."""
        route = self._known.get((sender, receiver))
        if route is None:
            self.look_up([(sender, receiver)])
            route = self._known[sender, receiver]
        return route

    def look_up(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Look up many at once."""
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._known]
        if not new:
            return
        paths = self._over.paths(*np.array(new).T)
        rows = zip(paths.channels.tolist(), paths.latency_s.tolist(), paths.overhead_s.tolist(), strict=True)
        for pair, (row, latency_s, overhead_s) in zip(new, rows, strict=True):
            channels = tuple(dict.fromkeys(channel for channel in row if channel >= 0))
            rate = min((self._bandwidth[channel] for channel in channels), default=float("inf"))
            times = (overhead_s, latency_s) if self._eager else (latency_s + overhead_s, 0.0)
            self._known[pair] = Route(channels, rate, *times)


def rounds_by_rank(of: Sequence[Round], group: Sequence[int], routes: Routes) -> dict[int, RankRounds]:
    """Who does what in the rounds of a collective.

    Args:
        of: the rounds, of workers 0, 1, ... that stand for those of the group.
        group: the workers.
        routes: between them.
    """
    # A ring is one round many times over, and all its workers get as much.
    runs = [(_by_place(next(same), group, routes), 1 + sum(1 for _ in same)) for _, same in groupby(of, key=_same)]
    counts: dict[tuple[tuple[int, int], ...], list[int]] = {}
    made = {}
    for place, worker in enumerate(group):
        own = [(doing.get(place, IDLE_ROUND), times) for doing, times in runs]
        gets = tuple((one.receives, times) for one, times in own)
        if gets not in counts:
            each = chain.from_iterable(repeat(*run) for run in gets)
            counts[gets] = list(accumulate(each, initial=0))
        nbytes = sum(times * sum(send[2] for send in one.sends) for one, times in own)
        made[worker] = RankRounds(list(chain.from_iterable(repeat(*run) for run in own)), counts[gets], nbytes)
    return made


def _same(of: Round) -> tuple[int, int, float]:
    """Equal for rounds that are one."""
    return id(of.senders), id(of.receivers), of.nbytes if isinstance(of.nbytes, float) else id(of.nbytes)


def _by_place(of: Round, group: Sequence[int], routes: Routes) -> dict[int, RankRound]:
    """What each place of the group does in a round, if anything."""
    pairs = list(zip(of.senders.tolist(), of.receivers.tolist(), strict=True))
    ends = [(group[i], group[j]) for i, j in pairs]
    routes.look_up(ends)
    sends: dict[int, list[tuple[int, int, float, Route]]] = {}
    gets: dict[int, int] = {}
    sizes = np.broadcast_to(of.nbytes, of.senders.shape).tolist()
    for (i, j), end, size in zip(pairs, ends, sizes, strict=True):
        sends.setdefault(i, []).append((j, gets.get(j, 0), size, routes.between(*end)))
        gets[j] = gets.get(j, 0) + 1
    return {place: RankRound(sends.get(place, ()), gets.get(place, 0)) for place in {**sends, **gets}}
