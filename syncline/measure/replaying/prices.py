"""Seconds of a collective of any group in closed form, for records with too many ranks to simulate each message.

A group has some ranks of each unit (node, site) of a network, in some units of each larger one. If it has several of
a unit, the collective goes by levels, each rank on its own card, as NCCL's rings do on nodes:

| collective       | inside, of n                       | between s units, at most c ranks of each             |
|------------------|------------------------------------|------------------------------------------------------|
| `all_gather`     | an all-gather of s n, after        | an all-gather of n                                   |
| `reduce_scatter` | a reduce-scatter of n, then        | a reduce-scatter of n / c                            |
| `all_reduce`     | a reduce-scatter of n, then        | an all-reduce of n / c, then an all-gather inside    |
| others           | the same collective, then          | the same collective                                  |

We assume that all other ranks send between units at the same time, as the groups next to this one do. Cards and
uplinks are therefore shared by all their ranks. On any other network a group is simulated by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from syncline.costmodel import Link, Network, chosen_algorithm, collective_s
from syncline.costmodel.collectives.algorithms import FLAT
from syncline.costmodel.collectives.policies import POLICIES
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.sites import Sites
from syncline.costmodel.network.topology import among, topology
from syncline.costmodel.network.two_level import TwoLevel
from syncline.measure.recording.record import Started
from syncline.sim import collective_finish_s

LEVELLED = (TwoLevel, Sites, MultiLevel)

GroupLevel = tuple[int, Link]
"""The number of units of the level below, and the link between these units."""


def group_levels(network: Network, ranks: Sequence[int], workers: int) -> list[GroupLevel]:
    """Return the levels that a group spans, innermost first: the number of units below that each joins, and their link.

    Args:
        workers: number of workers P.
    """
    if isinstance(network, Link):
        return [(len(ranks), network)]
    assert isinstance(network, LEVELLED)
    units, links = _units(network, workers)
    levels: list[GroupLevel] = []
    members = np.asarray(ranks)
    for unit, link in zip(units, links, strict=True):
        _, counts = np.unique(unit[members], return_counts=True)
        if counts.max() > 1:
            levels.append((int(counts.max()), link))
        _, first = np.unique(unit[members], return_index=True)
        members = members[first]  # one rank of each unit represents it
    return levels


def _units(network: TwoLevel | Sites | MultiLevel, workers: int) -> tuple[list[np.ndarray], list[Link]]:
    """Return for each level the unit of each worker, and the link between the units below."""
    all_workers = np.arange(workers)
    if isinstance(network, MultiLevel):
        capacity = network.shape(workers).capacity
        links = [network.levels[0].link, *(network.crossing(level, workers) for level in range(1, len(capacity)))]
        return [all_workers // unit_size for unit_size in capacity], links
    sizes = network.sizes(workers)
    inner = network.lan if isinstance(network, Sites) else network.inner
    return [np.repeat(np.arange(len(sizes)), sizes), np.zeros(workers, int)], [inner, network.crossing(max(sizes))]


def levels_s(kind: str, nbytes: float, levels: Sequence[GroupLevel], policy: str | None) -> float:
    """Return the seconds of a collective by levels, as the table above says.

    Args:
        nbytes: bytes n, with the meaning that the closed form gives it.
        levels: levels of the group, innermost first.
        policy: algorithm or policy for each level; one that is not for a flat network is ``auto``.
    """

    def level_s(kind: str, size: int, n: float, link: Link) -> float:
        named = policy if policy is None or policy in POLICIES or policy in FLAT[kind] else "auto"
        return float(collective_s(kind, size, n, link, chosen_algorithm(named, kind, size, max(n, 1.0), link)))

    if not levels:
        return 0.0
    (size, link), *outer = levels
    if not outer:
        return level_s(kind, size, nbytes, link)
    if kind == "all_gather":
        units = int(np.prod([units_below for units_below, _ in outer]))
        return levels_s(kind, nbytes, outer, policy) + level_s(kind, size, units * nbytes, link)
    if kind == "reduce_scatter":
        return level_s(kind, size, nbytes, link) + levels_s(kind, nbytes / size, outer, policy)
    if kind == "all_reduce":
        inside = level_s("reduce_scatter", size, nbytes, link) + level_s("all_gather", size, nbytes / size, link)
        return inside + levels_s(kind, nbytes / size, outer, policy)
    return level_s(kind, size, nbytes, link) + levels_s(kind, nbytes, outer, policy)


def group_price(network: Network, workers: int, policy: str | None) -> Callable[[Started], float]:
    """Return a function that gives the seconds of a collective of any group.

    Args:
        workers: number of workers P.
        policy: algorithm or policy; None: that of the network's library.
    """
    if not isinstance(network, (Link, *LEVELLED)):
        paths = topology(network, workers)

        @cache
        def alone(kind: str, nbytes: float, ranks: tuple[int, ...]) -> float:
            on = among(paths, ranks)
            name = chosen_algorithm(policy, kind, len(ranks), max(nbytes, 1.0), on)
            return float(collective_finish_s(kind, len(ranks), nbytes, on, name).max())

        return lambda event: alone(event.kind, event.payload_bytes, event.ranks)
    levels = cache(lambda ranks: tuple(group_levels(network, ranks, workers)))

    @cache
    def price(kind: str, nbytes: float, group: tuple[GroupLevel, ...]) -> float:
        return levels_s(kind, nbytes, group, policy)

    return lambda event: price(event.kind, event.payload_bytes, levels(event.ranks))
