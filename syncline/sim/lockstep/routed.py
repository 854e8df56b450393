"""Rounds on a topology, ready to run in lockstep: what each message costs, and which channels are shared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.collectives.algorithms import Round
from syncline.costmodel.kept import by_value, kept
from syncline.costmodel.network.paths import Floats, Ints
from syncline.costmodel.network.topology import Paths, Star, Topology
from syncline.errors import SynclineError
from syncline.sim.collectives.rounds import rounds, rounds_bytes, rounds_on
from syncline.sim.lockstep.rings import rings

MANY_ROUNDS = 32
"""From so many equal rounds on it pays to look for the rings that they make."""


class Contention(SynclineError):
    """Transfers share a channel in a way that lockstep cannot follow; the events can."""


class RoutedRound(NamedTuple):
    """A round on a topology; numbers are one for all messages, or ``(M,)``.

    Attributes:
        of: the round.
        overhead_s: o, that the sender is busy before the bytes flow.
        flow_s: n / R that they flow, R being the narrowest channel of the route.
        latency_s: alpha.
        shared: whether a channel of it carries messages of several senders to several receivers.
        rings: the workers ``(G, M)`` along the rings that the messages make, if the round is repeated and they do.
        source: ``(P,)`` who sends to each worker, if all send, in their order, and all receive.
    """

    of: Round
    overhead_s: float | Floats
    flow_s: float | Floats
    latency_s: float | Floats
    shared: bool
    rings: Ints | None
    source: Ints | None


@dataclass(frozen=True, eq=False)
class RoutedRounds:
    """The rounds of a collective on a topology.

    Args:
        runs: each with how often it comes one after another.
        topology: the network.
        shared: ``(C,)`` channels that carry messages of several senders to several receivers; of all others the
            ports keep transfers apart.
    """

    runs: Sequence[tuple[RoutedRound, int]]
    topology: Topology
    shared: NDArray[np.bool_]

    @classmethod
    def of(cls, of: Sequence[Round], topology: Topology, shared: NDArray[np.bool_] | None = None) -> RoutedRounds:
        """These rounds on a topology.

        Args:
            of: the rounds; the routes of one that comes again are looked up once.
            topology: the network.
            shared: the shared channels, if other rounds take turns with these; those of these rounds by themselves
                unless given.

        Raises:
            Contention: a worker sends twice or receives twice in one round.
        """
        runs = [(next(again), 1 + sum(1 for _ in again)) for _, again in groupby(of, key=id)]
        if shared is None:
            shared = shared_channels([[one for one, _ in runs]], topology)
        bandwidth = np.append(topology.bandwidth_bytes_per_s, np.inf)
        marks = np.append(shared, False) if shared.any() else None
        routed: dict[int, RoutedRound] = {}
        runs = [(one, times) for one, times in runs if len(one.senders)]
        for one, times in runs:
            if id(one) not in routed:
                routed[id(one)] = _routed(one, topology, bandwidth, marks, repeated=times >= MANY_ROUNDS)
        return cls([(routed[id(one)], times) for one, times in runs], topology, shared)

    @property
    def memory_bytes(self) -> float:
        """About what it takes in memory, with its rounds."""
        each = {id(one): one for one, _ in self.runs}.values()
        own = sum(np.asarray(part).nbytes for one in each for part in one[1:])
        return rounds_bytes([one.of for one in each]) + own + 100.0 * len(self.runs)

    @property
    def shares(self) -> bool:
        """Whether any two transfers could want one channel at once."""
        return any(one.shared for one, _ in self.runs)


Key: TypeAlias = tuple[str, float, str | None]
"""A collective's kind, bytes and algorithm."""


def routed_rounds(key: Key, topology: Topology, shared: NDArray[np.bool_] | None = None) -> RoutedRounds:
    """The rounds of a collective on a topology: of equal ones made once, as they are a function of both alone.

    Args:
        key: the collective.
        topology: the network of its workers.
        shared: as of `RoutedRounds.of`.

    Raises:
        SpecError: an unknown collective or algorithm.
        Contention: as `RoutedRounds.of`.
    """
    marks = None if shared is None else shared.tobytes()
    return _kept_rounds(key, topology, marks) if by_value(topology) else _made_rounds(key, topology, marks)


def _made_rounds(key: Key, topology: Topology, marks: bytes | None) -> RoutedRounds:
    kind, nbytes, algorithm = key
    shared = None if marks is None else np.frombuffer(marks, np.bool_)
    return RoutedRounds.of(rounds_on(kind, topology.workers, nbytes, topology, algorithm), topology, shared)


_kept_rounds = kept(128e6, lambda made: made.memory_bytes)(_made_rounds)


def forget() -> None:
    """Make all rounds anew from now on, to measure what that takes."""
    _kept_rounds.cache_clear()
    rounds.cache_clear()


def shared_channels(of_each: Iterable[Sequence[Round]], topology: Topology) -> NDArray[np.bool_]:
    """The channels ``(C,)`` over which several workers send and several receive, in any of these rounds.

    Where all messages of a channel have one sender, or one receiver, its port serves them one after another: so on
    every channel of a star whose links are full-duplex.
    """
    channels = len(topology.bandwidth_bytes_per_s)
    if isinstance(topology, Star) and not topology.half_duplex.any():
        return np.zeros(channels, dtype=np.bool_)
    known = np.full((2, channels), -1, dtype=np.int64)
    several = np.zeros((2, channels), dtype=np.bool_)
    seen: set[tuple[int, int]] = set()
    for of in of_each:
        for senders, receivers, _ in of:
            key = id(senders), id(receivers)
            if key in seen or not len(senders):
                continue
            seen.add(key)
            for column in topology.paths(senders, receivers).channels.T:
                used = slice(None) if (column >= 0).all() else column >= 0
                channel = column[used]
                for end, of_end, severals in zip((senders, receivers), known, several, strict=True):
                    worker, before = end[used], of_end[channel]
                    # Where several of a round are new on a channel, one of them is noted, and the others differ.
                    of_end[channel] = np.where(before < 0, worker, before)
                    severals[channel[of_end[channel] != worker]] = True
    return several[0] & several[1]


def _routed(
    one: Round, topology: Topology, bandwidth: Floats, marks: NDArray[np.bool_] | None, repeated: bool
) -> RoutedRound:
    senders, receivers, nbytes = one
    workers = topology.workers
    for ends in (senders, receivers):
        if len(ends) > 1 and np.bincount(ends, minlength=workers).max() > 1:
            raise Contention("a worker sends or receives twice in one round, which lockstep cannot follow")
    paths = topology.paths(senders, receivers)
    return RoutedRound(
        one,
        _one(paths.overhead_s),
        _one(nbytes / narrowest(paths, bandwidth)),
        _one(paths.latency_s),
        marks is not None and bool(marks[paths.channels].any()),
        rings(senders, receivers, workers) if repeated else None,
        _inverse(receivers) if np.array_equal(senders, np.arange(workers)) else None,
    )


def _inverse(receivers: Ints) -> Ints:
    source = np.empty_like(receivers)
    source[receivers] = np.arange(len(receivers))
    return source


def narrowest(paths: Paths, bandwidth: Floats) -> Floats:
    """Bytes per second of each route's narrowest channel, ``(N,)``; ``bandwidth`` is ``(C + 1,)``, infinite at last."""
    rate: Floats = bandwidth[paths.channels[:, 0]]
    for column in paths.channels.T[1:]:
        rate = np.minimum(rate, bandwidth[column])
    return rate


def _one(values: Floats) -> float | Floats:
    """One number, if all are equal."""
    return float(values[0]) if np.all(values == values[0]) else values
