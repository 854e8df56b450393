"""Seconds of NCCL's collectives: over sockets, among GPUs with NVLink, and measured all-reduces inside a node.

**Over sockets** NCCL runs pipelined rings and chains (`nccl_sockets_s`). NCCL cuts a tensor into pieces of its buffers'
size, and a worker forwards a piece while it receives the next one. So a large collective pays latencies once, not at
every step, unless a worker sends a step's bytes before the piece for the next step arrives. There are P workers,
latency alpha, overhead o per message and R payload bytes per second. Pieces have at most C bytes in S slices, and a
worker forwards a slice as soon as the slice has arrived. A block of w whole pieces and a rest of C' bytes takes w + 1
steps. Then

    s(C) = max(S o + C/R, alpha + o + C/(S R))           seconds of a ring's step
    u(C) = min(alpha, (S - 1)(o + C/(S R)))              extra time of the last slice, once

| collective       | algorithm     | time                                                                     |
|------------------|---------------|--------------------------------------------------------------------------|
| `all_reduce`     | `nccl-ring`   | 2 (P - 1) (w s(C) + s(C')) + u,  block n/P = w C + C'                    |
| `all_gather`     | `nccl-ring`   | (P - 1) (w s(C) + s(C')) + u,    block n                                 |
| `reduce_scatter` | `nccl-ring`   | (P - 1) (w s(C) + s(C')) + u,    block n/P                               |
| `broadcast`      | `nccl-chain`  | n/R + ceil(n/c) o + (P - 1) alpha + (P - 2)(o + min(c, n)/R)             |
| `reduce`         |               | the same, towards its root                                               |
| `all_to_all`     | `nccl-posted` | (P - 1)(o + n/(P R)) + alpha                                             |
| `gather`         | `nccl-posted` | (P - 1)(o + n/R) + alpha                                                 |

and the time of a call is added, with the latencies that it takes besides (``ring_latencies``, ``chain_latencies``). If
a part p of a piece must be there before it is forwarded, p C takes the place of C/S in s, and u is
``min(alpha, (S - 1) o + (1 - p) C/R)``. ``C = k b / 2``, ``c = k b / 8`` and S = 2: k channels have a buffer of b
bytes each, in 8 steps, and a ring's piece takes four of the steps, a chain's piece one. All forms are exact for every P
and n, also if a block is no multiple of a piece (NCCL's last loop has shorter pieces, equal on all workers). They
assume that a slice leaves when the port is free and the slice S before it has arrived. They treat the two channels as a
single one of twice the rate: at the end of a loop a channel must receive its last slice before it sends the next loop's
first, and the other channel uses the link meanwhile.

torch's gather is sends and receives in a group (``torch::cuda::nccl::gather``), like an all-to-all. Over sockets,
trees, the protocols LL and LL128 (small messages) and PAT are not modelled.

Source: NVIDIA NCCL 2.10.3: as `syncline.costmodel.network.software_costs`; src/collectives/device/all_reduce.h (a
ring's loops), broadcast.h (the chain), src/transport/net_socket.cc (on AWS 2 threads with 8 sockets each for every
channel and peer).

**Among GPUs with NVLink** (`nvlink_s`), in one node or in several, NCCL runs rings, trees and reductions by switches
(NVLS, and NVLSTree between nodes), in one of three protocols: LL and LL128 have short steps and waste bytes, Simple
has all bytes and long steps. P = g m GPUs in m nodes take part. A ring has a channel for each of the node's network
cards, and leaves and enters the node by another card on each channel, so that the cards carry the bytes together:

    B = min(b NVLink, C) with C = b_c g card,        B = b NVLink in one node,

where "card" is the rate of a GPU's share of its node's cards, and b the part of NVLink's rate that NCCL counts on,
times a fitted part that all algorithms share. S are the bytes in all, ``w = S / (S + S_h)``, e the efficiency of
reducing switches, a protocol's rate is a part p of B (LL at most a limit), its base t_0, its steps t_r inside a node
and t_n between nodes, and the levels of a tree t_t and t_m. There are ``L = ceil(log2 m)`` levels between nodes.

| algorithm                    | seconds                                                                              |
|------------------------------|--------------------------------------------------------------------------------------|
| ring, all-reduce             | t + t_0 + 2 ((P - m) t_r + (m - 1) max(t_n, alpha)) + 2 (P - 1)/P S/(p B) + 2 w t_l  |
| ring, gather, reduce-scatter | the same with 1 in place of the factors 2                                            |
| chain, broadcast, reduce     | the same with S/(p B) for all bytes, and P max(t_n, alpha) for all steps if m > 1    |
| tree, several nodes          | t + t_0 + 2 ((g - 1) t_t + L max(t_m, alpha)) + 2 S/(0.92 p B) + 2 w t_l             |
| NVLS, one node               | t + t_v + S (1 + 1/g)/(e b NVLink) + w g t_s                                         |
| NVLSTree, several nodes      | t + t_v + 2 L max(t_x, alpha) + max(that of NVLS, 2 (P - 1)/P S/C) + w g t_s         |
| NVLS with SHARP              | t + t_v + max(t_h, alpha) + max(that of NVLS, S/C) + w g t_s                         |
| CollNetDirect                | t + t_d + max(2 (g - 1)/g S/(e_d b NVLink), S/C) + 2 w t_l                           |

t is the time of a call, larger between nodes, and alpha the latency between nodes. Only Simple pays t_l, the time that
a lap of large tensors takes on top. A switch reads a GPU's S bytes and returns its part S/g, then the GPU sends its
part and receives S bytes: S (1 + 1/g) each way. The last two algorithms need a network whose switches sum tensors
(SHARP, `Link.sharp`): each card sends its part of the bytes once and receives as much, with latencies t_h and t_d. The
fastest of all these counts (`nvlink_algorithm` names it). NCCL runs the one that its own model expects to be fastest,
which has the same rates and latencies, but neither t_l nor t_s; docs/clusters.md says what that choice would change.
NCCL's corrections for trees of medium sizes and its longer latencies of rings between nodes are left out, and so is the
double rate that newer releases count on for NVLSTree among two nodes: our two nodes do not reach it. PAT (one GPU per
node) is in `syncline.costmodel.collectives.algorithms.trees`.

Sources: NCCL's src/graph/tuning.cc (latencies, parts of protocols and trees, limits of LL, efficiencies of switches),
topo.h (part of NVLink's rate). Six constants, t, its part between nodes, t_l, t_s, S_h and the part of b, are fitted to
84 published times (nccl-tests and torch.distributed) on A100, H200, B200, GB200 and H20, see
`syncline.measure.validation.published`. b_c is set by published all-reduces of several nodes of H100 and H200, which
reach 0.89 to 0.97 of the cards' rate. From how many GPUs on switches reduce: NCCL 2.27 on H200 and B200
(stas00/ml-engineering). No published time of SHARP is among ours.

**Measured all-reduces** among the GPUs of a node (`measured_all_reduce_s`) are interpolated between sizes and between
numbers of GPUs. The time is linear between measured sizes. For a number P of GPUs without measurements, the time is
linear in 1/P between the next smaller and the next larger measured number, at the same bytes for each of the node's
links,

    T(P, n) = mean of T(p, n'),    n' = n (P - 1) p r(p) / (P (p - 1) r(P)),

where the node's links have room for r(P) rings. Behind switches (A100 with NVSwitch) r(P) is the same for all P. Among
the first P of the eight V100 of a DGX-1 or a p3.16xlarge, r(P) is two, one in each direction, for each Hamiltonian
cycle that shares no link with another. Only one of the first four GPUs has a link to the fifth, so five have no cycle:
data go up and down a chain of two links, n bytes in each direction.

Source: NVIDIA DGX-1 system architecture (the hybrid cube mesh; which pairs have two links); NCCL, src/graph/search.cc
(rings and trees are searched for among a node's links).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial, reduce
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from syncline.costmodel.collectives.algorithms import NoClosedForm
from syncline.costmodel.collectives.algorithms.base import (
    other_parts_bytes,
    other_parts_bytes_twice,
    other_workers_bytes,
    tree_depth,
)
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.network.software_costs import NCCL_DEFAULT, NCCL_RUNS, NcclCosts, NodeTimes, NvlinkCosts
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray, require, require_call
from syncline.costmodel.numerics.measured_times import nvlink_all_reduce
from syncline.errors import SpecError, one_of


class NcclAlgorithm(NamedTuple):
    """An algorithm of NCCL over sockets: a worker sends pieces even before its receiver waits for them.

    Attributes:
        form: function ``(workers, nbytes, link, costs)`` that returns seconds.
        sent: function ``(workers, nbytes)`` that returns the bytes that each worker sends, mean over workers.
        directions: transfers that a worker's half-duplex link carries at once, 1 or 2; None if workers differ.
    """

    form: Callable[[IntOrArray, FloatOrArray, Link, NcclCosts], FloatOrArray]
    sent: Callable[[IntOrArray, FloatOrArray], FloatOrArray]
    directions: int | None


def nccl_sockets_s(
    kind: str, workers: IntOrArray, nbytes: FloatOrArray, link: Link, costs: NcclCosts | None = None
) -> FloatOrArray:
    """Return the seconds of a collective of NCCL over sockets if all workers start at the same time.

    Args:
        kind: one of ``NCCL_KINDS``.
        workers: number of workers P, at least 1; it broadcasts with ``nbytes`` and the fields of the link.
        nbytes: bytes n of the collective, at least 0, by the table of `syncline.costmodel.collectives.cost`.
        link: each worker's link to the others.
        costs: costs of the software; None for those of the link, or NCCL's defaults if it has none.

    Raises:
        SpecError: an unknown collective, no worker, or a negative size.
        NoClosedForm: a chain on a half-duplex link.

    >>> link = Link(10e-3, 125e6)
    >>> f"{nccl_sockets_s('all_reduce', 32, 2**28, link):.2f} s, not {2 * 31 * (10e-3 + 2**23 / 125e6):.2f} s"
    '4.17 s, not 4.78 s'
    """
    if kind not in NCCL_KINDS:
        raise SpecError("collective", kind, one_of(NCCL_KINDS, kind))
    require_call(workers, nbytes)
    costs = costs or link.nccl or NCCL_DEFAULT
    algorithm = NCCL_ALGORITHMS[kind]
    if link.duplex == "half":
        if algorithm.directions is None:  # the first worker of a chain only sends, the next ones also receive
            expected = "an algorithm with a closed form on half-duplex links (here some only send while others do both)"
            raise NoClosedForm(f"{kind}.algorithm", NCCL_RUNS[kind], expected)
        if algorithm.directions > 1:
            link = link.shared_by(1)  # each direction has half of the bandwidth
    seconds = algorithm.form(workers, np.asarray(nbytes, dtype=np.float64), link, costs)
    seconds = seconds + costs.fixed_s(NCCL_RUNS[kind], link.latency_s)
    return np.where(np.greater(workers, 1) & np.greater(nbytes, 0), seconds, 0.0)[()]


def nccl_messages(kind: str, workers: int, nbytes: float, costs: NcclCosts | None = None) -> int:
    """Return the number of messages of all workers together in a collective: slices of a ring, pieces of a chain."""
    costs = costs or NCCL_DEFAULT
    other_workers = workers - 1  # hops of a chain, or of a lap of a ring
    if workers < 2 or not nbytes:  # nothing is sent
        return 0
    if kind in ("broadcast", "reduce"):
        return other_workers * int(np.ceil(nbytes / costs.chain_piece_bytes))
    if kind == "gather":
        return other_workers
    if kind == "all_to_all":
        return workers * other_workers
    block_bytes = nbytes if kind == "all_gather" else nbytes / workers
    full_pieces, last_piece_bytes = costs.ring_pieces(block_bytes)
    pieces = int(full_pieces + (last_piece_bytes > 0))
    laps = 2 if kind == "all_reduce" else 1
    return laps * workers * other_workers * costs.slices * pieces


def _ring_s(
    workers: IntOrArray, nbytes: FloatOrArray, link: Link, costs: NcclCosts, laps: int = 1, in_parts: bool = True
) -> FloatOrArray:
    """Return the seconds of a ring's laps, in which each worker forwards blocks of n/P or n bytes, piece by piece."""
    block_bytes = np.divide(nbytes, workers) if in_parts else nbytes
    alpha_s, overhead_s, rate = link.latency_s, link.overhead_s, link.goodput_bytes_per_s

    def step_s(piece_bytes: FloatOrArray) -> FloatOrArray:
        """Return s, the seconds of a ring's step: until a piece is sent, or until its first slice can be forwarded."""
        sending_s = costs.slices * overhead_s + piece_bytes / rate
        return np.maximum(sending_s, alpha_s + overhead_s + costs.first_slice_part * piece_bytes / rate)

    full_pieces, last_bytes = costs.ring_pieces(block_bytes)
    last_step_s = np.where(np.greater(last_bytes, 0), step_s(last_bytes), 0.0)
    steps_s = full_pieces * step_s(costs.ring_piece_bytes) + last_step_s
    return laps * np.subtract(workers, 1) * steps_s + ring_end_s(block_bytes, link, costs)


