"""The table of all algorithms: for any network, of nodes, of places, direct exchanges, those of gloo and NCCL.

The class of an algorithm decides its closed form: the time of an `Algorithm` follows from its messages and bytes, that
of a `Hierarchy` from its levels. A `DirectAlgorithm`, a `GlooAlgorithm` and an `NcclAlgorithm` have formulas of their
own. A `PlacedAlgorithm` has none where lines differ.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from syncline.costmodel.collectives.algorithms import FLAT, Algorithm, NoClosedForm
from syncline.costmodel.collectives.gloo import GLOO_ALGORITHMS, GlooAlgorithm
from syncline.costmodel.collectives.hierarchical import (
    HIERARCHIES,
    Hierarchy,
    first_of_equal_groups,
    flat_link,
    group_peers,
    has_levels,
)
from syncline.costmodel.collectives.nccl import (
    NCCL_ALGORITHMS,
    NVLINK,
    NVLINK_LAPS,
    GpuNodes,
    NcclAlgorithm,
    is_measured,
    nodes_of,
)
from syncline.costmodel.collectives.placed import (
    BY_PLACES,
    DIRECT,
    DIRECT_ALGORITHMS,
    ORDERED_RING,
    PLACED,
    DirectAlgorithm,
    PlacedAlgorithm,
)
from syncline.costmodel.network.link import Link, MemberTopology
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.paths import Network, Topology
from syncline.costmodel.network.places import place_of
from syncline.costmodel.network.software_costs import GLOO, NCCL_RUNS, HivemindCosts, NcclCosts
from syncline.costmodel.network.two_level import TwoLevel
from syncline.costmodel.numerics.arrays import IntOrArray
from syncline.errors import SpecError, one_of


class TimedAlgorithm(NamedTuple):
    """An algorithm whose time is known as a whole, without messages, see `TIMED_AS_A_WHOLE`."""


MEASURED = "measured"
"""The name of the all-reduce of which a link has measured times."""

TIMED_AS_A_WHOLE = (MEASURED, NVLINK)
"""The algorithms without messages: all workers finish at once, the known seconds after the last of them has begun."""

AnyAlgorithm: TypeAlias = (
    Algorithm | Hierarchy | PlacedAlgorithm | DirectAlgorithm | GlooAlgorithm | NcclAlgorithm | TimedAlgorithm
)


def _algorithms(kind: str) -> dict[str, AnyAlgorithm]:
    """Return the definitions of all algorithms of a collective by name."""
    algorithms: dict[str, AnyAlgorithm] = {**FLAT[kind], **HIERARCHIES[kind], **PLACED.get(kind, {})}
    if kind in GLOO:
        algorithms[GLOO[kind]] = GLOO_ALGORITHMS[kind]
    if kind in NCCL_RUNS:
        algorithms[NCCL_RUNS[kind]] = NCCL_ALGORITHMS[kind]
    if kind == "all_reduce":
        algorithms |= {**DIRECT_ALGORITHMS, MEASURED: TimedAlgorithm()}
    if kind in NVLINK_LAPS:
        algorithms[NVLINK] = TimedAlgorithm()
    return algorithms


TABLE: dict[str, dict[str, AnyAlgorithm]] = {kind: _algorithms(kind) for kind in FLAT}
"""The algorithms by collective and name."""


def _names_of(algorithm_class: type[AnyAlgorithm]) -> dict[str, tuple[str, ...]]:
    """Return the names of the algorithms of a class, such as `GlooAlgorithm`, by collective."""
    names = {}
    for kind, algorithms in TABLE.items():
        names[kind] = tuple(name for name, algorithm in algorithms.items() if isinstance(algorithm, algorithm_class))
    return names


ALGORITHMS = _names_of(Algorithm)
"""The names of each collective's algorithms for any network; the first is the default."""

HIERARCHICAL = _names_of(Hierarchy)
"""The names of each collective's algorithms that need nodes."""

