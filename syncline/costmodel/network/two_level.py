"""Networks of two levels: nodes with a fast link inside and network cards; sites with a local network and an uplink."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.link import Link
from syncline.costmodel.network.multi_level import Level, LevelTopology, MultiLevel
from syncline.costmodel.network.network_links import CostsOfLinks, NetworkTopology
from syncline.costmodel.network.paths import ByValue, Floats, Ints, Paths
from syncline.errors import SpecError

SERVER_GPUS = 8
"""Most GPUs of a server; a larger node is a rack."""


@dataclass(frozen=True)
class TwoLevel(CostsOfLinks):
    """A network of nodes, each with equally many workers of consecutive ranks.

    A message within a node pays the inner link. A message between nodes leaves by its sender's network card, arrives by
    its receiver's, and pays the outer link. Local rank l uses card ``l x nics // per_node`` of its node, so about
    ``per_node / nics`` workers share a card. The fabrics inside and between nodes are never narrower than the links.

    Args:
        per_node: workers of a node; at least 1.
        inner: the link that each worker has inside its node.
        outer: the link of one network card.
        nics_per_node: network cards of a node, from 1 to ``per_node``; one per worker by default.
        name: display name.
    """

    per_node: int
    inner: Link
    outer: Link
    nics_per_node: int | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if self.per_node < 1:
            raise SpecError("network.per_node", self.per_node, "a number of workers, at least 1")
        if not 1 <= self.nics <= self.per_node:
            expected = f"a number of network cards from 1 to per_node ({self.per_node})"
            raise SpecError("network.nics", self.nics_per_node, expected)

    @property
    def nics(self) -> int:
        """Return the number of network cards of a node."""
        return self.per_node if self.nics_per_node is None else self.nics_per_node

    def sizes(self, workers: int) -> tuple[int, ...]:
        """Return the number of workers of each node.

        Raises:
            SpecError: the workers need several nodes and do not fill them.
        """
        if workers <= self.per_node:  # a part of one node
            return (workers,)
        if workers % self.per_node:
            expected = f"a multiple of {self.per_node}, the workers of a node"
            divisor = max(size for size in range(1, self.per_node) if workers % size == 0)
            if divisor > SERVER_GPUS:  # the node is a rack; a training may take equal parts of several racks
                expected += f", or {divisor} of each: 'per_node: {divisor}'"
            raise SpecError("workers", workers, expected)
        return (self.per_node,) * (workers // self.per_node)

    def levels(self) -> MultiLevel:
        """Return the same network as two levels: the first inside nodes, the second between them."""
        return MultiLevel(levels_of(self), self.name)

    def among(self, workers: int) -> LevelTopology:
        """Return the topology of a number of workers."""
        self.sizes(workers)  # raises an error in words of nodes
        return self.levels().among(workers)

    def describe(self) -> str:
        """Return a short text for tables that names the links inside and between nodes."""
        cards = "" if self.nics == self.per_node else f" ({self.nics} per node)"
        return f"{self.per_node} per node, {self.inner.label} inside, {self.outer.label}{cards} between"


@dataclass(frozen=True)
class Sites(CostsOfLinks):
    """Sites of consecutive ranks on a wide-area network; the workers of a site share one uplink to the network's core.

    A message within a site passes the local links of two workers, with one local latency. A message between sites also
    passes both sites' uplinks, with one local latency and the latencies of both uplinks.
    To describe two sites joined by one link of latency L, use two uplinks of L / 2 each.

    Args:
        sites: workers of each site, or the number of sites; their sizes then differ by at most one, the larger first.
        lan: the link that each worker has inside its site.
        uplink: each site's link to the core of the wide-area network (one for all, or one per site): up is away from
            the site, and the latency is one way, to the core.
        name: display name.
    """

    sites: int | tuple[int, ...]
    lan: Link
    uplink: Link | tuple[Link, ...]
    name: str = ""

    def __post_init__(self) -> None:
        counts = (self.sites,) if isinstance(self.sites, int) else self.sites
        if not counts or min(counts) < 1:
            raise SpecError("network.sites", self.sites, "a number of sites, or the workers of each, all at least 1")
        if not isinstance(self.uplink, Link) and len(self.uplink) != self.count:
            raise SpecError("network.uplink", len(self.uplink), f"one link, or one for each of the {self.count} sites")

    @property
    def count(self) -> int:
        """Return the number of sites of the network."""
        return self.sites if isinstance(self.sites, int) else len(self.sites)

    @property
    def uplinks(self) -> tuple[Link, ...]:
        """Return the uplink of each site to the core, in the order of the sites."""
        return (self.uplink,) * self.count if isinstance(self.uplink, Link) else self.uplink

    def sizes(self, workers: int) -> tuple[int, ...]:
        """Return the number of workers of each site.

        Raises:
            SpecError: fewer workers than sites, or not the sum of the sites' sizes.
        """
        if not isinstance(self.sites, int):
            if sum(self.sites) != workers:
                raise SpecError("workers", workers, f"{sum(self.sites)}, the workers of all sites")
            return self.sites
        if workers < self.sites:
            raise SpecError("workers", workers, f"at least one for each of the {self.sites} sites")
        size, num_larger = divmod(workers, self.sites)
        return (size + 1,) * num_larger + (size,) * (self.sites - num_larger)

    def link_across(self, flows: int = 1) -> Link:
        """Return the link that a message between sites sees while ``flows`` workers of each site send and receive.

        Latency: the local link's and the two longest of the uplinks. Overhead: the local link's and the largest of an
        uplink. Bandwidth: that of the narrowest link; the flows of a site share its uplink.
        """
        uplinks = [link.shared_by(flows) for link in self.uplinks]
        two_longest_s = sorted((float(link.latency_s) for link in uplinks), reverse=True)[:2]
        links = [self.lan.shared_by(1), *uplinks]  # a local link carries only its worker's flow
        return Link(
            float(self.lan.latency_s) + sum(two_longest_s),
            min(float(link.down_bytes_per_s) for link in links),
            overhead_s=float(self.lan.overhead_s) + max(float(link.overhead_s) for link in uplinks),
            upload_bytes_per_s=min(float(link.up_bytes_per_s) for link in links),
        )

    def among(self, workers: int) -> SitesTopology:
        """Return the topology of a number of workers, at most `MOST_WORKERS`; errors as in `sizes`."""
        if workers > MOST_WORKERS:
            raise SpecError("workers", workers, f"at most {MOST_WORKERS:,} on sites")
        return SitesTopology(self, np.repeat(np.arange(self.count), self.sizes(workers)))

    def describe(self) -> str:
        """Return a short text for tables that names the sites and their links."""
        sizes = "" if isinstance(self.sites, int) else " of " + " + ".join(map(str, self.sites))
        uplinks = "; ".join(dict.fromkeys(link.describe() for link in self.uplinks))
        return f"{self.count} sites{sizes}, {self.lan.label} inside, {uplinks} to the core"


MOST_WORKERS = 10**7
"""Largest number of workers on sites, because a topology stores the site of each worker."""


@dataclass(frozen=True, eq=False)
class SitesTopology(ByValue, NetworkTopology):
    """The topology of workers at sites: their local links and uplinks, and the path of each message.

    The channels are the P workers' local links up, then down, then the S sites' uplinks up, then down. A half-duplex
    link uses its channel up both ways.

    Args:
        site_by_worker: number of each worker's site, ``(P,)``.
    """

    network: Sites
    site_by_worker: NDArray[np.int64]

    @property
    def workers(self) -> int:
        """Return P, the number of workers of the topology."""
        return len(self.site_by_worker)

    @cached_property
    def bandwidth_bytes_per_s(self) -> Floats:
        """Return the payload bytes per second of each channel, ``(2 P + 2 S,)``, in the order that the class gives."""
        lan, uplinks = self.network.lan, self.network.uplinks
        return np.concatenate([
            np.full(self.workers, lan.up_bytes_per_s, dtype=np.float64),
            np.full(self.workers, lan.down_bytes_per_s, dtype=np.float64),
            np.array([link.up_bytes_per_s for link in uplinks], dtype=np.float64),
            np.array([link.down_bytes_per_s for link in uplinks], dtype=np.float64),
        ])  # fmt: skip

    def paths(self, senders: Ints, receivers: Ints) -> Paths:
        """Return the paths of messages, over local links and, between sites, over both uplinks."""
        lan, uplinks = self.network.lan, self.network.uplinks
        latency_s = np.array([link.latency_s for link in uplinks], dtype=np.float64)
        overhead_s = np.array([link.overhead_s for link in uplinks], dtype=np.float64)
        is_half_duplex = np.array([link.duplex == "half" for link in uplinks])
        source, target = self.site_by_worker[senders], self.site_by_worker[receivers]
        crosses = source != target
        lan_down = receivers if lan.duplex == "half" else self.workers + receivers
        first_uplink = 2 * self.workers  # after P local links up, with the numbers of the workers, and P down
        uplink_up = first_uplink + source
        uplink_down = first_uplink + np.where(is_half_duplex[target], target, len(uplinks) + target)
        # Inside a site: up and down local links. Between sites: local up, both uplinks, local down.
        columns = (
            senders,
            np.where(crosses, uplink_up, lan_down),
            np.where(crosses, uplink_down, -1),
            np.where(crosses, lan_down, -1),
        )
        # The local latency is from worker to worker, so it counts once. Only the sender's links add overheads.
        return Paths(
            np.stack(columns, axis=1),
            np.where(crosses, latency_s[source] + latency_s[target], 0.0) + np.float64(lan.latency_s),
            np.where(crosses, overhead_s[source], 0.0) + np.float64(lan.overhead_s),
        )


def levels_of(network: Link | TwoLevel | Sites | MultiLevel) -> tuple[Level, ...]:
    """Return the levels of a network; the level whose units are None has as many as the workers need.

    Raises:
        SpecError: sites of different sizes or uplinks.
    """
    if isinstance(network, MultiLevel):
        return network.levels
    if isinstance(network, TwoLevel):
        between_nodes = Level(units=None, link=network.outer, rails=network.nics_per_node, shares_lower_links=False)
        return Level(network.per_node, network.inner), between_nodes
    if isinstance(network, Link):
        return (Level(units=None, link=network),)
    site_sizes = {None} if isinstance(network.sites, int) else set(network.sites)  # None: the number of workers decides
    if len(set(network.uplinks)) > 1 or len(site_sizes) > 1:
        raise SpecError("network.levels", network.name, "sites of one size and equal uplinks")
    uplink = network.uplinks[0]
    site_link = replace(uplink, latency_s=2 * uplink.latency_s)  # a message between sites passes two uplinks
    (site_workers,) = site_sizes
    inside_sites = Level(site_workers, network.lan)
    return inside_sites, Level(network.count, site_link, rails=1, shares_lower_links=True)
