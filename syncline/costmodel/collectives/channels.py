"""Link names of the channels of a topology, and the bytes that a collective sends through each channel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from syncline.costmodel.collectives.algorithms import Round
from syncline.costmodel.network.graph import Routed
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.matrix import MatrixTopology
from syncline.costmodel.network.multi_level import LevelTopology
from syncline.costmodel.network.paths import DerivedTopology, Floats, Topology
from syncline.costmodel.network.sites import SitesTopology
from syncline.costmodel.network.two_level import Nodes


def channel_links(topology: Topology) -> list[str]:
    """Return the name of each channel's link, a list of C names.

    All channels of a star with one link have the network's name. A channel of a graph has the names of its two ends.

    >>> from syncline.costmodel import Link, Sites
    >>> from syncline.costmodel.network.topology import topology
    >>> channel_links(topology(Sites(2, Link(1e-5, 1e9, "lan"), Link(1e-2, 1e8, "up")), 2))
    ['lan', 'lan', 'lan', 'lan', 'up', 'up', 'up', 'up']
    """
    if isinstance(topology, DerivedTopology):
        return channel_links(topology.whole)
    count = len(topology.bandwidth_bytes_per_s)
    if isinstance(topology, Nodes):
        inner, outer = link_words(topology.network.inner), link_words(topology.network.outer)
        return [inner] * (2 * topology.workers) + [outer] * (count - 2 * topology.workers)
    if isinstance(topology, SitesTopology):
        uplinks = [link_words(link) for link in topology.network.uplinks]
        return [link_words(topology.network.lan)] * (2 * topology.workers) + 2 * uplinks
    if isinstance(topology, LevelTopology):
        names = [""] * count
        for number, level in enumerate(topology.network.levels):
            for first, last, shared in topology.channels_of(number):
                names[first:last] = [link_words(level.link) + (", all together" if shared else "")] * (last - first)
        return names
    if isinstance(topology, MatrixTopology | Routed):
        return topology.channel_names()
    return [topology.name] * count


def link_words(link: Link) -> str:
    """Return the name of a link, or its description if it has no name."""
    return link.name or link.describe()


def carried_bytes(of: Iterable[Round], members: Sequence[int], topology: Topology) -> Floats:
    """Return the bytes that each channel carries in the rounds of a collective, ``(C,)``.

    Args:
        of: the rounds; their senders and receivers are ranks in the group.
        members: the topology's worker number of each rank of the group.
        topology: the topology that has the channels.
    """
    total = np.zeros(len(topology.bandwidth_bytes_per_s) + 1)  # the last entry collects the padding of paths
    ranks = np.asarray(members)
    repeats: dict[int, tuple[Round, int]] = {}
    for step in of:  # all rounds of a ring are the same object, so count its repeats
        repeats[id(step)] = step, repeats.get(id(step), (step, 0))[1] + 1
    for (senders, receivers, nbytes), times in repeats.values():
        if not len(senders):
            continue
        channels = topology.paths(ranks[senders], ranks[receivers]).channels
        sizes = np.broadcast_to(np.asarray(nbytes, dtype=np.float64), len(senders)) * times
        np.add.at(total, channels, np.broadcast_to(sizes[:, None], channels.shape))
    return total[:-1]