def ring_end_s(block_bytes: FloatOrArray, link: Link, costs: NcclCosts) -> FloatOrArray:
    """Return u, the seconds from the end of a ring's last step until the last slice has arrived."""
    piece_bytes = np.minimum(block_bytes, costs.ring_piece_bytes)
    other_slices_s = (1 - costs.first_slice_part) * piece_bytes / link.goodput_bytes_per_s
    return np.minimum(link.latency_s, (costs.slices - 1) * link.overhead_s + other_slices_s)


def _chain_s(workers: IntOrArray, nbytes: FloatOrArray, link: Link, costs: NcclCosts) -> FloatOrArray:
    """Return the seconds of a chain, in which each worker forwards the whole tensor piece by piece."""
    alpha_s, overhead_s, rate = link.latency_s, link.overhead_s, link.goodput_bytes_per_s
    piece_bytes = costs.chain_piece_bytes
    # The first piece passes P - 2 links before it comes to the last link, which then carries all n bytes.
    filling_s = np.subtract(workers, 2) * (overhead_s + np.minimum(piece_bytes, nbytes) / rate)
    return nbytes / rate + np.ceil(nbytes / piece_bytes) * overhead_s + np.subtract(workers, 1) * alpha_s + filling_s


def _posted_s(workers: IntOrArray, nbytes: FloatOrArray, link: Link, _costs: NcclCosts) -> FloatOrArray:
    """Return the seconds in which a worker sends n bytes to each of the P - 1 others, or receives n from each."""
    return np.subtract(workers, 1) * (link.overhead_s + nbytes / link.goodput_bytes_per_s) + link.latency_s


