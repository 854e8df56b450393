"""Nodes of several workers: a fast link inside a node, network cards between nodes."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.library_costs import CostsOfLinks, CostsOfNetwork
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.topology import ByValue, Floats, Ints, Paths
from syncline.errors import SpecError


@dataclass(frozen=True)
class TwoLevel(CostsOfLinks):
    """Nodes of equally many workers with consecutive ranks.

    A message within a node pays the inner link. A message between nodes leaves by its sender's network card, arrives by
    its receiver's, and pays the outer link. Local rank l uses card ``l x nics // per_node`` of its node, so about
    ``per_node / nics`` workers share a card. The fabrics inside and between nodes are never narrower than the links.

    Args:
        per_node: workers of a node; at least 1.
        inner: the link that each worker has inside its node.
        outer: the link of one network card.
        nics_per_node: network cards of a node, from 1 to ``per_node``; one per worker by default.
        name: display name.

    Raises:
        SpecError: a field out of range.
    """

    per_node: int
    inner: Link
    outer: Link
    nics_per_node: int | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if self.per_node < 1:
            raise SpecError("network.per_node", self.per_node, "a number of workers, at least 1")
        if not 1 <= self.nics <= self.per_node:
            expected = f"a number of network cards from 1 to per_node ({self.per_node})"
            raise SpecError("network.nics", self.nics_per_node, expected)

    @property
    def nics(self) -> int:
        """Return the number of network cards of a node."""
        return self.per_node if self.nics_per_node is None else self.nics_per_node

    def sizes(self, workers: int) -> tuple[int, ...]:
        """Return the number of workers of each node.

        Raises:
            SpecError: more workers than a node has, and no multiple of a node's workers.
        """
        if workers <= self.per_node:
            return (workers,)
        if workers % self.per_node:
            raise SpecError("workers", workers, f"a multiple of {self.per_node}, the workers of a node")
        return (self.per_node,) * (workers // self.per_node)

    def group(self, workers: int) -> int:
        """Return the number of workers of a node: ``per_node``, or ``workers`` if there are fewer.

        Raises:
            SpecError: as ``sizes``.
        """
        return self.sizes(workers)[0]

    def crossing(self, flows: int = 1) -> Link:
        """Return the effective link between nodes while the first ``flows`` workers of each node send and receive.

        The bandwidth is that of the outer link divided by the number of these workers on the busiest card.
        """
        card = np.arange(min(flows, self.per_node)) * self.nics // self.per_node
        return self.outer.shared_by(int(np.bincount(card).max()))

    def among(self, workers: int) -> Nodes:
        """Return the topology of a number of workers.

        Raises:
            SpecError: as ``sizes``.
        """
        return Nodes(self, workers, len(self.sizes(workers)))

    def describe(self) -> str:
        """Return a short description for users."""
        inner, outer = (link.name or link.describe() for link in (self.inner, self.outer))
        cards = "" if self.nics == self.per_node else f" ({self.nics} per node)"
        return f"{self.per_node} per node, {inner} inside, {outer}{cards} between"


@dataclass(frozen=True, eq=False)
class Nodes(ByValue, CostsOfNetwork):
    """The topology of the workers of some nodes.

    The channels are the P workers' inner links up, then down, then every node's network cards up, then down. Of a
    half-duplex link both directions are the channel up.

    Args:
        network: the links and size of a node.
        workers: number of workers P.
        nodes: number of nodes.
    """

    network: TwoLevel
    workers: int
    nodes: int

    @property
    def name(self) -> str:
        """Return the name that tables and messages show."""
        return self.network.name

    @property
    def value(self) -> Hashable:
        """Return the value by which topologies are compared and hashed."""
        return self.network, self.workers, self.nodes

    @property
    def innermost(self) -> tuple[int, Link]:
        """Return the workers of a node, and their link."""
        return self.network.per_node, self.network.inner

    @property
    def bandwidth_bytes_per_s(self) -> Floats:
        """Return the ``(2 P + 2 nics,)`` payload bytes per second that each channel carries."""
        inner, outer = self.network.inner, self.network.outer
        rates = [inner.up_bytes_per_s, inner.down_bytes_per_s, outer.up_bytes_per_s, outer.down_bytes_per_s]
        cards = self.nodes * self.network.nics
        return np.repeat(np.array(rates, dtype=np.float64), [self.workers, self.workers, cards, cards])

    def card(self, workers: Ints) -> NDArray[np.int64]:
        """Return the number of each worker's network card, counted over all nodes."""
        node, local = np.divmod(np.asarray(workers, dtype=np.int64), self.network.per_node)
        return node * self.network.nics + local * self.network.nics // self.network.per_node

    def paths(self, senders: Ints, receivers: Ints) -> Paths:
        """Return the paths over inner links within a node, and over two network cards between nodes."""
        inner, outer = self.network.inner, self.network.outer
        within = senders // self.network.per_node == receivers // self.network.per_node
        first_card, cards = 2 * self.workers, self.nodes * self.network.nics
        inner_down = 0 if inner.duplex == "half" else self.workers
        outer_down = first_card + (0 if outer.duplex == "half" else cards)
        up = np.where(within, senders, first_card + self.card(senders))
        down = np.where(within, inner_down + receivers, outer_down + self.card(receivers))
        return Paths(
            np.stack([up, down], axis=1),
            np.where(within, inner.latency_s, outer.latency_s),
            np.where(within, inner.overhead_s, outer.overhead_s),
        )
