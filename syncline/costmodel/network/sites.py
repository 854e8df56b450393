"""Sites: a local network inside each, one uplink from each to a wide-area network."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.library_costs import CostsOfLinks, CostsOfNetwork
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.topology import ByValue, Floats, Ints, Paths
from syncline.costmodel.numerics.bounded_cache import frozen
from syncline.errors import SpecError


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

    Raises:
        SpecError: no site, a site without workers, or another number of uplinks than of sites.
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
        """Return the workers of a site, if all sites have the same number.

        Raises:
            SpecError: sites of different sizes, or as ``sizes``.
        """
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
class SitesTopology(ByValue, CostsOfNetwork):
    """The topology of the workers of some sites.

    The channels are the P workers' local links up, then down, then the S sites' uplinks up, then down. Of a half-duplex
    link both directions are the channel up.

    Args:
        network: the sites.
        site: number of each worker's site, ``(P,)``.
    """

    network: Sites
    site: NDArray[np.int64]

    def __post_init__(self) -> None:
        object.__setattr__(self, "site", frozen(self.site))

    @property
    def name(self) -> str:
        """Return the name that tables and messages show."""
        return self.network.name

    @property
    def workers(self) -> int:
        """Return P, the number of workers."""
        return len(self.site)

    @cached_property
    def value(self) -> Hashable:
        """Return the value by which topologies are compared and hashed."""
        return self.network, self.site.tobytes()

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
