"""Links from a user's description and back to fields, and the base class of the descriptions of networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from syncline.costmodel.network.link import FabricKind, Link
from syncline.costmodel.network.presets import NETWORKS
from syncline.costmodel.network.software_costs import NodeTimes, generation_of, nvlink_costs
from syncline.costmodel.network.tcp import Tcp, goodput_fraction, tcp_bytes_per_s
from syncline.errors import SpecError, one_of
from syncline.fields import INSTANCE, Seconds, parsed
from syncline.registry import PYTHON, call_from_fields, is_reference
from syncline.specs.cluster import library_costs, reading
from syncline.specs.cluster.network_names import BY_NAME

LINK_ATTRIBUTES = {
    "latency": "latency_s", "bandwidth": "bandwidth_bytes_per_s", "upload": "upload_bytes_per_s",
    "overhead": "overhead_s", "efficiency": "efficiency", "duplex": "duplex", "gloo": "gloo", "nccl": "nccl",
    "fabric": "fabric", "sharp": "sharp", "data_centre": "data_centre", "name": "name",
}  # fmt: skip
"""The attribute of a `Link` that each field of a description sets."""


class LinkDescription(reading.Description):
    """A link: ``latency`` and ``bandwidth``, or a ``preset`` to start from.

    ``rails``: number of such links in parallel; a message is striped over all. ``loss``: the share of packets that are
    lost and retransmitted. ``streams``: number of TCP connections whose windows the losses halve; it needs ``loss``.
    ``tcp``: limits by the windows of TCP connections, see `syncline.specs.cluster.library_costs`. ``measured``: GPU
    whose measured all-reduces inside a node hold on this link. ``nvlink``: generation of NVLink whose NCCL constants
    hold on this link; by default, with ``fabric: nvlink``, the generation with this bandwidth. ``sharp``: whether the
    network's switches sum tensors. ``data_centre``: whether all workers are in one data centre, so that their traffic
    costs no egress; by default up to 250 us. ``bounds``: errors of predictions, from a calibration.
    """

    needs = "a value: a network has a 'latency' (one way) and a 'bandwidth'"

    preset: Any = None
    latency: Seconds | None = None
    bandwidth: reading.Bandwidth | None = None
    upload: reading.Bandwidth | None = None
    overhead: Seconds | None = None
    efficiency: reading.Number | None = None
    loss: reading.Number | None = None
    streams: Annotated[int | None, reading.count_validator("TCP connections")] = None
    tcp: library_costs.TcpField = None
    rails: Annotated[int | None, reading.count_validator("links side by side")] = None
    duplex: Literal["full", "half"] | None = None
    gloo: library_costs.GlooField | None = None
    nccl: library_costs.NcclField = None
    fabric: FabricKind | None = None
    measured: Literal["a100", "v100"] | None = None
    nvlink: Literal[2, 3, 4, 5, "none"] | None = None
    sharp: bool | None = None
    data_centre: bool | None = None
    bounds: reading.BoundsField | None = None
    name: reading.Name | None = None

    def link(self, path: str, uplink: bool = False) -> Link:
        """Return the link; a site's ``uplink`` takes half of a preset's latency from site to site."""
        if self.preset is None:
            for name in ("latency", "bandwidth"):
                if getattr(self, name) is None:
                    raise SpecError(f"{path}.{name}", None, self.needs)
        values = {attribute: getattr(self, name) for name, attribute in LINK_ATTRIBUTES.items()}
        changes: dict[str, Any] = {attribute: value for attribute, value in values.items() if value is not None}
        is_changed = bool(set(changes) - {"name", "data_centre"})
        with reading.user_field_names(path):
            preset = None if self.preset is None else preset_link(self.preset, f"{path}.preset", uplink)
            # Measured times and bounds of a preset do not hold for a link with other values.
            if preset is None or is_changed:
                changes["measured"] = None if self.measured is None else NodeTimes(self.measured)
            if self.bounds is not None or is_changed:
                changes["bounds"] = self.bounds
            if self.latency is not None:  # that of a preset does not hold for another latency
                changes["data_centre"] = self.data_centre
            if self.nvlink is not None:
                changes["nvlink"] = None if self.nvlink == "none" else nvlink_costs(self.nvlink)
            elif self.fabric == "nvlink" and preset is None:
                changes["nvlink"] = nvlink_costs(generation_of(float(self.bandwidth or 0.0)))
            elif self.fabric is not None and self.fabric != "nvlink":  # a preset's NVLink no longer holds
                changes["nvlink"] = None
            link = Link(**changes) if preset is None else replace(preset, **changes)
            link = _parallel_links(link, self.rails or 1)
            round_trip_latencies = 4 if uplink else 2  # a message to another site passes two uplinks each way
            link = self._with_losses(link, path, round_trip_latencies)
            return self._with_tcp_windows(link, path, round_trip_latencies)

    def _with_losses(self, link: Link, path: str, round_trip_latencies: int) -> Link:
        """Return the link with the rate that losses leave; a round trip takes ``round_trip_latencies`` latencies."""
        if self.loss is None:
            if self.streams is not None:
                raise SpecError(f"{path}.streams", self.streams, "loss as well, which bounds the rate of a stream")
            return link
        link = replace(link, efficiency=link.efficiency * goodput_fraction(self.loss))
        if self.streams is None:
            return link
        goodput_bytes_per_s = tcp_bytes_per_s(self.loss, round_trip_latencies * link.latency_s, self.streams)
        return _limited_link(link, goodput_bytes_per_s)

    def _with_tcp_windows(self, link: Link, path: str, round_trip_latencies: int) -> Link:
        """Return the link with its bandwidth limited by TCP windows, if the description has ``tcp``.

        A round trip takes ``round_trip_latencies`` latencies of the link.
        """
        if not isinstance(self.tcp, Tcp):  # None
            return link
        if self.loss is not None:
            raise SpecError(f"{path}.loss", self.loss, "none with tcp, which has its own: {loss: 0.001}")
        sent_once_share = goodput_fraction(self.tcp.loss) / (1 + self.tcp.resent_part)
        link = replace(link, efficiency=link.efficiency * sent_once_share)
        # On a line of infinite bandwidth the windows alone limit the rate.
        goodput_bytes_per_s = self.tcp.rate_bytes_per_s(np.inf, round_trip_latencies * link.latency_s)
        # The clock adds slow start; the bandwidth already includes losses and the queue.
        slow_start = replace(self.tcp, loss=0.0, queue_bytes=np.inf) if self.tcp.slow_start else None
        return replace(_limited_link(link, goodput_bytes_per_s), tcp=slow_start)


def parse_link(value: Any, path: str, uplink: bool = False) -> Link:
    """Return the link that a user describes.

    Args:
        value: a preset's name; ``"50us,10Gbit/s"``; a mapping, see `LinkDescription`; or a ``Link``.
        path: the field's name, for the error line.
        uplink: whether the link is a site's uplink, which has half of a preset's latency from site to site.
    """
    if isinstance(value, Link):
        return value
    if isinstance(value, str):
        latency, comma, bandwidth = value.partition(",")
        if not comma:
            return preset_link(value, path, uplink)
        value = {"latency": latency, "bandwidth": bandwidth, "name": value}
    if isinstance(value, Mapping) and value.get("kind") == PYTHON:
        called_link = call_from_fields(value, path)
        if not isinstance(called_link, Link):
            raise SpecError(path, dict(value), f"a callable that returns a Link, not {type(called_link).__name__}")
        return called_link
    if not isinstance(value, Mapping):
        raise SpecError(path, value, "a link's name, 'latency,bandwidth' (one way; '50us,10Gbit/s') or its fields")
    return LinkDescription.read(value, path).link(path, uplink)


def parse_network_link(value: Any, path: str, uplink: bool = False) -> Link:
    """Return a link that is a part of a network, as a user describes it."""
    link = parse_link(value, path, uplink)
    # TCP windows already limit its bandwidth; slow start is modelled only for networks of one link.
    return link if link.tcp is None else replace(link, tcp=None)


def link_fields(link: Link) -> dict[str, Any]:
    """Return the mapping of fields from which `parse_link` builds the same link again."""
    nvlink: Any = None  # left out: the fabric decides
    if link.nvlink is not None:
        nvlink = link.nvlink.generation
    elif link.fabric == "nvlink":  # this NVLink lacks the constants that the fabric alone would set
        nvlink = "none"
    optional = {
        "upload": None if link.upload_bytes_per_s is None else float(link.upload_bytes_per_s),
        "overhead": float(link.overhead_s) or None,
        "efficiency": None if link.efficiency == 1 else float(link.efficiency),
        "duplex": None if link.duplex == "full" else link.duplex,
        "gloo": None if link.gloo is None else library_costs.gloo_fields(link.gloo),
        "nccl": None if link.nccl is None else library_costs.NcclDescription.fields_of(link.nccl),
        "tcp": None if link.tcp is None else library_costs.TcpDescription.fields_of(link.tcp),
        "fabric": None if link.fabric == "network" else link.fabric,
        "measured": None if link.measured is None else link.measured.gpu, "nvlink": nvlink, "sharp": link.sharp or None,
        "data_centre": link.data_centre, "bounds": None if link.bounds is None else reading.bounds_fields(link.bounds),
    }  # fmt: skip
    required = {
        "name": link.name, "latency": float(link.latency_s), "bandwidth": float(link.bandwidth_bytes_per_s),
    }  # fmt: skip
    return required | {name: value for name, value in optional.items() if value is not None}


def preset_link(name: Any, path: str, uplink: bool = False) -> Link:
    """Return the link of a preset, of a registered name or of ``module:name``; see `parse_link` for ``uplink``."""
    key = name.strip() if isinstance(name, str) else ""
    if not is_reference(key):
        key = key.lower()
        if key not in BY_NAME:
            links = [link_name for link_name, preset in NETWORKS.items() if isinstance(preset.network, Link)]
            raise SpecError(path, name, f"{one_of(links, str(name).lower())}, or 'latency,bandwidth'")
    link = BY_NAME.get(key, path)
    if not isinstance(link, Link):
        raise SpecError(path, name, f"a link, and {key!r} is a network of several")
    return replace(link, latency_s=link.latency_s / 2) if uplink else link


def _limited_link(link: Link, goodput_bytes_per_s: Any) -> Link:
    """Return the link with bandwidths of at most this rate of payload, in either direction."""
    limit_bytes_per_s = goodput_bytes_per_s / link.efficiency
    bandwidth = float(min(link.bandwidth_bytes_per_s, limit_bytes_per_s))
    upload = None if link.upload_bytes_per_s is None else float(min(link.upload_bytes_per_s, limit_bytes_per_s))
    return replace(link, bandwidth_bytes_per_s=bandwidth, upload_bytes_per_s=upload)


def _parallel_links(link: Link, rails: int) -> Link:
    """Return one link for ``rails`` equal links in parallel, over which each message is spread."""
    upload = None if link.upload_bytes_per_s is None else rails * link.upload_bytes_per_s
    measured = link.measured if rails == 1 else None
    bandwidth = rails * link.bandwidth_bytes_per_s
    return replace(link, bandwidth_bytes_per_s=bandwidth, upload_bytes_per_s=upload, measured=measured)


LINK_FIELDS = tuple(LinkDescription.names())
"""The names of a link's fields as users write them."""

