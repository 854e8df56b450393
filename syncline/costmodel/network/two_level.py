"""Networks of two levels: nodes with a fast link inside and network cards; sites with a local network and an uplink."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.link import Link
from syncline.costmodel.network.network_links import CostsOfLinks, NetworkTopology
from syncline.costmodel.network.paths import ByValue, Floats, Ints, Paths
from syncline.errors import SpecError


@dataclass(frozen=True)
class TwoLevel(CostsOfLinks):
    """Nodes of equally many workers with consecutive ranks.

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
            SpecError: more workers than a node has, and no multiple of a node's workers.
        """
        if workers <= self.per_node:
            return (workers,)
        if workers % self.per_node:
            raise SpecError("workers", workers, f"a multiple of {self.per_node}, the workers of a node")
        return (self.per_node,) * (workers // self.per_node)

    def group(self, workers: int) -> int:
        """Return the number of workers of a node: ``per_node``, or ``workers`` if there are fewer."""
        return self.sizes(workers)[0]

    def crossing(self, flows: int = 1) -> Link:
        """Return the effective link between nodes while the first ``flows`` workers of each node send and receive.

        The bandwidth is that of the outer link divided by the number of these workers on the busiest card.
        """
        card = np.arange(min(flows, self.per_node)) * self.nics // self.per_node
        return self.outer.shared_by(int(np.bincount(card).max()))

    def among(self, workers: int) -> Nodes:
        """Return the topology of a number of workers."""
        return Nodes(self, workers, len(self.sizes(workers)))

    def describe(self) -> str:
        """Return a short description for users."""
        inner, outer = (link.name or link.describe() for link in (self.inner, self.outer))
        cards = "" if self.nics == self.per_node else f" ({self.nics} per node)"
        return f"{self.per_node} per node, {inner} inside, {outer}{cards} between"


@dataclass(frozen=True, eq=False)
class Nodes(ByValue, NetworkTopology):
    """The topology of the workers of some nodes.

    The channels are the P workers' inner links up, then down, then every node's network cards up, then down. Of a
    half-duplex link both directions are the channel up.

    Args:
        network: the links and size of a node.
        workers: number of workers P.
        nodes: number of nodes.
    """

    network: TwoLevel
    workers: int
    nodes: int

    @property
    def innermost(self) -> tuple[int, Link]:
        """Return the workers of a node, and their link."""
        return self.network.per_node, self.network.inner

    @property
    def bandwidth_bytes_per_s(self) -> Floats:
        """Return the ``(2 P + 2 nics,)`` payload bytes per second that each channel carries."""
        inner, outer = self.network.inner, self.network.outer
        rates = [inner.up_bytes_per_s, inner.down_bytes_per_s, outer.up_bytes_per_s, outer.down_bytes_per_s]
        cards = self.nodes * self.network.nics
        return np.repeat(np.array(rates, dtype=np.float64), [self.workers, self.workers, cards, cards])

    def card(self, workers: Ints) -> NDArray[np.int64]:
        """Return the number of each worker's network card, counted over all nodes."""
        node, local = np.divmod(np.asarray(workers, dtype=np.int64), self.network.per_node)
        return node * self.network.nics + local * self.network.nics // self.network.per_node

    def paths(self, senders: Ints, receivers: Ints) -> Paths:
        """Return the paths over inner links within a node, and over two network cards between nodes."""
        inner, outer = self.network.inner, self.network.outer
        within = senders // self.network.per_node == receivers // self.network.per_node
        first_card, cards = 2 * self.workers, self.nodes * self.network.nics
        inner_down = 0 if inner.duplex == "half" else self.workers
        outer_down = first_card + (0 if outer.duplex == "half" else cards)
        up = np.where(within, senders, first_card + self.card(senders))
        down = np.where(within, inner_down + receivers, outer_down + self.card(receivers))
        return Paths(
            np.stack([up, down], axis=1),
            np.where(within, inner.latency_s, outer.latency_s),
            np.where(within, inner.overhead_s, outer.overhead_s),
        )