OF_GLOO = _names_of(GlooAlgorithm)
"""The names of gloo's algorithms. Their messages wait for the receiver's notice, whatever the start rule.
`best_algorithm` leaves them out, because users do not choose gloo for its speed."""

OF_DIRECT = _names_of(DirectAlgorithm)
"""The names of direct exchanges. No start rule applies; `best_algorithm` leaves them out, as it does servers."""

OF_PLACES = _names_of(PlacedAlgorithm)
"""The names of each collective's algorithms that follow the places of the workers."""

OF_NCCL = _names_of(NcclAlgorithm)
"""The names of NCCL's algorithms over sockets, in pieces. No start rule applies; `best_algorithm` leaves them out."""

SERVERS = ("server-naive", "server-efficient")
"""All-reduces by a parameter server. `best_algorithm` leaves them out: if messages cost no overhead, the many short
messages of a server would look free."""

COLLECTIVES = tuple(TABLE)
"""The names of the collectives, as the traffic ledger writes them."""


def algorithm_name(kind: str, algorithm: str | None = None) -> str:
    """Return the name of an algorithm of a collective, by default its first; raise ``SpecError`` for an unknown one."""
    if kind not in TABLE:
        raise SpecError("collective", kind, one_of(TABLE, kind))
    if algorithm is None:
        return ALGORITHMS[kind][0]
    if algorithm not in TABLE[kind]:
        raise SpecError(f"{kind}.algorithm", algorithm, one_of(TABLE[kind], algorithm))
    return algorithm


def is_gloo(kind: str, algorithm: str | None) -> bool:
    """Return whether an algorithm is gloo's; its messages wait until the receiver has posted a buffer."""
    return isinstance(TABLE.get(kind, {}).get(algorithm or ""), GlooAlgorithm)


def is_nccl(kind: str, algorithm: str | None) -> bool:
    """Return whether an algorithm is NCCL's over sockets."""
    return isinstance(TABLE.get(kind, {}).get(algorithm or ""), NcclAlgorithm)


def is_direct(kind: str, algorithm: str | None) -> bool:
    """Return whether an algorithm is a direct exchange; its messages leave at once, on a connection each."""
    return isinstance(TABLE.get(kind, {}).get(algorithm or ""), DirectAlgorithm)


def is_library_algorithm(kind: str, algorithm: str | None) -> bool:
    """Return whether an algorithm is gloo's, NCCL's or a direct exchange: start rules of messages do not apply."""
    return isinstance(TABLE.get(kind, {}).get(algorithm or ""), GlooAlgorithm | NcclAlgorithm | DirectAlgorithm)


def nccl_on(network: Network | Topology) -> NcclCosts | None:
    """Return NCCL's costs and sizes of pieces over a network's sockets, or None."""
    return getattr(network, "nccl", None)


def knows_library(network: Network | Topology) -> bool:
    """Return whether a network has software costs of gloo, NCCL or hivemind, so that their algorithms are default."""
    return network.gloo is not None or nccl_on(network) is not None or hivemind_on(network) is not None


def hivemind_on(network: Network | Topology) -> HivemindCosts | None:
    """Return the costs of hivemind's averaging on a network, or None."""
    return getattr(network, "hivemind", None)


def default_algorithm(kind: str, network: Network | Topology) -> str:
    """Return the default algorithm of a collective on a network.

    If the network carries the costs of gloo or NCCL, it is that library's own algorithm. With the costs of hivemind an
    all-reduce is a direct exchange. Otherwise, and if the library has none, it is the collective's first algorithm.
    """
    first = algorithm_name(kind)
    if network.gloo is not None:
        return GLOO.get(kind, first)
    if hivemind_on(network) is not None and kind == "all_reduce":
        return DIRECT
    return first if nccl_on(network) is None else NCCL_RUNS.get(kind, first)


def link_of_all(network: Network | Topology, workers: int) -> Any:
    """Return the link that every worker has to all others, or None if links differ."""
    # A star or a topology of some workers stands for its link, whose ``measured`` times it has.
    return network if hasattr(network, "measured") else flat_link(getattr(network, "network", network), workers)


