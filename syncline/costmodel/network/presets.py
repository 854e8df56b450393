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

from dataclasses import dataclass, replace
from typing import NamedTuple

from syncline.costmodel.network.link import Link
from syncline.costmodel.network.multi_level import Level, MultiLevel
from syncline.costmodel.network.software_costs import GlooCosts, NcclCosts, NodeTimes, nvlink_costs
from syncline.costmodel.network.tcp import Tcp
from syncline.costmodel.network.two_level import Sites, TwoLevel
from syncline.costmodel.numerics.arrays import FloatOrArray

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


def _rails(link: Link, rails: int) -> Link:
    """Return a link that joins several equal links, its rails, over which each message is spread."""
    return replace(link.times_bandwidth(rails), name=f"{link.name}-{rails}")


_NVLINK2 = Link(0.6e-6, 150e9, "nvlink2", fabric="nvlink", measured=NodeTimes("v100"))
_NVSWITCH2 = Link(0.6e-6, 150e9, "nvlink2-switched", fabric="nvlink", nvlink=nvlink_costs(2))
_NVLINK3 = Link(0.6e-6, 300e9, "nvlink3", fabric="nvlink", measured=NodeTimes("a100"), nvlink=nvlink_costs(3))
_NVLINK4 = Link(0.6e-6, 450e9, "nvlink4", fabric="nvlink", nvlink=nvlink_costs(4))
_NVLINK5 = Link(0.6e-6, 900e9, "nvlink5", fabric="nvlink", nvlink=nvlink_costs(5))
_HDR = Link(2e-6, 25e9, "ib-hdr")
_NDR = Link(2e-6, 50e9, "ib-ndr")
_XDR = Link(2e-6, 100e9, "ib-xdr")
_INFINITY = Link(1e-6, 7 * 64e9, "infinity-fabric", fabric="pcie")
_EFA_400 = Link(15.5e-6, 50e9, "efa-400")
_TEN = Link(50e-6, 1.25e9, "10gbe")
_WAN = Link(25e-3, 125e6, "wan")

_RDMA_S = "Latency: assumed as for infiniband; NCCL's tuning table takes 2.7 us."
_TCP_S = "Latency: as 10gbe, for TCP in the kernels dominates it."
_VERIZON = "Latency: half the round trip of Verizon's service level agreement between hub routers"

