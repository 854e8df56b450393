"""Extra seconds of a collective if TCP's windows have closed while its workers sent nothing.

If a worker's network stream has been idle for longer than a retransmission timeout, the worker opens its connections'
windows again (`syncline.costmodel.network.tcp.Tcp.opening_s`). **It spends all of this time before its first message of
the collective**. So a group that starts together takes the time of the closed form plus the opening, for any algorithm:

| algorithm                            | connections that open one after another | bytes on each                |
|--------------------------------------|-----------------------------------------|------------------------------|
| rings, gloo's and NCCL's             | 1: to the neighbour                     | all that a worker sends      |
| `nccl-chain`                         | 1: the others open while pieces come in | n                            |
| `nccl-posted`, `gloo-posted`         | 1: all at once                          | of a message                 |
| `direct`                             | 1: all at once                          | of its two messages          |
| others                               | as many as messages wait for each other | of a message, the mean       |

The model assumes that windows have grown to ``2 rate r`` when a collective ends and when a training begins. It counts
the idle time of a worker's network stream, not of each connection. If links differ, all workers pay for the lowest
bandwidth and the highest latency. Nodes, sites and graphs, and messages between a pipeline's stages, open no windows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from syncline.costmodel.collectives.cost import rounds_and_block, wire_bytes
from syncline.costmodel.collectives.table import ALGORITHMS, default_algorithm, is_direct, is_library_algorithm
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.paths import Floats, Network, Star, Topology
from syncline.costmodel.network.tcp import TIMEOUT_TOLERANCE, Tcp
from syncline.costmodel.numerics.arrays import FloatOrArray, Indices, IntOrArray

ON_ONE_CONNECTION = ("ring", "all-reduce", "gloo-ring", "gloo-all-reduce", "nccl-ring")
"""Algorithms in which a worker sends all its bytes to its neighbour."""


class AfterIdling(NamedTuple):
    """The extra seconds of a collective over TCP as a function of the seconds for which the network idled before it.

    Attributes:
        opening_s: function of the idle seconds that returns the extra seconds, in which windows open.
        longest_s: idle seconds beyond which the extra seconds no longer grow.
    """

    opening_s: Callable[[FloatOrArray], FloatOrArray]
    longest_s: float

    def times(self, factor: FloatOrArray) -> AfterIdling:
        """Return the same function for a network that is slower by a factor."""
        return self._replace(opening_s=lambda idle_s: factor * self.opening_s(idle_s))


class Opening(NamedTuple):
    """The seconds in which TCP opens the windows of a collective's connections again after they were idle.

    Attributes:
        timeout_s: idle seconds after which TCP halves a window.
        seconds: opening seconds after 1, ..., K timeouts, ``(K,)``; after K timeouts windows do not shrink further.
    """

    timeout_s: float
    seconds: Floats

    def after_s(self, idle_s: Floats) -> Floats:
        """Return the seconds by which TCP delays each worker's collective after ``idle_s`` seconds without messages."""
        timeouts = np.floor(idle_s / self.timeout_s + TIMEOUT_TOLERANCE).astype(np.int64)
        seconds_by_timeouts = np.append(0.0, self.seconds)  # 0 s before the first timeout
        return seconds_by_timeouts[np.minimum(timeouts, len(self.seconds))]


def opening_connections(
    kind: str, workers: IntOrArray, nbytes: FloatOrArray, algorithm: str
) -> tuple[IntOrArray, FloatOrArray]:
    """Return how many connections of a collective open their windows one after another, and the bytes on each.

    The arguments are those of `collective_s`; the algorithm is one for any network, of gloo or of NCCL.
    """
    if algorithm in ON_ONE_CONNECTION:
        return 1, wire_bytes(kind, workers, nbytes, algorithm)
    if not is_library_algorithm(kind, algorithm):  # each message of the longest path opens a connection
        return rounds_and_block(kind, workers, nbytes, algorithm)
    if algorithm == "gloo-tree":  # a binomial tree, too
        return rounds_and_block(kind, workers, nbytes, algorithm="binomial")
    if is_direct(kind, algorithm):  # a worker sends each other worker n/P bytes, and then the sum of its own part
        return 1, 2 * nbytes / np.asarray(workers)
    message_bytes = nbytes / np.asarray(workers) if kind == "all_to_all" else nbytes
    return 1, message_bytes  # the connections of a chain or of posted messages open at the same time


