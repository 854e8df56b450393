"""Rounds on a topology, ready to run in lockstep: the cost of each message, and the shared channels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.collectives.algorithms import Round, RoundTable
from syncline.costmodel.network.paths import Floats, Ints, narrowest
from syncline.costmodel.network.topology import Star, Topology
from syncline.costmodel.numerics.bounded_cache import bounded_cache, is_hashed_by_value
from syncline.errors import SynclineError
from syncline.sim.collectives.rounds import rounds_bytes, rounds_on
from syncline.sim.lockstep.rings import rings

MANY_ROUNDS = 32
"""Number of equal rounds from which it pays to look for the rings that they make."""


class Contention(SynclineError):
    """Transfers share a channel in a way that lockstep cannot follow; the events can."""


class RoutedRound(NamedTuple):
    """A round on a topology; each number is one value for all messages, or an array ``(M,)``.

    Attributes:
        of: the round.
        overhead_s: o, seconds that the sender is busy before the bytes flow.
        flow_s: n / R, seconds that the bytes flow, R being the narrowest channel of the route.
        latency_s: alpha, seconds of latency of the route.
        shared: whether one of its channels carries messages of several senders to several receivers.
        rings: the workers ``(G, M)`` along the rings that the messages make, if the round is repeated and makes rings.
        source: ``(P,)`` sender to each worker, if all workers send, in their order, and all receive.
    """

    of: Round
    overhead_s: float | Floats
    flow_s: float | Floats
    latency_s: float | Floats
    shared: bool
    rings: Ints | None
    source: Ints | None


class RoutedSequence(NamedTuple):
    """Rounds of one message each, none of which shares a channel: the arrays have a number per round, ``(R,)``.

    Attributes:
        of: the messages in their order.
        overhead_s: o, as in `RoutedRound`.
        flow_s: n / R.
        latency_s: alpha.
    """

    of: Round
    overhead_s: Floats
    flow_s: Floats
    latency_s: Floats


@dataclass(frozen=True, eq=False)
class RoutedRounds:
    """The rounds of a collective on a topology.

    Args:
        runs: each round with its number of repetitions in a row; or all rounds as one sequence, once.
        topology: the network.
        shared: ``(C,)`` channels that carry messages of several senders to several receivers; on all other channels the
            ports keep transfers apart.
    """

    runs: Sequence[tuple[RoutedRound | RoutedSequence, int]]
    topology: Topology
    shared: NDArray[np.bool_]

    @classmethod
    def from_rounds(
        cls, rounds: Sequence[Round], topology: Topology, shared: NDArray[np.bool_] | None = None
    ) -> RoutedRounds:
        """Return these rounds on a topology.

        Args:
            rounds: the rounds; the routes of a repeated round are looked up once.
            topology: the network.
            shared: the shared channels, if other rounds alternate with these; by default those of these rounds by
                themselves.

        Raises:
            Contention: a worker sends twice or receives twice in one round.
        """
        if isinstance(rounds, RoundTable) and len(rounds) == len(rounds.senders) > 0:
            messages = Round(rounds.senders, rounds.receivers, rounds.nbytes)
            of_messages = shared_channels([[messages]], topology) if shared is None else shared
            if not of_messages.any():
                return cls([(_sequence(messages, topology), 1)], topology, of_messages)
        runs = [(next(repeats), 1 + sum(1 for _ in repeats)) for _, repeats in groupby(rounds, key=id)]
        if shared is None:
            shared = shared_channels([[round_ for round_, _ in runs]], topology)
        bandwidth = np.append(topology.bandwidth_bytes_per_s, np.inf)
        marks = np.append(shared, False) if shared.any() else None
        routed: dict[int, RoutedRound] = {}
        runs = [(round_, times) for round_, times in runs if len(round_.senders)]
        for round_, times in runs:
            if id(round_) not in routed:
                routed[id(round_)] = _routed(round_, topology, bandwidth, marks, repeated=times >= MANY_ROUNDS)
        return cls([(routed[id(round_)], times) for round_, times in runs], topology, shared)

    @property
    def memory_bytes(self) -> float:
        """Return the approximate memory in bytes, with its rounds."""
        distinct = {id(routed_round): routed_round for routed_round, _ in self.runs}.values()
        arrays_bytes = sum(np.asarray(part).nbytes for routed_round in distinct for part in routed_round[1:])
        return rounds_bytes([routed_round.of for routed_round in distinct]) + arrays_bytes + 100.0 * len(self.runs)

    @property
    def shares(self) -> bool:
        """Return whether any two transfers could need one channel at once."""
        return any(isinstance(part, RoutedRound) and part.shared for part, _ in self.runs)


Key: TypeAlias = tuple[str, float, str | None]
"""A collective's kind, bytes and algorithm."""