NCCL_ALGORITHMS: dict[str, NcclAlgorithm] = {
    "all_reduce": NcclAlgorithm(partial(_ring_s, laps=2), other_parts_bytes_twice, directions=2),
    "all_gather": NcclAlgorithm(partial(_ring_s, in_parts=False), other_workers_bytes, directions=2),
    "reduce_scatter": NcclAlgorithm(_ring_s, other_parts_bytes, directions=2),
    "all_to_all": NcclAlgorithm(
        lambda workers, nbytes, link, costs: _posted_s(workers, np.divide(nbytes, workers), link, costs),
        other_parts_bytes, directions=2,
    ),
    "broadcast": NcclAlgorithm(_chain_s, other_parts_bytes, directions=None),
    "reduce": NcclAlgorithm(_chain_s, other_parts_bytes, directions=None),
    "gather": NcclAlgorithm(_posted_s, other_parts_bytes, directions=1),
}  # fmt: skip
"""The algorithm of NCCL for each collective."""

NCCL_KINDS = tuple(NCCL_ALGORITHMS)
"""The collectives that NCCL carries over sockets."""

PROTOCOLS = ("LL", "LL128", "Simple")
"""NCCL's protocols, in the order of the numbers below. Source of the numbers: src/graph/tuning.cc of NCCL 2.30."""

