"""Places of servers on a network; a server has a lane for each worker or local server that it serves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from syncline.costmodel.network.topology import DerivedTopology, Floats, Ints, Network, Paths, Topology, topology
from syncline.errors import SpecError


@dataclass(frozen=True, eq=False)
class ServerTopology(DerivedTopology):
    """A network of P workers and the lanes of their servers.

    Lane m, numbered P + m, is the program of the server for worker m. With S local servers below an upper server, S
    programs of the local servers and S lanes of the upper server follow. All lanes at one place are one machine: their
    messages share its channels max-min fairly, as the connections of one machine do.

    Args:
        whole: the topology of the whole network, see `DerivedTopology`.
        own: P, number of workers.
        places: place of each lane in the whole network; a message between equal places takes no time.
    """

    own: int
    places: tuple[int, ...]

    @property
    def workers(self) -> int:
        """Return the number of programs: 2 P, or 2 P + 2 S with local servers."""
        return self.own + len(self.places)

    def place_of(self, program: int) -> int:
        """Return the place of a worker or a lane in the whole network."""
        return program if program < self.own else self.places[program - self.own]

    @property
    def bandwidth_bytes_per_s(self) -> Floats:
        """Return the bandwidth of each channel."""
        return self.whole.bandwidth_bytes_per_s

    def paths(self, senders: Ints, receivers: Ints) -> Paths:
        """Return the routes between the places of these workers and lanes."""
        place = np.array([*range(self.own), *self.places], dtype=np.int64)
        source, target = place[senders], place[receivers]
        is_remote = source != target
        if is_remote.all():
            return self.whole.paths(source, target)
        routes = self.whole.paths(source[is_remote], target[is_remote])
        channels = np.full((len(source), routes.channels.shape[1]), -1, dtype=routes.channels.dtype)
        latency_s, overhead_s = np.zeros(len(source)), np.zeros(len(source))
        channels[is_remote], latency_s[is_remote], overhead_s[is_remote] = routes
        return Paths(channels, latency_s, overhead_s)


def with_server(network: Network | Topology, workers: int) -> tuple[Topology, int]:
    """Return a network with the workers and their server, and the server's place.

    The server's place is the next place after the workers; on a network of nodes it is the first of a new node. If the
    network has no place that is free, as on sites or a graph, the server is on worker 0's machine.
    """
    for places in range(workers + 1, 2 * workers + 2):
        try:
            return topology(network, places), workers
        except SpecError:
            continue
    return topology(network, workers), 0


def places_of_lanes(workers: int, place: int, groups: Sequence[int] = ()) -> tuple[int, ...]:
    """Return the machine of each lane. A lane is the part of a server that exchanges messages with one worker.

    A local server runs on the machine of the first worker of its group.

    Args:
        workers: number of workers.
        place: machine of the only server, or of the upper server.
        groups: number of workers of each local server, in order; empty: there is one server.
    """
    if not groups:
        return (place,) * workers
    first_workers = [sum(groups[:number]) for number in range(len(groups))]
    return (*np.repeat(first_workers, groups).tolist(), *first_workers, *[place] * len(groups))


def server_topology(network: Network | Topology, workers: int, groups: Sequence[int] = ()) -> ServerTopology:
    """Return the workers with the lanes of their servers; `with_server` places the only server or the upper server."""
    full_network, place = with_server(network, workers)
    return ServerTopology(full_network, workers, places_of_lanes(workers, place, groups))
