"""All-reduces level by level: inside each node, between the nodes, and inside again.

For P workers in m nodes of g consecutive workers:

| algorithm                  | inside           | between nodes                                | inside           |
|----------------------------|------------------|----------------------------------------------|------------------|
| `hierarchical`             | ring of n, gives | ring of n/g, for each local rank             | ring all-gather  |
| `hierarchical-doubling`    | each worker n/g  | recursive doubling of n/g                    | of n/g from each |
| `hierarchical-rabenseifner`| of the sum       | Rabenseifner of n/g                          | worker           |
| `leader`                   | tree to the first| recursive doubling of n, among the first ones| tree broadcast   |

Each takes the sum of its three parts, with the inner link inside and the link that a message between nodes finds
while all g (the first) workers of each node send and receive.

With more levels, of g_1, g_2, ..., g_L units from the inside out, what is between nodes is done so again: a ring
reduce-scatter among the g_i of each level but the outermost, of n / (g_1 ... g_(i-1)); the all-reduce of what is left,
n / (g_1 ... g_(L-1)), among the outermost g_L; all-gathers back inside. So each sends what a ring of all would,

    n sum_i 2 (g_i - 1) / (g_1 ... g_i) = 2 n (P - 1) / P,

by far the most of it inside. (`leader`: trees up to the first of each unit, level by level, and down again.)
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from syncline.costmodel.collectives.algorithms import NoClosedForm
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.sites import Sites
from syncline.costmodel.network.two_level import TwoLevel
from syncline.costmodel.numerics.arrays import IntOrArray
from syncline.errors import SpecError

if TYPE_CHECKING:
    from syncline.costmodel.network.topology import Network, Topology


class Hierarchy(NamedTuple):
    """An all-reduce level by level.

    Attributes:
        between: the all-reduce among the units of the outermost level.
        leaders: whether only the first worker of a unit takes part in it, with all n bytes; else every worker does,
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


class Peers(NamedTuple):
    """Those who exchange at one level: of several units of the level below one worker each, of the same number there.

    Attributes:
        size: how many they are, or an array of several numbers.
        link: what each finds while all workers of the units send and receive.
        alone: while the first worker of each unit does.
        exchanges: whether ``link`` holds only if everybody sends and receives: a half-duplex one that is shared.
    """

    size: IntOrArray
    link: Link
    alone: Link
    exchanges: bool = False


Inner: TypeAlias = int | tuple[int, ...] | None
"""Workers of a node; of more levels the sizes of all but the outermost, from the inside out."""


