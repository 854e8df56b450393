"""How a user describes a network, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from syncline.costmodel.collectives.gloo.fields import gloo_fields
from syncline.costmodel.network.cluster_files import AS_IN, fields_of, is_file, section_of
from syncline.costmodel.network.graph import Edge, Graph
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.link_fields import LINK_FIELDS, check_fields, link_fields, link_of, whole
from syncline.costmodel.network.presets import NETWORKS, Preset
from syncline.costmodel.network.sites import Sites
from syncline.costmodel.network.two_level import TwoLevel
from syncline.errors import SpecError, one_of

__all__ = ["NETWORKS", "AnyNetwork", "Preset", "network", "network_fields"]

AnyNetwork: TypeAlias = Link | TwoLevel | Sites | Graph
"""What ``network`` makes: a link that all have, nodes, sites, a graph."""

_EXPECTED = "a network's name, 'latency,bandwidth' (one way; '50us,10Gbit/s'), {latency, bandwidth}, or a .yaml file"
_NODES = ("per_node", "inside", "between", "nics", "name")
_SITES = ("sites", "lan", "uplink", "name")
_GRAPH = ("hosts", "edges", "routes", "name")


def network(value: str | Path | Mapping[str, Any] | AnyNetwork, path: str = "network") -> AnyNetwork:
    """The network that a user means.

    Args:
        value: a name in ``NETWORKS``; ``"50us,10Gbit/s"``, latency (one way) and bandwidth; a mapping, or its text in
            braces; the path of a ``.yaml`` file that holds one, or has it as its section ``network``; or a network. The
            mapping describes a link by ``latency`` and ``bandwidth`` or ``preset`` (and more: see ``link_of``); nodes
            by ``per_node``, ``inside``, ``between`` and at will ``nics``; sites by ``sites`` (their number or sizes),
            ``lan`` and ``uplink`` (one, or a list); a graph by ``hosts``, ``edges`` (``from``, ``to``, a link's fields
            and at will ``directed``) and at will ``routes`` (lists of nodes). All may have a ``name``.
        path: the field's name, for the error line.

    Raises:
        SpecError: what is unknown, missing or cannot be used, and what would be accepted.

    >>> network("wan").latency_s, network("50us,10Gbit/s").bandwidth_bytes_per_s
    (0.025, 1250000000.0)
    >>> network({"per_node": 8, "inside": "nvlink4", "between": "ib-ndr"}).describe()
    '8 per node, nvlink4 inside, ib-ndr between'
    """
    if isinstance(value, Link | TwoLevel | Sites | Graph):
        return value
    if isinstance(value, Mapping):
        return _from_mapping(value, path)
    if is_file(value):
        return _from_mapping(section_of(Path(value), "network", path), path)
    if not isinstance(value, str):
        raise SpecError(path, value, _EXPECTED)
    if value.lower() in NETWORKS:
        return NETWORKS[value.lower()].network
    if value.lstrip().startswith("{"):
        return _from_mapping(fields_of(value, value, path, "fields", AS_IN["network"]), path)
    if "," not in value:
        raise SpecError(path, value, f"{one_of(NETWORKS, value.lower())}, or 'latency,bandwidth', or a .yaml file")
    return link_of(value, path)


def network_fields(given: AnyNetwork) -> dict[str, Any]:
    """The mapping that describes a network: ``network`` makes the same one of it."""
    if isinstance(given, Link):
        return link_fields(given)
    fields: dict[str, Any] = {"name": given.name}
    if isinstance(given, TwoLevel):
        fields |= {"per_node": given.per_node, "inside": link_fields(given.inner), "between": link_fields(given.outer)}
        return fields if given.nics_per_node is None else fields | {"nics": given.nics_per_node}
    if isinstance(given, Sites):
        up = given.uplink
        return fields | {
            "sites": given.sites if isinstance(given.sites, int) else list(given.sites),
            "lan": link_fields(given.lan),
            "uplink": link_fields(up) if isinstance(up, Link) else [link_fields(link) for link in up],
        }
    edges = [
        {"from": edge.source, "to": edge.target, "directed": edge.directed} | link_fields(edge.link)
        for edge in given.edges
    ]
    routes = {"routes": [list(route) for route in given.routes]} if given.routes else {}
    return fields | {"hosts": list(given.hosts), "edges": edges} | routes


def _from_mapping(fields: Mapping[str, Any], path: str) -> AnyNetwork:
    for key, make in (("per_node", _nodes), ("sites", _sites), ("hosts", _graph)):
        if key in fields:
            try:
                return make(fields, path)
            except SpecError as error:  # from a part, which does not know where it stands
                below = error.path.removeprefix("network.")
                known = error.path == path or error.path.startswith(f"{path}.")
                raise error if known else SpecError(f"{path}.{below}", error.value, error.expected) from None
    for kind in (_NODES, _SITES, _GRAPH):
        if set(fields) & set(kind) - {"name"} and not set(fields) & set(LINK_FIELDS) - {"name"}:
            given = ", ".join(repr(key) for key in fields)
            raise SpecError(f"{path}.{kind[0]}", None, f"a value beside {given}")
    preset = NETWORKS.get(str(fields.get("preset")).lower())
    if preset and set(fields) <= {"preset", "name"}:
        return replace(preset.network, name=str(fields.get("name", preset.network.name)))
    return link_of(fields, path)


def _part(value: Any, path: str, uplink: bool = False) -> Link:
    """A link that is a part of a network."""
    link = link_of(value, path, uplink)
    if link.gloo is not None:
        raise SpecError(
            f"{path}.gloo", gloo_fields(link.gloo), "nothing, as it is known of one link to everybody alone"
        )
    return link


def _need(fields: Mapping[str, Any], keys: Sequence[str], path: str, what: str) -> None:
    for key in keys:
        if fields.get(key) is None:
            raise SpecError(f"{path}.{key}", None, f"a value: {what}")


def _nodes(fields: Mapping[str, Any], path: str) -> TwoLevel:
    check_fields(fields, _NODES, path)
    _need(fields, ("per_node", "inside", "between"), path, "nodes have a link 'inside' and one 'between' them")
    nics = fields.get("nics")
    return TwoLevel(
        whole(fields["per_node"], f"{path}.per_node", "a number of workers, at least 1"),
        _part(fields["inside"], f"{path}.inside"),
        _part(fields["between"], f"{path}.between"),
        None if nics is None else whole(nics, f"{path}.nics", "a number of network cards, at least 1"),
        str(fields.get("name", "")),
    )


def _sites(fields: Mapping[str, Any], path: str) -> Sites:
    check_fields(fields, _SITES, path)
    _need(fields, ("sites", "lan", "uplink"), path, "sites have a 'lan' inside and an 'uplink' each")
    sites, up = fields["sites"], fields["uplink"]
    expected = "a number of sites, or the workers of each, as in [4, 4]"
    is_list = isinstance(up, list | tuple)
    return Sites(
        tuple(whole(size, f"{path}.sites.{i}", "a number of workers, at least 1") for i, size in enumerate(sites))
        if isinstance(sites, list | tuple)
        else whole(sites, f"{path}.sites", expected),
        _part(fields["lan"], f"{path}.lan"),
        tuple(_part(one, f"{path}.uplink.{i}", uplink=True) for i, one in enumerate(up))
        if is_list
        else _part(up, f"{path}.uplink", uplink=True),
        str(fields.get("name", "")),
    )


def _graph(fields: Mapping[str, Any], path: str) -> Graph:
    check_fields(fields, _GRAPH, path)
    _need(fields, ("hosts", "edges"), path, "a graph has 'hosts', in the order of their ranks, and 'edges'")
    edges = []
    for i, given in enumerate(_list(fields["edges"], f"{path}.edges", "{from, to, latency, bandwidth} each")):
        at = f"{path}.edges.{i}"
        if not isinstance(given, Mapping):
            raise SpecError(at, given, "fields: {from, to, latency, bandwidth}")
        check_fields(given, ("from", "to", "directed", *LINK_FIELDS), at)
        _need(given, ("from", "to"), at, "an edge has nodes that it is 'from' and 'to'")
        directed = given.get("directed", False)
        if not isinstance(directed, bool):
            raise SpecError(f"{at}.directed", directed, "yes or no")
        link = _part({key: given[key] for key in given if key in LINK_FIELDS}, at)
        edges.append(Edge(str(given["from"]), str(given["to"]), link, directed))
    routes = [
        tuple(map(str, _list(route, f"{path}.routes.{i}", "names of nodes")))
        for i, route in enumerate(_list(fields.get("routes", []), f"{path}.routes", "lists of nodes"))
    ]
    hosts = tuple(map(str, _list(fields["hosts"], f"{path}.hosts", "names of nodes, in the order of their ranks")))
    return Graph(hosts, tuple(edges), tuple(routes), str(fields.get("name", "")))


def _list(value: Any, path: str, what: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise SpecError(path, value, f"a list: {what}")
    return list(value)
