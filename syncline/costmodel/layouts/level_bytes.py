"""Bytes that leave the units of each level in a collective of all groups of a layout, and levels of their messages.

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
