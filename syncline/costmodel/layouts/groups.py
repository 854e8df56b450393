"""Collectives that many groups of regular ranks call at the same time, level by level, in closed form.

A group has ranks at equal distances, and every worker of the network is in one such group. On a network with one link
from each worker to all others, groups do not share links. On a network with levels, the members of a group in one unit
exchange first. Each has a share of a link, while all workers of all groups send and receive. With g_1, ..., g_L members
at the levels, from the innermost to the outermost:

| collective       | level by level                                                                    |
|------------------|-----------------------------------------------------------------------------------|
| `all_reduce`     | as `hierarchical`: reduce-scatters up, an all-reduce at the top, all-gathers down |
| `all_gather`     | rings from the outermost in: of n, of n g_L, of n g_L g_(L-1), ...                |
| `reduce_scatter` | rings from the innermost out: of n, of n / g_1, ...                               |
| `all_to_all`     | pairwise at each level: of n each                                                 |
| `broadcast`      | trees from the outermost in, of n                                                 |
| `gather`         | trees from the innermost out: of n, of n g_1, ...                                 |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from syncline.costmodel.collectives.algorithms import NoClosedForm
from syncline.costmodel.collectives.cost import Rule, collective_s, hierarchy_s
from syncline.costmodel.collectives.hierarchical import HIERARCHIES, Peers, level_sizes, peers
from syncline.costmodel.collectives.policies import Algorithms, algorithm_of
from syncline.costmodel.collectives.vectorised import PricedMany, carried
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.topology import Network
from syncline.costmodel.numerics.arrays import FloatOrArray

TOGETHER = tuple(name for name, of in HIERARCHIES.items() if not of.leaders)
"""Hierarchical all-reduces where all workers send, so that all groups have the same share of a level's links."""

_ONE = np.zeros((), dtype=np.int64)


@lru_cache(maxsize=4096)
def group_peers(network: Network, ranks: range, workers: int) -> tuple[Peers, ...]:
    """Return the peers of a group at each level where the group has several members.

    Args:
        network: network of nodes, sites or levels.
        ranks: ranks of the first group.
        workers: P, number of all workers.

    Raises:
        NoClosedForm: groups fill units unevenly, or messages share links unevenly.
        SpecError: the network cannot join that number of workers.
    """
    sizes = level_sizes(network, workers)
    if sizes is None:
        raise NoClosedForm(
            "network", network.name, "levels of units of one size: a layout has no closed form on others"
        )
    group_levels: list[Peers] = []
    capacity, inner_members = 1, 1
    for size, level in zip(sizes, peers(network, workers), strict=True):
        capacity *= size
        members = len(range(0, min(capacity, ranks.stop), ranks.step))
        extent, stride = len(ranks) * ranks.step, ranks.step
        fills = extent % capacity == 0 and (capacity % stride == 0 or stride % capacity == 0)
        if not (fills or capacity % extent == 0):
            expected = f"groups that fill the units of {capacity:,} workers evenly"
            raise NoClosedForm("layout", f"every {ranks.step}th of {ranks.stop:,}", expected)
        if members > inner_members:
            group_levels.append(level._replace(size=members // inner_members))
        inner_members = members
    return tuple(group_levels)


def group_carried(
    kind: str, ranks: range, workers: int, nbytes: FloatOrArray, network: Network, wanted: Algorithms = None,
    rule: Rule = "eager",
) -> PricedMany:  # fmt: skip
    """Return the seconds and the algorithm of a collective that all groups call at once.

    Args:
        kind: one of ``COLLECTIVES``.
        ranks: ranks of the first group.
        workers: P, number of all workers.
        nbytes: n, payload bytes of one member.
        network: network that joins all workers; the fields of a link may be arrays.
        wanted: see `syncline.costmodel.collectives.policies.algorithm_for`; on levels ``auto`` is the fastest.
        rule: start rule of a message.

    Raises:
        NoClosedForm: see `group_peers`; also a shared half-duplex link.
        SpecError: the network cannot join that number of workers.

    >>> from syncline.costmodel.network.presets import NETWORKS
    >>> dgx = NETWORKS["dgx-a100"].network
    >>> inside, across = (group_carried("all_reduce", ranks, 16, 1e9, dgx) for ranks in (range(8), range(0, 16, 8)))
    >>> f"{inside.seconds.item():.5f}, {across.seconds.item():.5f}"
    '0.00584, 0.04000'
    """
    if isinstance(network, Link):
        return carried(kind, np.full((1,) * max(1, _axes(network)), len(ranks)), nbytes, network, wanted, rule)
    levels = group_peers(network, ranks, workers)
    if not levels:
        return PricedMany(0.0, ("",), _ONE)
    if len(levels) == 1:
        if levels[0].exchanges:
            raise NoClosedForm("network", network.name, "full-duplex links between units")
        return carried(kind, np.array([levels[0].size]), nbytes, levels[0].link, _flat(wanted, kind), rule)
    if kind == "all_reduce":
        policy = algorithm_of(wanted, kind)
        names = (policy,) if policy in TOGETHER and policy else TOGETHER
        costs = np.array([np.asarray(hierarchy_s(name, levels, nbytes, rule)) for name in names])
        chosen = np.argmin(costs, axis=0)
        return PricedMany(np.take_along_axis(costs, chosen[None], axis=0)[0], names, chosen)
    return PricedMany(_by_level(kind, levels, nbytes, rule), ("hierarchical",), _ONE)


def _flat(wanted: Algorithms, kind: str) -> Algorithms:
    """Return the algorithm among the members of one level: ``auto`` in place of a hierarchical algorithm."""
    return "auto" if algorithm_of(wanted, kind) in HIERARCHIES else wanted


def _axes(link: Link) -> int:
    return max([0, *map(np.ndim, link.arrays.values())])


def _by_level(kind: str, levels: Sequence[Peers], nbytes: FloatOrArray, rule: Rule) -> FloatOrArray:
    seconds: FloatOrArray = 0.0
    size = nbytes
    inwards = kind in ("all_gather", "broadcast")
    for level in reversed(levels) if inwards else levels:
        if level.exchanges:
            raise NoClosedForm("network", level.link.name, "full-duplex links between units")
        seconds = seconds + collective_s(kind, level.size, size, level.link, rule=rule)
        if kind in ("all_gather", "gather"):
            size = size * level.size
        if kind == "reduce_scatter":
            size = size / level.size
    return seconds


def message_s(ranks: range, workers: int, nbytes: FloatOrArray, network: Network) -> FloatOrArray:
    """Return the seconds of a message between neighbours of a group, at the outermost level that the group crosses.

    All groups send at once: ``latency + overhead + n / rate``. See `group_carried` for the arguments.
    """
    if len(ranks) == 1:
        return 0.0
    link = network if isinstance(network, Link) else group_peers(network, ranks, workers)[-1].link
    return link.latency_s + link.overhead_s + nbytes / link.goodput_bytes_per_s


def outermost_level(network: Network, ranks: range, workers: int) -> int:
    """Return the outermost level that a group crosses, counted from 0, or -1 for a group of one member."""
    if len(ranks) == 1:
        return -1
    sizes = None if isinstance(network, Link) else level_sizes(network, workers)
    if sizes is None:
        return 0
    capacities = [math.prod(sizes[: number + 1]) for number in range(len(sizes))]
    return next(number for number, capacity in enumerate(capacities) if ranks[-1] < capacity)
