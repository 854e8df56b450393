"""Hierarchical collectives: level by level, so that every network card of a node carries its workers' messages.

An all-reduce of P workers in m nodes of g consecutive workers:

| algorithm                  | inside           | between nodes                                | inside           |
|----------------------------|------------------|----------------------------------------------|------------------|
| `hierarchical`             | ring of n, gives | ring of n/g, for each local rank             | ring all-gather  |
| `hierarchical-doubling`    | each worker n/g  | recursive doubling of n/g                    | of n/g from each |
| `hierarchical-rabenseifner`| of the sum       | Rabenseifner of n/g                          | worker           |
| `leader`                   | tree to the first| recursive doubling of n, among the first ones| tree broadcast   |

The time of each is the sum of its three parts. The parts inside use the inner link. The part between nodes uses the
link that one message has while all g workers of each node send and receive (for `leader`: while the first worker does).

With more levels, of g_1, g_2, ..., g_L units from the innermost to the outermost, the part between nodes is itself
hierarchical: a ring reduce-scatter of n / (g_1 ... g_(i-1)) among the g_i units of each level but the outermost; the
all-reduce of the remaining n / (g_1 ... g_(L-1)) among the outermost g_L; then all-gathers back inside. So each worker
sends as many bytes as in a ring of all workers,

    n sum_i 2 (g_i - 1) / (g_1 ... g_i) = 2 n (P - 1) / P,

and most of them stay inside. (`leader` uses trees up to the first worker of each unit, level by level, and down again.)

The other collectives have one hierarchical algorithm each, `hierarchical`:

| collective       | level by level                                                                      |
|------------------|-------------------------------------------------------------------------------------|
| `all_gather`     | rings from the outermost in: of n, of n g_L, of n g_L g_(L-1), ...                   |
| `reduce_scatter` | rings from the innermost out: of n, of n / g_1, ...                                  |
| `all_to_all`     | pairwise at each level: of n each                                                   |
| `broadcast`      | trees from the outermost in, of n, among the first workers of the units              |
| `reduce`         | trees from the innermost out, to the first worker of each unit: of n each             |
| `gather`         | trees from the innermost out, to the first worker of each unit: of n, of n g_1, ...  |

**Groups.** A group has ranks at equal distances, and every worker of the network is in one such group. All groups call
the collective at the same time, and each member has a share of its unit's links. On a network with one link from each
worker to all others, groups do not share links.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from syncline.costmodel.collectives.algorithms import NoClosedForm
from syncline.costmodel.network.link import Link, MemberTopology
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.paths import Network, Topology
from syncline.costmodel.network.two_level import Sites, TwoLevel
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray
from syncline.errors import SpecError


class Hierarchy(NamedTuple):
    """A hierarchical algorithm of a collective: the flat algorithm of each level, and the workers that take part in it.

    Attributes:
        between: name of the flat algorithm among the units of each level. An all-reduce uses it on the outermost level
            only, and inside rings, or trees if ``leaders`` is set.
        leaders: whether only the first worker of each unit takes part, with all the unit's bytes; otherwise every
            worker takes part with its own share of the bytes.
    """

    between: str
    leaders: bool = False


HIERARCHIES: dict[str, dict[str, Hierarchy]] = {
    "all_reduce": {
        "hierarchical": Hierarchy("ring"),
        "hierarchical-doubling": Hierarchy("recursive-doubling"),
        "hierarchical-rabenseifner": Hierarchy("rabenseifner"),
        "leader": Hierarchy("recursive-doubling", leaders=True),
    },
    "all_gather": {"hierarchical": Hierarchy("ring")},
    "reduce_scatter": {"hierarchical": Hierarchy("ring")},
    "all_to_all": {"hierarchical": Hierarchy("pairwise")},
    "broadcast": {"hierarchical": Hierarchy("binomial", leaders=True)},
    "gather": {"hierarchical": Hierarchy("binomial", leaders=True)},
    "reduce": {"hierarchical": Hierarchy("binomial", leaders=True)},
    "send": {},
}
"""The hierarchical algorithms by collective and name."""


def level_parts(kind: str, sizes: Sequence[IntOrArray], nbytes: FloatOrArray) -> Iterator[tuple[int, FloatOrArray]]:
    """Yield the index of each network level and the bytes of a collective at it, in the order of execution.

    Args:
        kind: one of ``HIERARCHIES`` but ``all_reduce``.
        sizes: number of units at each level, from the innermost to the outermost.
        nbytes: bytes n of the whole collective.

    >>> list(level_parts("all_gather", (8, 4), 1.0)), list(level_parts("reduce_scatter", (8, 4), 1.0))
    ([(1, 1.0), (0, 4.0)], [(0, 1.0), (1, 0.125)])
    """
    levels = list(range(len(sizes)))
    if kind in ("all_gather", "broadcast"):  # these begin at the outermost level
        levels.reverse()
    for level in levels:
        yield level, nbytes
        if kind in ("all_gather", "gather"):
            nbytes = nbytes * sizes[level]
        elif kind == "reduce_scatter":
            nbytes = nbytes / sizes[level]


class Peers(NamedTuple):
    """A group of workers that exchange at one level: those with the same rank in each unit of the level below.

    Attributes:
        size: number of workers in the group, or an array of such numbers.
        link: the link of each worker while all workers of the units send and receive.
        leader_link: the link of each worker while only the first worker of each unit sends and receives.
        is_shared_half_duplex: whether ``link`` is a share of a half-duplex link. Its rate assumes that all workers send
            and receive.
    """

    size: IntOrArray
    link: Link
    leader_link: Link
    is_shared_half_duplex: bool = False


Inner: TypeAlias = int | tuple[int, ...] | None
"""The number of workers in a node; with more levels the sizes of all but the outermost, from the inside out."""


def level_sizes(network: Network | Topology | Any, workers: int) -> tuple[int, ...] | None:
    """Return the number of units of the level below in a unit of each level, from the innermost level to the outermost.

    For m nodes or sites of g workers the sizes are (g, m). The result is None if the network has no levels, or if its
    nodes or sites differ in size. In a topology of some workers (`MemberTopology`) only these are counted.
    """
    if isinstance(network, MemberTopology):
        return _sizes_of_members(network)
    bare_network = getattr(network, "network", network)  # a topology knows its network
    if isinstance(bare_network, MultiLevel):
        return bare_network.sizes(workers)
    if not isinstance(bare_network, (TwoLevel, Sites)):
        return None  # no levels
    sizes = bare_network.sizes(workers)
    if isinstance(bare_network, Sites) and len(set(sizes)) > 1:
        return None
    return sizes[0], workers // sizes[0]


def _sizes_of_members(topology: MemberTopology) -> tuple[int, ...] | None:
    """Return the sizes of the network levels among some workers; None unless they fill units evenly and in order."""
    sizes = level_sizes(topology.whole, topology.whole.workers)
    if sizes is None:
        return None
    member_sizes = []
    unit_workers = lower_members = 1  # workers of a unit, and members of a unit one level below
    num_members = len(topology.members)
    for size in sizes:
        unit_workers *= size
        unit_by_member = topology.members // unit_workers
        unit_members = int(np.count_nonzero(unit_by_member == unit_by_member[0]))
        if num_members % unit_members:
            return None
        units = unit_by_member[::unit_members]  # the units in order, if each has equally many consecutive members
        if np.any(np.diff(units) <= 0) or np.any(np.repeat(units, unit_members) != unit_by_member):
            return None
        member_sizes.append(unit_members // lower_members)
        lower_members = unit_members
    return tuple(member_sizes) if lower_members == num_members else None


def inner_sizes(network: Network | Topology | Any, workers: int) -> tuple[int, ...] | None:
    """Return the sizes of a network's levels but the outermost, or None if it has no levels of equal units."""
    sizes = level_sizes(network, workers)
    return None if sizes is None else sizes[:-1]


