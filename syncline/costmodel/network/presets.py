"""Networks by name, with the source of each number, and links of machines that others measured.

Latencies are one way, from worker to worker, software included. Bandwidths are per direction and of the line: a link's
``efficiency`` would deduct headers (0.94 for TCP over Ethernet frames of 1,500 bytes, 1448 / 1538); it is 1 here.

Constants of two machines are fitted to measurements:

- NCCL on AWS g6e.2xlarge (one L40S each), without shaping or behind a token bucket; see `g6e_nccl_link`.
- gloo and NCCL on AWS p3.2xlarge: one V100 and one network card each, links with a delay and a rate. Ten constants are
  fitted to 158 of 322 published times (`syncline validate clusters` reads the times and fits the constants again with
  groups left out); all other numbers are Linux's, AWS's or NCCL's own. ``netem`` shapes what a worker *sends*: a worker
  sends at the shaped rate and receives at the card's whole rate. Source: github.com/BinhangYuan/tc_cluster_setting:
  results (Feb. to April 2022), and the scripts that made them: pytorch_collective_test.py (one call, a barrier before
  it), tc_script/tc_netem_delay_bandwdith.sh.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from syncline.costmodel.network.link import Link
from syncline.costmodel.network.multi_level import Level, MultiLevel
from syncline.costmodel.network.software_costs import GlooCosts, NcclCosts, NodeTimes, nvlink_costs
from syncline.costmodel.network.tcp import Tcp
from syncline.costmodel.network.two_level import Sites, TwoLevel
from syncline.costmodel.numerics.arrays import FloatOrArray
from syncline.files import read_csv

CARD_BYTES_PER_S = 10e9 / 8
"""Bandwidth of a p3.2xlarge's network card. Source: AWS, EC2 instance types (up to 10 Gbit/s)."""

FLOW_BYTES_PER_S = 5e9 / 8
"""Bandwidth of a connection outside a placement group. Source: AWS, EC2 instance network bandwidth (5 Gbit/s)."""

JUMBO_SEGMENT_BYTES = 8949
"""MSS in AWS's frames of 9,001 bytes, with time stamps: 8949 of 9015 bytes on the line."""


@dataclass(frozen=True)
class P3Constants:
    """Constants fitted to measurements on p3.2xlarge machines.

    Args:
        efficiency: part of a shaped rate that payload gets.
        ring_latencies: ``NcclCosts.ring_latencies``.
        chain_latencies: ``NcclCosts.chain_latencies``.
        nccl_bytes_per_s: bytes per second that NCCL's calls get of an unshaped card.
        nccl_delay_s: latency of NCCL's messages on an unshaped link, one way, with all software.
        gloo_message_s: ``GlooCosts.message_s``.
        gloo_delay_part: ``GlooCosts.latency_part``.
        gloo_delay_s: latency of gloo's messages on an unshaped link, one way.
        pieces_part: part of the rate that consecutive calls of parts of a tensor reach, in a second series of tests.
        stored_part: ``NcclCosts.stored_part``.
    """

    efficiency: FloatOrArray = 0.9904
    ring_latencies: FloatOrArray = 3.33
    chain_latencies: FloatOrArray = 27.3
    nccl_bytes_per_s: FloatOrArray = 1.119e9
    nccl_delay_s: FloatOrArray = 0.87e-3
    gloo_message_s: FloatOrArray = 0.618e-3
    gloo_delay_part: FloatOrArray = 0.0694
    gloo_delay_s: FloatOrArray = 0.231e-3
    pieces_part: FloatOrArray = 0.844
    stored_part: FloatOrArray = 0.675


P3 = P3Constants()
"""The fitted constants."""


def p3_nccl_link(
    delay_s: float | None = None, bytes_per_s: float | None = None, constants: P3Constants = P3, name: str = ""
) -> Link:
    """Return the link of a p3.2xlarge for NCCL, with NCCL's costs.

    Args:
        delay_s: latency one way; None: that of the data centre and of a call's software, `P3Constants.nccl_delay_s`.
        bytes_per_s: shaped rate; None: the unshaped card's, with which payload gets `P3Constants.nccl_bytes_per_s`.
    """
    unshaped_bytes_per_s = constants.nccl_bytes_per_s / constants.efficiency
    return Link(
        constants.nccl_delay_s if delay_s is None else delay_s,
        unshaped_bytes_per_s if bytes_per_s is None else bytes_per_s,
        name,
        efficiency=constants.efficiency,
        data_centre=True if delay_s is None else None,  # the fitted latency is mostly software
        nccl=NcclCosts(
            ring_latencies=constants.ring_latencies,
            chain_latencies=constants.chain_latencies,
            stored_part=constants.stored_part,
        ),
    )


def p3_gloo_link(
    delay_s: float | None = None, bytes_per_s: float | None = None, constants: P3Constants = P3, name: str = ""
) -> Link:
    """Return the link of a p3.2xlarge for gloo, with gloo's costs; the arguments are those of `p3_nccl_link`."""
    return Link(
        constants.gloo_delay_s if delay_s is None else delay_s,
        CARD_BYTES_PER_S,
        name,
        efficiency=constants.efficiency,
        data_centre=True if delay_s is None else None,
        upload_bytes_per_s=CARD_BYTES_PER_S if bytes_per_s is None else bytes_per_s,  # only sending is shaped
        gloo=GlooCosts(
            message_s=constants.gloo_message_s,
            latency_part=constants.gloo_delay_part,
            connection=Tcp(flow_bytes_per_s=FLOW_BYTES_PER_S, segment_bytes=JUMBO_SEGMENT_BYTES),
        ),
    )