def routed_rounds(key: Key, topology: Topology, shared: NDArray[np.bool_] | None = None) -> RoutedRounds:
    """Return the rounds of a collective on a topology; equal arguments give the cached rounds.

    Args:
        key: the collective.
        topology: the network of its workers.
        shared: as in `RoutedRounds.from_rounds`.

    Raises:
        SpecError: an unknown collective or algorithm.
        Contention: as in `RoutedRounds.from_rounds`.
    """
    marks = None if shared is None else shared.tobytes()
    return _kept_rounds(key, topology, marks) if is_hashed_by_value(topology) else _build_rounds(key, topology, marks)


def _build_rounds(key: Key, topology: Topology, marks: bytes | None) -> RoutedRounds:
    kind, nbytes, algorithm = key
    shared = None if marks is None else np.frombuffer(marks, np.bool_)
    return RoutedRounds.from_rounds(rounds_on(kind, topology.workers, nbytes, topology, algorithm), topology, shared)


_kept_rounds = bounded_cache(128e6, lambda made: made.memory_bytes)(_build_rounds)


def shared_channels(of_each: Iterable[Sequence[Round]], topology: Topology) -> NDArray[np.bool_]:
    """Return the channels ``(C,)`` over which several workers send and several receive, in any of these rounds.

    If all messages of a channel have one sender, or one receiver, its port serves them one after another; this is so on
    every channel of a star with full-duplex links.
    """
    channels = len(topology.bandwidth_bytes_per_s)
    if isinstance(topology, Star) and not topology.half_duplex.any():
        return np.zeros(channels, dtype=np.bool_)
    first_workers = np.full((2, channels), -1, dtype=np.int64)
    several = np.zeros((2, channels), dtype=np.bool_)
    seen: set[tuple[int, int]] = set()
    for collective_rounds in of_each:
        for senders, receivers, _ in collective_rounds:
            key = id(senders), id(receivers)
            if key in seen or not len(senders):
                continue
            seen.add(key)
            for column in topology.paths(senders, receivers).channels.T:
                used = slice(None) if (column >= 0).all() else column >= 0
                channel = column[used]
                for end, first_of_channel, several_of_channel in zip(
                    (senders, receivers), first_workers, several, strict=True
                ):
                    worker, before = end[used], first_of_channel[channel]
                    # If several workers of a round are new on a channel, one of them is noted, and the others differ.
                    first_of_channel[channel] = np.where(before < 0, worker, before)
                    several_of_channel[channel[first_of_channel[channel] != worker]] = True
    return several[0] & several[1]


def _routed(
    round_: Round, topology: Topology, bandwidth: Floats, marks: NDArray[np.bool_] | None, repeated: bool
) -> RoutedRound:
    senders, receivers, nbytes = round_
    workers = topology.workers
    for ends in (senders, receivers):
        if len(ends) > 1 and np.bincount(ends, minlength=workers).max() > 1:
            raise Contention("a worker sends or receives twice in one round, which lockstep cannot follow")
    paths = topology.paths(senders, receivers)
    return RoutedRound(
        round_,
        _scalar_if_equal(paths.overhead_s),
        _scalar_if_equal(nbytes / narrowest(paths, bandwidth)),
        _scalar_if_equal(paths.latency_s),
        marks is not None and bool(marks[paths.channels].any()),
        rings(senders, receivers, workers) if repeated else None,
        np.argsort(receivers) if np.array_equal(senders, np.arange(workers)) else None,
    )


def _sequence(messages: Round, topology: Topology) -> RoutedSequence:
    paths = topology.paths(messages.senders, messages.receivers)
    rate = narrowest(paths, np.append(topology.bandwidth_bytes_per_s, np.inf))
    return RoutedSequence(messages, paths.overhead_s, messages.nbytes / rate, paths.latency_s)


def _scalar_if_equal(values: Floats) -> float | Floats:
    """Return one number if all are equal, else the array."""
    return float(values[0]) if np.all(values == values[0]) else values
