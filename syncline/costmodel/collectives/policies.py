"""Policies that choose the algorithm of a collective. A policy's name may stand wherever an algorithm's name may.

| policy | all-reduce                                | reduce-scatter    | others                                     |
|--------|-------------------------------------------|-------------------|--------------------------------------------|
| `auto` | the fastest by the closed form            | the same          | the same                                   |
| `gloo` | `gloo-ring`                               | `gloo-all-reduce` | `gloo-ring`, `gloo-tree`, `gloo-posted`    |
| `nccl` | on NVLink: `nccl-nvlink`                  | the same          | all-gather the same                        |
|        | ring or double binary tree, by its tables | ring              | all-gather ring, pairwise, gather tree     |
|        | on a link with `nccl`: `nccl-ring` or     | `nccl-ring`       | `nccl-ring`, `nccl-chain`, `nccl-posted`   |
|        | double binary tree, by its tables         |                   |                                            |

**gloo**, as torch.distributed calls it, has one algorithm for each collective, whatever the size: the algorithms of
`syncline.costmodel.collectives.gloo.times`, whose messages wait for their receiver's notice.

**NCCL** estimates the time of each algorithm and protocol for an all-reduce from constants for the hardware, and takes
the fastest; `nccl_estimates_s` is that model with the inputs that a network's description has:

    time = lat + n / bw,   ring: lat = base + (steps - inter) intra + inter net,      bw = bus x P / steps
                           tree: lat = base + 2 ((P / nodes - 1) intra + log2(nodes) net),  bw = bus x correction / 2

The model leaves out channel counts and their caps, NVLS and CollNet (switches that reduce), PAT, and the constants of
other GPUs and CPUs than Hopper and Intel. NCCL's tables assume a data centre's latencies, whatever the network's are.
If a link carries NCCL's piece sizes (``Link.nccl``), its rings and chains are those of
`syncline.costmodel.collectives.nccl.sockets`, which pipeline the pieces. On other networks, and if the tables choose a
tree, the nearest algorithm without pieces stands for NCCL's: a broadcast is a scatter and an all-gather; NCCL pipelines
its double tree in chunks, and ours is not pipelined. On nodes NCCL's rings alternate over all network cards, so that
the nearest algorithm is `hierarchical`, with fewer latencies; NCCL's tree, a chain inside each node, becomes
`hierarchical-rabenseifner`, with the same bytes and latencies between nodes. Nodes, sites and links inside nodes
(NVLink) carry no ``nccl``, because their pieces differ from those over sockets.

Sources: `syncline.costmodel.collectives.gloo.times`; NVIDIA NCCL, src/graph/tuning.cc (of a release with Blackwell's
constants, about 2.25), without the parts that the model leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from syncline.costmodel.collectives.cost import best_algorithm
from syncline.costmodel.collectives.hierarchical import node_size
from syncline.costmodel.collectives.nccl.nodes import NVLINK
from syncline.costmodel.collectives.table import (
    ALGORITHMS,
    TABLE,
    algorithm_name,
    algorithms_on,
    first_on,
    is_a_library_s,
    knows_library,
    nccl_on,
)
from syncline.costmodel.network.gloo_costs import GLOO
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.nccl_costs import NCCL_RUNS
from syncline.costmodel.network.topology import Network, Topology
from syncline.costmodel.network.two_level import TwoLevel
from syncline.costmodel.numerics.arrays import FloatOrArray
from syncline.errors import SpecError, one_of

Algorithms: TypeAlias = str | Mapping[str, str] | None
"""An algorithm's or a policy's name, for all collectives or by kind of collective; see `algorithm_for`."""

POLICIES = ("auto", "gloo", "nccl")
"""The names of the policies."""

NCCL = {
    "all_gather": "ring",
    "reduce_scatter": "ring",
    "all_to_all": "pairwise",
    "broadcast": "scatter-all-gather",
    "gather": "binomial",
    "reduce": "reduce-scatter-gather",
    "send": "message",
}

PROTOCOLS = ("LL", "LL128", "Simple")
BASE_US = {"tree": (6.8, 14.0, 8.4), "ring": (6.6, 14.0, 8.4)}
STEP_US = {
    "nvlink": {"tree": (0.6, 1.25, 4.0), "ring": (0.6, 1.9, 3.4)},
    "pcie": {"tree": (1.0, 1.9, 4.0), "ring": (1.0, 2.5, 5.7)},
    "net": {"tree": (5.0, 8.5, 14.0), "ring": (2.7, 4.0, 14.0)},
}
"""NCCL's latencies of a collective and of a step, in microseconds, by protocol."""

