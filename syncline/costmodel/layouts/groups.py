"""Messages between neighbours of regular groups, and the level of a network that a group crosses.

`syncline.costmodel.collectives.vectorised.carried` prices the collectives of groups.
"""

from __future__ import annotations

import math

from syncline.costmodel.collectives.hierarchical import group_peers, level_sizes
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.topology import Network
from syncline.costmodel.numerics.arrays import FloatOrArray


def message_s(ranks: range, workers: int, nbytes: FloatOrArray, network: Network) -> FloatOrArray:
    """Return the seconds of a message between neighbours of a group, at the outermost level that the group crosses.

    All groups send at once: ``latency + overhead + n / rate``. See `group_peers` for the arguments.
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