BASE_US = {"tree": (6.8, 14.0, 8.4), "ring": (6.6, 14.0, 8.4)}
"""NCCL's latency of a collective by algorithm and protocol, in microseconds."""
STEP_US = {
    "nvlink": {"tree": (0.6, 1.25, 4.0), "ring": (0.6, 1.9, 3.4)},
    "pcie": {"tree": (1.0, 1.9, 4.0), "ring": (1.0, 2.5, 5.7)},
    "net": {"tree": (5.0, 8.5, 14.0), "ring": (2.7, 4.0, 14.0)},
}
"""NCCL's latency of a step by fabric, algorithm and protocol, in microseconds."""

NETWORK_POST_US = (1.0, 1.0, 3.0)
"""Least latency of each step of a ring between nodes by protocol, in microseconds: the time to post a message."""

SWITCH_US, SWITCH_TREE_LEVEL_US = 25.0, 20.9
"""NCCL's latency of a reduction by switches, and of a level of a tree of such nodes one way, in microseconds."""

LL_BYTES_PER_S = {2: 39e9, 3: 87.7e9, 4: 141e9, 5: 282e9}
"""The maximum bytes per second of protocol LL in a node, by generation of NVLink."""

NETWORK_LL_BYTES_PER_S = (39e9, 20.4e9)
"""The maximum bytes per second of protocol LL on two and on more nodes, with Intel's processors."""

SHARP_US, COLLNET_US, COLLNET_GPU_US = 18.0, 31.0, 0.4
"""NCCL's latency of a sum by the network's switches, on top of NVLS and alone, and for each other GPU of a node."""