def collective_opening_s(
    kind: str, workers: IntOrArray, nbytes: FloatOrArray, link: Link, algorithm: str | None, idle_s: FloatOrArray
) -> FloatOrArray:
    """Return the extra seconds of a collective after ``idle_s`` idle seconds, 0 on a link without ``tcp``.

    The other arguments are those of `collective_s`, with the link of every worker. All numbers broadcast.
    """
    if link.tcp is None:
        return 0.0
    name = default_algorithm(kind, link) if algorithm is None else algorithm
    count, connection_bytes = opening_connections(kind, workers, nbytes, name)
    opening_s = link.tcp.opening_s(connection_bytes, link.goodput_bytes_per_s, 2 * link.latency_s, idle_s)
    return np.where(np.greater(workers, 1), count * opening_s, 0.0)[()]


def after_idling(
    kind: str, workers: IntOrArray, nbytes: FloatOrArray, network: Network, names: Sequence[str], name_index: Indices
) -> AfterIdling | None:
    """Return the function from a network's idle seconds to a collective's extra seconds; None if no window closes.

    The arguments are those of `collective_s`; ``name_index`` has the index of each setting's algorithm in ``names``.
    Networks other than links open no windows.
    """
    if not isinstance(network, Link) or network.tcp is None:
        return None
    link, tcp = network, network.tcp
    used_indices = np.unique(name_index).tolist()
    shortest_timeout_s = np.min(tcp.timeout_s(2 * link.latency_s)) * (1 - TIMEOUT_TOLERANCE)

    def opening_s(idle_s: FloatOrArray) -> FloatOrArray:
        """Return the extra seconds after ``idle_s`` idle seconds, with each setting's algorithm."""
        seconds: FloatOrArray = 0.0
        if np.max(idle_s) < shortest_timeout_s:  # no window has closed
            return seconds
        for index in used_indices:
            algorithm_s = collective_opening_s(kind, workers, nbytes, link, algorithm=names[index], idle_s=idle_s)
            if len(used_indices) == 1:
                return algorithm_s
            seconds = np.where(name_index == index, algorithm_s, seconds)
        return seconds

    round_trip_s = 2 * float(np.max(link.latency_s))
    rate = float(np.max(link.goodput_bytes_per_s))
    # TCP halves windows after each timeout until they have their initial size; another timeout is a safe margin.
    longest_s = float(tcp.timeout_s(round_trip_s)) * (1 + tcp.halvings(rate, round_trip_s))
    return AfterIdling(opening_s, longest_s)


def collective_opening(
    kind: str, workers: int, nbytes: float, network: Network | Topology, algorithm: str | None
) -> Opening | None:
    """Return the opening seconds of a collective's connections on a link or a star, or None if they never open slowly.

    The arguments are those of `collective_s`.
    """
    tcp: Tcp | None = getattr(network, "tcp", None)
    if tcp is None or workers < 2 or not nbytes or not isinstance(network, Link | Star):  # no windows, or no messages
        return None
    if isinstance(network, Link):
        rate, round_trip_s = float(network.goodput_bytes_per_s), 2 * float(network.latency_s)
    else:  # all workers pay for the lowest bandwidth and the highest latency
        rate = float(network.bandwidth_bytes_per_s.min())
        round_trip_s = 2 * float(network.latency_s.max())
    name = default_algorithm(kind, network) if algorithm is None else algorithm
    if not (name in ALGORITHMS[kind] or is_library_algorithm(kind, name)):  # the algorithm does not run on links
        return None
    timeout_s, halvings = float(tcp.timeout_s(round_trip_s)), tcp.halvings(rate, round_trip_s)
    idle_s = timeout_s * np.arange(1, halvings + 1)  # after each the windows are halved once more
    count, connection_bytes = opening_connections(kind, workers, nbytes, name)
    seconds = count * tcp.opening_s(connection_bytes, rate, round_trip_s, idle_s)
    return Opening(timeout_s, np.broadcast_to(seconds, idle_s.shape)) if np.any(seconds) else None
