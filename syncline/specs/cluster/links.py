"""A link as a user describes it, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import InstanceOf

from syncline.costmodel.network.gloo_costs import GlooCosts
from syncline.costmodel.network.link import FabricKind, Link
from syncline.costmodel.network.nccl_costs import NcclCosts
from syncline.costmodel.network.presets import NETWORKS
from syncline.costmodel.network.tcp import Tcp, repeated_part, tcp_bytes_per_s
from syncline.errors import SpecError, one_of
from syncline.fields import Seconds, parsed
from syncline.registry import PYTHON, Registry, called_as, is_reference
from syncline.specs.cluster.gloo import gloo_costs, gloo_fields
from syncline.specs.cluster.nccl import nccl_costs, nccl_fields
from syncline.specs.cluster.reading import Bandwidth, Described, Name, Number, counted, users_fields
from syncline.specs.cluster.tcp import tcp_fields, tcp_of

BY_NAME: Registry[Any] = Registry(
    "networks", "syncline.networks", {name: preset.network for name, preset in NETWORKS.items()}
)
"""The presets, and what users bring: a network, or what describes one."""


class LinkDescribed(Described):
    """A link: ``latency`` and ``bandwidth``, or a ``preset`` to start from.

    ``rails``: so many such links side by side, over which every message is spread. ``loss``: the part of the packets
    that is lost and sent again; ``streams`` beside it: so many TCP connections that halve their windows at losses.
    ``tcp``: what the windows of TCP connections let through, see `syncline.specs.cluster.tcp`.
    """

    needs: ClassVar[str] = "a value: a network has a 'latency' (one way) and a 'bandwidth'"

    preset: Any = None
    latency: Seconds | None = None
    bandwidth: Bandwidth | None = None
    upload: Bandwidth | None = None
    overhead: Seconds | None = None
    efficiency: Number | None = None
    loss: Number | None = None
    streams: Annotated[int | None, counted("TCP connections")] = None
    tcp: Annotated[InstanceOf[Tcp] | bool | None, parsed(tcp_of)] = None
    rails: Annotated[int | None, counted("links side by side")] = None
    duplex: Literal["full", "half"] | None = None
    gloo: Annotated[InstanceOf[GlooCosts], parsed(gloo_costs)] | None = None
    nccl: Annotated[InstanceOf[NcclCosts] | bool | None, parsed(nccl_costs)] = None
    fabric: FabricKind | None = None
    name: Name | None = None

    def link(self, path: str, uplink: bool = False) -> Link:
        """The link; of a preset, a site's ``uplink`` has half of the latency, which is from site to site."""
        fields = {
            "latency_s": self.latency,
            "bandwidth_bytes_per_s": self.bandwidth,
            "upload_bytes_per_s": self.upload,
            "overhead_s": self.overhead,
            "efficiency": self.efficiency,
            "duplex": self.duplex,
            "gloo": self.gloo,
            "nccl": self.nccl,
            "fabric": self.fabric,
            "name": self.name,
        }
        given: dict[str, Any] = {field: value for field, value in fields.items() if value is not None}
        if self.preset is None:
            for key in ("latency", "bandwidth"):
                if getattr(self, key) is None:
                    raise SpecError(f"{path}.{key}", None, self.needs)
        with users_fields(path):
            start = None if self.preset is None else preset_link(self.preset, f"{path}.preset", uplink)
            link = Link(**given) if start is None else replace(start, **given)
            latencies = 4 if uplink else 2
            return self._windowed(self._lossy(_times(link, self.rails or 1), path, latencies), path, latencies)

    def _lossy(self, link: Link, path: str, latencies: int) -> Link:
        """The link with what losses leave of it; ``latencies`` of it make a round trip."""
        if self.loss is None:
            if self.streams is not None:
                raise SpecError(f"{path}.streams", self.streams, "loss beside it, which bounds what a stream carries")
            return link
        link = replace(link, efficiency=link.efficiency * repeated_part(self.loss))
        if self.streams is None:
            return link
        most = tcp_bytes_per_s(self.loss, latencies * link.latency_s, self.streams) / link.efficiency
        upload = None if link.upload_bytes_per_s is None else min(link.upload_bytes_per_s, most)
        return replace(link, bandwidth_bytes_per_s=min(link.bandwidth_bytes_per_s, most), upload_bytes_per_s=upload)

    def _windowed(self, link: Link, path: str, latencies: int) -> Link:
        """The link with what TCP's windows let through."""
        if not isinstance(self.tcp, Tcp):
            return link
        if self.loss is not None:
            raise SpecError(f"{path}.loss", self.loss, "none beside tcp, which has its own: {loss: 0.001}")
        link = replace(link, efficiency=link.efficiency * repeated_part(self.tcp.loss))
        most = self.tcp.rate_bytes_per_s(np.inf, latencies * link.latency_s) / link.efficiency
        upload = None if link.upload_bytes_per_s is None else float(min(link.upload_bytes_per_s, most))
        bandwidth = float(min(link.bandwidth_bytes_per_s, most))
        opens = replace(self.tcp, loss=0.0) if self.tcp.slow_start else None  # what losses leave is in the numbers
        return replace(link, bandwidth_bytes_per_s=bandwidth, upload_bytes_per_s=upload, tcp=opens)


