"""A direct exchange in lockstep: the messages of each half begin together and share channels by equal parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.collectives.algorithms import Round
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.network.topology import Ints, Topology
from syncline.sim.lockstep.shares import shared_flow_s


def run_direct(rounds: Sequence[Round], topology: Topology, entry_s: Floats) -> tuple[Floats, Floats]:
    """Return the times at which each worker has received and sent its last message, both ``(P,)`` seconds.

    A message begins when its sender comes to its half of the exchange, and when the message before on its connection
    has left.

    Args:
        rounds: rounds of the exchange.
        topology: the network of the workers.
        entry_s: time at which each worker begins its messages, ``(P,)`` seconds.

    Raises:
        Contention: unequal messages share a channel that limits them, or messages of different times do.
    """
    received, sent = entry_s.copy(), entry_s.copy()
    middle = len(rounds) // 2
    if not middle:
        return received, sent
    halves = [_messages(half) for half in (rounds[:middle], rounds[middle:])]
    bandwidth = np.append(topology.bandwidth_bytes_per_s, np.inf)
    paths = [topology.paths(senders, receivers) for senders, receivers, _ in halves]
    limits = limiting_channels([path.channels for path in paths], bandwidth)
    busy_s, leaves_s = np.full(len(bandwidth), -np.inf), np.full((topology.workers,) * 2, -np.inf)  # of a connection
    for (senders, receivers, nbytes), path in zip(halves, paths, strict=True):
        begin = np.maximum(received[senders], leaves_s[senders, receivers])
        left_s = shared_flow_s(begin, nbytes, path.channels, bandwidth, limits, busy_s)
        leaves_s[senders, receivers] = left_s
        received = received.copy()
        np.maximum.at(received, receivers, left_s + path.latency_s + path.overhead_s)
        np.maximum.at(sent, senders, left_s)
    return received, sent


def _messages(rounds: Sequence[Round]) -> tuple[Ints, Ints, Floats]:
    """Return the senders, the receivers and the bytes of all messages of these rounds, each ``(M,)``."""
    senders, receivers = (np.concatenate([round_[end] for round_ in rounds]) for end in (0, 1))
    sizes = [np.broadcast_to(np.float64(round_.nbytes), round_.senders.shape) for round_ in rounds]
    return senders, receivers, np.concatenate(sizes)


def limiting_channels(of_halves: Sequence[Ints], bandwidth: Floats) -> NDArray[np.bool_]:
    """Return the channels ``(C + 1,)`` that could limit their messages, even if those of both halves flow at once.

    The other channels of a message limit it to a rate. A channel that carries the sum of these rates limits none.

    Args:
        of_halves: ``(M, H)`` channels of the messages of each half; -1 for none.
        bandwidth: ``(C + 1,)`` bytes per second, the last infinite.
    """
    demand, count = np.zeros(len(bandwidth)), np.zeros(len(bandwidth))
    for channels in of_halves:
        rates = bandwidth[channels]
        for column in range(channels.shape[1]):
            others = np.delete(rates, column, axis=1).min(axis=1, initial=np.inf)
            np.add.at(demand, channels[:, column], others)
            np.add.at(count, channels[:, column], 1)
    limits = (count > 1) & (demand > bandwidth)
    limits[-1] = False
    return limits
