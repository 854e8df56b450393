"""Topologies of P workers, made from a network; topologies of a subset of the workers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from syncline.costmodel.network.link import Link, star
from syncline.costmodel.network.node_times import NodeTimes
from syncline.costmodel.network.paths import ByValue, DerivedTopology, Floats, Ints, Network, Paths, Star, Topology
from syncline.costmodel.numerics.bounded_cache import bounded_cache, is_hashed_by_value
from syncline.errors import SpecError

__all__ = [
    "ByValue", "DerivedTopology", "Floats", "Ints", "MemberTopology", "Network", "Paths", "Star", "Topology", "among",
    "topology",
]  # fmt: skip


def topology(network: Network | Topology | Sequence[Link], workers: int) -> Topology:
    """Return the topology of workers on a network, or on a link for each worker; a topology is returned as it is.

    Raises:
        SpecError: a number of workers that the network cannot join.
    """
    if isinstance(network, Sequence):
        return star(network, workers)
    result: Topology
    if not hasattr(network, "among"):
        result = network
    elif is_hashed_by_value(network):
        result = _among(network, workers)  # type: ignore[arg-type]
    else:  # a network that is hashed by its identity could change
        result = network.among(workers)
    if result.workers != workers:
        raise SpecError("workers", workers, f"{result.workers}, as the topology has")
    return result


def _nbytes_of(value: Topology) -> float:
    """Return the approximate memory of a topology in bytes; infinite if the topology stores paths as callers ask."""
    return 1e3 + 100.0 * value.workers if is_hashed_by_value(value) else math.inf


@bounded_cache(64e6, _nbytes_of)
def _among(network: Network, workers: int) -> Topology:
    """Return the topology of a network, from the cache if possible."""
    return network.among(workers)


def among(base: Topology, members: ArrayLike) -> Topology:
    """Return the topology of some workers, numbered from 0 in the order of ``members``; the others send nothing."""
    ranks = np.asarray(members)
    if np.array_equal(ranks, np.arange(base.workers)):
        return base
    if isinstance(base, Star):
        return replace(
            base,
            latency_s=base.latency_s[ranks],
            overhead_s=base.overhead_s[ranks],
            bandwidth_bytes_per_s=base.bandwidth_bytes_per_s[np.concatenate([ranks, base.workers + ranks])],
            half_duplex=base.half_duplex[ranks],
        )
    return MemberTopology(base, ranks)


@dataclass(frozen=True, eq=False)
class MemberTopology(DerivedTopology):
    """Some workers of a topology, on all its channels.

    Args:
        members: ranks of the workers in the underlying topology.
    """

    members: Ints

    @property
    def workers(self) -> int:
        """Return the number of members."""
        return len(self.members)

    @property
    def bandwidth_bytes_per_s(self) -> Floats:
        """Return the bytes per second of all channels, also of those that no member uses."""
        return self.whole.bandwidth_bytes_per_s

    @property
    def measured(self) -> NodeTimes | None:
        """Return the measured times of the innermost link if all members share one innermost unit."""
        size, link = getattr(self.whole, "innermost", (self.whole.workers, None))
        return link.measured if link is not None and len(np.unique(self.members // size)) == 1 else None

    def paths(self, senders: Ints, receivers: Ints) -> Paths:
        """Return the paths between members in the underlying topology."""
        return self.whole.paths(self.members[senders], self.members[receivers])
