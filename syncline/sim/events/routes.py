"""Routes: the channels of a topology between many workers at once, as records of the core."""

from __future__ import annotations

import numpy as np

from syncline.costmodel.network.topology import Ints, Topology
from syncline.sim.events.engine import address, write_routes
from syncline.sim.events.state import CoreState

AT_ONCE = 2**18
"""Number of routes that are looked up together, which takes some tens of temporary numbers each."""


class Routes:
    """The routes between workers, in the core's tables.

    Args:
        state: the tables.
        topology: the topology.
        eager: whether the latency comes after the bytes have flown, or before.
    """

    def __init__(self, state: CoreState, topology: Topology, eager: bool) -> None:
        self._state, self._topology, self._eager = state, topology, eager
        self._bandwidth = np.array(topology.bandwidth_bytes_per_s, dtype=np.float64)
        self.longest = 1

    def add(
        self,
        senders: Ints,
        receivers: Ints,
        added_s: float | None = None,
        eager: bool = False,
        latency_factor: float = 1.0,
    ) -> int:
        """Add routes between these workers and return the place of the first.

        Args:
            senders: ``(N,)`` workers.
            receivers: ``(N,)`` workers.
            added_s: seconds by which messages are late on routes that take all but the bytes' time after them, as
                gloo's connections; None for messages by a start rule.
            eager: whether the latency comes after the bytes have flown under either rule, as for NCCL.
            latency_factor: factor of the paths' latencies.
        """
        first = self._state.used["routes"]
        self._state.room("routes", len(senders))
        for begin in range(0, len(senders), AT_ONCE):
            chosen = slice(begin, begin + AT_ONCE)
            self._add(senders[chosen], receivers[chosen], added_s, eager or self._eager, latency_factor)
        return first

    def _add(self, senders: Ints, receivers: Ints, added_s: float | None, eager: bool, latency_factor: float) -> None:
        paths = self._topology.paths(senders, receivers)
        channels = np.array(paths.channels, dtype=np.int64, order="C")  # a copy, because the cached array is read-only
        latency_s, overhead_s = (np.array(values, dtype=np.float64, order="C") for values in paths[1:])
        latency_s *= latency_factor
        state = self._state
        first, routes = state.take("routes", len(senders))
        hop0 = state.used["hops"]
        state.room("hops", channels.size)
        state.used["hops"] += write_routes(
            state.address,
            address(self._bandwidth),
            address(channels),
            *channels.shape,
            address(latency_s),
            address(overhead_s),
            first,
            hop0,
            eager,
            added_s is not None,
            added_s or 0.0,
        )
        self.longest = max(self.longest, int(routes["hops"].max(initial=0)))
