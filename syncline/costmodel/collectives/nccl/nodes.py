"""Seconds of NCCL's collectives among GPUs with NVLink, in one node or in several: rings, trees and switches.

P = g m GPUs in m nodes take part. A ring has a channel for each of the node's network cards, and leaves and enters the
node by another card on each channel, so that the cards carry the bytes together:

    B = min(b_r NVLink, b_c g card)                  (b_r NVLink in one node),

where "card" is the rate of a GPU's share of its node's cards. With S bytes in all and ``w = S / (S + S_h)``,

| algorithm                    | seconds                                                                    |
|------------------------------|----------------------------------------------------------------------------|
| ring, all-reduce             | t + 2 (P - 1)/P S/B + 2 w (t_r + (P - m) a) + 2 (m - 1) max(w a_m, alpha)  |
| ring, gather, reduce-scatter | half of the terms with a factor 2                                          |
| switches (NVLS), one node    | t + S / (b_s NVLink) + w P t_s                                             |
| tree, several nodes          | t + S / (b_t min(NVLink, g card)) + t_L                                    |

t is the time of a call, larger between nodes, and alpha the latency between nodes. A tree has L = ceil(log2 m) levels:
``t_L = (L - 1) a_t``, or ``2 L alpha`` if ``2 alpha > a_t``. NCCL runs the fastest of these. Small tensors use
protocols with shorter steps, so that the seconds of steps grow with the size.

Sources: the rates' parts, t, t_r, t_s and S_h are fitted to 84 published times (nccl-tests and torch.distributed) on
A100, H200, B200, GB200 and H20, see `syncline.measure.validation.nvlink`. b_c is set by published all-reduces of
several nodes of H100 and H200, which reach 0.89 to 0.97 of the cards' rate. The seconds of a step are those of NCCL's
src/graph/tuning.cc, protocol Simple; of a tree's level, LL128. From how many GPUs on switches reduce: NCCL 2.27
on H200 and B200 (stas00/ml-engineering).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from syncline.costmodel.collectives.algorithms import NoClosedForm
from syncline.costmodel.collectives.algorithms.base import tree_depth
from syncline.costmodel.network.nvlink_costs import NvlinkCosts
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray

LAPS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
"""Laps of a ring by collective; the collectives with a time among GPUs with NVLink."""


class NvlinkAlgorithm(NamedTuple):
    """The algorithm that NCCL chooses among GPUs with NVLink, timed as a whole."""


NVLINK = "nccl-nvlink"
"""The name of this algorithm."""


class GpuNodes(NamedTuple):
    """GPUs in nodes, as NCCL finds them.

    Attributes:
        gpus: g, GPUs of a node that take part.
        nodes: m, number of nodes.
        nvlink_bytes_per_s: rate of a GPU's NVLink.
        card_bytes_per_s: rate of a GPU's share of its node's network cards; not used in one node.
        card_latency_s: latency of a message between nodes, overhead included.
        costs: NCCL's constants.
    """

    gpus: IntOrArray
    nodes: IntOrArray
    nvlink_bytes_per_s: FloatOrArray
    card_bytes_per_s: FloatOrArray
    card_latency_s: FloatOrArray
    costs: NvlinkCosts


def nodes_of(levels: Sequence[Any]) -> GpuNodes | None:
    """Return the nodes of a group's levels (`syncline.costmodel.collectives.hierarchical.Peers`).

    The result is None unless the innermost level has NVLink, and the other levels are of one data centre: none is
    narrower than a node's network cards, which carry all bytes that leave a node.
    """
    inside, *outside = levels
    costs = inside.link.nvlink
    if costs is None or inside.link.duplex == "half" or any(level.is_shared_half_duplex for level in levels):
        return None
    rates = [level.link.goodput_bytes_per_s for level in outside]
    if any(np.any(rate < rates[0]) for rate in rates):
        return None
    nodes: IntOrArray = 1
    latency_s: FloatOrArray = 0.0
    for level in outside:
        nodes = nodes * level.size
        latency_s = np.maximum(latency_s, level.link.latency_s + level.link.overhead_s)
    card = rates[0] if rates else np.inf
    return GpuNodes(inside.size, nodes, inside.link.goodput_bytes_per_s, card, latency_s, costs)


def nvlink_s(kind: str, nbytes: FloatOrArray, on: GpuNodes | None) -> FloatOrArray:
    """Return the seconds of a collective of n bytes among GPUs in nodes; all numbers broadcast.

    Raises:
        NoClosedForm: no NVLink inside nodes, or a collective without such a time.

    >>> gpus = GpuNodes(8, 16, 450e9, 50e9, 2e-6, NvlinkCosts(4))  # 16 nodes of H100, 400 Gbit/s per GPU
    >>> [round(1e3 * float(nvlink_s("all_reduce", nbytes, gpus)), 2) for nbytes in (2**20, 2**30)]
    [0.16, 6.87]
    """
    if on is None or kind not in LAPS:
        raise NoClosedForm(f"{kind}.algorithm", NVLINK, "an all-reduce, all-gather or reduce-scatter on NVLink")
    gpus, nodes, nvlink, card, alpha_s, costs = on
    laps, workers = LAPS[kind], np.multiply(gpus, nodes)
    total = np.multiply(nbytes, workers if kind == "all_gather" else 1.0)
    large = total / (total + costs.half_bytes)
    several = np.greater(nodes, 1)
    call_s = costs.factor * (costs.call_s + several * costs.network_call_s)
    rate = np.minimum(costs.ring_part * nvlink, np.where(several, costs.card_part * gpus * card, np.inf))
    inside_s = costs.factor * large * laps * (costs.lap_s + (workers - nodes) * costs.ring_step_s)
    between_s = laps * (nodes - 1) * np.maximum(costs.factor * large * costs.network_step_s, alpha_s)
    seconds = call_s + laps * (workers - 1) / workers * total / rate + inside_s + between_s
    if kind == "all_reduce":
        depth, level_s = tree_depth(nodes), costs.factor * costs.tree_level_s
        tree_s = call_s + np.where(2 * alpha_s > level_s, depth * 2 * alpha_s, np.maximum(depth - 1, 0) * level_s)
        tree_s = tree_s + total / (costs.tree_part * np.minimum(nvlink, np.where(several, gpus * card, np.inf)))
        seconds = np.minimum(seconds, np.where(several, tree_s, np.inf))
        if costs.switches is not None:
            switched_s = call_s + total / (costs.switches.rate_part * nvlink)
            switched_s = switched_s + costs.factor * large * workers * costs.switch_gpu_s
            can = ~several & np.greater_equal(gpus, costs.switches.fewest_gpus)
            seconds = np.minimum(seconds, np.where(can, switched_s, np.inf))
    return np.where((workers > 1) & (total > 0), seconds, 0.0)[()]
