"""Policies that choose the algorithm of a collective. A policy's name may stand wherever an algorithm's name may.

| policy | all-reduce                                | reduce-scatter    | others                                     |
|--------|-------------------------------------------|-------------------|--------------------------------------------|
| `auto` | the fastest by the closed form            | the same          | the same                                   |
| `gloo` | `gloo-ring`                               | `gloo-all-reduce` | `gloo-ring`, `gloo-tree`, `gloo-posted`    |
| `nccl` | on NVLink: `nccl-nvlink`                  | the same          | all-gather the same                        |
|        | ring or double binary tree, by its tables | ring or PAT, same | all-gather the same, pairwise, gather tree |
|        | on a link with `nccl`: `nccl-ring` or     | `nccl-ring`       | `nccl-ring`, `nccl-chain`, `nccl-posted`   |
|        | double binary tree, by its tables         |                   |                                            |

**gloo**, as torch.distributed calls it, has one algorithm for each collective, whatever the size: the algorithms of
`syncline.costmodel.collectives.gloo`, whose messages wait for their receiver's notice.

**NCCL** estimates the time of each algorithm and protocol of a collective from constants for the hardware, and takes
the fastest; `nccl_estimates_s` is that model with the inputs that a network's description has:

    time = lat + n / bw,   ring: lat = base + (steps - inter) intra + inter net,      bw = bus x P / steps
                           tree: lat = base + 2 ((P / nodes - 1) intra + log2(nodes) net),  bw = bus x correction / 2
                           PAT:  lat = 8 us + log2(P) net / 3.5 + P 2.8 us,                 bw = 0.75 bus

PAT carries gathers and reduce-scatters among nodes of one GPU each, on links without ``Link.nccl``. The model leaves
out channel counts and their caps, NVLS and CollNet (switches that reduce), and the constants of other GPUs and CPUs
than Hopper and Intel. NCCL's tables assume a data centre's latencies, whatever the network's are.
If a link carries NCCL's piece sizes (``Link.nccl``), its rings and chains are those of
`syncline.costmodel.collectives.nccl`, which pipeline the pieces. On other networks, and if the tables choose a
tree, the nearest algorithm without pieces stands for NCCL's: a broadcast is a scatter and an all-gather; NCCL pipelines
its double tree in chunks, and ours is not pipelined. On nodes NCCL's rings alternate over all network cards, so that
the nearest algorithm is `hierarchical`, with fewer latencies; NCCL's tree, a chain inside each node, becomes
`hierarchical-rabenseifner`, with the same bytes and latencies between nodes. Nodes, sites and links inside nodes
(NVLink) carry no ``nccl``, because their pieces differ from those over sockets.

Sources: `syncline.costmodel.collectives.gloo`; NVIDIA NCCL, src/graph/tuning.cc (of a release with Blackwell's
constants, about 2.25), without the parts that the model leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from syncline.costmodel.collectives import nccl, table
from syncline.costmodel.collectives.cost import best_algorithm
from syncline.costmodel.collectives.hierarchical import node_size
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.paths import Network, Topology
from syncline.costmodel.network.software_costs import GLOO, NCCL_RUNS
from syncline.costmodel.network.two_level import TwoLevel
from syncline.costmodel.numerics.arrays import FloatOrArray
from syncline.errors import SpecError, one_of

Algorithms: TypeAlias = str | Mapping[str, str] | None
"""An algorithm's or a policy's name, for all collectives or by kind of collective; see `algorithm_for`."""

POLICIES = ("auto", "gloo", "nccl")
"""The names of the policies."""

NEAREST_TO_NCCL = {
    "all_gather": "ring",
    "reduce_scatter": "ring",
    "all_to_all": "pairwise",
    "broadcast": "scatter-all-gather",
    "gather": "binomial",
    "reduce": "reduce-scatter-gather",
    "send": "message",
}
"""The algorithm nearest to NCCL's by collective, except for an all-reduce."""

PAT_KINDS = ("all_gather", "reduce_scatter")
"""The collectives for which NCCL has PAT, since release 2.23."""

PAT_BASE_US, PAT_LEVEL_PART, PAT_WORKER_US, PAT_PART = 8.0, 1 / 3.5, 2.8, 0.75
"""Latency of PAT, part of a step's latency per level, latency per worker, and part of the rate, in NCCL 2.27."""

