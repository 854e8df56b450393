"""What a collective takes longer where TCP's windows have closed while its workers sent nothing.

A worker whose network has been idle for longer than a retransmission timeout opens its connections' windows again
(`syncline.costmodel.network.tcp.Tcp.opening_s`), and **the whole of that is paid before its first message of the
collective**. So a group that starts together takes its closed form's time and the opening, whatever the algorithm:

| algorithm                            | connections that open one after another | bytes on each                |
|--------------------------------------|-----------------------------------------|------------------------------|
| rings, gloo's and NCCL's             | 1: to the neighbour                     | all that a worker sends      |
| `nccl-chain`                         | 1: the others open while pieces come in | n                            |
| `nccl-posted`, `gloo-posted`         | 1: all at once                          | of a message                 |
| others                               | as many as messages wait for each other | of a message, the mean       |

Windows are taken to have grown, to ``2 rate r``, when a collective ends and when a training begins. What is idle is a
worker's network stream, not each of its connections. Where links differ, the slowest and farthest say what all pay.
Nodes, sites and graphs, and messages between a pipeline's stages, open no windows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from syncline.costmodel.collectives.cost import rounds_and_block, wire_bytes
from syncline.costmodel.collectives.table import ALGORITHMS, first_on, is_a_library_s
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.paths import Floats, Star
from syncline.costmodel.network.tcp import TOGETHER, Tcp
from syncline.costmodel.numerics.arrays import FloatOrArray, Indices, IntOrArray

if TYPE_CHECKING:
    from syncline.costmodel.network.topology import Network, Topology

ON_ONE_CONNECTION = ("ring", "all-reduce", "gloo-ring", "gloo-all-reduce", "nccl-ring")


class AfterIdling(NamedTuple):
    """What a call takes longer after idling.

    Attributes:
        opening_s: of so many seconds of idling.
        longest_s: of which more make no difference.
    """

    opening_s: Callable[[FloatOrArray], FloatOrArray]
    longest_s: float

    def times(self, factor: FloatOrArray) -> AfterIdling:
        """The same of a network that is slower by a factor."""
        return self._replace(opening_s=lambda idle_s: factor * self.opening_s(idle_s))


class Opening(NamedTuple):
    """What connections of one collective take to open, by how long they have idled.

    Attributes:
        timeout_s: after so long a window is halved.
        seconds: ``(K,)``, after 1 to K timeouts; more of them change nothing.
    """

    timeout_s: float
    seconds: Floats

    def after_s(self, idle_s: Floats) -> Floats:
        """What each worker waits, that was idle for so long."""
        timeouts = np.floor(idle_s / self.timeout_s + TOGETHER).astype(np.int64)
        return np.append(0.0, self.seconds)[np.minimum(timeouts, len(self.seconds))]


def opening_connections(
    kind: str, workers: IntOrArray, nbytes: FloatOrArray, algorithm: str
) -> tuple[IntOrArray, FloatOrArray]:
    """How many connections of a collective open one after another, and the bytes on each.

    Args:
        kind: one of ``COLLECTIVES``.
        workers: P.
        nbytes: n.
        algorithm: one of a flat network's, gloo's or NCCL's.
    """
    if algorithm in ON_ONE_CONNECTION:
        return 1, wire_bytes(kind, workers, nbytes, algorithm)
    if not is_a_library_s(kind, algorithm):
        return rounds_and_block(kind, workers, nbytes, algorithm)
    if algorithm == "gloo-tree":
        return rounds_and_block(kind, workers, nbytes, "binomial")
    return 1, nbytes / np.asarray(workers) if kind == "all_to_all" else nbytes


def collective_opening_s(
    kind: str,
    workers: IntOrArray,
    nbytes: FloatOrArray,
    link: Link,
    algorithm: str | None,
    idle_s: FloatOrArray,
) -> FloatOrArray:
    """Seconds that a collective takes longer after idling; 0 on a link without ``tcp``.

    Args:
        kind: one of ``COLLECTIVES``.
        workers: P; it, n, the fields of the link and the time broadcast.
        nbytes: n.
        link: that every worker has.
        algorithm: that carries it; see ``first_on`` for none.
        idle_s: since the end of the last collective.
    """
    if link.tcp is None:
        return 0.0
    name = first_on(kind, link) if algorithm is None else algorithm
    return _opening_s(kind, workers, nbytes, name, link.tcp, link.goodput_bytes_per_s, 2 * link.latency_s, idle_s)


def after_idling(
    kind: str, workers: IntOrArray, nbytes: FloatOrArray, network: Network, names: Sequence[str], chosen: Indices
) -> AfterIdling | None:
    """What a collective takes longer, of which an algorithm is chosen in each setting; None where windows are open.

    Args:
        kind: one of ``COLLECTIVES``.
        workers: P, n and the fields of a link broadcast.
        nbytes: n.
        network: a link; nothing else opens windows.
        names: of algorithms.
        chosen: which of the names carries it.
    """
    if not isinstance(network, Link) or network.tcp is None:
        return None
    link, tcp, used = network, network.tcp, np.unique(chosen).tolist()
    least_s = np.min(tcp.timeout_s(2 * link.latency_s)) * (1 - TOGETHER)

    def opening_s(idle_s: FloatOrArray) -> FloatOrArray:
        seconds: FloatOrArray = 0.0
        if np.max(idle_s) < least_s:
            return seconds
        for at in used:
            of_name = collective_opening_s(kind, workers, nbytes, link, names[at], idle_s)
            seconds = np.where(chosen == at, of_name, seconds) if len(used) > 1 else of_name
        return seconds

    far_s, rate = 2 * float(np.max(link.latency_s)), float(np.max(link.goodput_bytes_per_s))
    return AfterIdling(opening_s, float(tcp.timeout_s(far_s)) * (1 + tcp.halvings(rate, far_s)))


def opening_of(
    kind: str, workers: int, nbytes: float, network: Network | Topology, algorithm: str | None
) -> Opening | None:
    """What a collective's connections take to open on a link or a star; None where they open at once.

    Args:
        kind: one of ``COLLECTIVES``.
        workers: P.
        nbytes: n.
        network: what joins the workers.
        algorithm: that carries it; see ``first_on`` for none.
    """
    tcp: Tcp | None = getattr(network, "tcp", None)
    if tcp is None or workers < 2 or not nbytes or not isinstance(network, Link | Star):
        return None
    if isinstance(network, Link):
        rate, far_s = float(network.goodput_bytes_per_s), 2 * float(network.latency_s)
    else:
        rate, far_s = float(network.bandwidth_bytes_per_s.min()), 2 * float(network.latency_s.max())
    name = first_on(kind, network) if algorithm is None else algorithm
    if name not in ALGORITHMS[kind] and not is_a_library_s(kind, name):
        return None
    timeout_s, halvings = float(tcp.timeout_s(far_s)), tcp.halvings(rate, far_s)
    idle_s = timeout_s * np.arange(1, halvings + 1)
    seconds = _opening_s(kind, workers, nbytes, name, tcp, rate, far_s, idle_s)
    return Opening(timeout_s, np.broadcast_to(seconds, idle_s.shape)) if np.any(seconds) else None


def _opening_s(
    kind: str,
    workers: IntOrArray,
    nbytes: FloatOrArray,
    name: str,
    tcp: Tcp,
    rate: FloatOrArray,
    far_s: FloatOrArray,
    idle_s: FloatOrArray,
) -> FloatOrArray:
    count, on_each = opening_connections(kind, workers, nbytes, name)
    seconds = count * tcp.opening_s(on_each, rate, far_s, idle_s)
    return np.where(np.greater(workers, 1), seconds, 0.0)[()]