COLLNET_STEP_US, COLLNET_PART = 3.7, {2: 1.0, 3: 1.0, 4: 0.85, 5: 0.85}
"""NCCL's latency of a step of CollNetDirect in a node, and the part of NVLink's rate it reaches, by generation."""

RING_PARTS, TREE_PARTS, TREE_EFFICIENCY = (0.5, 0.92, 1.0), (1 / 3.8, 120 / 128, 1.0), 0.92
"""Parts of the rate that rings and trees between nodes reach, by protocol; trees reach `TREE_EFFICIENCY` of that."""

NVLINK_LAPS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "broadcast": 1, "reduce": 1}
"""Laps of a ring by collective; the collectives with a time among GPUs with NVLink."""

CHAINS = ("broadcast", "reduce")
"""Collectives for which NCCL sends the whole tensor along the ring, from one GPU to all others or back."""


NVLINK = "nccl-nvlink"
"""The name of the algorithm that NCCL chooses among GPUs with NVLink."""


class GpuNodes(NamedTuple):
    """GPUs in nodes with NVLink, described by the numbers in NCCL's formulas.

    Attributes:
        gpus: g, GPUs of a node that take part.
        nodes: m, number of nodes.
        nvlink_bytes_per_s: rate of a GPU's NVLink.
        card_bytes_per_s: rate of a GPU's share of its node's network cards; not used in one node.
        card_latency_s: latency of a message between nodes, overhead included.
        costs: NCCL's constants.
        sharp: whether the switches between nodes sum tensors.
    """

    gpus: IntOrArray
    nodes: IntOrArray
    nvlink_bytes_per_s: FloatOrArray
    card_bytes_per_s: FloatOrArray
    card_latency_s: FloatOrArray
    costs: NvlinkCosts
    sharp: bool = False


DATA_CENTRE_S = 250e-6
"""Longest latency inside a data centre, in seconds: light takes as long for 50 km of fibre."""


def nodes_of(levels: Sequence[Any]) -> GpuNodes | None:
    """Return the GPU nodes that the levels of a group describe, or None if NCCL's algorithms with NVLink do not apply.

    They apply to nodes with NVLink in one data centre: no level is narrower than the nodes' network cards (the second
    level), and no level above the cards has a longer latency than a data centre.

    Args:
        levels: levels from the innermost on (`syncline.costmodel.collectives.hierarchical.Peers`).
    """
    node_level, *network_levels = levels
    costs = node_level.link.nvlink
    if costs is None or node_level.link.duplex == "half" or any(level.is_shared_half_duplex for level in levels):
        return None
    card_rate = network_levels[0].link.goodput_bytes_per_s if network_levels else np.inf
    if any(np.any(level.link.goodput_bytes_per_s < card_rate) for level in network_levels):
        return None
    if any(np.any(level.link.latency_s > DATA_CENTRE_S) for level in network_levels[1:]):
        return None
    nodes: IntOrArray = 1
    latency_s: FloatOrArray = 0.0
    for level in network_levels:
        nodes = nodes * level.size
        latency_s = np.maximum(latency_s, level.link.latency_s + level.link.overhead_s)
    sharp = bool(network_levels) and all(level.link.sharp for level in network_levels)
    return GpuNodes(node_level.size, nodes, node_level.link.goodput_bytes_per_s, card_rate, latency_s, costs, sharp)


def nvlink_s(kind: str, nbytes: FloatOrArray, gpu_nodes: GpuNodes | None) -> FloatOrArray:
    """Return the seconds of NCCL's fastest algorithm for a collective of n bytes among GPUs with NVLink.

    All numbers may be arrays, which broadcast. The module's docstring has the formulas.

    Raises:
        NoClosedForm: no NVLink (``gpu_nodes`` is None), or a collective that is not in `NVLINK_LAPS`.

    >>> from syncline.costmodel.network.software_costs import nvlink_costs
    >>> gpus = GpuNodes(8, 16, 450e9, 50e9, 2e-6, nvlink_costs(4))  # 16 nodes of H100, 400 Gbit/s per GPU
    >>> [round(1e3 * float(nvlink_s("all_reduce", nbytes, gpus)), 2) for nbytes in (2**20, 2**30)]
    [0.16, 6.1]
    """
    return reduce(np.minimum, _nvlink_algorithms_s(kind, nbytes, gpu_nodes).values())