TREE_CORRECTION = (
    (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1),
    (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1),
    (0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
)
"""The fraction of its bandwidth that a tree reaches in NCCL's tables, per protocol, for 64 B, 128 B, ..., 256 MB."""


def chosen_algorithm(name: str | None, kind: str, workers: int, nbytes: float, network: Network | Topology) -> str:
    """Return the name of the algorithm that carries a collective, given the name of an algorithm or a policy.

    Args:
        name: an algorithm, a policy, or None for the network's default. If this collective has no algorithm of that
            name but another has, the collective's first algorithm is taken.
        kind: one of ``COLLECTIVES``.
        nbytes: bytes of the collective, by the table of `syncline.costmodel.collectives.cost`.
        network: a link or another network.

    >>> from syncline.costmodel import NETWORKS
    >>> ndr = NETWORKS["ib-ndr"].network
    >>> [chosen_algorithm(name, "all_reduce", 64, 1e6, ndr) for name in (None, "auto", "gloo", "nccl")]
    ['ring', 'rabenseifner', 'gloo-ring', 'double-binary-tree']
    """
    first = table.algorithm_name(kind)
    if name is None:
        return table.default_algorithm(kind, network)
    if name == "auto":
        return best_algorithm(kind, workers, nbytes, network)
    if name == "gloo":
        return GLOO.get(kind, first)
    if name == "nccl":
        return _by_nccl(kind, workers, nbytes, network)
    if name in table.TABLE[kind]:
        return name
    all_names: set[str] = set().union(*table.TABLE.values())
    if name not in all_names:
        raise SpecError("algorithm", name, one_of({*all_names, *POLICIES}, name))
    return first


def nccl_names(kind: str, network: Network | Topology) -> tuple[str, ...]:
    """Return the algorithms that policy ``nccl`` may choose: NCCL's usual one, or the nearest to it, and another.

    The other is a double binary tree for an all-reduce, and PAT for `PAT_KINDS` between nodes of a single GPU.
    """
    name = "ring" if kind == "all_reduce" else NEAREST_TO_NCCL[kind]
    if table.nccl_on(network) is not None:
        name = NCCL_RUNS.get(kind, name)
    if kind == "all_reduce":
        return name, "double-binary-tree"
    joins_single_gpus = isinstance(network, Link) and network.fabric == "network" and network.nccl is None
    return (name, "pat") if kind in PAT_KINDS and joins_single_gpus else (name,)


def user_choice(algorithms: Algorithms, kind: str) -> str | None:
    """Return the algorithm or policy that a user chose for a kind of collective, or None without a choice."""
    if algorithms is None or isinstance(algorithms, str):
        return algorithms
    return algorithms.get(kind)


def algorithm_for(
    algorithms: Algorithms, kind: str, workers: Any, nbytes: Any, network: Network | Topology
) -> str | None:
    """Return the name of the algorithm that carries a collective, or None for the first of its algorithms.

    ``algorithms`` has a name for all kinds of collectives, or names by kind. All else is as in `chosen_algorithm`.
    """
    name = user_choice(algorithms, kind) or None
    # In these cases the bytes and the number of workers, which may be arrays, do not matter.
    if name in table.ALGORITHMS[kind] or (name is None and not table.knows_library(network)):
        return name
    return chosen_algorithm(name, kind, workers, nbytes, network)


def algorithm_or_auto(name: str | None, network: Network | Topology) -> str | None:
    """Return an algorithm's name; by default ``auto``, or None if the network has a library (`knows_library`)."""
    return name or (None if table.knows_library(network) else "auto")


def all_by_library(algorithms: Algorithms, network: Network | Topology) -> bool:
    """Return whether libraries' own algorithms carry all collectives, so that no start rule of messages applies.

    A ``send`` does not count, because it is the same message in every library.
    """
    for kind in GLOO:  # all collectives but `send`
        name = user_choice(algorithms, kind)
        if name is None and table.knows_library(network):
            name = table.default_algorithm(kind, network)
        if name != "gloo" and not table.is_library_algorithm(kind, name):  # policy `gloo` always takes gloo's
            return False
    return True


def _by_nccl(kind: str, workers: int, nbytes: float, network: Network | Topology) -> str:
    """Return the algorithm nearest to the one that NCCL would choose, the fastest by `nccl_estimates_s`."""
    if nccl.NVLINK in table.algorithms_on(kind, network, workers):
        return nccl.NVLINK
    usual, *others = nccl_names(kind, network)
    if workers < 2 or not others:  # nothing is sent, or there is no choice
        return usual
    estimates = nccl_estimates_s(workers, nbytes, network, kind)
    nccl_algorithm, _ = min(estimates, key=lambda key: float(estimates[key]))
    is_ring = nccl_algorithm == "ring"
    # `kind` is all_reduce, as the others have one name.
    if "hierarchical" in table.algorithms_on("all_reduce", network, workers):
        return "hierarchical" if is_ring else "hierarchical-rabenseifner"
    (other,) = others
    return usual if is_ring else other


def nccl_estimates_s(
    workers: int, nbytes: float, network: Network | Topology, kind: str = "all_reduce"
) -> dict[tuple[str, str], FloatOrArray]:
    """Return the seconds of a collective by NCCL's model for each pair of an algorithm and a protocol.

    The algorithms are ``ring``, and ``tree`` for an all-reduce or ``pat`` for `PAT_KINDS`. The module's docstring has
    the formulas. Workers with a link are one node if the link's ``fabric`` is ``nvlink`` or ``pcie``, else a node each.
    Nodes have NVLink inside unless their inner link's fabric is ``pcie``. Without NVLink there is no estimate for
    protocol LL128, because NCCL disables it by default.

    Args:
        workers: number of workers, at least 2.
        nbytes: bytes of the collective.
        network: nodes, or a link; the link's fields may be arrays. On other networks only latencies count.
        kind: ``all_reduce``, or one of `PAT_KINDS` among nodes of one GPU each.
    """
    nodes, fabric, bus_rate = _nodes_fabric_and_rate(network, workers)
    node_workers = workers // nodes
    is_all_reduce = kind == "all_reduce"
    laps = 2 if is_all_reduce else 1
    steps, network_steps = laps * (workers - 1), laps * (nodes - 1)  # a ring's steps, in all and between nodes
    nbytes = nbytes * workers if kind == "all_gather" else nbytes
    size_index = int(np.log2(max(nbytes, 64.0) / 64))  # into TREE_CORRECTION, whose sizes begin at 64 bytes
    two_nodes_limit, more_nodes_limit = nccl.NETWORK_LL_BYTES_PER_S
    ll_limit = {1: nccl.LL_BYTES_PER_S[4], 2: two_nodes_limit}.get(nodes, more_nodes_limit)  # in one node: of Hopper
    tree_levels = nodes.bit_length() - 1
    estimates: dict[tuple[str, str], FloatOrArray] = {}
    for index, protocol in enumerate(nccl.PROTOCOLS):
        if protocol == "LL128" and fabric != "nvlink":
            continue
        inner_us = {name: row[index] for name, row in nccl.STEP_US[fabric].items()}
        network_us = {name: row[index] for name, row in nccl.STEP_US["net"].items()}
        ring_us = max(inner_us["ring"], nccl.NETWORK_POST_US[index] if nodes > 1 else 0.0)
        # With one GPU per node nothing hides a step's latency, for which NCCL takes that of a tree.
        ring_network_us = network_us["tree" if node_workers == 1 else "ring"]
        ring_s = 1e-6 * (
            nccl.BASE_US["ring"][index] + (steps - network_steps) * ring_us + network_steps * ring_network_us
        )
        if is_all_reduce and protocol == "Simple" and nodes > 1 and nbytes >= 64 * workers:
            ring_s *= 1.4  # NCCL's factor for a plateau of rings between nodes
        tree_steps_us = (node_workers - 1) * inner_us["tree"] + tree_levels * network_us["tree"]
        tree_s = 1e-6 * (nccl.BASE_US["tree"][index] + 2 * tree_steps_us)
        ring_rate = nccl.RING_PARTS[index] * bus_rate
        tree_part = (
            7 / 9 if protocol == "LL128" and nodes == 1 else nccl.TREE_PARTS[index]
        )  # NCCL's number for one node
        tree_rate = nccl.TREE_EFFICIENCY * tree_part * bus_rate
        if protocol == "LL":
            ring_rate, tree_rate = np.minimum(ll_limit, ring_rate), np.minimum(ll_limit, tree_rate)
        estimates["ring", protocol] = ring_s + nbytes / (ring_rate * workers / steps)
        if is_all_reduce:
            corrections = TREE_CORRECTION[index]
            correction = corrections[size_index] if nbytes >= 64 and size_index < len(corrections) else 1.0
            estimates["tree", protocol] = tree_s + nbytes / (tree_rate * correction / 2)
    if not is_all_reduce:
        level_us = PAT_LEVEL_PART * nccl.STEP_US["net"]["tree"][nccl.PROTOCOLS.index("Simple")]
        pat_us = PAT_BASE_US + tree_levels * level_us + workers * PAT_WORKER_US
        estimates["pat", "Simple"] = 1e-6 * pat_us + nbytes / (PAT_PART * bus_rate)
    return estimates


def _nodes_fabric_and_rate(network: Network | Topology, workers: int) -> tuple[int, str, FloatOrArray]:
    """Return what NCCL's model knows of a network: number of nodes, fabric inside each, bytes per second of a node.

    On other networks than links and nodes the rate is infinite.
    """
    if isinstance(network, Link):
        rate, fabric = network.goodput_bytes_per_s, network.fabric
        # Network cards join nodes of one GPU each; NVLink and PCI Express join the GPUs of one node.
        return (workers, "pcie", rate) if fabric == "network" else (1, fabric, rate)
    if isinstance(network, TwoLevel):
        nodes, link = len(network.sizes(workers)), network.inner
        cards_rate = network.nics * float(network.outer.goodput_bytes_per_s)
    elif isinstance(network, MultiLevel) and len(network.levels) > 1 and not network.shares_lower_links(1):
        shape, link = network.shape(workers), network.levels[0].link
        nodes = workers // shape.sizes[0]
        cards_rate = float(network.levels[1].pool(shape.rails[1]).goodput_bytes_per_s)
    else:  # a site or a unit of the lowest level counts as a node; without these, each worker does
        return workers // (node_size(network, workers) or 1), "pcie", np.inf
    link_rate = float(link.goodput_bytes_per_s)
    fabric = "pcie" if link.fabric == "pcie" else "nvlink"
    return nodes, fabric, link_rate if nodes == 1 else min(link_rate, cards_rate)