def level_sizes(of: Network | Topology | Any, workers: int) -> tuple[int, ...] | None:
    """How many units of the level below one of each level holds, from the inside out, where all are of one size.

    Of nodes and sites g and m; None of a network (or topology) that has no such.
    """
    network = getattr(of, "network", of)
    if isinstance(network, MultiLevel):
        return network.sizes(workers)
    if not isinstance(network, (TwoLevel, Sites)):
        return None
    sizes = network.sizes(workers)
    return (sizes[0], workers // sizes[0]) if len(set(sizes)) == 1 else None


def inner_sizes(of: Network | Topology | Any, workers: int) -> tuple[int, ...] | None:
    """The sizes of all levels but the outermost."""
    sizes = level_sizes(of, workers)
    return None if sizes is None else sizes[:-1]


def node_size(of: Network | Topology | Any, workers: int) -> int | None:
    """g, the workers of a node or a site, where the network (or topology) has such, all of one size."""
    sizes = level_sizes(of, workers)
    return None if sizes is None else sizes[0]


def has_levels(of: Network | Topology | Any, workers: int) -> bool:
    """Whether there are several units of several each."""
    return sum(size > 1 for size in level_sizes(of, workers) or ()) > 1


def peers(network: Network | Topology, workers: int, inner: Inner = None) -> tuple[Peers, ...]:
    """Who exchanges at each level of a network; of a flat one, at levels with the same link throughout.

    Args:
        network: of nodes, sites or levels; or a link.
        workers: P.
        inner: the sizes of the inner levels on a link.

    Raises:
        SpecError: a network without nodes of one size.
        NoClosedForm: sites with different uplinks; rails that messages share unevenly.
    """
    if isinstance(network, Link) and inner is not None:
        return tuple(Peers(size, network, network) for size in all_sizes(workers, inner))
    if not isinstance(network, (TwoLevel, Sites, MultiLevel)):
        raise SpecError("algorithm", "hierarchical", "a network of nodes or of sites of one size each")
    return _peers_on(network, workers)


@lru_cache(maxsize=1024)  # every algorithm asks
def _peers_on(network: TwoLevel | Sites | MultiLevel, workers: int) -> tuple[Peers, ...]:
    if isinstance(network, MultiLevel):
        return _peers_of_levels(network, workers)
    size = node_size(network, workers)
    if size is None:
        raise SpecError("algorithm", "hierarchical", "a network of nodes or of sites of one size each")
    if isinstance(network, TwoLevel):
        inside, half = network.inner, network.outer.duplex == "half"
    elif len(set(network.uplinks)) > 1:
        raise NoClosedForm("network.uplink", network.name, "equal uplinks: with others there is no closed form")
    else:
        inside, half = network.lan, "half" in (network.uplinks[0].duplex, network.lan.duplex)
    across = Peers(workers // size, network.crossing(size), network.crossing(1), half)
    return Peers(size, inside, inside), across


def _peers_of_levels(network: MultiLevel, workers: int) -> tuple[Peers, ...]:
    inside = network.levels[0].link
    found = [Peers(network.sizes(workers)[0], inside, inside)]
    for number, size in enumerate(network.sizes(workers)[1:], start=1):
        if size > 1 and not network.shares_evenly(number, workers):
            expected = "a number that divides the workers of a unit below: with others there is no closed form"
            raise NoClosedForm(f"network.levels.{number}.rails", network.levels[number].rails, expected)
        link, alone = (network.crossing(number, workers, everybody) for everybody in (True, False))
        found.append(Peers(size, link, alone, network.is_half_duplex(number, workers)))
    return tuple(found)


def all_sizes(workers: int, inner: Inner) -> tuple[int, ...]:
    """The sizes of all levels, whose product is P.

    Raises:
        SpecError: no such levels, or a number of workers that does not fill them.
    """
    if inner is None:
        raise SpecError("algorithm", "hierarchical", "a network of nodes or of sites of one size each")
    sizes = (inner,) if isinstance(inner, int) else inner
    if any(size < 1 for size in sizes):
        raise SpecError("group", inner, "workers of a node, at least 1")
    if workers % math.prod(sizes):
        raise SpecError("workers", workers, f"a multiple of {math.prod(sizes)}, the workers of a node")
    return (*sizes, workers // math.prod(sizes))


def flat_link(network: Network | Topology, workers: int) -> Link | None:
    """The link that every worker has to all others, where the network is as good as that; else None."""
    if isinstance(network, Link):
        return network
    if isinstance(network, MultiLevel):
        return _flat_level(network, workers)
    size = node_size(network, workers)
    if isinstance(network, TwoLevel) and size in (1, workers):
        return network.inner if size == workers and workers > 1 else network.outer
    if isinstance(network, Sites) and size in (1, workers):
        if size == workers and network.count == 1:
            return network.lan
        full = all(link.duplex == "full" for link in (network.lan, *network.uplinks))
        return network.crossing(1) if full and len(set(network.uplinks)) == 1 else None
    return None


def _flat_level(network: MultiLevel, workers: int) -> Link | None:
    """The link of the only level that has several units, where nothing but it is between two workers."""
    several = [number for number, size in enumerate(network.sizes(workers)) if size > 1]
    if len(several) > 1:
        return None
    level = max(several, default=0)
    if level == 0 or not network.is_half_duplex(level, workers):
        return network.levels[0].link if level == 0 else network.crossing(level, workers, all_send=False)
    passed = network.shape(workers).begins[level] < level or network.levels[level].is_pooled
    return None if passed else network.levels[level].link