SOCKETS_ON_AWS = 16
"""Sockets of NCCL for every channel and peer on AWS: 2 threads with 8 each. Source: src/transport/net_socket.cc."""

JUMBO_PART = JUMBO_SEGMENT_BYTES / (JUMBO_SEGMENT_BYTES + 66)
"""Part of a line's rate that payload gets: a segment without the headers of TCP (time stamps), IP and Ethernet."""

G6E_BYTES_PER_S = 14.9e9 / 8
"""Payload per second of a ring's worker on an unshaped g6e.2xlarge: NCCL 2.29's all-reduces among 4 from 4 MiB on.

Source: github.com/Adnan082/diloco-measured (Apache-2.0).
"""

G6E_DELAY_S = 50e-6
"""Assumed latency between these machines, that of the preset ``10gbe``."""

QUEUE_S, BURST_BYTES = 50e-3, 32_768
"""Length of the token bucket's queue, in seconds at its rate, and its burst. Source: diloco-measured, netshape.py."""


def shaped_tcp(bytes_per_s: float) -> Tcp:
    """Return NCCL's connections of a g6e.2xlarge behind a token bucket (``tc tbf``) of this rate."""
    queue_bytes = QUEUE_S * bytes_per_s + BURST_BYTES
    return Tcp(connections=SOCKETS_ON_AWS, slow_start=False, segment_bytes=JUMBO_SEGMENT_BYTES, queue_bytes=queue_bytes)


def g6e_nccl_link(bytes_per_s: float | None = None, payload_bytes_per_s: float | None = None, name: str = "") -> Link:
    """Return the link of a g6e.2xlarge for NCCL, with the pieces into which NCCL cuts tensors.

    The payload rate of a shaped link follows from the headers of jumbo frames and the bytes that TCP sends again.

    Args:
        bytes_per_s: rate of a token bucket; None: no bucket, the payload rate is `G6E_BYTES_PER_S`.
        payload_bytes_per_s: measured payload rate of a flow through the bucket, without resent bytes; None: the
            bucket's rate less the headers.
    """
    efficiency = JUMBO_PART
    if bytes_per_s is None:
        line_bytes_per_s = G6E_BYTES_PER_S / JUMBO_PART
    else:
        line_bytes_per_s = bytes_per_s if payload_bytes_per_s is None else payload_bytes_per_s / JUMBO_PART
        efficiency /= 1 + shaped_tcp(bytes_per_s).resent_part
    return Link(G6E_DELAY_S, line_bytes_per_s, name, efficiency=efficiency, nccl=NcclCosts())


class Preset(NamedTuple):
    """A network, a description of what it models, and the sources of its numbers."""

    network: Link | TwoLevel | Sites | MultiLevel
    description: str
    source: str


def _read_links() -> dict[str, Link]:
    """Return the links in ``links.csv`` by name."""
    links = {}
    for row in read_csv(Path(__file__).with_name("links.csv")):
        fabric: Any = row["fabric"]
        links[row["name"]] = Link(
            float(row["latency_s"]), float(row["bandwidth_bytes_per_s"]), row["name"],
            upload_bytes_per_s=float(row["upload_bytes_per_s"]) if row["upload_bytes_per_s"] else None,
            fabric=fabric, nvlink=nvlink_costs(int(row["nvlink"])) if row["nvlink"] else None,
            measured=NodeTimes(row["measured_gpu"]) if row["measured_gpu"] else None,
        )  # fmt: skip
    return links


def _read_networks() -> Iterator[tuple[str, Preset]]:
    """Yield the name and the preset of each network in ``networks.csv``.

    A row with ``node_workers`` is a network of nodes, the links of which it names; any other row is a link, or one of
    the networks that this function builds.
    """
    links = _read_links()
    ndr, wan, home = links["ib-ndr"], links["wan"], links["home-broadband"]
    spine = replace(ndr, latency_s=0.5e-6, name="ib-ndr-spine")
    superpod_levels = (
        Level(8, links["nvlink4"], name="node"),
        Level(32, ndr, cross_rail="spine", name="scalable unit"),
        Level(None, spine, oversubscription=1, name="pod"),
    )
    networks: dict[str, Link | TwoLevel | Sites | MultiLevel] = {
        **links,
        "dgx-h100-superpod": MultiLevel(superpod_levels, "dgx-h100-superpod"),
        "p3.2xlarge": p3_nccl_link(name="p3.2xlarge"),
        "p3.2xlarge-gloo": p3_gloo_link(name="p3.2xlarge-gloo"),
        "g6e.2xlarge": g6e_nccl_link(name="g6e.2xlarge"),
        "two-sites": Sites(2, links["10gbe"], replace(wan, latency_s=wan.latency_s / 2), name="two-sites"),
        "two-homes": Sites(2, links["1gbe"], replace(home, latency_s=home.latency_s / 2), name="two-homes"),
    }
    for row in read_csv(Path(__file__).with_name("networks.csv")):
        name, cards = row["name"], int(row["node_cards"]) if row["node_cards"] else None
        if row["node_workers"]:
            networks[name] = TwoLevel(
                int(row["node_workers"]), links[row["inside"]], links[row["between"]], cards, name
            )
        yield name, Preset(networks[name], row["description"], row["source"])


NETWORKS: dict[str, Preset] = dict(_read_networks())
"""Networks by name."""
