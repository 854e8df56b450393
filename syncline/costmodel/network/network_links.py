"""The links of a network of several links: list them, change them, and read the library costs that they carry."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import fields, is_dataclass, replace
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np

from syncline.costmodel.network.link import Link
from syncline.costmodel.network.software_costs import Calls, GlooCosts, NcclCosts
from syncline.costmodel.numerics.arrays import require
from syncline.errors import SpecError

T = TypeVar("T")


def each_link(part: Any) -> Iterator[Link]:
    """Yield the links of a network, or of anything made of dataclasses and tuples, in the order of its fields."""
    if isinstance(part, Link):
        yield part
    elif isinstance(part, tuple):
        for item in part:
            yield from each_link(item)
    elif is_dataclass(part) and not isinstance(part, type):
        for field in fields(part):
            if field.init:  # other fields are computed from these
                yield from each_link(getattr(part, field.name))


def links_of(network: Any) -> list[Link]:
    """Return the different links of a network, each once, in the order of its fields.

    >>> from syncline.costmodel import Sites
    >>> [link.name for link in links_of(Sites(2, Link(1e-5, 1e9, "lan"), Link(1e-2, 1e8, "up")))]
    ['lan', 'up']
    """
    links: list[Link] = []
    for link in each_link(network):
        if link not in links:  # links whose numbers are arrays have no hash
            links.append(link)
    return links


def with_links(network: T, change: Callable[[Link], Link]) -> T:
    """Return a network, or anything made of dataclasses that has links, with each link replaced by ``change(link)``.

    Parts without a changed link stay the same objects.
    """
    if isinstance(network, Link):
        return cast("T", change(network))
    if isinstance(network, tuple) and not hasattr(network, "_fields"):  # the costs that are named tuples have no links
        items = tuple(with_links(item, change) for item in network)
        is_changed = any(item is not old_item for item, old_item in zip(items, network, strict=True))
        return cast("T", items) if is_changed else network
    if is_dataclass(network) and not isinstance(network, type):
        values = {field.name: getattr(network, field.name) for field in fields(network) if field.init}
        new_values = {name: with_links(value, change) for name, value in values.items()}
        changes = {name: value for name, value in new_values.items() if value is not values[name]}
        return replace(network, **changes) if changes else network
    return network


def scaled_link(link: Link, bandwidth_factor: float, latency_factor: float) -> Link:
    """Return the link with its bandwidths, both ways, and its latency multiplied by factors."""
    return replace(link.times_bandwidth(bandwidth_factor), latency_s=link.latency_s * latency_factor)


def scaled(network: T, bandwidth: float = 1.0, latency: float = 1.0, selected: Collection[Link] | None = None) -> T:
    """Return the network with bandwidths and latencies multiplied by factors; software costs stay the same.

    Args:
        network: a link, or anything made of dataclasses that has links.
        bandwidth: positive factor of bandwidths, uploads included.
        latency: positive factor of latencies.
        selected: the links to change; None: all links.

    >>> scaled(Link(1e-3, 1e8), bandwidth=0.5, latency=2.0) == Link(2e-3, 5e7)
    True
    """
    for name, factor in (("bandwidth", bandwidth), ("latency", latency)):
        require(0 < factor < float("inf"), name, factor, "a positive number")
    if bandwidth == latency == 1.0:
        return network

    def change(link: Link) -> Link:
        is_selected = selected is None or link in selected
        return scaled_link(link, bandwidth, latency) if is_selected else link

    return with_links(network, change)


def slow_down(network: T, factor: float) -> T:
    """Return the network with ``factor`` times the latencies and overheads, and bandwidths divided by ``factor``.

    The costs of software grow by the same factor, so that every message takes ``factor`` times as long. TCP's windows
    open round trip by round trip, so that this takes longer, too. The timeout of idle windows stays the same.

    Args:
        network: a link, or anything made of dataclasses that has links.
        factor: factor of all seconds, positive.

    >>> slow_down(Link(1e-3, 1e8), 2.0).transfer_s(1e6) / Link(1e-3, 1e8).transfer_s(1e6)
    2.0
    """
    require(np.isfinite(factor) & (factor > 0), "factor", factor, "a positive number")
    slower: Any = with_links(network, lambda link: _slower_link(link, factor))
    if getattr(slower, "hivemind", None) is not None:  # only a `Matrix` has these costs
        slower = replace(slower, hivemind=slower.hivemind.slowed(factor))
    return cast("T", slower)


def _slower_link(link: Link, factor: float) -> Link:
    """Return a link on which each message takes ``factor`` times as long; its TCP windows stay the same."""
    upload = link.upload_bytes_per_s
    return replace(
        link,
        latency_s=link.latency_s * factor,
        overhead_s=link.overhead_s * factor,
        bandwidth_bytes_per_s=link.bandwidth_bytes_per_s / factor,
        upload_bytes_per_s=None if upload is None else upload / factor,
        gloo=None if link.gloo is None else _slower_gloo(link.gloo, factor),
        measured=None if link.measured is None else replace(link.measured, factor=link.measured.factor * factor),
        nccl=None if link.nccl is None else replace(link.nccl, call_s=link.nccl.call_s * factor),
        nvlink=None if link.nvlink is None else replace(link.nvlink, factor=link.nvlink.factor * factor),
    )


def _slower_gloo(costs: GlooCosts, factor: float) -> GlooCosts:
    """Return the costs of gloo's software with ``factor`` times all seconds."""

    def slower_calls(calls: Calls) -> Calls:
        """Return pairs of a number of workers and ``factor`` times the seconds of a call."""
        return tuple((workers, seconds * factor) for workers, seconds in calls)

    tcp = costs.connection
    return replace(
        costs,
        message_s=costs.message_s * factor,
        call_s=slower_calls(costs.call_s),
        byte_s=tuple((kind, seconds * factor) for kind, seconds in costs.byte_s),
        call_of_s=tuple((kind, slower_calls(calls)) for kind, calls in costs.call_of_s),
        connection=None if tcp is None else replace(tcp, flow_bytes_per_s=tcp.flow_bytes_per_s / factor),
    )