def link_of(value: Any, path: str, uplink: bool = False) -> Link:
    """The link that a user means.

    Args:
        value: a preset's name; ``"50us,10Gbit/s"``; a mapping, see `LinkDescribed`; or a ``Link``.
        path: the field's name, for the error line.
        uplink: whether this is a site's uplink: half of the way to another site. A preset's latency is from site to
            site, so half of it is this link's.

    Raises:
        SpecError: what is unknown, missing or cannot be used, and what would be accepted.
    """
    if isinstance(value, Link):
        return value
    if isinstance(value, str):
        latency, comma, bandwidth = value.partition(",")
        if not comma:
            return preset_link(value, path, uplink)
        value = {"latency": latency, "bandwidth": bandwidth, "name": value}
    if isinstance(value, Mapping) and value.get("kind") == PYTHON:
        made = called_as(value, path)
        if not isinstance(made, Link):
            raise SpecError(path, dict(value), f"what returns a Link, and this is {type(made).__name__}")
        return made
    if not isinstance(value, Mapping):
        raise SpecError(path, value, "a link's name, 'latency,bandwidth' (one way; '50us,10Gbit/s') or its fields")
    return LinkDescribed.read(value, path).link(path, uplink)


def part_of(value: Any, path: str, uplink: bool = False) -> Link:
    """A link that is a part of a network."""
    link = link_of(value, path, uplink)
    if link.gloo is not None:
        expected = "nothing, as it is known of one link to everybody alone"
        raise SpecError(f"{path}.gloo", gloo_fields(link.gloo), expected)
    if link.nccl is not None:
        expected = "nothing, as its pieces are known of one link to everybody alone"
        raise SpecError(f"{path}.nccl", nccl_fields(link.nccl), expected)
    # Windows bound what a part carries; how they open is known of one link to everybody alone.
    return link if link.tcp is None else replace(link, tcp=None)


def link_fields(link: Link) -> dict[str, Any]:
    """The mapping that describes a link: ``link_of`` makes the same one of it."""
    given = {
        "upload": None if link.upload_bytes_per_s is None else float(link.upload_bytes_per_s),
        "overhead": float(link.overhead_s) or None,
        "efficiency": None if link.efficiency == 1 else float(link.efficiency),
        "duplex": None if link.duplex == "full" else link.duplex,
        "gloo": None if link.gloo is None else gloo_fields(link.gloo),
        "nccl": None if link.nccl is None else nccl_fields(link.nccl),
        "tcp": None if link.tcp is None else tcp_fields(link.tcp),
        "fabric": None if link.fabric == "network" else link.fabric,
    }
    numbers = {"latency": float(link.latency_s), "bandwidth": float(link.bandwidth_bytes_per_s)}
    return {"name": link.name} | numbers | {key: value for key, value in given.items() if value is not None}


def preset_link(name: Any, path: str, uplink: bool = False) -> Link:
    """The link of that name.

    Raises:
        SpecError: there is none, or it is a network of several.
    """
    key = name.strip() if isinstance(name, str) else ""
    key = key if is_reference(key) else key.lower()
    if not is_reference(key) and key not in BY_NAME:
        links = [one for one, preset in NETWORKS.items() if isinstance(preset.network, Link)]
        raise SpecError(path, name, f"{one_of(links, str(name).lower())}, or 'latency,bandwidth'")
    link = BY_NAME.get(key, path)
    if not isinstance(link, Link):
        raise SpecError(path, name, f"a link, and {key!r} is a network of several")
    return replace(link, latency_s=link.latency_s / 2) if uplink else link


def _times(link: Link, rails: int) -> Link:
    upload = None if link.upload_bytes_per_s is None else rails * link.upload_bytes_per_s
    return replace(link, bandwidth_bytes_per_s=rails * link.bandwidth_bytes_per_s, upload_bytes_per_s=upload)


LINK_FIELDS = tuple(LinkDescribed.names())
"""A link's fields as users write them."""

Part = Annotated[InstanceOf[Link], parsed(part_of)]
"""A link that is a part of a network."""
