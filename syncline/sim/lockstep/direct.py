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

    A message begins when its sender has received all messages of the half before, and when the previous message on its
    connection has left.

    Args:
        rounds: rounds of the exchange.
        topology: the network of the workers.
        entry_s: time at which each worker begins its messages, ``(P,)`` seconds.

    Raises:
        Contention: unequal messages, or messages of different times, share a channel that limits these messages.
    """
    received_s, sent_s = entry_s.copy(), entry_s.copy()
    middle = len(rounds) // 2
    if not middle:
        return received_s, sent_s
    halves = [_messages(half) for half in (rounds[:middle], rounds[middle:])]
    bandwidth = np.append(topology.bandwidth_bytes_per_s, np.inf)
    paths = [topology.paths(senders, receivers) for senders, receivers, _ in halves]
    limits = limiting_channels([path.channels for path in paths], bandwidth)
    channel_busy_s, connection_busy_s = np.full(len(bandwidth), -np.inf), np.full((topology.workers,) * 2, -np.inf)
    for (senders, receivers, nbytes), path in zip(halves, paths, strict=True):
        begin_s = np.maximum(received_s[senders], connection_busy_s[senders, receivers])
        end_s = shared_flow_s(begin_s, nbytes, path.channels, bandwidth, limits, channel_busy_s)
        connection_busy_s[senders, receivers] = end_s
        received_s = received_s.copy()
        np.maximum.at(received_s, receivers, end_s + path.latency_s + path.overhead_s)
        np.maximum.at(sent_s, senders, end_s)
    return received_s, sent_s


def _messages(rounds: Sequence[Round]) -> tuple[Ints, Ints, Floats]:
    """Return the senders, the receivers and the bytes of all messages of these rounds, each ``(M,)``."""
    senders = np.concatenate([round_.senders for round_ in rounds])
    receivers = np.concatenate([round_.receivers for round_ in rounds])
    sizes = [np.broadcast_to(np.float64(round_.nbytes), round_.senders.shape) for round_ in rounds]
    return senders, receivers, np.concatenate(sizes)


def limiting_channels(channels_of_halves: Sequence[Ints], bandwidth: Floats) -> NDArray[np.bool_]:
    """Return whether each channel could limit its messages, ``(C + 1,)``, even if both halves flow at once.

    The other channels of a message limit this message to a rate. A channel that can carry the sum of the rates of its
    messages limits none of them.

    Args:
        channels_of_halves: for each half, the channels of M messages, at most H each, ``(M, H)``; -1 for none.
        bandwidth: bytes per second of C channels and of channel -1, which is infinite, ``(C + 1,)``.
    """
    demand, count = np.zeros(len(bandwidth)), np.zeros(len(bandwidth))
    for channels in channels_of_halves:
        rates = bandwidth[channels]
        for column in range(channels.shape[1]):
            rate_elsewhere = np.delete(rates, column, axis=1).min(axis=1, initial=np.inf)
            np.add.at(demand, channels[:, column], rate_elsewhere)
            np.add.at(count, channels[:, column], 1)
    limits = (count > 1) & (demand > bandwidth)
    limits[-1] = False
    return limits
