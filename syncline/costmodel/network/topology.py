"""From what a user describes to the topology of P workers, or of some of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from syncline.costmodel.network.link import Link, star
from syncline.costmodel.network.paths import ByValue, DerivedTopology, Floats, Ints, Network, Paths, Star, Topology
from syncline.costmodel.numerics.bounded_cache import bounded_cache, is_hashed_by_value
from syncline.errors import SpecError

__all__ = ["ByValue", "DerivedTopology", "Floats", "Ints", "Network", "Paths", "Star", "Topology", "among", "topology"]


def topology(network: Network | Topology | Sequence[Link], workers: int) -> Topology:
    """The topology of P workers that a network is: one link for all, a link per worker, nodes, sites, a graph.

    Raises:
        SpecError: a network that is not for so many workers.
    """
    if isinstance(network, Sequence):
        return star(network, workers)
    made: Topology
    if not hasattr(network, "among"):
        made = network
    elif is_hashed_by_value(network):
        made = _among(network, workers)  # type: ignore[arg-type]
    else:  # hashed by its identity, it could change
        made = network.among(workers)
    if made.workers != workers:
        raise SpecError("workers", workers, f"{made.workers}, as the topology has")
    return made


def _nbytes_of(made: Topology) -> float:
    """About what it takes in memory, with its value; unknown of one that grows as it is asked for paths."""
    return 1e3 + 100.0 * made.workers if is_hashed_by_value(made) else math.inf


@bounded_cache(64e6, _nbytes_of)
def _among(network: Network, workers: int) -> Topology:
    return network.among(workers)


def among(whole: Topology, members: ArrayLike) -> Topology:
    """The topology of some of its workers, numbered from 0 in the order given; the others send nothing."""
    chosen = np.asarray(members)
    if np.array_equal(chosen, np.arange(whole.workers)):
        return whole
    if isinstance(whole, Star):
        both = np.concatenate([chosen, whole.workers + chosen])
        return replace(
            whole,
            latency_s=whole.latency_s[chosen],
            overhead_s=whole.overhead_s[chosen],
            bandwidth_bytes_per_s=whole.bandwidth_bytes_per_s[both],
            half_duplex=whole.half_duplex[chosen],
        )
    return _Members(whole, chosen)


@dataclass(frozen=True, eq=False)
class _Members(DerivedTopology):
    """Some workers of a topology, on all its channels."""

    members: Ints

    @property
    def workers(self) -> int:
        """P."""
        return len(self.members)

    @property
    def bandwidth_bytes_per_s(self) -> Floats:
        """Of all channels, also those that nobody uses."""
        return self.whole.bandwidth_bytes_per_s

    def paths(self, senders: Ints, receivers: Ints) -> Paths:
        """The ways between them."""
        return self.whole.paths(self.members[senders], self.members[receivers])