LL_BYTES_PER_S = (141e9, 39e9, 20.4e9)
"""The maximum bytes per second of protocol LL on one, two and more nodes (Hopper; Intel)."""

TREE_CORRECTION = (
    (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1),
    (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1),
    (0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
)
"""The fraction of its bandwidth that a tree reaches in NCCL's tables, per protocol, for 64 B, 128 B, ..., 256 MB."""


def chosen_algorithm(name: str | None, kind: str, workers: int, nbytes: float, network: Network | Topology) -> str:
    """Return the algorithm that carries a collective, after resolving a policy.

    Args:
        name: an algorithm, a policy or None. An algorithm of another collective means this collective's first. None
            means the collective's first, or gloo's or NCCL's on a link that carries the costs of that library.
        kind: one of ``COLLECTIVES``.
        workers: P.
        nbytes: n, with the meaning that the closed form gives.
        network: a link or another network.

    Raises:
        SpecError: an unknown collective, algorithm or policy, or a number of workers that the network cannot join.

    >>> from syncline.costmodel import NETWORKS
    >>> ndr = NETWORKS["ib-ndr"].network
    >>> [chosen_algorithm(name, "all_reduce", 64, 1e6, ndr) for name in (None, "auto", "gloo", "nccl")]
    ['ring', 'rabenseifner', 'gloo-ring', 'double-binary-tree']
    """
    first = algorithm_name(kind)
    if name is None:
        return first_on(kind, network)
    if name == "auto":
        return best_algorithm(kind, workers, nbytes, network)
    if name == "gloo":
        return GLOO.get(kind, first)
    if name == "nccl":
        return _by_nccl(kind, workers, nbytes, network)
    if name in TABLE[kind]:
        return name
    names = {algorithm for algorithms in TABLE.values() for algorithm in algorithms}
    if name not in names:
        raise SpecError("algorithm", name, one_of({*names, *POLICIES}, name))
    return first


def nccl_names(kind: str, network: Network | Topology) -> tuple[str, ...]:
    """Return the algorithms that policy ``nccl`` may choose on a flat network; an all-reduce has two."""
    plain = NCCL.get(kind, "ring")
    ring = plain if nccl_on(network) is None else NCCL_RUNS.get(kind, plain)
    return (ring,) if kind in NCCL else (ring, "double-binary-tree")


def algorithm_of(wanted: Algorithms, kind: str) -> str | None:
    """Return the algorithm or policy that ``wanted`` names for a kind of collective, or None."""
    return wanted if wanted is None or isinstance(wanted, str) else wanted.get(kind)


def algorithm_for(wanted: Algorithms, kind: str, workers: Any, nbytes: Any, network: Network | Topology) -> str | None:
    """Return the algorithm that carries a collective, or None for the collective's first.

    Args:
        wanted: an algorithm, a policy, None, or a mapping from kinds of collectives to these. An algorithm that this
            collective lacks means the collective's first. A policy (``auto``, ``gloo`` or ``nccl``) chooses by the
            other arguments. None means the collective's first, or gloo's or NCCL's if the network carries the costs
            of that library.
        kind: one of ``COLLECTIVES``.
        workers: P.
        nbytes: n.
        network: a link or another network that joins the workers.

    Raises:
        SpecError: no such algorithm or policy.
    """
    name = algorithm_of(wanted, kind) or None
    if name in ALGORITHMS[kind] or (name is None and not knows_library(network)):
        return name
    return chosen_algorithm(name, kind, workers, nbytes, network)


def unless_named(name: str | None, network: Network | Topology) -> str | None:
    """Return the name if there is one, else None on a network with library costs, else ``auto``.

    None means the algorithms of the library whose costs the network carries.
    """
    return name or (None if knows_library(network) else "auto")


def all_by_library(wanted: Algorithms, network: Network | Topology) -> bool:
    """Return whether gloo's or NCCL's own algorithm carries every collective that they have.

    No start rule applies to these. A ``send`` is the same message in every library.
    """

    def by_library(kind: str) -> bool:
        """Return whether a library's own algorithm carries this kind of collective."""
        name = algorithm_of(wanted, kind)
        if name is None and knows_library(network):
            name = first_on(kind, network)
        return name == "gloo" or is_a_library_s(kind, name)

    return all(by_library(kind) for kind in GLOO)


def _by_nccl(kind: str, workers: int, nbytes: float, network: Network | Topology) -> str:
    """Return NCCL's algorithm, or for an all-reduce the nearest one to that with NCCL's least estimate."""
    if NVLINK in algorithms_on(kind, network, workers):
        return NVLINK
    names = nccl_names(kind, network)
    if workers < 2 or kind in NCCL:
        return names[0]
    estimates = nccl_estimates_s(workers, nbytes, network)
    ring = min(estimates, key=lambda name: float(estimates[name]))[0] == "ring"
    if "hierarchical" in algorithms_on("all_reduce", network, workers):
        return "hierarchical" if ring else "hierarchical-rabenseifner"
    return names[0] if ring else names[1]


def nccl_estimates_s(workers: int, nbytes: float, network: Network | Topology) -> dict[tuple[str, str], FloatOrArray]:
    """Return the seconds of an all-reduce in NCCL's model, by algorithm (``ring``, ``tree``) and protocol.

    Workers with a plain link are nodes of one GPU each; if the link's ``fabric`` is ``nvlink`` or ``pcie``, they are
    one node. Nodes have NVLink inside unless their inner link's fabric is ``pcie``. Without NVLink there is no
    estimate for protocol LL128, because NCCL disables it by default.

    Args:
        workers: P, at least 2.
        nbytes: n.
        network: a link, whose fields may be arrays, or nodes. The bandwidth of any other network counts as infinite,
            so that only the latencies count.

    Raises:
        SpecError: a number of workers that the network cannot join.
    """
    nodes, inside, bus = _as_nccl_sees(network, workers)
    local, steps = workers // nodes, 2 * (workers - 1)
    between = 2 * (nodes - 1)
    estimates: dict[tuple[str, str], FloatOrArray] = {}
    for p, protocol in enumerate(PROTOCOLS):
        if protocol == "LL128" and inside != "nvlink":
            continue
        inner = {name: row[p] for name, row in STEP_US[inside].items()}
        net = {name: row[p] for name, row in STEP_US["net"].items()}
        ring_us = max(inner["ring"], (3.0 if protocol == "Simple" else 1.0) if nodes > 1 else 0.0)
        ring_net_us = net["tree" if local == 1 else "ring"]
        ring_s = 1e-6 * (BASE_US["ring"][p] + (steps - between) * ring_us + between * ring_net_us)
        if protocol == "Simple" and nodes > 1 and nbytes >= 64 * workers:
            ring_s *= 1.4
        tree_s = 1e-6 * (
            BASE_US["tree"][p] + 2 * ((local - 1) * inner["tree"] + (nodes.bit_length() - 1) * net["tree"])
        )
        ll_limit = LL_BYTES_PER_S[min(nodes, 3) - 1]
        ring_rate = {"LL": np.minimum(ll_limit, bus / 2), "LL128": 0.92 * bus, "Simple": bus}[protocol]
        tree_part = 7 / 9 if nodes == 1 else 120 / 128
        tree_rate = 0.92 * bus * {"LL": 1 / 3.8, "LL128": tree_part, "Simple": 1.0}[protocol]
        size = int(np.log2(max(nbytes, 64.0) / 64))
        correction = TREE_CORRECTION[p][size] if nbytes >= 64 and size < len(TREE_CORRECTION[p]) else 1.0
        tree_rate = (np.minimum(ll_limit, tree_rate) if protocol == "LL" else tree_rate) * correction / 2
        estimates["ring", protocol] = ring_s + nbytes / (ring_rate * workers / steps)
        estimates["tree", protocol] = tree_s + nbytes / tree_rate
    return estimates


def _as_nccl_sees(network: Network | Topology, workers: int) -> tuple[int, str, FloatOrArray]:
    """Return the number of nodes, the fabric inside a node and the bytes per second of all channels of a node."""
    if isinstance(network, TwoLevel):
        local = network.group(workers)
        nodes, inner = workers // local, float(network.inner.goodput_bytes_per_s)
        inside = "pcie" if network.inner.fabric == "pcie" else "nvlink"
        cards = network.nics * float(network.outer.goodput_bytes_per_s)
        return nodes, inside, inner if nodes == 1 else min(inner, cards)
    if isinstance(network, MultiLevel) and len(network.levels) > 1 and not network.shares_lower_links(1):
        shape, link = network.shape(workers), network.levels[0].link
        nodes, inner = workers // shape.sizes[0], float(link.goodput_bytes_per_s)
        cards = float(network.levels[1].pool(shape.rails[1]).goodput_bytes_per_s)
        return nodes, "pcie" if link.fabric == "pcie" else "nvlink", inner if nodes == 1 else min(inner, cards)
    if isinstance(network, Link):
        rate, inside = network.goodput_bytes_per_s, network.fabric
        return (workers, "pcie", rate) if inside == "network" else (1, inside, rate)
    size = node_size(network, workers)
    return workers // (size or 1), "pcie", np.inf
