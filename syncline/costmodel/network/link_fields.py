"""A link as a user describes it, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from syncline.costmodel.collectives.gloo.fields import gloo_costs, gloo_fields
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.presets import NETWORKS
from syncline.costmodel.network.tcp import repeated_part, tcp_bytes_per_s
from syncline.errors import SpecError, one_of
from syncline.units import parse_bandwidth, parse_seconds

LINK_FIELDS = (
    "preset", "latency", "bandwidth", "upload", "overhead", "efficiency", "loss", "streams", "rails", "duplex", "gloo",
    "name",
)  # fmt: skip

_NAME_OF_FIELD = {
    "link.latency_s": "latency",
    "link.bandwidth_bytes_per_s": "bandwidth",
    "link.upload_bytes_per_s": "upload",
    "link.overhead_s": "overhead",
    "link.efficiency": "efficiency",
    "link.duplex": "duplex",
}


def link_of(value: Any, path: str, uplink: bool = False) -> Link:
    """The link that a user means.

    Args:
        value: a preset's name; ``"50us,10Gbit/s"``; a mapping; or a ``Link``. A mapping has ``latency`` and
            ``bandwidth``, or a ``preset`` to start from, and at will ``upload``, ``overhead``, ``efficiency``,
            ``duplex``, ``name``; ``gloo``, what gloo's software takes on it (see `gloo_costs`); ``rails``, so many such
            links side by side, over which every message is spread; ``loss``, the part of the packets that is lost and
            sent again, and beside it ``streams``, so many TCP connections that halve their windows at losses.
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
            return _preset(value, path, uplink)
        value = {"latency": latency, "bandwidth": bandwidth, "name": value}
    if not isinstance(value, Mapping):
        raise SpecError(path, value, "a link's name, 'latency,bandwidth' (one way; '50us,10Gbit/s') or its fields")
    return _from_mapping(value, path, uplink)


def link_fields(link: Link) -> dict[str, Any]:
    """The mapping that describes a link: ``link_of`` makes the same one of it."""
    given = {
        "upload": None if link.upload_bytes_per_s is None else float(link.upload_bytes_per_s),
        "overhead": float(link.overhead_s) or None,
        "efficiency": None if link.efficiency == 1 else float(link.efficiency),
        "duplex": None if link.duplex == "full" else link.duplex,
        "gloo": None if link.gloo is None else gloo_fields(link.gloo),
    }
    numbers = {"latency": float(link.latency_s), "bandwidth": float(link.bandwidth_bytes_per_s)}
    return {"name": link.name} | numbers | {key: value for key, value in given.items() if value is not None}


def check_fields(fields: Mapping[str, Any], known: tuple[str, ...], path: str) -> None:
    """Refuse a field that there is not.

    Raises:
        SpecError: names it and the closest match.
    """
    for key in fields:
        if key not in known:
            raise SpecError(f"{path}.{key}", fields[key], f"no such field here, but {one_of(known, str(key))}")


def whole(value: Any, path: str, expected: str) -> int:
    """A whole number of at least one.

    Raises:
        SpecError: anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SpecError(path, value, expected)
    return value


def _from_mapping(fields: Mapping[str, Any], path: str, uplink: bool) -> Link:
    check_fields(fields, LINK_FIELDS, path)  # first: it says more than the missing one that it may have been meant for
    given: dict[str, Any] = {}
    for key, field, parse in (
        ("latency", "latency_s", parse_seconds),
        ("bandwidth", "bandwidth_bytes_per_s", parse_bandwidth),
        ("upload", "upload_bytes_per_s", parse_bandwidth),
        ("overhead", "overhead_s", parse_seconds),
        ("efficiency", "efficiency", _number),
        ("gloo", "gloo", gloo_costs),
    ):
        if fields.get(key) is not None:
            given[field] = parse(fields[key], f"{path}.{key}")
    if "duplex" in fields:
        given["duplex"] = fields["duplex"]
    if "name" in fields:
        given["name"] = str(fields["name"])
    try:
        link = _start(fields, path, uplink, given)
        if "rails" in fields:
            link = _times(link, whole(fields["rails"], f"{path}.rails", "a number of links side by side, at least 1"))
        return _lossy(link, fields, path, 4 if uplink else 2)
    except SpecError as error:
        raise _placed(error, path) from None


def _start(fields: Mapping[str, Any], path: str, uplink: bool, given: dict[str, Any]) -> Link:
    if "preset" not in fields:
        for key, field in (("latency", "latency_s"), ("bandwidth", "bandwidth_bytes_per_s")):
            if field not in given:
                raise SpecError(f"{path}.{key}", None, "a value: a network has a 'latency' (one way) and a 'bandwidth'")
        return Link(**given)
    return replace(_preset(fields["preset"], f"{path}.preset", uplink), **given)


def _preset(name: Any, path: str, uplink: bool) -> Link:
    links = {key: preset.network for key, preset in NETWORKS.items() if isinstance(preset.network, Link)}
    key = name.strip().lower() if isinstance(name, str) else ""
    if key in NETWORKS and key not in links:
        raise SpecError(path, name, f"a link, and {key!r} is a network of several")
    if key not in links:
        raise SpecError(path, name, f"{one_of(links, str(name).lower())}, or 'latency,bandwidth'")
    return replace(links[key], latency_s=links[key].latency_s / 2) if uplink else links[key]


def _times(link: Link, rails: int) -> Link:
    upload = None if link.upload_bytes_per_s is None else rails * link.upload_bytes_per_s
    return replace(link, bandwidth_bytes_per_s=rails * link.bandwidth_bytes_per_s, upload_bytes_per_s=upload)


def _lossy(link: Link, fields: Mapping[str, Any], path: str, latencies: int) -> Link:
    """The link with what losses leave of it; ``latencies`` of it make a round trip."""
    if "loss" not in fields:
        if "streams" in fields:
            raise SpecError(f"{path}.streams", fields["streams"], "loss beside it, which bounds what a stream carries")
        return link
    loss = _number(fields["loss"], f"{path}.loss")
    link = replace(link, efficiency=link.efficiency * repeated_part(loss))
    if "streams" not in fields:
        return link
    streams = whole(fields["streams"], f"{path}.streams", "a number of TCP connections, at least 1")
    most = tcp_bytes_per_s(loss, latencies * link.latency_s, streams) / link.efficiency
    upload = None if link.upload_bytes_per_s is None else min(link.upload_bytes_per_s, most)
    return replace(link, bandwidth_bytes_per_s=min(link.bandwidth_bytes_per_s, most), upload_bytes_per_s=upload)


def _placed(error: SpecError, path: str) -> SpecError:
    """The error with the path of the user's field."""
    if error.path.startswith(f"{path}.") or error.path == path:
        return error
    return SpecError(f"{path}.{_NAME_OF_FIELD.get(error.path, error.path)}", error.value, error.expected)


def _number(value: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise SpecError(path, value, "a number, a fraction of one")
    return float(value)
