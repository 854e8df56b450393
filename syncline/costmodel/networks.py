"""Networks by name, and how a user describes another one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from syncline.costmodel.link import Link
from syncline.errors import SpecError, one_of
from syncline.units import parse_bandwidth, parse_seconds


class Preset(NamedTuple):
    """A link with what it stands for and where its numbers come from."""

    link: Link
    description: str
    source: str


NETWORKS: dict[str, Preset] = {
    "infiniband": Preset(
        Link(2e-6, 12.5e9, "infiniband"),
        "100 Gbit/s InfiniBand (EDR), 2 us one way",
        "Bandwidth: CurvaDion, Appendix E (100 Gb/s). Latency: assumed, of the order of an RDMA message's; "
        "CurvaDion measured 0.1 ms through its whole software stack (section 4.4).",
    ),
    "10gbe": Preset(
        Link(50e-6, 1.25e9, "10gbe"),
        "10 Gbit/s Ethernet, 50 us one way",
        "Bandwidth: CurvaDion, Appendix E (10 Gb/s). Latency: assumed, of the order of TCP through two kernels and a "
        "switch; CurvaDion's Table 3 lists 10 ms.",
    ),
    "1gbe": Preset(
        Link(50e-6, 125e6, "1gbe"),
        "1 Gbit/s Ethernet, 50 us one way",
        "Bandwidth: IEEE 802.3ab (1000BASE-T). Latency: assumed as for 10gbe: TCP in the kernels dominates it.",
    ),
    "wan": Preset(
        Link(25e-3, 125e6, "wan"),
        "1 Gbit/s between data centres, 50 ms round trip",
        "CurvaDion, Appendix E: 1 Gb/s, 50 ms RTT, so 25 ms one way.",
    ),
}

_EXPECTED = "a network's name, 'latency,bandwidth' (one way; '50us,10Gbit/s'), {latency, bandwidth}, or a .yaml file"


def network(value: str | Path | Mapping[str, Any] | Link, path: str = "network") -> Link:
    """The link that a user means.

    Args:
        value: a name in ``NETWORKS``; ``"50us,10Gbit/s"``, latency (one way) and bandwidth; a mapping with ``latency``,
            ``bandwidth`` and at will ``name``; the path of a ``.yaml`` file that holds such a mapping; or a ``Link``.
        path: the field's name, for the error line.

    Raises:
        SpecError: what is unknown, missing or cannot be used, and what would be accepted.

    >>> network("wan").latency_s, network("50us,10Gbit/s").bandwidth_bytes_per_s
    (0.025, 1250000000.0)
    """
    if isinstance(value, Link):
        return value
    if isinstance(value, Mapping):
        return _from_mapping(value, path)
    if isinstance(value, Path) or (isinstance(value, str) and value.endswith((".yaml", ".yml"))):
        return _from_file(Path(value), path)
    if not isinstance(value, str):
        raise SpecError(path, value, _EXPECTED)
    if value.lower() in NETWORKS:
        return NETWORKS[value.lower()].link
    latency, comma, bandwidth = value.partition(",")
    if not comma:
        raise SpecError(path, value, f"{one_of(NETWORKS, value.lower())}, or 'latency,bandwidth', or a .yaml file")
    return _from_mapping({"latency": latency, "bandwidth": bandwidth, "name": value}, path)


def _from_mapping(fields: Mapping[str, Any], path: str) -> Link:
    known = ("latency", "bandwidth", "name")
    for key in fields:  # first: an unknown key says more than the missing one that it may have been meant for
        if key not in known:
            raise SpecError(f"{path}.{key}", fields[key], f"no such field here, but {one_of(known, str(key))}")
    for key in ("latency", "bandwidth"):
        if key not in fields:
            raise SpecError(f"{path}.{key}", None, "a value: a network has a 'latency' (one way) and a 'bandwidth'")
    return Link(
        parse_seconds(fields["latency"], f"{path}.latency"),
        parse_bandwidth(fields["bandwidth"], f"{path}.bandwidth"),
        str(fields.get("name", "")),
    )


def _from_file(file: Path, path: str) -> Link:
    import yaml  # only here: the presets need no parser

    try:
        fields = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(path, str(file), f"a file that can be read ({error.strerror})") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: bytes that are no text, a day that is no date
        raise SpecError(path, str(file), f"a file in YAML ({' '.join(str(error).split())})") from error
    if not isinstance(fields, Mapping):
        raise SpecError(path, str(file), "a file that holds 'latency: ...' and 'bandwidth: ...'")
    return _from_mapping({"name": file.stem, **fields}, path)