NETWORKS: dict[str, Preset] = {
    "nvlink2": Preset(
        _NVLINK2,
        "NVLink 2: the V100s of one node",
        "Bandwidth: NVIDIA V100 SXM2 data sheet, 300 GB/s for both directions together (6 links of 25 GB/s each way). "
        "Latency: as nvlink4. All-reduces of a node: measured by J. Bang et al., vTrain (MICRO 2024).",
    ),
    "nvlink3": Preset(
        _NVLINK3,
        "NVLink 3 through NVSwitch: the A100s of one node",
        "Bandwidth: NVIDIA A100 data sheet, 600 GB/s for both directions together (12 links of 25 GB/s each way). "
        "Latency: as nvlink4. All-reduces of a node: measured by J. Bang et al., vTrain (MICRO 2024).",
    ),
    "nvlink4": Preset(
        _NVLINK4,
        "NVLink 4 through NVSwitch: the GPUs of one node",
        "Bandwidth: NVIDIA H100 data sheet, 900 GB/s for both directions together (18 links of 25 GB/s each way). "
        "Latency: NCCL's tuning table (src/graph/tuning.cc), ring over NVLink with its low-latency protocol.",
    ),
    "nvlink5": Preset(
        _NVLINK5,
        "NVLink 5 through NVSwitch: the B200s of one node, or of one rack of GB200",
        "Bandwidth: NVIDIA Blackwell architecture, 1.8 TB/s for both directions together (18 links of 50 GB/s each "
        "way). Latency: as nvlink4.",
    ),
    "pcie5": Preset(
        Link(1e-6, 32e9 * 16 / 8 * 128 / 130, "pcie5", fabric="pcie"),
        "PCI Express 5.0 x16: the GPUs of one node without NVLink",
        "Bandwidth: PCI-SIG, PCI Express 5.0: 32 GT/s, 16 lanes, 128b/130b. Latency: NCCL's tuning table, ring over "
        "PCI with its low-latency protocol.",
    ),
    "pcie4": Preset(
        Link(1e-6, 16e9 * 16 / 8 * 128 / 130, "pcie4", fabric="pcie"),
        "PCI Express 4.0 x16: consumer cards of one node",
        "Bandwidth: PCI-SIG, PCI Express 4.0: 16 GT/s, 16 lanes, 128b/130b. Latency: as pcie5.",
    ),
    "infinity-fabric": Preset(
        _INFINITY,
        "Infinity Fabric: the MI300X or MI325X of one node",
        "Bandwidth: AMD Instinct MI300X data sheet, 7 links of 128 GB/s for both directions together, one to each "
        "other accelerator; all of them together. Latency: as pcie5. No library's costs are known.",
    ),
    "tpu-v5e": Preset(
        Link(1e-6, 200e9, "tpu-v5e"),
        "the inter-chip interconnect of a slice of TPU v5e",
        "Bandwidth: Google Cloud TPU v5e documentation, 1,600 Gbit/s each way over the links of a torus; all of them "
        "together. Latency: assumed.",
    ),
    "tpu-v5p": Preset(
        Link(1e-6, 600e9, "tpu-v5p"),
        "the inter-chip interconnect of a slice of TPU v5p",
        "Bandwidth: Google Cloud TPU v5p documentation, 4,800 Gbit/s each way over the links of a torus; all of them "
        "together. Latency: assumed.",
    ),
    "infiniband": Preset(
        Link(2e-6, 12.5e9, "infiniband"),
        "100 Gbit/s InfiniBand (EDR)",
        "Bandwidth: CurvaDion, Appendix E (100 Gb/s). Latency: assumed, of the order of an RDMA message's; "
        "CurvaDion measured 0.1 ms through its whole software stack (section 4.4).",
    ),
    "ib-hdr": Preset(_HDR, "200 Gbit/s InfiniBand (HDR)", f"Bandwidth: IBTA, HDR, 4 lanes. {_RDMA_S}"),
    "ib-hdr-4": Preset(_rails(_HDR, 4), "4 rails of HDR", "As ib-hdr; messages are spread over the rails."),
    "ib-hdr-8": Preset(_rails(_HDR, 8), "8 rails of HDR", "As ib-hdr; messages are spread over the rails."),
    "ib-ndr": Preset(
        _NDR, "400 Gbit/s InfiniBand (NDR)", f"Bandwidth: IBTA, NDR, 4 lanes; NVIDIA ConnectX-7 manual. {_RDMA_S}"
    ),
    "ib-ndr-4": Preset(_rails(_NDR, 4), "4 rails of NDR", "As ib-ndr; messages are spread over the rails."),
    "ib-ndr-8": Preset(_rails(_NDR, 8), "8 rails of NDR", "As ib-ndr; messages are spread over the rails."),
    "ib-xdr": Preset(_XDR, "800 Gbit/s InfiniBand (XDR)", f"Bandwidth: IBTA, XDR, 4 lanes; ConnectX-8. {_RDMA_S}"),
    "roce-400": Preset(
        Link(3e-6, 50e9, "roce-400"),
        "400 Gbit/s Ethernet with RDMA (RoCE v2)",
        "Bandwidth: IEEE 802.3bs. Latency: as roce-100.",
    ),
    "roce-100": Preset(
        Link(3e-6, 12.5e9, "roce-100"),
        "100 Gbit/s Ethernet with RDMA (RoCE v2)",
        "Bandwidth: IEEE 802.3bj. Latency: assumed, a switch's forwarding more than InfiniBand's.",
    ),
    "100gbe": Preset(Link(50e-6, 12.5e9, "100gbe"), "100 Gbit/s Ethernet", f"Bandwidth: IEEE 802.3bj. {_TCP_S}"),
    "25gbe": Preset(Link(50e-6, 3.125e9, "25gbe"), "25 Gbit/s Ethernet", f"Bandwidth: IEEE 802.3by. {_TCP_S}"),
    "10gbe": Preset(
        _TEN,
        "10 Gbit/s Ethernet",
        "Bandwidth: CurvaDion, Appendix E (10 Gb/s). Latency: assumed, of the order of TCP through two kernels and a "
        "switch; CurvaDion's Table 3 lists 10 ms.",
    ),
    "1gbe": Preset(Link(50e-6, 125e6, "1gbe"), "1 Gbit/s Ethernet", f"Bandwidth: IEEE 802.3ab (1000BASE-T). {_TCP_S}"),
    "wan": Preset(
        _WAN,
        "1 Gbit/s between data centres, 50 ms round trip",
        "CurvaDion, Appendix E: 1 Gb/s, 50 ms RTT, so 25 ms one way.",
    ),
    "wan-metro": Preset(
        Link(0.5e-3, 1.25e9, "wan-metro"),
        "10 Gbit/s between the sites of a city",
        "Latency: 100 km of fibre at 5 us/km (refractive index 1.47). Bandwidth: assumed, a leased 10 Gbit/s.",
    ),
    "wan-continental": Preset(
        Link(22.5e-3, 125e6, "wan-continental"),
        "1 Gbit/s across a continent",
        f"{_VERIZON} in North America, 45 ms. Bandwidth: as wan.",
    ),
    "wan-intercontinental": Preset(
        Link(45e-3, 125e6, "wan-intercontinental"),
        "1 Gbit/s across the Atlantic",
        f"{_VERIZON} in London and New York, 90 ms. Bandwidth: as wan.",
    ),
    "home-broadband": Preset(
        Link(15e-3, 12.5e6, "home-broadband", upload_bytes_per_s=2.5e6),
        "from home to home: 100 Mbit/s down, 20 Mbit/s up",
        "Bandwidths: the FCC's benchmark of fixed broadband since March 2024. Latency: assumed, half of each home's "
        "round trip to the network's core of about 15 ms (FCC, Measuring Broadband America: 11 to 40 ms).",
    ),
    "dgx-h100": Preset(
        TwoLevel(8, _NVLINK4, _NDR, name="dgx-h100"),
        "DGX H100 machines: 8 GPUs, one NDR card each",
        "NVIDIA DGX H100 user guide: 8 GPUs on NVSwitch, 8 ConnectX-7 cards of 400 Gbit/s. Links: nvlink4, ib-ndr.",
    ),
    "dgx-h100-superpod": Preset(
        MultiLevel(
            (
                Level(8, _NVLINK4, name="node"),
                Level(32, _NDR, cross_rail="spine", name="scalable unit"),
                Level(None, replace(_NDR, latency_s=0.5e-6, name="ib-ndr-spine"), oversubscription=1, name="pod"),
            ),
            "dgx-h100-superpod",
        ),
        "DGX H100 SuperPOD: scalable units of 32 machines on 8 rails, a spine between them",
        "NVIDIA DGX SuperPOD reference architecture (DGX H100): 32 systems in a scalable unit, rail-optimised full fat "
        "tree; a spine joins rails and units. Links: nvlink4, ib-ndr. Latency of the spine: assumed.",
    ),
    "dgx-h200": Preset(
        TwoLevel(8, _NVLINK4, _NDR, name="dgx-h200"),
        "DGX H200 machines: 8 GPUs, one NDR card each",
        "NVIDIA DGX H200 data sheet: 8 GPUs on NVSwitch, 8 ConnectX-7 cards of 400 Gbit/s. Links: nvlink4, ib-ndr.",
    ),
    "dgx-b200": Preset(
        TwoLevel(8, _NVLINK5, _NDR, name="dgx-b200"),
        "DGX B200 machines: 8 GPUs, one NDR card each",
        "NVIDIA DGX B200 data sheet: 8 GPUs on NVSwitch, 8 ConnectX-7 cards of 400 Gbit/s. Links: nvlink5, ib-ndr.",
    ),
    "gb200-nvl72": Preset(
        TwoLevel(72, _NVLINK5, _NDR, name="gb200-nvl72"),
        "GB200 NVL72 racks: 72 GPUs in one NVLink domain, one NDR card each",
        "NVIDIA GB200 NVL72 data sheet: 72 GPUs, 130 TB/s of NVLink; cards: NVIDIA DGX GB200 user guide, 4 ConnectX-7 "
        "of 400 Gbit/s for the 4 GPUs of a tray. Links: nvlink5, ib-ndr.",
    ),
    "dgx-b300": Preset(
        TwoLevel(8, _NVLINK5, _XDR, name="dgx-b300"),
        "DGX B300 machines: 8 GPUs, one XDR card each",
        "NVIDIA DGX B300 data sheet: 8 GPUs on NVSwitch, 8 ConnectX-8 cards of 800 Gbit/s. Links: nvlink5, ib-xdr.",
    ),
    "gb300-nvl72": Preset(
        TwoLevel(72, _NVLINK5, _XDR, name="gb300-nvl72"),
        "GB300 NVL72 racks: 72 GPUs in one NVLink domain, one XDR card each",
        "NVIDIA GB300 NVL72 data sheet: 72 GPUs, 130 TB/s of NVLink, a ConnectX-8 of 800 Gbit/s for each GPU. Links: "
        "nvlink5, ib-xdr.",
    ),
    "hgx-h20": Preset(
        TwoLevel(8, _NVLINK4, _NDR, name="hgx-h20"),
        "HGX H20 machines: 8 GPUs, one NDR card each",
        "NVIDIA H20 data sheet: NVLink 4, 900 GB/s for both directions together; cards as in NVIDIA/nccl issue 1244. "
        "Links: nvlink4, ib-ndr.",
    ),
    "mi300x-8": Preset(
        TwoLevel(8, _INFINITY, Link(3e-6, 50e9, "roce-400"), name="mi300x-8"),
        "machines of 8 MI300X or MI325X, one card of 400 Gbit/s each",
        "AMD Instinct MI300X platform data sheet: 8 accelerators, all connected; cards: assumed, one for each. Links: "
        "infinity-fabric, roce-400.",
    ),
    "dgx-2": Preset(
        TwoLevel(16, _NVSWITCH2, Link(2e-6, 12.5e9, "infiniband"), 8, "dgx-2"),
        "DGX-2 machines: 16 V100 behind switches, 8 EDR cards",
        "NVIDIA DGX-2 data sheet: 16 V100 on NVSwitch, 300 GB/s for both directions together; 8 cards of 100 Gbit/s. "
        "Latencies: as nvlink4 and infiniband.",
    ),
    "dgx-a100": Preset(
        TwoLevel(8, _NVLINK3, _HDR, name="dgx-a100"),
        "DGX A100 machines: 8 GPUs, one HDR card each",
        "NVIDIA DGX A100 data sheet: NVLink 3, 600 GB/s for both directions together; 8 cards of 200 Gbit/s for the "
        "GPUs. Links: nvlink3, ib-hdr.",
    ),
    "p3.2xlarge": Preset(
        p3_nccl_link(name="p3.2xlarge"),
        "AWS p3.2xlarge machines (one V100 each), as NCCL finds their cards of up to 10 Gbit/s",
        "Fitted to NCCL's calls on 4 to 32 of them, and NCCL's costs there (GitHub: BinhangYuan/tc_cluster_setting, "
        "2022). The latency contains the software of a call; another one "
        "and a rate describe a shaped link.",
    ),
    "p3.2xlarge-gloo": Preset(
        p3_gloo_link(name="p3.2xlarge-gloo"),
        "AWS p3.2xlarge machines (one V100 each), as gloo finds their cards of up to 10 Gbit/s",
        "As p3.2xlarge, fitted to gloo's calls. An 'upload' describes a rate that tc netem sets: it holds back what a "
        "machine sends.",
    ),
    "g6e.2xlarge": Preset(
        g6e_nccl_link(name="g6e.2xlarge"),
        "AWS g6e.2xlarge machines (one L40S each), as NCCL finds their cards of up to 20 Gbit/s",
        "Payload: NCCL's all-reduce among 4 of them from 4 MiB on, 14.9 Gbit/s (GitHub: Adnan082/diloco-measured, NCCL "
        "2.29 over 16 sockets), in jumbo frames. Latency: as 10gbe, not measured. A rate that a token bucket sets is a "
        "'bandwidth' with tcp: {connections: 16, mss: 8949, queue: ..., slow_start: false}.",
    ),
    "p4d.24xlarge": Preset(
        TwoLevel(8, _NVLINK3, Link(15.5e-6, 12.5e9, "efa-100"), 4, "p4d.24xlarge"),
        "AWS p4d.24xlarge machines: 8 A100 and 4 EFA cards of 100 Gbit/s each",
        "AWS, EC2 P4 instances: 8 A100 on NVSwitch, 400 Gbit/s. Links: nvlink3. Latency of a card: AWS's own of EFA "
        "(HPC blog, 2020), 15.5 us.",
    ),
    "p5.48xlarge": Preset(
        TwoLevel(8, _NVLINK4, _EFA_400, name="p5.48xlarge"),
        "AWS p5.48xlarge machines: 8 H100, 400 Gbit/s of EFA for each",
        "AWS, EC2 P5 instances: NVSwitch, 3,200 Gbit/s of EFA (32 cards of 100). Links: nvlink4. Latency of a card: as "
        "p4d.24xlarge.",
    ),
    "p5en.48xlarge": Preset(
        TwoLevel(8, _NVLINK4, _EFA_400, name="p5en.48xlarge"),
        "AWS p5en.48xlarge machines: 8 H200, 400 Gbit/s of EFA for each",
        "AWS, EC2 P5 instances: NVSwitch, 3,200 Gbit/s of EFA (16 cards of 200). Links: nvlink4. Latency of a card: as "
        "p4d.24xlarge.",
    ),
    "p6-b200.48xlarge": Preset(
        TwoLevel(8, _NVLINK5, _EFA_400, name="p6-b200.48xlarge"),
        "AWS p6-b200.48xlarge machines: 8 B200, 400 Gbit/s of EFA for each",
        "AWS, EC2 P6 instances: NVSwitch, 3,200 Gbit/s of EFA (8 cards of 400). Links: nvlink5. Latency of a card: as "
        "p4d.24xlarge.",
    ),
    "two-sites": Preset(
        Sites(2, _TEN, replace(_WAN, latency_s=12.5e-3), name="two-sites"),
        "two sites of 10 Gbit/s Ethernet, joined by wan",
        "Links: 10gbe, and wan with half of its latency on each site's uplink.",
    ),
    "two-homes": Preset(
        Sites(
            2,
            Link(50e-6, 125e6, "1gbe"),
            Link(7.5e-3, 12.5e6, "home-broadband", upload_bytes_per_s=2.5e6),
            name="two-homes",
        ),
        "two homes with 1 Gbit/s Ethernet inside",
        "Links: 1gbe, and home-broadband with half of its latency on each home's uplink.",
    ),
}
"""Networks by name."""
