"""Link names of the channels of a topology, and the bytes that a collective sends through each channel."""

from __future__ import annotations

from collections import Counter
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
    """Return the name of the link of each of a topology's C channels.

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
        inner, outer = link_name(topology.network.inner), link_name(topology.network.outer)
        inner_count = 2 * topology.workers
        return [inner] * inner_count + [outer] * (count - inner_count)
    if isinstance(topology, SitesTopology):
        uplinks = [link_name(link) for link in topology.network.uplinks]
        return [link_name(topology.network.lan)] * (2 * topology.workers) + 2 * uplinks
    if isinstance(topology, LevelTopology):
        names = [""] * count
        for level, level_channels in zip(topology.network.levels, topology.channels, strict=True):
            for begin, end, is_pool in level_channels:
                names[begin:end] = [link_name(level.link) + (", all together" if is_pool else "")] * (end - begin)
        return names
    if isinstance(topology, MatrixTopology | Routed):
        return topology.channel_names()
    return [topology.name] * count


def link_name(link: Link) -> str:
    """Return the name of a link, or its description if it has no name."""
    return link.name or link.describe()


def channel_bytes(rounds: Iterable[Round], members: Sequence[int], topology: Topology) -> Floats:
    """Return the bytes that each of a topology's C channels carries in the rounds of a collective, ``(C,)``.

    Args:
        rounds: rounds of messages whose senders and receivers are ranks in the group.
        members: the topology's worker number of each rank of the group.
        topology: the topology that has the channels.
    """
    total_bytes = np.zeros(len(topology.bandwidth_bytes_per_s) + 1)  # the last entry collects the padding of paths
    workers = np.asarray(members)
    rounds = tuple(rounds)
    repeats = Counter(map(id, rounds))  # all rounds of a ring are the same object
    for messages in {id(messages): messages for messages in rounds}.values():
        if not len(messages.senders):
            continue
        channels = topology.paths(workers[messages.senders], workers[messages.receivers]).channels
        sizes = np.asarray(messages.nbytes, dtype=np.float64) * repeats[id(messages)]
        message_bytes = np.broadcast_to(sizes, len(messages.senders))
        np.add.at(total_bytes, channels, np.broadcast_to(message_bytes[:, None], channels.shape))
    return total_bytes[:-1]