def nvlink_algorithm(kind: str, nbytes: float, gpu_nodes: GpuNodes | None) -> str:
    """Return NCCL's fastest algorithm and protocol for a collective, by name; arguments and errors as in `nvlink_s`.

    >>> from syncline.costmodel.network.software_costs import nvlink_costs
    >>> gpus = GpuNodes(8, 16, 450e9, 50e9, 2e-6, nvlink_costs(4))
    >>> [nvlink_algorithm("all_reduce", nbytes, gpus) for nbytes in (2**16, 2**22, 2**30)]
    ['tree LL', 'tree LL128', 'NVLSTree']
    """
    times = _nvlink_algorithms_s(kind, nbytes, gpu_nodes)
    return min(times, key=lambda name: float(times[name]))


def _nvlink_algorithms_s(kind: str, nbytes: FloatOrArray, gpu_nodes: GpuNodes | None) -> dict[str, FloatOrArray]:
    """Return the seconds of each algorithm and protocol of NCCL by name; infinite where NCCL does not run it."""
    if gpu_nodes is None or kind not in NVLINK_LAPS:
        raise NoClosedForm(f"{kind}.algorithm", NVLINK, f"one of {', '.join(NVLINK_LAPS)} on NVLink")
    gpus, nodes, costs, alpha_s = gpu_nodes.gpus, gpu_nodes.nodes, gpu_nodes.costs, gpu_nodes.card_latency_s
    laps, workers = NVLINK_LAPS[kind], np.multiply(gpus, nodes)
    factor, microsecond = costs.factor, 1e-6 * costs.factor  # all seconds grow by the factor of a slowed network
    total_bytes = np.multiply(nbytes, workers if kind == "all_gather" else 1.0)  # S, as in the module's docstring
    large_part = total_bytes / (total_bytes + costs.half_bytes)  # w
    is_multi_node = np.greater(nodes, 1)
    rate = np.minimum(*_nccl_rates(gpu_nodes))  # B
    call_s = factor * (costs.call_s + is_multi_node * costs.network_call_s)  # t
    ring_bytes = laps * total_bytes * (1.0 if kind in CHAINS else (workers - 1) / workers)
    two_nodes_limit, more_nodes_limit = NETWORK_LL_BYTES_PER_S
    network_limit = np.where(nodes == 2, two_nodes_limit, more_nodes_limit)
    ll_limit = np.where(nodes == 1, LL_BYTES_PER_S[costs.generation], network_limit) / factor
    times: dict[str, FloatOrArray] = {}
    for index, protocol in enumerate(PROTOCOLS):
        limit = ll_limit if protocol == "LL" else np.inf
        lap_s = factor * large_part * laps * costs.lap_s if protocol == "Simple" else 0.0
        # NCCL's latencies: of a call, t_0; of a step inside a node, t_r and t_t, and between nodes, t_n and t_m.
        ring_base_s, tree_base_s = (microsecond * BASE_US[name][index] for name in ("ring", "tree"))
        post_s = microsecond * NETWORK_POST_US[index] * is_multi_node
        ring_inner_s = np.maximum(microsecond * STEP_US["nvlink"]["ring"][index], post_s)
        tree_inner_s = microsecond * STEP_US["nvlink"]["tree"][index]
        ring_outer_s = np.maximum(microsecond * STEP_US["net"]["ring"][index], alpha_s)
        tree_outer_s = np.maximum(microsecond * STEP_US["net"]["tree"][index], alpha_s)
        steps_s = laps * ((workers - nodes) * ring_inner_s + (nodes - 1) * ring_outer_s)
        if kind in CHAINS:
            # A chain passes every worker once, and between nodes each of its steps counts as a step between nodes.
            chain_outer_s = tree_outer_s if protocol == "Simple" else ring_outer_s
            steps_s = np.where(is_multi_node, workers * chain_outer_s, steps_s)
        bytes_s = ring_bytes / np.minimum(limit, RING_PARTS[index] * rate)
        times[f"ring {protocol}"] = call_s + ring_base_s + steps_s + bytes_s + lap_s
        if kind == "all_reduce":
            steps_s = 2 * ((gpus - 1) * tree_inner_s + tree_depth(nodes) * tree_outer_s)
            bytes_s = 2 * total_bytes / np.minimum(limit, TREE_EFFICIENCY * TREE_PARTS[index] * rate)
            tree_s = call_s + tree_base_s + steps_s + bytes_s + lap_s
            times[f"tree {protocol}"] = np.where(is_multi_node, tree_s, np.inf)
    if kind == "all_reduce":
        times |= _switch_algorithms_s(gpu_nodes, total_bytes, large_part, call_s, ring_bytes)
    has_messages = (workers > 1) & (total_bytes > 0)
    return {name: np.where(has_messages, seconds, 0.0)[()] for name, seconds in times.items()}