@dataclass(frozen=True)
class Sites(CostsOfLinks):
    """Sites of consecutive ranks, each with one uplink to the core of a wide-area network that its workers share.

    A message within a site pays the local link. A message between sites passes its sender's local link up, both sites'
    uplinks and its receiver's local link down; its latency is the sum of those of the local link and of both uplinks.
    To describe two sites joined by one link of latency L, use two uplinks of L / 2 each.

    Args:
        sites: number of sites, whose sizes differ by at most one, the larger first; or the number of workers of each.
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
        """Return the number of sites."""
        return self.sites if isinstance(self.sites, int) else len(self.sites)

    @property
    def uplinks(self) -> tuple[Link, ...]:
        """Return the uplink of each site."""
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
        size, larger = divmod(workers, self.sites)
        return (size + 1,) * larger + (size,) * (self.sites - larger)

    def group(self, workers: int) -> int:
        """Return the workers of a site, if all sites have the same number."""
        sizes = self.sizes(workers)
        if len(set(sizes)) > 1:
            raise SpecError("workers", workers, f"sites of one size, and these have {', '.join(map(str, sizes))}")
        return sizes[0]

    def crossing(self, flows: int = 1) -> Link:
        """Return the effective link between the worst two sites while ``flows`` workers of each send and receive.

        The latency is the sum of the local link's and of those of the two slowest uplinks, the bandwidth that of the
        narrowest link, where the flows share the uplinks.
        """
        uplinks = [link.shared_by(flows) for link in self.uplinks]
        latencies = sorted((float(link.latency_s) for link in uplinks), reverse=True)
        links = [self.lan.shared_by(1), *uplinks]
        return Link(
            float(self.lan.latency_s) + sum(latencies[:2]),
            min(float(link.down_bytes_per_s) for link in links),
            overhead_s=float(self.lan.overhead_s) + max(float(link.overhead_s) for link in uplinks),
            upload_bytes_per_s=min(float(link.up_bytes_per_s) for link in links),
        )

    def among(self, workers: int) -> SitesTopology:
        """Return the topology of a number of workers.

        Raises:
            SpecError: as ``sizes``; or more than `MOST_WORKERS`.
        """
        if workers > MOST_WORKERS:
            raise SpecError("workers", workers, f"at most {MOST_WORKERS:,} on sites")
        return SitesTopology(self, np.repeat(np.arange(self.count), self.sizes(workers)))

    def describe(self) -> str:
        """Return a short description for users."""
        sizes = "" if isinstance(self.sites, int) else " of " + " + ".join(map(str, self.sites))
        lan = self.lan.name or self.lan.describe()
        up = "; ".join(dict.fromkeys(link.describe() for link in self.uplinks))
        return f"{self.count} sites{sizes}, {lan} inside, {up} to the core"


MOST_WORKERS = 10**7
"""Largest number of workers on sites, because a topology stores the site of each worker."""


@dataclass(frozen=True, eq=False)
class SitesTopology(ByValue, NetworkTopology):
    """The topology of the workers of some sites.

    The channels are the P workers' local links up, then down, then the S sites' uplinks up, then down. Of a half-duplex
    link both directions are the channel up.

    Args:
        network: the sites.
        site: number of each worker's site, ``(P,)``.
    """

    network: Sites
    site: NDArray[np.int64]

    @property
    def workers(self) -> int:
        """Return P, the number of workers."""
        return len(self.site)

    @property
    def bandwidth_bytes_per_s(self) -> Floats:
        """Return the ``(2 P + 2 S,)`` payload bytes per second that each channel carries."""
        lan, uplinks = self.network.lan, self.network.uplinks
        return np.concatenate([
            np.repeat(np.array([lan.up_bytes_per_s, lan.down_bytes_per_s], dtype=np.float64), self.workers),
            np.array([link.up_bytes_per_s for link in uplinks], dtype=np.float64),
            np.array([link.down_bytes_per_s for link in uplinks], dtype=np.float64),
        ])  # fmt: skip

    def paths(self, senders: Ints, receivers: Ints) -> Paths:
        """Return the paths over local links within a site, and also over both uplinks between sites."""
        lan, uplinks = self.network.lan, self.network.uplinks
        latency_s = np.array([link.latency_s for link in uplinks], dtype=np.float64)
        overhead_s = np.array([link.overhead_s for link in uplinks], dtype=np.float64)
        is_half_duplex = np.array([link.duplex == "half" for link in uplinks])
        source, target = self.site[senders], self.site[receivers]
        across = source != target
        first_uplink = 2 * self.workers
        up = first_uplink + source
        down = first_uplink + target + np.where(is_half_duplex[target], 0, len(uplinks))
        lan_down = receivers + (0 if lan.duplex == "half" else self.workers)
        columns = senders, np.where(across, up, lan_down), np.where(across, down, -1), np.where(across, lan_down, -1)
        return Paths(
            np.stack(columns, axis=1),
            np.where(across, latency_s[source] + latency_s[target], 0.0) + np.float64(lan.latency_s),
            np.where(across, overhead_s[source], 0.0) + np.float64(lan.overhead_s),
        )
