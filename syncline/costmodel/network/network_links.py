"""Networks with changed links: all links, or those equal to a link.

Costs of communication libraries on a network of several links, which the links carry.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import fields, is_dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from syncline.costmodel.network.link import Link
from syncline.costmodel.network.software_costs import GlooCosts, NcclCosts
from syncline.costmodel.numerics.arrays import require
from syncline.errors import SpecError

T = TypeVar("T")


def with_links(network: T, change: Callable[[Link], Link]) -> T:
    """Return a network, or anything made of dataclasses that has links, with each link replaced by ``change(link)``."""
    result: T = _with_links(network, change)
    return result


def _with_links(node: Any, change: Callable[[Link], Link]) -> Any:
    """Return a part of a network with its links replaced, or the part itself if no link changes."""
    if isinstance(node, Link):
        return change(node)
    if isinstance(node, tuple) and not hasattr(node, "_fields"):
        parts = tuple(_with_links(part, change) for part in node)
        return parts if any(part is not other for part, other in zip(parts, node, strict=True)) else node
    if is_dataclass(node) and not isinstance(node, type):
        values = {field.name: getattr(node, field.name) for field in fields(node) if field.init}
        new_values = {name: _with_links(value, change) for name, value in values.items()}
        changes = {name: value for name, value in new_values.items() if value is not values[name]}
        return replace(node, **changes) if changes else node
    return node


def links_of(network: Any) -> list[Link]:
    """Return the different links of a network, in the order of its fields.

    >>> from syncline.costmodel import Sites
    >>> [link.name for link in links_of(Sites(2, Link(1e-5, 1e9, "lan"), Link(1e-2, 1e8, "up")))]
    ['lan', 'up']
    """
    links: list[Link] = []
    for link in each_link(network):
        if link not in links:
            links.append(link)
    return links


def each_link(node: Any) -> Iterator[Link]:
    """Yield the links of a network, or of anything made of dataclasses and tuples, in the order of its fields."""
    if isinstance(node, Link):
        yield node
    elif isinstance(node, tuple):
        for part in node:
            yield from each_link(part)
    elif is_dataclass(node) and not isinstance(node, type):
        for field in fields(node):
            if field.init:
                yield from each_link(getattr(node, field.name))


def scaled(network: T, bandwidth: float = 1.0, latency: float = 1.0, selected: Collection[Link] | None = None) -> T:
    """Return the network with bandwidths and latencies multiplied by factors; software costs stay the same.

    Args:
        network: a link, or anything made of dataclasses that has links.
        bandwidth: positive factor of bandwidths, uploads included.
        latency: positive factor of latencies.
        selected: change only these links; None: all links.

    Raises:
        SpecError: a factor that is not positive.

    >>> scaled(Link(1e-3, 1e8), bandwidth=0.5, latency=2.0) == Link(2e-3, 5e7)
    True
    """
    for name, factor in (("bandwidth", bandwidth), ("latency", latency)):
        require(0 < factor < float("inf"), name, factor, "a positive number")

    def change(link: Link) -> Link:
        unchanged = (bandwidth == latency == 1.0) or (selected is not None and link not in selected)
        return link if unchanged else scaled_link(link, bandwidth, latency)

    return with_links(network, change)


def scaled_link(link: Link, bandwidth: float, latency: float) -> Link:
    """Return the link with its bandwidths, both ways, and its latency multiplied by factors."""
    upload = link.upload_bytes_per_s
    return replace(
        link,
        latency_s=link.latency_s * latency,
        bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * bandwidth,
        upload_bytes_per_s=None if upload is None else upload * bandwidth,
    )


class CostsOfLinks:
    """A network of several links, whose library is the one whose costs the links carry."""

    @cached_property
    def gloo(self) -> GlooCosts | None:
        """Return gloo's software costs on the links, or None."""
        costs: GlooCosts | None = _common_costs(self, "gloo")
        return costs

    @cached_property
    def nccl(self) -> NcclCosts | None:
        """Return NCCL's costs on the links, or None."""
        costs: NcclCosts | None = _common_costs(self, "nccl")
        return costs

    def check_costs(self) -> None:
        """Refuse links with different costs of a library, or with costs of two libraries.

        Raises:
            SpecError: names the library.
        """
        gloo, nccl = self.gloo, self.nccl
        if gloo is not None and nccl is not None:
            raise SpecError("network.nccl", nccl, "none beside gloo: one library carries what names no algorithm")


class CostsOfNetwork:
    """A topology with the costs of libraries on its ``network``."""

    network: Any

    @property
    def gloo(self) -> GlooCosts | None:
        """Return gloo's software costs on the network, or None."""
        costs: GlooCosts | None = self.network.gloo
        return costs

    @property
    def nccl(self) -> NcclCosts | None:
        """Return NCCL's costs on the network, or None."""
        costs: NcclCosts | None = self.network.nccl
        return costs


def _common_costs(network: Any, library: str) -> Any:
    """Return the costs of a library that all links with such costs have, or None."""
    costs = {getattr(link, library) for link in each_link(network)} - {None}
    if len(costs) > 1:
        raise SpecError(f"network.{library}", f"{len(costs)} different costs", "equal costs on all links with costs")
    return costs.pop() if costs else None