def gpu_nodes(network: Network | Topology, workers: IntOrArray) -> GpuNodes | None:
    """Return the nodes of GPUs with NVLink in which the workers of a network are, or None if they have no NVLink.

    Some workers of a topology (`MemberTopology`) share their nodes' network cards with similar groups of the others,
    see `group_peers`.
    """
    members = network.members.tolist() if isinstance(network, MemberTopology) else None
    base: Any = network.whole if isinstance(network, MemberTopology) else network
    levels_network = getattr(base, "network", base)  # a topology knows its network
    if isinstance(levels_network, (TwoLevel, MultiLevel)):
        all_workers = int(np.max(workers)) if members is None else base.workers
        group = range(all_workers) if members is None else first_of_equal_groups(members, all_workers)
        try:
            levels = () if group is None else group_peers(levels_network, group, all_workers)
        except NoClosedForm:
            return None
        return nodes_of(levels) if levels else None

    # On a link or a star all workers are in one node. The formulas for NVLink hold on full-duplex links only.
    costs = getattr(network, "nvlink", None)
    if costs is None or np.any(network.duplex == "half" if isinstance(network, Link) else base.half_duplex):
        return None
    rate = network.goodput_bytes_per_s if isinstance(network, Link) else base.bandwidth_bytes_per_s.min()
    return GpuNodes(workers, nodes=1, nvlink_bytes_per_s=rate, card_bytes_per_s=np.inf, card_latency_s=0.0, costs=costs)


def algorithms_on(kind: str, network: Network | Topology, workers: int) -> tuple[str, ...]:
    """Return the names of the algorithms of a collective that can run on a network.

    Measured times come first if the workers' common link has any, then NCCL's times if nodes have NVLink inside, then
    the algorithms for any network. Hierarchical algorithms follow if the network has several nodes of several workers.
    Algorithms of places and direct exchanges come last, on lines between places.
    """
    algorithm_name(kind)  # raises an error for an unknown collective
    names: list[str] = []
    if is_measured(kind, link_of_all(network, workers), workers):
        names.append(MEASURED)
    if kind in NVLINK_LAPS and gpu_nodes(network, workers) is not None:
        names.append(NVLINK)
    names += ALGORITHMS[kind]
    if has_levels(network, workers):
        names += HIERARCHICAL[kind]
    if place_of(network, workers) is not None:
        names += (*OF_PLACES[kind], *OF_DIRECT[kind])
    return tuple(names)


def candidates_on(kind: str, network: Network | Topology, workers: int) -> tuple[str, ...]:
    """Return the names of the algorithms of which policy ``auto`` takes the fastest, on networks without closed forms.

    - On a `Matrix`, an all-reduce is an ordered ring, a direct exchange, or goes by places. With hivemind it is always
      the direct exchange. Other collectives use their algorithms for any network, with the ring in order.
    - On a graph, an all-reduce is the ordered ring: the many messages of a direct exchange would look free on switches.
    - On other networks the only candidate is the collective's first algorithm.
    """
    place_by_worker = place_of(network, workers)
    if kind == "all_reduce" and hivemind_on(network) is not None:
        return (DIRECT,)
    if place_by_worker is None:
        return ALGORITHMS[kind][:1]
    if kind != "all_reduce":
        # The ordered ring, if there is one, replaces the ring.
        return OF_PLACES[kind] + tuple(name for name in ALGORITHMS[kind] if name != "ring" or not OF_PLACES[kind])
    _, place_sizes = np.unique(place_by_worker, return_counts=True)
    if not hasattr(network, "places") and max(place_sizes) == 1:  # a graph, whose hosts are places of their own
        return (ORDERED_RING,)
    if len(place_sizes) > 1 and max(place_sizes) > 1:  # several places, and several workers in one
        return (ORDERED_RING, DIRECT, BY_PLACES)
    return (ORDERED_RING, DIRECT)
