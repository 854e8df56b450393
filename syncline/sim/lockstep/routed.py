"""Rounds on a topology, ready to run in lockstep: the cost of each message, and the shared channels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.collectives.algorithms import Round, RoundTable
from syncline.costmodel.network.paths import Floats, Ints, Star, Topology, narrowest
from syncline.costmodel.numerics.arrays import bounded_cache, is_hashed_by_value
from syncline.errors import SynclineError
from syncline.sim.lockstep.rings import rings
from syncline.sim.program.rounds import rounds_bytes, rounds_on

MANY_ROUNDS = 32
"""Number of equal rounds in a row from which a search for their rings saves time."""


class Contention(SynclineError):
    """An error about transfers that share a channel in a way that lockstep cannot follow; the event simulation can."""


class RoutedRound(NamedTuple):
    """A round of M messages on a topology; the seconds are one number for all messages, or an array ``(M,)``.

    Attributes:
        messages: the round: senders, receivers and bytes.
        overhead_s: seconds that the sender is busy before the bytes flow.
        flow_s: seconds in which the bytes flow: bytes / bandwidth of the narrowest channel of the route.
        latency_s: seconds of latency of the route.
        shares_channels: whether a channel of the round carries messages of several senders to several receivers.
        rings: the workers along the rings that the messages form, see `rings`; None if there are none, or if the round
            is repeated too few times for a search.
        sender_to: the sender to each worker, ``(P,)``, if every worker sends a message and receives one, and the
            senders are in ascending order; otherwise None.
        channels: the at most H channels of each message, ``(M, H)``, padded with -1; None if no channel is shared.
    """

    messages: Round
    overhead_s: float | Floats
    flow_s: float | Floats
    latency_s: float | Floats
    shares_channels: bool
    rings: Ints | None
    sender_to: Ints | None
    channels: Ints | None


class RoutedSequence(NamedTuple):
    """R rounds of one message each, none of which shares a channel; the arrays have a number per round, ``(R,)``."""

    messages: Round
    overhead_s: Floats
    flow_s: Floats
    latency_s: Floats


@dataclass(frozen=True, eq=False)
class RoutedRounds:
    """The rounds of a collective on a topology.

    Args:
        runs: each round with its number of repetitions in a row; or one pair ``(sequence, 1)`` with all rounds.
        bandwidth: see `channel_bandwidths`, ``(C + 1,)``.
        is_shared: whether each of C channels carries messages of several senders to several receivers, and False for
            channel -1, ``(C + 1,)``. On the other channels transfers follow each other, because they share a port.
        copies: number of equal workers that each simulated worker stands for, ``(P,)``, on the same shared channels;
            one by default.
    """

    runs: Sequence[tuple[RoutedRound | RoutedSequence, int]]
    bandwidth: Floats
    is_shared: NDArray[np.bool_]
    copies: Ints | None = None

    @classmethod
    def from_rounds(
        cls,
        rounds: Sequence[Round],
        topology: Topology,
        shared: NDArray[np.bool_] | None = None,
        copies: Ints | None = None,
    ) -> RoutedRounds:
        """Return these rounds on a topology, with the costs of each message.

        Args:
            rounds: the rounds; the routes of a repeated round are looked up once.
            shared: whether each of C channels is shared, ``(C,)``, in these rounds and others of the same training; by
                default in these rounds alone.
            copies: as in the class.

        Raises:
            Contention: a worker sends twice or receives twice in one round.
        """
        bandwidth = channel_bandwidths(topology)
        if isinstance(rounds, RoundTable) and len(rounds) == len(rounds.senders) > 0:  # one message in each round
            messages = Round(rounds.senders, rounds.receivers, rounds.nbytes)
            if shared is None:
                shared = shared_channels([[messages]], topology)
            if not shared.any():  # so ``copies`` would change nothing
                paths = topology.paths(messages.senders, messages.receivers)
                flow_s = messages.nbytes / narrowest(paths, bandwidth)
                sequence = RoutedSequence(messages, paths.overhead_s, flow_s, paths.latency_s)
                return cls([(sequence, 1)], bandwidth, np.append(shared, False))
        rounds = list(rounds)  # a table makes new rounds whenever it is read
        is_shared = np.append(shared_channels([rounds], topology) if shared is None else shared, False)
        routed: dict[int, RoutedRound] = {}  # by the id of a round
        runs: list[tuple[RoutedRound, int]] = []
        for _, repeated_round in groupby(rounds, key=id):
            equal_rounds = list(repeated_round)
            round_, repetitions = equal_rounds[0], len(equal_rounds)
            if not len(round_.senders):  # nothing to send takes no time
                continue
            if id(round_) not in routed:
                seeks_rings = repetitions >= MANY_ROUNDS
                routed[id(round_)] = _routed_round(round_, topology, bandwidth, is_shared, seeks_rings)
            runs.append((routed[id(round_)], repetitions))
        return cls(runs, bandwidth, is_shared, copies)

    @property
    def memory_bytes(self) -> float:
        """Return the approximate memory in bytes, including the rounds."""
        distinct_rounds = {id(routed_round): routed_round for routed_round, _ in self.runs}.values()
        nbytes = rounds_bytes([routed_round.messages for routed_round in distinct_rounds])
        for routed_round in distinct_rounds:
            _, *costs = routed_round  # all fields but the messages, which are counted above
            nbytes += sum(np.asarray(cost).nbytes for cost in costs)
        return nbytes + self.bandwidth.nbytes + 100.0 * len(self.runs)  # about 100 bytes for the pair of a run

    @property
    def shares_channels(self) -> bool:
        """Return whether any two transfers could use one channel at the same time."""
        return any(isinstance(run, RoutedRound) and run.shares_channels for run, _ in self.runs)


class CollectiveKey(NamedTuple):
    """The kind, bytes and algorithm of a collective: on a topology they determine its rounds."""

    kind: str
    nbytes: float
    algorithm: str | None


def routed_rounds(key: CollectiveKey, topology: Topology, shared: NDArray[np.bool_] | None = None) -> RoutedRounds:
    """Return the rounds of a collective on a topology, from a cache if they were made before.

    Args:
        shared: as in `RoutedRounds.from_rounds`.

    Raises:
        SpecError: an unknown collective or algorithm.
        Contention: as in `RoutedRounds.from_rounds`.
    """
    build = _cached_rounds if is_hashed_by_value(topology) else _build_rounds
    return build(key, topology, None if shared is None else shared.tobytes())


def _build_rounds(key: CollectiveKey, topology: Topology, shared_bytes: bytes | None) -> RoutedRounds:
    """Return the rounds of a collective on a topology; ``shared_bytes`` is the mask ``shared``, as a hashable value."""
    kind, nbytes, algorithm = key
    shared = None if shared_bytes is None else np.frombuffer(shared_bytes, np.bool_)
    all_rounds = rounds_on(kind, topology.workers, nbytes, topology, algorithm)
    return RoutedRounds.from_rounds(all_rounds, topology, shared)


_cached_rounds = bounded_cache(128e6, lambda rounds: rounds.memory_bytes)(_build_rounds)


def shared_channels(collectives: Iterable[Sequence[Round]], topology: Topology) -> NDArray[np.bool_]:
    """Return for each of C channels whether several workers send over it and several receive over it, ``(C,)``.

    If all messages on a channel have one sender, or one receiver, the port of that worker serves these messages one
    after another; this is so on every channel of a star with full-duplex links.
    """
    num_channels = len(topology.bandwidth_bytes_per_s)
    if isinstance(topology, Star) and not topology.half_duplex.any():
        return np.zeros(num_channels, dtype=np.bool_)
    # Row 0 for senders, row 1 for receivers: one worker of each channel (-1: none), and whether the channel has others.
    worker_of_channel = np.full((2, num_channels), -1, dtype=np.int64)
    has_several = np.zeros((2, num_channels), dtype=np.bool_)
    visited: set[tuple[int, int]] = set()  # ids of the arrays of equal rounds
    for senders, receivers, _ in chain.from_iterable(collectives):
        if (id(senders), id(receivers)) in visited or not len(senders):  # an equal round, or an empty one
            continue
        visited.add((id(senders), id(receivers)))
        channels_by_hop = topology.paths(senders, receivers).channels.T  # the first of each route, the second, ...
        for channel_of_message in channels_by_hop:
            is_used = slice(None) if (channel_of_message >= 0).all() else channel_of_message >= 0
            channel = channel_of_message[is_used]
            for end, workers in enumerate((senders, receivers)):
                worker, known_worker = workers[is_used], worker_of_channel[end, channel]
                # If several workers of a round are new on a channel, NumPy stores one; the comparison finds the others.
                worker_of_channel[end, channel] = np.where(known_worker < 0, worker, known_worker)
                has_several[end, channel[worker_of_channel[end, channel] != worker]] = True
    return has_several[0] & has_several[1]


def _routed_round(
    round_: Round, topology: Topology, bandwidth: Floats, is_shared: NDArray[np.bool_], seeks_rings: bool
) -> RoutedRound:
    """Return a round with the costs of its messages on a topology.

    Args:
        bandwidth: see `channel_bandwidths`, ``(C + 1,)``.
        is_shared: as in `RoutedRounds`.
        seeks_rings: whether to find the rings that the messages form.
    """
    senders, receivers, nbytes = round_
    workers = topology.workers
    for ends in (senders, receivers):
        if len(ends) > 1 and np.bincount(ends, minlength=workers).max() > 1:
            raise Contention("a worker sends or receives twice in one round, which lockstep cannot follow")
    paths = topology.paths(senders, receivers)
    shares = bool(is_shared[paths.channels].any())
    return RoutedRound(
        round_, _scalar_if_equal(paths.overhead_s), flow_s=_scalar_if_equal(nbytes / narrowest(paths, bandwidth)),
        latency_s=_scalar_if_equal(paths.latency_s), shares_channels=shares,
        rings=rings(senders, receivers, workers) if seeks_rings else None,
        # No two messages have one receiver, so sorting the receivers inverts the permutation.
        sender_to=np.argsort(receivers) if np.array_equal(senders, np.arange(workers)) else None,
        channels=paths.channels if shares else None,
    )  # fmt: skip


def channel_bandwidths(topology: Topology) -> Floats:
    """Return the bytes per second of C channels, and infinity for the index -1, which means none, ``(C + 1,)``."""
    return np.append(topology.bandwidth_bytes_per_s, np.inf)


def _scalar_if_equal(values: Floats) -> float | Floats:
    """Return one number if all values are equal, else the array."""
    return float(values[0]) if np.all(values == values[0]) else values
