"""Regions of a cloud by name: sites joined pairwise by links measured between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

from syncline.costmodel.network.graph import Edge, Graph
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.sites import Sites
from syncline.errors import SpecError, one_of

# fmt: off
_MEASURED = (
    ("oregon", "virginia", 67, 790),
    ("oregon", "tokyo", 96, 523),
    ("oregon", "singapore", 163, 341),
    ("oregon", "london", 136, 420),
    ("oregon", "ireland", 124, 482),
    ("virginia", "ohio", 11, 1120),
    ("virginia", "seoul", 172, 500),
    ("virginia", "sydney", 197, 383),
    ("virginia", "frankfurt", 90, 1020),
    ("ohio", "oregon", 48, 1070),
    ("ohio", "tokyo", 130, 694),
    ("ohio", "singapore", 197, 452),
    ("ohio", "london", 86, 1050),
    ("ohio", "ireland", 77, 1140),
    ("tokyo", "virginia", 143, 535),
    ("tokyo", "seoul", 34, 1100),
    ("tokyo", "sydney", 100, 761),
    ("tokyo", "frankfurt", 223, 360),
    ("seoul", "oregon", 124, 719),
    ("seoul", "ohio", 159, 518),
    ("seoul", "singapore", 74, 1140),
    ("seoul", "london", 238, 342),
    ("seoul", "ireland", 228, 335),
    ("singapore", "virginia", 230, 358),
    ("singapore", "tokyo", 73, 1050),
    ("singapore", "sydney", 92, 816),
    ("singapore", "frankfurt", 155, 535),
    ("sydney", "oregon", 139, 537),
    ("sydney", "ohio", 186, 490),
    ("sydney", "seoul", 140, 567),
    ("sydney", "london", 262, 326),
    ("sydney", "ireland", 254, 344),
    ("london", "virginia", 76, 761),
    ("london", "tokyo", 210, 441),
    ("london", "singapore", 169, 506),
    ("london", "frankfurt", 14, 1140),
    ("frankfurt", "oregon", 147, 339),
    ("frankfurt", "ohio", 99, 474),
    ("frankfurt", "seoul", 235, 226),
    ("frankfurt", "sydney", 265, 204),
    ("frankfurt", "ireland", 24, 1080),
    ("ireland", "virginia", 66, 794),
    ("ireland", "tokyo", 199, 460),
    ("ireland", "singapore", 179, 482),
    ("ireland", "london", 11, 1080),
)
"""For every pair of regions: milliseconds of a ping, Mbit/s of NCCL's sends of 64 MB from the second to the first."""
# fmt: on

SOURCE = (
    "Measured between AWS regions through a VPN, one p3.2xlarge at each end, 4 threads with 4 sockets each: "
    "github.com/BinhangYuan/tc_cluster_setting, results/p2p.md (2022). One direction of each pair is taken for both."
)
"""Source of the measured numbers."""

PAIRS: dict[frozenset[str], Link] = {
    frozenset((receiver, sender)): Link(ping_ms / 2e3, mbit_s * 1e6 / 8, f"{sender}-{receiver}")
    for receiver, sender, ping_ms, mbit_s in _MEASURED
}
"""The link of two regions: half a ping, and what NCCL gets, which its sockets' windows limit more than any line."""

REGIONS = tuple(sorted({region for pair in PAIRS for region in pair}))
"""Names of all regions."""


def regions(workers: Mapping[str, int], lan: Link, name: str = "") -> Sites | Graph:
    """Return the network of workers in named regions: `Sites` for two regions, else a graph with a link for every pair.

    A message across pays the local link's latency and the pair's. The workers of two regions share what was measured
    of one worker at each end: the rate of several workers is not known.

    Args:
        workers: number of workers of each region, in the order of their ranks.
        lan: the link that each worker has inside its region.
        name: for people; the regions' own by default.

    Raises:
        SpecError: a region that is not known, one without workers, or fewer than two.
    """
    for region, count in workers.items():
        if region not in REGIONS:
            raise SpecError("network.sites", region, one_of(REGIONS, region))
        if count < 1:
            raise SpecError(f"network.sites.{region}", count, "a number of workers, at least 1")
    if len(workers) < 2:
        raise SpecError("network.sites", dict(workers), "two regions or more")
    name = name or "-".join(workers)
    if len(workers) == 2:
        link = PAIRS[frozenset(workers)]
        return Sites(tuple(workers.values()), lan, replace(link, latency_s=link.latency_s / 2), name)
    hosts = {f"{region}-{i}": region for region, count in workers.items() for i in range(count)}
    inside = replace(lan, latency_s=lan.latency_s / 2)  # up to the region's switch, and down from it
    edges = [Edge(host, region, inside) for host, region in hosts.items()]
    edges += [Edge(a, b, PAIRS[frozenset((a, b))]) for a, b in combinations(workers, 2)]
    # Routes avoid a third region even if it is faster: a cloud does not forward traffic between regions.
    routes = tuple(
        (source, hosts[source], hosts[target], target)
        for source in hosts
        for target in hosts
        if hosts[source] != hosts[target]
    )
    return Graph(tuple(hosts), tuple(edges), routes, name)
