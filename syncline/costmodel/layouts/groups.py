"""Messages between neighbours of regular groups, and the level of a network that a group crosses.

`syncline.costmodel.collectives.vectorised.collective_prices` prices the collectives of groups.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from syncline.costmodel.collectives.hierarchical import group_peers, level_sizes
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.topology import Network, topology
from syncline.costmodel.numerics.arrays import FloatOrArray


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
