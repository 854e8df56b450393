"""What a collective of any group takes in closed form: for records of so many ranks that no message can be followed.

A group is some ranks of each unit (node, site) of a network, in some units of each larger one. Where it has several of
a unit, it goes by levels, each rank on its own card, as NCCL's rings do on nodes:

| collective       | inside, of n                       | between s units, at most c ranks of each             |
|------------------|------------------------------------|------------------------------------------------------|
| `all_gather`     | an all-gather of s n, after        | an all-gather of n                                   |
| `reduce_scatter` | a reduce-scatter of n, then        | a reduce-scatter of n / c                            |
| `all_reduce`     | a reduce-scatter of n, then        | an all-reduce of n / c, then an all-gather inside    |
| others           | the same collective, then          | the same collective                                  |

All other ranks are taken to send between units at the same time, as the groups beside this one do, so that cards and
uplinks are shared by all who have them. On any other network a group is simulated by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from syncline.backend.tracing.record import Started
from syncline.costmodel import Link, Network, chosen_algorithm, collective_s
from syncline.costmodel.collectives.algorithms import FLAT
from syncline.costmodel.collectives.policies import POLICIES
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.sites import Sites
from syncline.costmodel.network.topology import among, topology
from syncline.costmodel.network.two_level import TwoLevel
from syncline.sim import collective_finish_s

LEVELLED = (TwoLevel, Sites, MultiLevel)

GroupLevel = tuple[int, Link]
"""So many of the units below, and the link that each finds between them."""


def group_levels(network: Network, ranks: Sequence[int], workers: int) -> list[GroupLevel]:
    """The levels that a group spans, from the inside out: how many units below each joins, by which link.

    Args:
        network: that joins all workers.
        ranks: of the group.
        workers: P.
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
        members = members[first]  # one of each unit stands for it
    return levels


def _units(network: TwoLevel | Sites | MultiLevel, workers: int) -> tuple[list[np.ndarray], list[Link]]:
    """For each level the unit that each worker is in, and the link between the units below."""
    everybody = np.arange(workers)
    if isinstance(network, MultiLevel):
        capacity = network.shape(workers).capacity
        links = [network.levels[0].link, *(network.crossing(level, workers) for level in range(1, len(capacity)))]
        return [everybody // each for each in capacity], links
    sizes = network.sizes(workers)
    inner = network.lan if isinstance(network, Sites) else network.inner
    return [np.repeat(np.arange(len(sizes)), sizes), np.zeros(workers, int)], [inner, network.crossing(max(sizes))]


def levels_s(kind: str, nbytes: float, levels: Sequence[GroupLevel], wanted: str | None) -> float:
    """Seconds of a collective by levels, as the table above says.

    Args:
        kind: of the collective.
        nbytes: n, with the meaning the closed form gives it.
        levels: from the inside out.
        wanted: algorithm or policy for each level; one that is not for a flat network is ``auto``.
    """

    def once(kind: str, size: int, n: float, link: Link) -> float:
        named = wanted if wanted is None or wanted in POLICIES or wanted in FLAT[kind] else "auto"
        return float(collective_s(kind, size, n, link, chosen_algorithm(named, kind, size, max(n, 1.0), link)))

    if not levels:
        return 0.0
    (size, link), *outer = levels
    if not outer:
        return once(kind, size, nbytes, link)
    if kind == "all_gather":
        units = int(np.prod([each for each, _ in outer]))
        return levels_s(kind, nbytes, outer, wanted) + once(kind, size, units * nbytes, link)
    if kind == "reduce_scatter":
        return once(kind, size, nbytes, link) + levels_s(kind, nbytes / size, outer, wanted)
    if kind == "all_reduce":
        inside = once("reduce_scatter", size, nbytes, link) + once("all_gather", size, nbytes / size, link)
        return inside + levels_s(kind, nbytes / size, outer, wanted)
    return once(kind, size, nbytes, link) + levels_s(kind, nbytes, outer, wanted)


def group_price(network: Network, workers: int, wanted: str | None) -> Callable[[Started], float]:
    """What tells the seconds of a collective of any group.

    Args:
        network: that joins all workers.
        workers: P.
        wanted: algorithm or policy; none: what the network's library runs.
    """
    if not isinstance(network, (Link, *LEVELLED)):
        whole = topology(network, workers)

        @cache
        def alone(kind: str, nbytes: float, ranks: tuple[int, ...]) -> float:
            on = among(whole, ranks)
            name = chosen_algorithm(wanted, kind, len(ranks), max(nbytes, 1.0), on)
            return float(collective_finish_s(kind, len(ranks), nbytes, on, name).max())

        return lambda event: alone(event.kind, event.payload_bytes, event.ranks)
    levels = cache(lambda ranks: tuple(group_levels(network, ranks, workers)))

    @cache
    def price(kind: str, nbytes: float, of: tuple[GroupLevel, ...]) -> float:
        return levels_s(kind, nbytes, of, wanted)

    return lambda event: price(event.kind, event.payload_bytes, levels(event.ranks))
