"""Regions of clouds by name: places with lines that others measured between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from syncline.costmodel.network.link import Link
from syncline.costmodel.network.matrix import Matrix
from syncline.costmodel.network.software_costs import HivemindCosts
from syncline.errors import SpecError, one_of


def _pairs(text: str) -> tuple[tuple[str, str, int, int], ...]:
    """Return (first region, second region, milliseconds, Mbit/s) of each pair in a text.

    A line of the text has the form ``first: second milliseconds Mbit/s, ...``, with all pairs of the first region.
    """
    pairs = []
    joined_text = text.strip().replace(",\n   ", ",")  # an indented line continues the line before
    for line in joined_text.splitlines():
        first, _, others = line.partition(": ")
        for other in others.split(", "):
            second, milliseconds, mbit_s = other.split()
            pairs.append((first, second, int(milliseconds), int(mbit_s)))
    return tuple(pairs)


AWS_PAIRS = _pairs("""
oregon: virginia 67 790, tokyo 96 523, singapore 163 341, london 136 420, ireland 124 482, frankfurt 143 404
virginia: ohio 11 1120, seoul 172 500, sydney 197 383, frankfurt 90 1020, london 76 1160, ireland 67 1050
ohio: oregon 48 1070, tokyo 130 694, singapore 197 452, london 86 1050, ireland 77 1140
tokyo: virginia 143 535, seoul 34 1100, sydney 100 761, frankfurt 223 360, oregon 97 861, london 210 366
seoul: oregon 124 719, ohio 159 518, singapore 74 1140, london 238 342, ireland 228 335, tokyo 33 1110, sydney 148 580
singapore: virginia 230 358, tokyo 73 1050, sydney 92 816, frankfurt 155 535, seoul 74 1110
sydney: oregon 139 537, ohio 186 490, seoul 140 567, london 262 326, ireland 254 344, virginia 197 463
london: virginia 76 761, tokyo 210 441, singapore 169 506, frankfurt 14 1140, ohio 86 1020, seoul 238 339,
    sydney 263 343, ireland 12 1090
frankfurt: oregon 147 339, ohio 99 474, seoul 235 226, sydney 265 204, ireland 24 1080, singapore 155 333
ireland: virginia 66 794, tokyo 199 460, singapore 179 482, london 11 1080, sydney 255 339
""")
"""For pairs of regions: milliseconds of a ping, Mbit/s of NCCL's sends of 64 MB from the second to the first."""

GOOGLE_PAIRS = _pairs("""
gc-us: gc-eu 103 210, gc-asia 157 134, gc-aus 176 117
gc-eu: gc-asia 253 76, gc-aus 272 70
gc-asia: gc-aus 131 162
""")
"""For pairs of regions: milliseconds of a ping, Mbit/s of one TCP stream."""

SOURCE = (
    "Measured between AWS regions through a VPN, one p3.2xlarge at each end, 4 threads with 4 sockets each: "
    "github.com/BinhangYuan/tc_cluster_setting, results/p2p.md (2022). A pair with one direction has it for both. "
    "Measured between zones of Google Cloud with iperf, one TCP stream, n1-standard-8 at each end: "
    "github.com/cirquit/hivemind-multi-cloud 654cc02, artifacts/networking (PVLDB 17, 2024), MIT."
)
"""Sources of the measured numbers."""


def _measured_lines() -> dict[tuple[str, str], Link]:
    """Return the link from each region to each other region, by the pair (sender, receiver).

    A pair that was measured in one direction has the same numbers in both.
    """
    measured = {(sender, receiver): (ping_ms, mbit_s) for receiver, sender, ping_ms, mbit_s in AWS_PAIRS + GOOGLE_PAIRS}
    reverse = {(receiver, sender): numbers for (sender, receiver), numbers in measured.items()}
    lines = {}
    for (sender, receiver), (ping_ms, mbit_s) in (reverse | measured).items():  # a measured direction wins
        one_way_s, bytes_per_s = ping_ms / 1e3 / 2, mbit_s * 1e6 / 8
        lines[sender, receiver] = Link(one_way_s, bytes_per_s, name=f"{sender}-{receiver}")
    return lines


LINES = _measured_lines()
"""The line from one region to another: half a ping, and the rate of one machine to one machine over its connections.

The windows of the connections limit this rate more than any line, so each pair of workers has the rate."""

REGIONS = tuple(sorted({region for ends in LINES for region in ends}))
"""Names of all regions."""

LAN = {"aws": Link(50e-6, 1.25e9, "10gbe"), "gc": Link(0.35e-3, 6.9e9 / 8, "gc-zone")}
"""The line inside a region by cloud: the preset 10gbe, and what iperf measured in a zone of Google Cloud."""


def regions(
    workers: Mapping[str, int], lan: Link | None = None, name: str = "", hivemind: HivemindCosts | None = None
) -> Matrix:
    """Return the network of workers in named regions of one cloud, with the measured line between each two workers.

    A worker's card carries as many bytes per second as the line inside a region.

    Args:
        workers: number of workers of each region, in the order of their ranks.
        lan: the line inside a region; by default that of `LAN`.
        name: display name; by default the names of the regions.
        hivemind: costs of hivemind's software, if hivemind averages.
    """
    if not workers:
        raise SpecError("network.sites", dict(workers), "at least one region")
    for region, count in workers.items():
        if region not in REGIONS:
            raise SpecError("network.sites", region, one_of(REGIONS, region))
        if count < 1:
            raise SpecError(f"network.sites.{region}", count, "a number of workers, at least 1")
    cloud, *other_clouds = {"gc" if region.startswith("gc-") else "aws" for region in workers}
    if other_clouds:
        raise SpecError("network.sites", list(workers), "regions of one cloud between which lines were measured")
    zone_link = lan or LAN[cloud]
    places = tuple(workers)
    line_by_ends = LINES | {(place, place): replace(zone_link, name=f"{place}-{place}") for place in places}
    return Matrix(
        places,
        lines=tuple(tuple(line_by_ends[source, target] for target in places) for source in places),
        ranks=tuple(np.repeat(np.arange(len(places)), list(workers.values())).tolist()),
        # Pings between regions measure the cards' latency too, so that it is part of the lines.
        card=Link(0.0, zone_link.bandwidth_bytes_per_s, upload_bytes_per_s=zone_link.upload_bytes_per_s),
        hivemind=hivemind,
        name=name or "-".join(places),
    )
