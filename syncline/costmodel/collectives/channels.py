"""Which link each channel of a topology is of, and what messages leave on the channels that they pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from syncline.costmodel.collectives.algorithms import Round
from syncline.costmodel.network.graph import Routed
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.multi_level import LevelTopology
from syncline.costmodel.network.paths import DerivedTopology, Floats, Topology
from syncline.costmodel.network.sites import SitesTopology
from syncline.costmodel.network.two_level import Nodes


def channel_links(topology: Topology) -> list[str]:
    """The name of the link that each channel is of, ``(C,)``; of a star with one link that of the network.

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
        ups = [link_words(link) for link in topology.network.uplinks]
        return [link_words(topology.network.lan)] * (2 * topology.workers) + 2 * ups
    if isinstance(topology, LevelTopology):
        names = [""] * count
        for number, level in enumerate(topology.network.levels):
            for first, last, shared in topology.channels_of(number):
                names[first:last] = [link_words(level.link) + (", all together" if shared else "")] * (last - first)
        return names
    if isinstance(topology, Routed):
        names = []
        for edge in topology.network.edges:
            ends = f"{edge.source}-{edge.target}"
            names += [ends] if edge.directed or edge.link.duplex == "half" else [ends, f"{edge.target}-{edge.source}"]
        return names
    return [topology.name] * count


def link_words(link: Link) -> str:
    """What people call a link."""
    return link.name or link.describe()


def carried_bytes(of: Iterable[Round], members: Sequence[int], topology: Topology) -> Floats:
    """Bytes that each channel carries in the rounds of a collective, ``(C,)``.

    Args:
        of: senders and receivers as places in the group.
        members: of the group, workers of the topology.
        topology: whose channels.
    """
    total = np.zeros(len(topology.bandwidth_bytes_per_s) + 1)  # what lies beyond a way's end is thrown away
    ranks = np.asarray(members)
    known: dict[int, tuple[Round, int]] = {}
    for one in of:  # a ring's rounds are one and the same
        known[id(one)] = one, known.get(id(one), (one, 0))[1] + 1
    for (senders, receivers, nbytes), times in known.values():
        if not len(senders):
            continue
        channels = topology.paths(ranks[senders], ranks[receivers]).channels
        sizes = np.broadcast_to(np.asarray(nbytes, dtype=np.float64), len(senders)) * times
        np.add.at(total, channels, np.broadcast_to(sizes[:, None], channels.shape))
    return total[:-1]
