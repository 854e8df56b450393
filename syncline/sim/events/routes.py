"""Routes: the channels of a topology between many workers at once, as records of the core."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

import numpy as np

from syncline.costmodel.network.topology import Ints, Topology
from syncline.sim.events import views
from syncline.sim.events.compiled import entry
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
        self.longest = 1

    def add(self, senders: Ints, receivers: Ints, added_s: float | None = None) -> int:
        """Routes between these workers; returns the place of the first.

        Args:
            senders: ``(N,)`` workers.
            receivers: ``(N,)`` workers.
            added_s: seconds by which messages are late, whose route takes all but the bytes' time after them, as of
                gloo's connections; None for messages by a start rule.
        """
        first = self._state.used["routes"]
        self._state.room("routes", len(senders))
        for begin in range(0, len(senders), AT_ONCE):
            chosen = slice(begin, begin + AT_ONCE)
            self._add(senders[chosen], receivers[chosen], added_s)
        return first

    def _add(self, senders: Ints, receivers: Ints, added_s: float | None) -> None:
        paths = self._over.paths(senders, receivers)
        channels = np.ascontiguousarray(paths.channels, dtype=np.int64)
        latency_s, overhead_s = (np.ascontiguousarray(each, dtype=np.float64) for each in paths[1:])
        state = self._state
        first, _ = state.take("routes", len(senders))
        hop0, eager = state.used["hops"], self._eager
        state.room("hops", channels.size)
        added = added_s is not None, 0.0 if added_s is None else added_s
        state.used["hops"], longest = _write(state.address, channels, latency_s, overhead_s, first, hop0, eager, *added)
        self.longest = max(self.longest, longest)


@entry("UniTuple(int64, 2)(int64, int64[:, ::1], float64[::1], float64[::1], int64, int64, boolean, boolean, float64)")
def _write(addresses, channels, latency_s, overhead_s, first, hop, eager, adds, added_s):
    """Write routes and their channels, each once, as records; the place behind the last, and the longest."""
    routes, hops, of = views.routes(addresses), views.hops(addresses), views.channels(addresses)
    longest = 0
    for i in range(len(channels)):
        route = routes[first + i]
        route.hop0 = hop
        rate = np.inf
        for j in range(channels.shape[1]):
            channel = channels[i, j]
            if channel >= 0:
                again = False
                for k in range(j):
                    again |= channels[i, k] == channel
                if not again:
                    rate = min(rate, of[channel].bandwidth)
                    hops[hop] = channel
                    hop += 1
        route.hops = hop - route.hop0
        route.rate = rate
        longest = max(longest, route.hops)
        before, after = (overhead_s[i], latency_s[i]) if eager else (latency_s[i] + overhead_s[i], 0.0)
        if adds:
            before, after = 0.0, before + after + added_s
        route.before, route.after = before, after
    return hop, longest
