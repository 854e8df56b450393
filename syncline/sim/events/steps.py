"""A collective worker by worker: what each sends and receives in each round, and over which way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, groupby, repeat
from typing import NamedTuple

import numpy as np

from syncline.costmodel.network.topology import Topology
from syncline.sim.collectives.rounds import Round
from syncline.sim.events.flows import Way


class Step(NamedTuple):
    """What a worker does in one round.

    Attributes:
        sends: of each message, the place of its receiver in the group, its place among the messages that the receiver
            gets in this round, its bytes, and its way.
        receives: how many messages it gets.
    """

    sends: Sequence[tuple[int, int, float, Way]]
    receives: int


class Role(NamedTuple):
    """What a worker does in a collective.

    Attributes:
        steps: in each round.
        before: how many messages it gets before each round; one more, the last: in all.
        nbytes: that it sends.
    """

    steps: list[Step]
    before: list[int]
    nbytes: float


IDLE = Step((), 0)


class Ways:
    """The ways between workers, each looked up once.

    Args:
        over: the topology.
        eager: whether the latency comes after the bytes have flown, or before.
    """

    def __init__(self, over: Topology, eager: bool) -> None:
        self._over, self._eager = over, eager
        self._bandwidth = over.bandwidth_bytes_per_s.tolist()
        self._known: dict[tuple[int, int], Way] = {}

    def between(self, sender: int, receiver: int) -> Way:
        """The way from one worker to another."""
        way = self._known.get((sender, receiver))
        if way is None:
            self.look_up([(sender, receiver)])
            way = self._known[sender, receiver]
        return way

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
            self._known[pair] = Way(channels, rate, *times)


def roles(of: Sequence[Round], group: Sequence[int], ways: Ways) -> dict[int, Role]:
    """Who does what in the rounds of a collective.

    Args:
        of: the rounds, of workers 0, 1, ... that stand for those of the group.
        group: the workers.
        ways: between them.
    """
    # A ring is one round many times over, and all its workers get as much.
    runs = [(_steps(next(same), group, ways), 1 + sum(1 for _ in same)) for _, same in groupby(of, key=_same)]
    counts: dict[tuple[tuple[int, int], ...], list[int]] = {}
    made = {}
    for place, worker in enumerate(group):
        own = [(steps.get(place, IDLE), times) for steps, times in runs]
        gets = tuple((step.receives, times) for step, times in own)
        if gets not in counts:
            each = chain.from_iterable(repeat(*run) for run in gets)
            counts[gets] = list(accumulate(each, initial=0))
        nbytes = sum(times * sum(send[2] for send in step.sends) for step, times in own)
        made[worker] = Role(list(chain.from_iterable(repeat(*run) for run in own)), counts[gets], nbytes)
    return made


def _same(of: Round) -> tuple[int, int, float]:
    """Equal for rounds that are one."""
    return id(of.senders), id(of.receivers), of.nbytes if isinstance(of.nbytes, float) else id(of.nbytes)


def _steps(of: Round, group: Sequence[int], ways: Ways) -> dict[int, Step]:
    """What each place of the group does in a round, if anything."""
    pairs = list(zip(of.senders.tolist(), of.receivers.tolist(), strict=True))
    ends = [(group[i], group[j]) for i, j in pairs]
    ways.look_up(ends)
    sends: dict[int, list[tuple[int, int, float, Way]]] = {}
    gets: dict[int, int] = {}
    sizes = np.broadcast_to(of.nbytes, of.senders.shape).tolist()
    for (i, j), end, size in zip(pairs, ends, sizes, strict=True):
        sends.setdefault(i, []).append((j, gets.get(j, 0), size, ways.between(*end)))
        gets[j] = gets.get(j, 0) + 1
    return {place: Step(sends.get(place, ()), gets.get(place, 0)) for place in {**sends, **gets}}
