"""All-reduces in two levels: inside each node, between the nodes, and inside again.

For P workers in m nodes of g consecutive workers:

| algorithm                  | inside           | between nodes                                | inside           |
|----------------------------|------------------|----------------------------------------------|------------------|
| `hierarchical`             | ring of n, gives | ring of n/g, for each local rank             | ring all-gather  |
| `hierarchical-doubling`    | each worker n/g  | recursive doubling of n/g                    | of n/g from each |
| `hierarchical-rabenseifner`| of the sum       | Rabenseifner of n/g                          | worker           |
| `leader`                   | tree to the first| recursive doubling of n, among the first ones| tree broadcast   |

Each takes the sum of its three parts, with the inner link inside and the link that a message between nodes finds
while all g (the first) workers of each node send and receive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from syncline.costmodel.arrays import IntOrArray
from syncline.costmodel.collectives.algorithms import NoClosedForm
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.sites import Sites
from syncline.costmodel.network.two_level import TwoLevel
from syncline.errors import SpecError

if TYPE_CHECKING:
    from syncline.costmodel.network.topology import Network, Topology


class Hierarchy(NamedTuple):
    """An all-reduce in two levels.

    Attributes:
        between: the all-reduce between nodes.
        leaders: whether only the first worker of a node takes part in it, with all n bytes; else every worker does,
            with its g-th.
    """

    between: str
    leaders: bool = False


HIERARCHIES: dict[str, Hierarchy] = {
    "hierarchical": Hierarchy("ring"),
    "hierarchical-doubling": Hierarchy("recursive-doubling"),
    "hierarchical-rabenseifner": Hierarchy("rabenseifner"),
    "leader": Hierarchy("recursive-doubling", leaders=True),
}


class Levels(NamedTuple):
    """What a hierarchical algorithm sees of a network.

    Attributes:
        group: g, workers of a node.
        nodes: m, or an array of several.
        inner: the link inside a node.
        crossing: the link between nodes while so many workers of each send and receive.
        exchanges: whether that one holds only if everybody sends and receives: a half-duplex link that is shared.
    """

    group: int
    nodes: IntOrArray
    inner: Link
    crossing: Callable[[int], Link]
    exchanges: bool = False


def node_size(of: Network | Topology | Any, workers: int) -> int | None:
    """g, the workers of a node or a site, where the network (or topology) has such, all of one size."""
    network = getattr(of, "network", of)
    if not isinstance(network, (TwoLevel, Sites)):
        return None
    sizes = network.sizes(workers)
    return sizes[0] if len(set(sizes)) == 1 else None


def levels(network: Network | Topology, workers: int, group: int | None = None) -> Levels:
    """The levels of a network; of a flat one, nodes of ``group`` workers with the same link inside and between.

    Raises:
        SpecError: a network without nodes of one size.
        NoClosedForm: sites with different uplinks.
    """
    if isinstance(network, Link) and group is not None:
        return Levels(group, node_count(workers, group), network, lambda flows: network)
    size = node_size(network, workers)
    if size is None or not isinstance(network, (TwoLevel, Sites)):
        raise SpecError("algorithm", "hierarchical", "a network of nodes or of sites of one size each")
    if isinstance(network, TwoLevel):
        half = network.outer.duplex == "half"
        return Levels(size, workers // size, network.inner, network.crossing, half)
    if len(set(network.uplinks)) > 1:
        raise NoClosedForm("network.uplink", network.name, "equal uplinks: with others there is no closed form")
    half = "half" in (network.uplinks[0].duplex, network.lan.duplex)
    return Levels(size, workers // size, network.lan, network.crossing, half)


def node_count(workers: int, group: int | None) -> int:
    """m, for nodes of ``group`` workers.

    Raises:
        SpecError: no such nodes, or a number of workers that does not fill them.
    """
    if group is None:
        raise SpecError("algorithm", "hierarchical", "a network of nodes or of sites of one size each")
    if group < 1:
        raise SpecError("group", group, "workers of a node, at least 1")
    if workers % group:
        raise SpecError("workers", workers, f"a multiple of {group}, the workers of a node")
    return workers // group


def flat_link(network: Network | Topology, workers: int) -> Link | None:
    """The link that every worker has to all others, where the network is as good as that; else None."""
    if isinstance(network, Link):
        return network
    size = node_size(network, workers)
    if isinstance(network, TwoLevel) and size in (1, workers):
        return network.inner if size == workers and workers > 1 else network.outer
    if isinstance(network, Sites) and size in (1, workers):
        if size == workers and network.count == 1:
            return network.lan
        full = all(link.duplex == "full" for link in (network.lan, *network.uplinks))
        return network.crossing(1) if full and len(set(network.uplinks)) == 1 else None
    return None
