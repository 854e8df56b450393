"""A network whose links are changed: all of them, or those that are like one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from syncline.costmodel.network.link import Link
from syncline.costmodel.numerics.arrays import require

T = TypeVar("T")


def with_links(network: T, change: Callable[[Link], Link]) -> T:
    """The same network with each link as it is changed.

    Args:
        network: a link, or anything made of dataclasses that has links.
        change: a link to what takes its place.
    """
    changed: T = _with_links(network, change)
    return changed


def _with_links(of: Any, change: Callable[[Link], Link]) -> Any:
    if isinstance(of, Link):
        return change(of)
    if isinstance(of, tuple) and not hasattr(of, "_fields"):
        parts = tuple(_with_links(one, change) for one in of)
        return parts if any(one is not other for one, other in zip(parts, of, strict=True)) else of
    if is_dataclass(of) and not isinstance(of, type):
        inside = {field.name: getattr(of, field.name) for field in fields(of) if field.init}
        made = {name: _with_links(value, change) for name, value in inside.items()}
        changed = {name: value for name, value in made.items() if value is not inside[name]}
        return replace(of, **changed) if changed else of
    return of


def links_of(network: Any) -> list[Link]:
    """The different links of a network, in the order in which it names them.

    >>> from syncline.costmodel import Sites
    >>> [one.name for one in links_of(Sites(2, Link(1e-5, 1e9, "lan"), Link(1e-2, 1e8, "up")))]
    ['lan', 'up']
    """
    found: list[Link] = []
    for one in _links(network):
        if one not in found:
            found.append(one)
    return found


def _links(of: Any) -> Iterator[Link]:
    if isinstance(of, Link):
        yield of
    elif isinstance(of, tuple):
        for one in of:
            yield from _links(one)
    elif is_dataclass(of) and not isinstance(of, type):
        for field in fields(of):
            if field.init:
                yield from _links(getattr(of, field.name))


def scaled(network: T, bandwidth: float = 1.0, latency: float = 1.0, only: Link | None = None) -> T:
    """The same network with so many times the bandwidth and the latency of its links; software takes what it took.

    Args:
        network: a link, or anything made of dataclasses that has links.
        bandwidth: a factor, positive; on uploads, too.
        latency: a factor, positive.
        only: links that are equal to this one; all if none.

    Raises:
        SpecError: a factor that is not positive.

    >>> scaled(Link(1e-3, 1e8), bandwidth=0.5, latency=2.0) == Link(2e-3, 5e7)
    True
    """
    for name, factor in (("bandwidth", bandwidth), ("latency", latency)):
        require(0 < factor < float("inf"), name, factor, "a positive number")

    def change(link: Link) -> Link:
        if (bandwidth == latency == 1.0) or (only is not None and link != only):
            return link
        upload = link.upload_bytes_per_s
        return replace(
            link,
            latency_s=link.latency_s * latency,
            bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * bandwidth,
            upload_bytes_per_s=None if upload is None else upload * bandwidth,
        )

    return with_links(network, change)