def _nccl_rates(gpu_nodes: GpuNodes) -> tuple[FloatOrArray, FloatOrArray]:
    """Return the bytes per second of a GPU's NVLink, ``b NVLink``, and of a node's cards, C (infinite in one node)."""
    costs = gpu_nodes.costs
    cards_rate = costs.card_part * gpu_nodes.gpus * gpu_nodes.card_bytes_per_s
    is_multi_node = np.greater(gpu_nodes.nodes, 1)
    return costs.nvlink_part * gpu_nodes.nvlink_bytes_per_s, np.where(is_multi_node, cards_rate, np.inf)


def _switch_algorithms_s(
    gpu_nodes: GpuNodes,
    total_bytes: FloatOrArray,
    large_part: FloatOrArray,
    call_s: FloatOrArray,
    ring_bytes: FloatOrArray,
) -> dict[str, FloatOrArray]:
    """Return, by algorithm, the seconds of all-reduces in which the switches of NVLink or the network sum tensors.

    Args:
        total_bytes: S, bytes of the tensor.
        large_part: w, part of the seconds ``lap_s`` and ``switch_gpu_s`` that the tensor pays.
        call_s: t, seconds of a call.
        ring_bytes: 2 (P - 1)/P S, the bytes that a node's cards carry in NVLSTree.
    """
    gpus, costs, alpha_s = gpu_nodes.gpus, gpu_nodes.costs, gpu_nodes.card_latency_s
    microsecond, is_multi_node = 1e-6 * costs.factor, np.greater(gpu_nodes.nodes, 1)
    nvlink_rate, network_rate = _nccl_rates(gpu_nodes)
    times: dict[str, FloatOrArray] = {}
    if costs.switches is not None:
        switches_s = total_bytes * (1 + 1 / np.asarray(gpus)) / (costs.switches.efficiency * nvlink_rate)
        fixed_s = call_s + microsecond * SWITCH_US + costs.factor * large_part * gpus * costs.switch_gpu_s
        levels_s = 2 * tree_depth(gpu_nodes.nodes) * np.maximum(microsecond * SWITCH_TREE_LEVEL_US, alpha_s)
        tree_s = fixed_s + levels_s + np.maximum(switches_s, ring_bytes / network_rate)
        can_switch = np.greater_equal(gpus, costs.switches.fewest_gpus)
        times["NVLS"] = np.where(can_switch & ~is_multi_node, fixed_s + switches_s, np.inf)
        times["NVLSTree"] = np.where(can_switch & is_multi_node, tree_s, np.inf)
        if gpu_nodes.sharp:  # the network's switches, too
            sharp_s = np.maximum(microsecond * SHARP_US, alpha_s) + np.maximum(switches_s, total_bytes / network_rate)
            times["NVLS with SHARP"] = np.where(can_switch & is_multi_node, fixed_s + sharp_s, np.inf)
    if gpu_nodes.sharp:  # CollNetDirect: GPUs exchange parts inside the node, and the network's switches sum each part
        other_gpus = np.subtract(gpus, 1)
        steps_us = 2 * ((other_gpus > 0) * COLLNET_STEP_US + other_gpus * COLLNET_GPU_US)
        node_rate = COLLNET_PART[costs.generation] * costs.nvlink_part * gpu_nodes.nvlink_bytes_per_s
        node_bytes_s = 2 * total_bytes * (other_gpus / gpus) / node_rate
        bytes_s = np.maximum(node_bytes_s, total_bytes / network_rate)
        latency_s = microsecond * steps_us + np.maximum(microsecond * COLLNET_US, alpha_s)
        collnet_s = latency_s + bytes_s + 2 * costs.factor * large_part * costs.lap_s
        times["CollNetDirect"] = np.where(is_multi_node, call_s + collnet_s, np.inf)
    return times


TimesBySize: TypeAlias = Mapping[int, Sequence[Floats]]
"""Measured sizes in bytes, increasing, and their seconds, by number of GPUs."""

