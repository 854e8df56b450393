"""The network of an asynchronous training in tests."""

from __future__ import annotations

from collections.abc import Sequence

from syncline.costmodel.network.paths import Network, Topology
from syncline.sim.online.server_interface import ServerTopology, with_server


def server_topology(network: Network | Topology, workers: int, groups: Sequence[int] = ()) -> ServerTopology:
    """Return the network of workers and their servers' handlers, with the server where `with_server` places it."""
    full_network, server_place = with_server(network, workers)
    return ServerTopology(full_network, workers, server_place, groups)
