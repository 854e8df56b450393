"""Volumes of a collective: an upper bound on its messages, and the bytes that it sends through each channel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from syncline.costmodel.collectives import table
from syncline.costmodel.collectives.algorithms import FLAT, Round
from syncline.costmodel.collectives.cost import rounds_and_block
from syncline.costmodel.collectives.gloo import gloo_messages
from syncline.costmodel.collectives.hierarchical import HIERARCHIES, level_sizes
from syncline.costmodel.collectives.nccl import nccl_messages
from syncline.costmodel.collectives.placed import ORDERED_RING
from syncline.costmodel.network.graph import Routed
from syncline.costmodel.network.matrix import MatrixTopology
from syncline.costmodel.network.multi_level import LevelTopology
from syncline.costmodel.network.paths import DerivedTopology, Floats, Network, Topology
from syncline.costmodel.network.two_level import SitesTopology


def most_messages(kind: str, algorithm: str, workers: int, network: Network | Topology, nbytes: float = 0.0) -> int:
    """Return an upper bound on the number of messages of a collective.

    An algorithm with few messages, such as a tree, has at most 4 per worker on average. In any other flat algorithm
    every worker counts as a sender in each round. A hierarchical algorithm uses the network's levels. The size
    ``nbytes`` matters for gloo and NCCL, which cut it into pieces. The arguments are those of `collective_s`.
    """
    if algorithm in HIERARCHIES[kind]:
        sizes = level_sizes(network, workers) or (workers, 1)  # a network without levels is one unit
        between = HIERARCHIES[kind][algorithm].between
        if kind != "all_reduce":
            return sum(workers // size * most_messages(kind, between, size, network) for size in sizes)
        *inner_sizes, outermost_size = sizes
        group_messages = most_messages(kind, between, workers=outermost_size, network=network)
        # At each inner level a worker sends fewer messages than the level has units, in the reduction and again back.
        return 2 * workers * sum(inner_sizes) + workers // outermost_size * group_messages
    if algorithm in table.OF_GLOO[kind]:
        messages_per_worker, _ = gloo_messages(kind, workers, nbytes)
        return int(workers * messages_per_worker)
    if algorithm in table.OF_NCCL[kind]:
        return nccl_messages(kind, workers, nbytes, costs=table.nccl_on(network))
    if table.is_direct(kind, algorithm) or algorithm in table.OF_PLACES[kind]:  # these send at most what a ring sends
        algorithm = table.ALGORITHMS[kind][0]
    if algorithm in table.TIMED_AS_A_WHOLE or FLAT[kind][algorithm].few_messages:
        return 4 * workers
    num_rounds, _ = rounds_and_block(kind, workers, nbytes=0.0, algorithm=algorithm)
    return int(num_rounds) * workers


def repeats_rounds(kind: str, algorithm: str) -> bool:
    """Return whether almost all rounds of an algorithm repeat the round before; then simulating them is fast.

    >>> repeats_rounds("all_reduce", "hierarchical"), repeats_rounds("all_reduce", "tree")
    (True, False)
    """
    if algorithm in HIERARCHIES[kind]:
        algorithm = HIERARCHIES[kind][algorithm].between
    return algorithm == ORDERED_RING or (algorithm in FLAT[kind] and FLAT[kind][algorithm].repeats_rounds)


def channel_links(topology: Topology) -> list[str]:
    """Return the name of the link of each of a topology's C channels.

    All channels of a star with one link have the network's name. A channel of a graph has the names of its two ends.

    >>> from syncline.costmodel import Link, Sites
    >>> from syncline.costmodel.network.link import topology
    >>> channel_links(topology(Sites(2, Link(1e-5, 1e9, "lan"), Link(1e-2, 1e8, "up")), 2))
    ['lan', 'lan', 'lan', 'lan', 'up', 'up', 'up', 'up']
    """
    if isinstance(topology, DerivedTopology):
        return channel_links(topology.whole)
    if isinstance(topology, SitesTopology):
        uplinks = [link.label for link in topology.network.uplinks]
        return [topology.network.lan.label] * (2 * topology.workers) + 2 * uplinks
    if isinstance(topology, LevelTopology):
        names: list[str] = []
        for channels in topology.channels:
            name = topology.network.levels[channels.level_index].link.label
            names += [f"{name}, all together" if channels.is_pool else name] * (2 * channels.num_up)  # up and down
        return names
    if isinstance(topology, MatrixTopology | Routed):
        return topology.channel_names()
    return [topology.name] * len(topology.bandwidth_bytes_per_s)


def channel_bytes(rounds: Iterable[Round], members: Sequence[int], topology: Topology) -> Floats:
    """Return the bytes that each of a topology's C channels carries in the rounds of a collective, ``(C,)``.

    Args:
        rounds: rounds of messages whose senders and receivers are ranks in the group.
        members: the topology's worker number of each rank of the group.
    """
    total_bytes = np.zeros(len(topology.bandwidth_bytes_per_s) + 1)  # the last entry collects the padding of paths
    workers = np.asarray(members)
    rounds = tuple(rounds)
    repeats = Counter(map(id, rounds))  # all rounds of a ring are the same object
    different_rounds = {id(messages): messages for messages in rounds}
    for messages in different_rounds.values():
        if not len(messages.senders):
            continue
        channels = topology.paths(workers[messages.senders], workers[messages.receivers]).channels
        sizes = np.asarray(messages.nbytes, dtype=np.float64) * repeats[id(messages)]
        message_bytes = np.broadcast_to(sizes, len(messages.senders))
        np.add.at(total_bytes, channels, np.broadcast_to(message_bytes[:, None], channels.shape))
    return total_bytes[:-1]
