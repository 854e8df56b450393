"""Routes: the channels of a topology between many workers at once, as records of the core."""

from __future__ import annotations

import numpy as np

from syncline.costmodel.network.topology import Ints, Topology
from syncline.sim.events.state import CoreState

AT_ONCE = 2**18
"""So many routes are looked up together: what that takes beside them is some tens of numbers each."""


class Routes:
    """Routes between workers, in the core's tables.

    Args:
        state: the tables.
        over: the topology.
        eager: whether the latency comes after the bytes have flown, or before.
    """

    def __init__(self, state: CoreState, over: Topology, eager: bool) -> None:
        self._state, self._over, self._eager = state, over, eager
        self._bandwidth = np.append(over.bandwidth_bytes_per_s, np.inf)  # the last is of no channel
        self.longest = 1

    def add(self, senders: Ints, receivers: Ints, added_s: float | None = None, eager: bool = False) -> int:
        """Routes between these workers; returns the place of the first.

        Args:
            senders: ``(N,)`` workers.
            receivers: ``(N,)`` workers.
            added_s: seconds by which messages are late, whose route takes all but the bytes' time after them, as of
                gloo's connections; None for messages by a start rule.
            eager: whether the latency comes after the bytes have flown whatever the rule, as of NCCL's.
        """
        first = self._state.used["routes"]
        self._state.room("routes", len(senders))
        for begin in range(0, len(senders), AT_ONCE):
            chosen = slice(begin, begin + AT_ONCE)
            self._add(senders[chosen], receivers[chosen], added_s, eager or self._eager)
        return first

    def _add(self, senders: Ints, receivers: Ints, added_s: float | None, eager: bool) -> None:
        paths = self._over.paths(senders, receivers)
        channels = _each_once(paths.channels)
        hops, rate = np.zeros(len(senders), dtype=np.int64), np.full(len(senders), np.inf)
        for hop in channels.T:
            hops += hop >= 0
            np.minimum(rate, self._bandwidth[hop], out=rate)
        _, routes = self._state.take("routes", len(senders))
        latency_s, overhead_s = paths.latency_s, paths.overhead_s
        routes["rate"] = rate
        if eager:
            routes["before"], routes["after"] = overhead_s, latency_s
        else:
            routes["before"] = latency_s + overhead_s
        if added_s is not None:
            routes["after"] = routes["before"] + routes["after"] + added_s
            routes["before"] = 0.0
        routes["hops"] = hops
        first = self._state.append("hops", channels[channels >= 0].astype(np.int32))
        routes["hop0"] = first + np.cumsum(hops) - hops
        self.longest = max(self.longest, int(hops.max(initial=0)))


def _each_once(channels: Ints) -> Ints:
    """Rows of channels in which none comes twice: -1 instead of the later ones."""
    out = channels
    for later in range(1, channels.shape[1]):
        for earlier in range(later):
            twice = (channels[:, earlier] == channels[:, later]) & (channels[:, later] >= 0)
            if twice.any():
                if out is channels:
                    out = channels.copy()
                out[twice, later] = -1
    return out