class CostsOfLinks:
    """A network of several links; the costs of a library on the network are those that its links carry."""

    @cached_property
    def gloo(self) -> GlooCosts | None:
        """Return the costs of gloo's software on the links, or None; refuse links with different costs."""
        return _common_costs("gloo", [link.gloo for link in each_link(self)])

    @cached_property
    def nccl(self) -> NcclCosts | None:
        """Return NCCL's costs on the links, or None; refuse links with different costs."""
        return _common_costs("nccl", [link.nccl for link in each_link(self)])

    def check_costs(self) -> None:
        """Raise ``SpecError`` for links with different costs of a library, or with costs of two libraries."""
        gloo, nccl = self.gloo, self.nccl  # either raises an error for different costs
        if gloo is not None and nccl is not None:
            expected = "none with gloo: one library runs the collectives that name no algorithm"
            raise SpecError("network.nccl", nccl, expected)


def _common_costs(library: str, costs_of_links: Iterable[T | None]) -> T | None:
    """Return the costs of a library that all links with such costs have, or None; refuse links with different costs."""
    costs = {link_costs for link_costs in costs_of_links if link_costs is not None}
    if len(costs) > 1:
        raise SpecError(f"network.{library}", f"{len(costs)} different costs", "equal costs on all links with costs")
    return costs.pop() if costs else None


class NetworkTopology:
    """The base of a topology of workers on a network: it has the network's name and costs of libraries."""

    network: Any

    @property
    def name(self) -> str:
        """Return the name that tables and messages show."""
        return str(self.network.name)

    @property
    def gloo(self) -> GlooCosts | None:
        """Return the costs of gloo's software on the network, or None."""
        return cast("GlooCosts | None", self.network.gloo)

    @property
    def nccl(self) -> NcclCosts | None:
        """Return NCCL's costs on the network, or None."""
        return cast("NcclCosts | None", self.network.nccl)
