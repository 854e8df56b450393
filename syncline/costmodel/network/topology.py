"""From what a user describes to the topology of P workers."""

from __future__ import annotations

from collections.abc import Sequence

from syncline.costmodel.network.link import Link, star
from syncline.costmodel.network.paths import DerivedTopology, Floats, Ints, Network, Paths, Star, Topology
from syncline.errors import SpecError

__all__ = ["DerivedTopology", "Floats", "Ints", "Network", "Paths", "Star", "Topology", "topology"]


def topology(network: Network | Topology | Sequence[Link], workers: int) -> Topology:
    """The topology of P workers that a network is: one link for all, a link per worker, nodes, sites, a graph.

    Raises:
        SpecError: a network that is not for so many workers.
    """
    if isinstance(network, Sequence):
        return star(network, workers)
    made = network.among(workers) if hasattr(network, "among") else network
    if made.workers != workers:
        raise SpecError("workers", workers, f"{made.workers}, as the topology has")
    return made
