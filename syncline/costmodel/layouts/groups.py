"""Messages between neighbours of regular groups, and the level of a network that a group crosses.

`syncline.costmodel.collectives.prices.collective_prices` prices the collectives of groups.

Bytes that leave the units of each level in a collective of all groups of a layout, and levels of their messages.

A group of G members with n payload bytes each has k units of a level inside one unit of the next. The bytes below are
those of one group and one unit of the next level (`egress_bytes` counts those of sites):

| collective       | bytes that leave units inside one of the next level |
|------------------|-----------------------------------------------------|
| `all_reduce`     | `2 (k - 1) n`                                       |
| `reduce_scatter` | `(k - 1) n`                                         |
| `broadcast`      | `(k - 1) n`                                         |
| `all_gather`     | `(k - 1) n G`                                       |
| `gather`         | `(k - 1) n G / k`                                   |
| `all_to_all`     | `m (G - m / k) n / G` with m members in the latter  |
| `send`           | `n` at the outermost level that the message crosses |

Bytes that leave sites in collectives, for which providers charge by the byte.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from syncline.costmodel.collectives.hierarchical import group_peers, level_sizes
from syncline.costmodel.network.link import Link, topology
from syncline.costmodel.network.matrix import Matrix
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.paths import Floats, Network
from syncline.costmodel.network.two_level import Sites, TwoLevel
from syncline.costmodel.numerics.arrays import FloatOrArray
from syncline.errors import SpecError


def message_s(ranks: range, workers: int, nbytes: FloatOrArray, network: Network) -> FloatOrArray:
    """Return the seconds of a message between neighbours of a group, at the outermost level that the group crosses.

    All groups send at once: ``latency + overhead + n / rate``. On a network without levels of equal units it is the
    slowest of all messages to a member's successor, each at the smallest of its channels' equal parts. See
    `group_peers` for the arguments.
    """
    if len(ranks) == 1:
        return 0.0
    if not isinstance(network, Link) and level_sizes(network, workers) is None:
        return _slowest_message_s(ranks, workers, nbytes, network)
    link = network if isinstance(network, Link) else group_peers(network, ranks, workers)[-1].link
    return link.latency_s + link.overhead_s + nbytes / link.goodput_bytes_per_s


def _slowest_message_s(ranks: range, workers: int, nbytes: FloatOrArray, network: Network) -> FloatOrArray:
    """Return the seconds of the slowest message from a member to its successor, while all groups send at once."""
    extent = len(ranks) * ranks.step
    firsts = (extent * np.arange(workers // extent)[:, None] + np.arange(ranks.step)).ravel()
    members = firsts[:, None] + np.arange(0, extent, ranks.step)
    joined = topology(network, workers)
    paths = joined.paths(members[:, :-1].ravel(), members[:, 1:].ravel())
    load = np.bincount(paths.channels[paths.channels >= 0], minlength=len(joined.bandwidth_bytes_per_s))
    share = np.append(joined.bandwidth_bytes_per_s / np.maximum(load, 1), np.inf)[paths.channels].min(axis=1)
    different = np.unique(np.stack([paths.latency_s + paths.overhead_s, share], axis=1), axis=0)
    return functools.reduce(np.maximum, (fixed_s + nbytes / rate for fixed_s, rate in different))


def outermost_level(network: Network, ranks: range, workers: int) -> int:
    """Return the outermost level that a group crosses, counted from 0, or -1 for a group of one member."""
    if len(ranks) == 1:
        return -1
    sizes = None if isinstance(network, Link) else level_sizes(network, workers)
    if sizes is None:
        return 0
    capacities = [math.prod(sizes[: number + 1]) for number in range(len(sizes))]
    return next(number for number, capacity in enumerate(capacities) if ranks[-1] < capacity)


def capacities(network: Network, workers: int) -> tuple[int, ...] | None:
    """Return the workers in a unit of each level, from the innermost, ending with P; None if units of a level differ.

    On a network with one link per worker, each worker is a unit.

    >>> from syncline.costmodel.network.presets import NETWORKS
    >>> capacities(NETWORKS["two-sites"].network, 8), capacities(NETWORKS["wan"].network, 3)
    ((4, 8), (3,))
    """
    if isinstance(network, Link):
        return (workers,)
    sizes = level_sizes(network, workers)
    return None if sizes is None else tuple(int(size) for size in np.cumprod(sizes))


def level_bytes(
    collective: str, payload_bytes: float, ranks: range, workers: int, unit_workers: Sequence[int]
) -> Floats:
    """Return the bytes that leave units at each level, ``(levels,)``, summed over all groups.

    Args:
        collective: name of the collective.
        payload_bytes: n, payload bytes of a member.
        ranks: ranks of the first group.
        workers: P, number of workers, all in groups of the same pattern.
        unit_workers: workers in a unit of each level, by `capacities`.

    Raises:
        SpecError: a collective without a rule.

    >>> level_bytes("all_reduce", 100.0, range(0, 8, 4), 8, (4, 8)).tolist()
    [0.0, 800.0]
    """
    members, groups = len(ranks), workers // max(1, len(ranks))
    nbytes = np.zeros(len(unit_workers))
    if collective == "send":
        for level in message_levels((ranks[0], ranks[-1]), unit_workers) if members > 1 else ():
            nbytes[level] = payload_bytes * groups
        return nbytes
    below = 1
    for level, capacity in enumerate(unit_workers):
        counts = [len(range(0, min(size, ranks.stop), ranks.step)) for size in (below, capacity)]
        inner, outer = max(1, counts[0]), counts[1]
        units, parents = outer / inner, members / outer
        below = capacity
        if units <= 1:
            continue
        factors = {
            "all_reduce": 2 * (units - 1),
            "reduce_scatter": units - 1,
            "broadcast": units - 1,
            "reduce": units - 1,
            "all_gather": (units - 1) * members,
            "gather": (units - 1) / units * members,
            "all_to_all": outer * (members - inner) / members,
        }
        if collective not in factors:
            raise SpecError("collective", collective, f"one whose bytes are counted: {', '.join([*factors, 'send'])}")
        nbytes[level] = payload_bytes * factors[collective] * parents * groups
    return nbytes


def message_levels(ranks: Sequence[int], unit_workers: Sequence[int]) -> list[int]:
    """Return, for each member of a group but the last, the outermost level that its message to the next crosses.

    >>> message_levels(range(0, 8, 2), (4, 8))
    [0, 1, 0]
    """
    pairs = pairwise(ranks)
    return [next(n for n, size in enumerate(unit_workers) if rank // size == peer // size) for rank, peer in pairs]


def egress_bytes(collective: str, payload_bytes: float, sizes: Sequence[int]) -> float:
    """Return the bytes that leave all sites in one collective, with sums inside each site wherever possible.

    Site i of k sites has ``m_i`` of the P workers, and a worker contributes n bytes::

        all_reduce            2 (k - 1) n
        reduce_scatter          (k - 1) n
        broadcast, reduce       (k - 1) n
        all_gather              (k - 1) n P
        gather                          n (P - m_1)
        send                            n   from the first site to the last
        all_to_all                  sum_i n m_i (P - m_i) / P

    Args:
        collective: name of the collective.
        payload_bytes: n, see `Call`.
        sizes: m_i, workers of each site; a single site sends nothing.

    Raises:
        SpecError: a collective without a rule.

    >>> egress_bytes("all_reduce", 100.0, [4, 4]), egress_bytes("all_gather", 100.0, [4, 4])
    (200.0, 800.0)
    """
    other_sites, workers = len(sizes) - 1, sum(sizes)
    factors = {
        "all_reduce": 2.0 * other_sites,
        "reduce_scatter": float(other_sites),
        "broadcast": float(other_sites),
        "reduce": float(other_sites),
        "send": float(other_sites > 0),
        "all_gather": float(other_sites * workers),
        "gather": float(workers - sizes[0]),
        "all_to_all": sum(size * (workers - size) for size in sizes) / workers,
    }
    if collective not in factors:
        raise SpecError("collective", collective, f"one whose bytes between sites are counted: {', '.join(factors)}")
    return payload_bytes * factors[collective]


def site_sizes(network: Network, workers: int) -> tuple[int, ...] | None:
    """Return the number of workers of each site of a network of so many workers.

    Returns:
        The sizes of the sites or places, or of the units of the outermost of several levels. On a network with one link
        per worker each worker is a site; all nodes of a two-level network are one site. None for a graph, whose
        machines have no sites.

    >>> from syncline.costmodel import NETWORKS
    >>> site_sizes(NETWORKS["two-sites"].network, 8), site_sizes(NETWORKS["wan"].network, 3)
    ((4, 4), (1, 1, 1))
    """
    if workers == 1 or isinstance(network, TwoLevel):
        return (workers,)
    if isinstance(network, Sites):
        return network.sizes(workers)
    if isinstance(network, Matrix):
        return tuple(size for size in network.sizes(workers) if size)
    if isinstance(network, MultiLevel):
        units = network.sizes(workers)[-1]
        return (workers // units,) * units
    return (1,) * workers if isinstance(network, Link) else None