Part = Annotated[Link, INSTANCE, parsed(parse_network_link)]
"""A link that is a part of a network."""


class NetworkDescription(reading.Description):
    """A description of networks of the class ``makes``, whose attributes have the same names as the fields."""

    makes: ClassVar[type]
    """The class of the networks."""

    attributes: ClassVar[Mapping[str, str]] = {}
    """The attribute of the network that a field sets, if the attribute has another name than the field."""

    def network(self) -> Any:
        """Return the network that the fields describe."""
        values = {self.attributes.get(name, name): getattr(self, name) for name in type(self).model_fields}
        return self.makes(**values)

    @classmethod
    def fields_of(cls, network: Any) -> dict[str, Any]:
        """Return the fields that describe a network, without its name and without fields that are None by default."""
        spec_fields = {}
        for name, field in cls.model_fields.items():
            value = getattr(network, cls.attributes.get(name, name))
            is_default = value is None and field.default is None
            if name != "name" and not is_default:
                spec_fields[name] = _as_spec_value(value)
        return spec_fields


def _as_spec_value(value: Any) -> Any:
    """Return a value of a network as spec files hold it: a link as a mapping of its fields, a tuple as a list."""
    if isinstance(value, Link):
        return link_fields(value)
    if isinstance(value, tuple):
        return [_as_spec_value(item) for item in value]
    return value