def node_size(network: Network | Topology | Any, workers: int) -> int | None:
    """Return the number of workers in a node or a site, or None if the network has no nodes or sites of equal size."""
    sizes = level_sizes(network, workers)
    return None if sizes is None else sizes[0]


def has_levels(network: Network | Topology | Any, workers: int) -> bool:
    """Return whether at least two levels of a network hold several units each."""
    sizes = level_sizes(network, workers)
    return sizes is not None and sum(size > 1 for size in sizes) > 1


def peers(network: Network | Topology, workers: int) -> tuple[Peers, ...]:
    """Return the workers that exchange at each level of a network, from the innermost level to the outermost.

    Raises:
        SpecError: a network without nodes or sites of equal size.
        NoClosedForm: sites with different uplinks, rails that messages share unevenly, or a `MemberTopology`, because
            workers that are no members may send too (see `group_peers`).
    """
    if isinstance(network, MemberTopology):
        raise NoClosedForm("network", network.name, "all workers, or groups of all of them")
    if not isinstance(network, (TwoLevel, Sites, MultiLevel)):
        raise SpecError("algorithm", "hierarchical", "a network of nodes, or of sites, of equal size")
    return _peers_on(network, workers)


@lru_cache(maxsize=1024)  # every algorithm on the network calls it
def _peers_on(network: TwoLevel | Sites | MultiLevel, workers: int) -> tuple[Peers, ...]:
    """Return the result of `peers` on a network of nodes, sites or levels."""
    if isinstance(network, Sites):
        size = node_size(network, workers)
        if size is None:
            raise SpecError("algorithm", "hierarchical", "a network of nodes, or of sites, of equal size")
        if len(set(network.uplinks)) > 1:
            expected = "equal uplinks: there is no closed form for unequal ones"
            raise NoClosedForm("network.uplink", network.name, expected)
        is_half_duplex = "half" in (network.uplinks[0].duplex, network.lan.duplex)
        link, leader_link = network.link_across(flows=size), network.link_across(flows=1)
        return Peers(size, network.lan, network.lan), Peers(workers // size, link, leader_link, is_half_duplex)
    if isinstance(network, TwoLevel):
        network.sizes(workers)  # refuses numbers of workers that do not fill nodes
        network = network.levels()
    innermost, (innermost_size, *sizes) = network.levels[0].link, network.sizes(workers)
    levels = [Peers(innermost_size, innermost, innermost)]
    for number, size in enumerate(sizes, start=1):
        if size > 1 and not network.shares_evenly(number, workers):
            expected = "a number that divides the workers of a unit below: there is no closed form for others"
            raise NoClosedForm(f"network.levels.{number}.rails", network.levels[number].rails, expected)
        link = network.link_across(number, workers, all_send=True)
        leader_link = network.link_across(number, workers, all_send=False)
        levels.append(Peers(size, link, leader_link, network.is_half_duplex(number, workers)))
    return tuple(levels)


def first_of_equal_groups(ranks: Sequence[int], workers: int) -> range | None:
    """Return the ranks of the first group, if groups with the size and the spacing of ``ranks`` partition all workers.

    The result is None if they do not, or if the ranks are not at equal distances.

    >>> first_of_equal_groups((1, 5), 8), first_of_equal_groups((1, 2), 8)
    (range(0, 8, 4), None)
    """
    spacing = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    block = len(ranks) * spacing  # number of consecutive ranks that ``spacing`` interleaved groups share
    if spacing < 1 or workers % block or ranks[0] % block >= spacing:  # blocks do not fit, or no group begins here
        return None
    group = range(0, block, spacing)
    return group if [rank - ranks[0] for rank in ranks] == list(group) else None


@lru_cache(maxsize=4096)
def group_peers(network: Network, ranks: range, workers: int) -> tuple[Peers, ...]:
    """Return the workers among which a group communicates at each level of a network, from the innermost level on.

    Levels that add no members to the group are left out. All groups have the same spacing and send at once. With a
    spacing above 1 a unit has leaders of several groups, so that a level's ``leader_link`` is its ``link``.

    Args:
        ranks: ranks of the first group; the step of the range is the spacing.

    Raises:
        NoClosedForm: groups fill units unevenly, or messages share links unevenly.
        SpecError: the network cannot join that number of workers.
    """
    sizes = level_sizes(network, workers)
    if sizes is None:
        raise NoClosedForm("network", network.name, "levels of units of one size: groups have no closed form on others")
    group_levels: list[Peers] = []
    spacing = ranks.step
    block = len(ranks) * spacing  # consecutive ranks that interleaved groups share
    unit_workers = lower_members = 1
    for size, level in zip(sizes, peers(network, workers), strict=True):
        unit_workers *= size
        unit_members = len(range(0, min(unit_workers, ranks.stop), spacing))  # members of the first group in a unit
        is_aligned = unit_workers % spacing == 0 or spacing % unit_workers == 0
        units_fill_block = block % unit_workers == 0 and is_aligned
        if not units_fill_block and unit_workers % block:  # neither do blocks fill a unit
            expected = f"groups that fill the units of {unit_workers:,} workers evenly"
            raise NoClosedForm("layout", f"every {spacing}th of {ranks.stop:,}", expected)
        if unit_members > lower_members:
            leader_link = level.leader_link if spacing == 1 else level.link
            group_levels.append(level._replace(size=unit_members // lower_members, leader_link=leader_link))
        lower_members = unit_members
    return tuple(group_levels)


def all_sizes(workers: int, inner: Inner) -> tuple[int, ...]:
    """Return the sizes of all levels of a hierarchy of some workers, given those of the inner levels."""
    if inner is None:
        raise SpecError("algorithm", "hierarchical", "a network of nodes, or of sites, of equal size")
    inner_sizes = (inner,) if isinstance(inner, int) else inner
    if min(inner_sizes, default=1) < 1:
        raise SpecError("group", inner, "workers of a node, at least 1")
    node_workers = math.prod(inner_sizes)
    if workers % node_workers:
        raise SpecError("workers", workers, f"a multiple of {node_workers}, the workers of a node")
    return (*inner_sizes, workers // node_workers)


def flat_link(network: Network | Topology, workers: int) -> Link | None:
    """Return the link that every worker has to all others if the network is equivalent to one link, else None."""
    if isinstance(network, Link):
        return network
    if isinstance(network, MultiLevel):
        return _link_of_only_level(network, workers)
    size = node_size(network, workers)
    if not isinstance(network, TwoLevel | Sites) or size not in (1, workers):
        return None  # workers in one node and workers in different nodes have different links
    if isinstance(network, TwoLevel):
        return network.outer if size == 1 else network.inner
    if network.count == 1:
        return network.lan
    is_full_duplex = all(link.duplex == "full" for link in (network.lan, *network.uplinks))
    return network.link_across(flows=1) if is_full_duplex and len(set(network.uplinks)) == 1 else None


def _link_of_only_level(network: MultiLevel, workers: int) -> Link | None:
    """Return the link of the level that joins all workers, or None unless one link of one level joins them."""
    joining_levels = [index for index, size in enumerate(network.sizes(workers)) if size > 1]
    if len(joining_levels) > 1:
        return None
    if not joining_levels or joining_levels == [0]:  # a single worker, or all workers in one node
        return network.levels[0].link
    (level,) = joining_levels  # a unit below has a single worker, so that only one sends
    if not network.is_half_duplex(level, workers):
        return network.link_across(level, workers, all_send=False)
    # A half-duplex link stands for the level only if messages pass no other links or pools.
    passes_other_channels = network.shape(workers).first_levels[level] < level or network.levels[level].is_pooled
    return None if passes_other_channels else network.levels[level].link
