"""Collectives that many groups of regular ranks call at the same time, level by level, in closed form.

A group has ranks at equal distances, and every worker of the network is in one group like it. On a link to everybody
groups do not meet. On levels, of a group's members those in one unit exchange first; each finds the share of a link
that is left while all workers of all groups send and receive. With g_1, ..., g_L members at the levels, from the inside
out:

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
"""Hierarchical all-reduces in which all workers send, so that a level's share is the same for all groups."""

_ONE = np.zeros((), dtype=np.int64)


@lru_cache(maxsize=4096)
def group_peers(network: Network, ranks: range, workers: int) -> tuple[Peers, ...]:
    """Who exchanges at each level, of those levels at which a group has several.

    Args:
        network: of nodes, sites or levels.
        ranks: the first group.
        workers: P.

    Raises:
        NoClosedForm: units that groups fill unevenly, or links that messages share unevenly.
        SpecError: a number of workers that the network cannot join.
    """
    sizes = level_sizes(network, workers)
    if sizes is None:
        raise NoClosedForm(
            "network", network.name, "levels of units of one size: a layout has no closed form on others"
        )
    found: list[Peers] = []
    capacity, before = 1, 1
    for size, one in zip(sizes, peers(network, workers), strict=True):
        capacity *= size
        within = len(range(0, min(capacity, ranks.stop), ranks.step))
        extent, stride = len(ranks) * ranks.step, ranks.step
        fills = extent % capacity == 0 and (capacity % stride == 0 or stride % capacity == 0)
        if not (fills or capacity % extent == 0):
            expected = f"groups that fill the units of {capacity:,} workers evenly"
            raise NoClosedForm("layout", f"every {ranks.step}th of {ranks.stop:,}", expected)
        if within > before:
            found.append(one._replace(size=within // before))
        before = within
    return tuple(found)


def group_carried(
    kind: str, ranks: range, workers: int, nbytes: FloatOrArray, network: Network, wanted: Algorithms = None,
    rule: Rule = "eager",
) -> PricedMany:  # fmt: skip
    """What a collective takes that all groups call at once, and what carries it.

    Args:
        kind: one of ``COLLECTIVES``.
        ranks: of the first group.
        workers: P, all of them.
        nbytes: n, of one member.
        network: that joins all; a link may have arrays as fields.
        wanted: see `syncline.costmodel.collectives.policies.algorithm_for`; on levels ``auto`` is the fastest.
        rule: when a message starts.

    Raises:
        NoClosedForm: as `group_peers`; a half-duplex link that is shared.
        SpecError: a number of workers that the network cannot join.

    >>> from syncline.costmodel.network.presets import NETWORKS
    >>> dgx = NETWORKS["dgx-a100"].network
    >>> inside, across = (group_carried("all_reduce", ranks, 16, 1e9, dgx) for ranks in (range(8), range(0, 16, 8)))
    >>> f"{inside.seconds.item():.5f}, {across.seconds.item():.5f}"
    '0.00584, 0.04000'
    """
    if isinstance(network, Link):
        return carried(kind, np.full((1,) * max(1, _axes(network)), len(ranks)), nbytes, network, wanted, rule)
    on = group_peers(network, ranks, workers)
    if not on:
        return PricedMany(0.0, ("",), _ONE)
    if len(on) == 1:
        if on[0].exchanges:
            raise NoClosedForm("network", network.name, "full-duplex links between units")
        return carried(kind, np.array([on[0].size]), nbytes, on[0].link, _flat(wanted, kind), rule)
    if kind == "all_reduce":
        policy = algorithm_of(wanted, kind)
        names = (policy,) if policy in TOGETHER and policy else TOGETHER
        costs = np.array([np.asarray(hierarchy_s(name, on, nbytes, rule)) for name in names])
        chosen = np.argmin(costs, axis=0)
        return PricedMany(np.take_along_axis(costs, chosen[None], axis=0)[0], names, chosen)
    return PricedMany(_by_level(kind, on, nbytes, rule), ("hierarchical",), _ONE)


def _flat(wanted: Algorithms, kind: str) -> Algorithms:
    """What is wanted of a collective among the members of one level."""
    return "auto" if algorithm_of(wanted, kind) in HIERARCHIES else wanted


def _axes(link: Link) -> int:
    return max([0, *map(np.ndim, link.arrays.values())])


def _by_level(kind: str, on: Sequence[Peers], nbytes: FloatOrArray, rule: Rule) -> FloatOrArray:
    seconds: FloatOrArray = 0.0
    size = nbytes
    inwards = kind in ("all_gather", "broadcast")
    for one in reversed(on) if inwards else on:
        if one.exchanges:
            raise NoClosedForm("network", one.link.name, "full-duplex links between units")
        seconds = seconds + collective_s(kind, one.size, size, one.link, rule=rule)
        if kind in ("all_gather", "gather"):
            size = size * one.size
        if kind == "reduce_scatter":
            size = size / one.size
    return seconds


def message_s(ranks: range, workers: int, nbytes: FloatOrArray, network: Network) -> FloatOrArray:
    """What a message takes from a member of a group to the next, at the outermost level that the group crosses.

    All groups send at once: ``latency + overhead + n / rate``. Arguments as of `group_carried`.
    """
    if len(ranks) == 1:
        return 0.0
    link = network if isinstance(network, Link) else group_peers(network, ranks, workers)[-1].link
    return link.latency_s + link.overhead_s + nbytes / link.goodput_bytes_per_s


def crosses(network: Network, ranks: range, workers: int) -> int:
    """The outermost level, from 0, that a group crosses; -1: it has one member."""
    if len(ranks) == 1:
        return -1
    sizes = None if isinstance(network, Link) else level_sizes(network, workers)
    if sizes is None:
        return 0
    capacities = [math.prod(sizes[: number + 1]) for number in range(len(sizes))]
    return next(number for number, capacity in enumerate(capacities) if ranks[-1] < capacity)
