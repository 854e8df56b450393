"""Bytes that leave the units of each level while all groups of a layout call a collective, and what stages hand on.

Of a group with k units of a level inside one unit of the next, all groups and all such units together, n as a member
puts it in and G members of a group (`egress_bytes` of sites):

| collective       | leaves the units of a level, inside one of the next |
|------------------|-----------------------------------------------------|
| `all_reduce`     | `2 (k - 1) n`                                       |
| `reduce_scatter` | `(k - 1) n`                                         |
| `broadcast`      | `(k - 1) n`                                         |
| `all_gather`     | `(k - 1) n G`                                       |
| `gather`         | `(k - 1) n G / k`                                   |
| `all_to_all`     | `m (G - m / k) n / G` of m members there            |
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from syncline.costmodel.collectives.hierarchical import level_sizes
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.network.topology import Network
from syncline.errors import SpecError


def capacities(network: Network, workers: int) -> tuple[int, ...] | None:
    """Workers of a unit of each level, from the inside out, all of them last; None of units that are not alike.

    On one link to everybody each worker is a unit.

    >>> from syncline.costmodel.network.presets import NETWORKS
    >>> capacities(NETWORKS["two-sites"].network, 8), capacities(NETWORKS["wan"].network, 3)
    ((4, 8), (3,))
    """
    if isinstance(network, Link):
        return (workers,)
    sizes = level_sizes(network, workers)
    return None if sizes is None else tuple(int(one) for one in np.cumprod(sizes))


def level_bytes(collective: str, payload_bytes: float, ranks: range, workers: int, of: Sequence[int]) -> Floats:
    """Bytes that leave units at each level, ``(levels,)``, of all groups like one together.

    Args:
        collective: its name.
        payload_bytes: n.
        ranks: the first group.
        workers: P, all in groups like it.
        of: `capacities`.

    Raises:
        SpecError: another collective.

    >>> level_bytes("all_reduce", 100.0, range(0, 8, 4), 8, (4, 8)).tolist()
    [0.0, 800.0]
    """
    members, groups = len(ranks), workers // max(1, len(ranks))
    told = np.zeros(len(of))
    below = 1
    for level, capacity in enumerate(of):
        here = [len(range(0, min(one, ranks.stop), ranks.step)) for one in (below, capacity)]
        inner, outer = max(1, here[0]), here[1]
        units, parents = outer / inner, members / outer
        below = capacity
        if units <= 1:
            continue
        factors = {
            "all_reduce": 2 * (units - 1),
            "reduce_scatter": units - 1,
            "broadcast": units - 1,
            "all_gather": (units - 1) * members,
            "gather": (units - 1) / units * members,
            "all_to_all": outer * (members - inner) / members,
        }
        if collective not in factors:
            raise SpecError("collective", collective, f"one whose bytes are counted: {', '.join(factors)}")
        told[level] = payload_bytes * factors[collective] * parents * groups
    return told


def message_levels(ranks: range, of: Sequence[int]) -> list[int]:
    """The outermost level that a message from each member of a group to the next crosses.

    >>> message_levels(range(0, 8, 2), (4, 8))
    [0, 1, 0]
    """
    pairs = pairwise(ranks)
    return [next(n for n, size in enumerate(of) if one // size == other // size) for one, other in pairs]