CUBE_MESH_RINGS = {2: 1.0, 3: 2.0, 4: 4.0, 5: 2 * 2 * (5 - 1) / 5 * 0.92, 6: 2.0, 7: 4.0, 8: 6.0}
"""r(P), the number of rings among the first P GPUs of a cube mesh.

Five GPUs have no ring: their number is that of the rings that take as long as a chain of 0.92 of two links.
"""

NUM_RINGS = {"a100": dict.fromkeys(range(2, 17), 1.0), "v100": CUBE_MESH_RINGS}
"""r(P), the number of rings among P GPUs, by GPU and P."""


def nvlink_all_reduce_s(gpu: str, gpus: int, nbytes: float, measured: TimesBySize) -> float:
    """Return the seconds T(P, n) of an all-reduce among GPUs of a node, interpolated between measured times.

    Args:
        gpu: model of the GPUs, one of ``NUM_RINGS``.
        gpus: number of GPUs P, at least 2.
        nbytes: bytes n of the tensor, at least 0.
        measured: measured times of nodes with this GPU, for at least one number of GPUs.
    """
    if gpu not in NUM_RINGS:
        raise SpecError("gpu", gpu, one_of(NUM_RINGS, gpu))
    num_rings = NUM_RINGS[gpu]  # r(P), by number of GPUs
    if gpus not in num_rings:
        raise SpecError("gpus", gpus, f"one of {', '.join(str(count) for count in num_rings)}")
    require(nbytes >= 0, "bytes", nbytes, "at least 0")
    if not measured:
        raise SpecError("measured", {}, f"times of {gpu}")
    lower = max((count for count in measured if count <= gpus), default=min(measured))
    upper = min((count for count in measured if count >= gpus), default=max(measured))

    def time_s(count: int) -> float:
        """Return T(count, n'), where n' puts as many bytes on each of the node's links as n among ``gpus`` GPUs."""
        equivalent_bytes = nbytes * (gpus - 1) / gpus * count / (count - 1) * num_rings[count] / num_rings[gpus]
        sizes, seconds = measured[count]
        if equivalent_bytes > sizes[-1]:  # large tensors have the rate of the largest measured one
            return float(seconds[-1] * equivalent_bytes / sizes[-1])
        return float(np.interp(equivalent_bytes, sizes, seconds))

    if lower == upper:  # the number of GPUs was measured, or is beyond all measured numbers
        return time_s(lower)
    weight = (1 / gpus - 1 / upper) / (1 / lower - 1 / upper)  # linear in 1/P
    return weight * time_s(lower) + (1 - weight) * time_s(upper)


@cache
def node_times(gpu: str) -> TimesBySize:
    """Return the measured times of all-reduces among GPUs of a node, by number of GPUs; ``gpu`` is their model."""
    if gpu not in NUM_RINGS:
        raise SpecError("gpu", gpu, one_of(NUM_RINGS, gpu))
    points = np.array(sorted(nvlink_all_reduce(gpu).points))  # columns: number of GPUs, bytes, seconds
    gpu_counts = points[:, 0]
    return {int(count): tuple(points[gpu_counts == count, 1:].T) for count in np.unique(gpu_counts)}


def is_measured(kind: str, network: Any, workers: IntOrArray) -> bool:
    """Return whether a link or a star has measured times of a collective for each of these numbers of workers.

    Times of numbers that were not measured are interpolated, if `NUM_RINGS` has the numbers.
    """
    times: NodeTimes | None = getattr(network, "measured", None)
    if times is None or kind != "all_reduce":
        return False
    return all(count == 1 or count in NUM_RINGS[times.gpu] for count in np.unique(workers).tolist())


def measured_all_reduce_s(workers: IntOrArray, nbytes: FloatOrArray, link: Any) -> FloatOrArray:
    """Return the seconds of an all-reduce by the measured times of a link; ``workers`` and ``nbytes`` broadcast.

    Raises:
        NoClosedForm: the link has no measured times for a number of workers.
    """
    if not is_measured("all_reduce", link, workers):
        raise NoClosedForm("all_reduce.algorithm", "measured", "a link inside a node whose times were measured")
    times: NodeTimes = link.measured
    counts, sizes = np.broadcast_arrays(workers, np.asarray(nbytes, dtype=np.float64))
    times_by_size = node_times(times.gpu)
    seconds = [
        nvlink_all_reduce_s(times.gpu, count, size, measured=times_by_size) if count > 1 and size > 0 else 0.0
        for count, size in zip(counts.ravel().tolist(), sizes.ravel().tolist(), strict=True)
    ]
    return times.factor * np.reshape(seconds, counts.shape)[()]
