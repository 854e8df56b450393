"""Where servers are on a network, with a lane for each whom they serve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from syncline.costmodel.network.topology import DerivedTopology, Floats, Ints, Network, Paths, Topology, topology
from syncline.errors import SpecError


@dataclass(frozen=True, eq=False)
class ServerLanes(DerivedTopology):
    """P workers, and lanes of their servers.

    Lane m, numbered P + m, is what its server does for worker m; then come, where S local servers have one above them,
    these S, and the S lanes of that. All lanes of one place are a machine: what passes them shares its channels,
    max-min fairly, as the connections of one machine do.

    Args:
        whole: see `DerivedTopology`.
        own: P.
        places: of each lane in the whole; who has the same one is reached in no time.
    """

    own: int
    places: tuple[int, ...]

    @property
    def workers(self) -> int:
        """Those who run programs: 2 P, or 2 P + 2 S."""
        return self.own + len(self.places)

    def place_of(self, program: int) -> int:
        """Where a worker or a lane is."""
        return program if program < self.own else self.places[program - self.own]

    @property
    def bandwidth_bytes_per_s(self) -> Floats:
        """Of all channels."""
        return self.whole.bandwidth_bytes_per_s

    def paths(self, senders: Ints, receivers: Ints) -> Paths:
        """The ways to and from the server's place."""
        at = np.array([*range(self.own), *self.places], dtype=np.int64)
        a, b = at[senders], at[receivers]
        apart = a != b
        if apart.all():
            return self.whole.paths(a, b)
        found = self.whole.paths(a[apart], b[apart])
        channels = np.full((len(a), found.channels.shape[1]), -1, dtype=found.channels.dtype)
        latency_s, overhead_s = np.zeros(len(a)), np.zeros(len(a))
        channels[apart], latency_s[apart], overhead_s[apart] = found
        return Paths(channels, latency_s, overhead_s)


def with_server(network: Network | Topology, workers: int) -> tuple[Topology, int]:
    """A network with its workers and their server, and the server's place.

    That is the next one after theirs: on a network of nodes, the first of a node of its own. Where all places are
    counted and taken, as those of sites or a graph, the server is on worker 0's machine.
    """
    for places in range(workers + 1, 2 * workers + 2):
        try:
            return topology(network, places), workers
        except SpecError:
            continue
    return topology(network, workers), 0


def places_of_lanes(workers: int, place: int, groups: Sequence[int] = ()) -> tuple[int, ...]:
    """Where each lane is: at a server's place, or of local servers on the machine of the first worker of each group.

    Args:
        workers: P.
        place: of the only server, or of the one above.
        groups: workers of each local server, one after another; none: there is one server.
    """
    if not groups:
        return (place,) * workers
    firsts = [sum(groups[:s]) for s in range(len(groups))]
    local = [first for first, size in zip(firsts, groups, strict=True) for _ in range(size)]
    return (*local, *firsts, *[place] * len(groups))


def server_lanes(network: Network | Topology, workers: int, groups: Sequence[int] = ()) -> ServerLanes:
    """The workers with their lanes at servers, the only one or the one above where `with_server` puts it."""
    whole, place = with_server(network, workers)
    return ServerLanes(whole, workers, places_of_lanes(workers, place, groups))
