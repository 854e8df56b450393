"""Descriptions of networks by their fields: of nodes, sites, regions, levels, graphs and matrices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, cast

from pydantic import Field, StrictBool
from typing_extensions import override

from syncline.costmodel.network.graph import Edge, Graph
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.matrix import Matrix
from syncline.costmodel.network.network_links import CostsOfLinks
from syncline.costmodel.network.paths import Network
from syncline.costmodel.network.regions import regions
from syncline.costmodel.network.two_level import Sites, TwoLevel
from syncline.errors import SpecError
from syncline.fields import INSTANCE, parsed
from syncline.specs.cluster import links
from syncline.specs.cluster.levels import LevelsDescription
from syncline.specs.cluster.library_costs import HivemindDescription, HivemindField
from syncline.specs.cluster.matrix import MatrixDescription
from syncline.specs.cluster.network_names import BY_NAME
from syncline.specs.cluster.reading import Name, count_validator, list_validator, user_field_names, whole_number


class NodesDescription(links.NetworkDescription):
    """A network of nodes of ``per_node`` workers: a link ``inside``, a link ``between``, optionally ``nics``."""

    makes = TwoLevel
    attributes: ClassVar[Mapping[str, str]] = {"inside": "inner", "between": "outer", "nics": "nics_per_node"}
    needs = "a value: nodes have 'per_node' workers, a link 'inside' and one 'between' them"

    per_node: Annotated[int, count_validator("workers")]
    inside: links.Part
    between: links.Part
    nics: Annotated[int | None, count_validator("network cards")] = None
    name: Name = ""


def _parse_sites(value: Any, path: str) -> int | tuple[int, ...]:
    """Return the number of sites, or the number of workers of each."""
    if isinstance(value, list | tuple):
        return tuple(whole_number(size, f"{path}.{i}") for i, size in enumerate(value))
    expected = "a number of sites, or the workers of each, as in [4, 4] or {oregon: 4, frankfurt: 4}"
    return whole_number(value, path, expected)


def _parse_uplinks(value: Any, path: str) -> Link | tuple[Link, ...]:
    """Return the uplink of all sites, or the uplink of each."""
    if isinstance(value, list | tuple):
        return tuple(links.parse_network_link(uplink, f"{path}.{i}", uplink=True) for i, uplink in enumerate(value))
    return links.parse_network_link(value, path, uplink=True)


class SitesDescription(links.NetworkDescription):
    """A network of sites: their number or sizes, the ``lan`` inside, one ``uplink`` for all or one for each."""

    makes = Sites
    needs = "a value: sites have a 'lan' inside and an 'uplink' each"

    sites: Annotated[Any, parsed(_parse_sites)]
    lan: links.Part
    uplink: Annotated[Any, parsed(_parse_uplinks)]
    name: Name = ""


def _parse_regions(value: Any, path: str) -> dict[str, int]:
    """Return the number of workers of each region by its name in lower case."""
    return {str(region).lower(): whole_number(count, f"{path}.{region}") for region, count in value.items()}


class RegionsDescription(links.NetworkDescription):
    """A network of a cloud's regions: workers by region, optionally a ``lan`` inside and the costs of ``hivemind``."""

    needs = "a value: regions have workers each, as in {oregon: 4, frankfurt: 4}"

    sites: Annotated[Any, parsed(_parse_regions)]
    lan: links.Part | None = None
    hivemind: HivemindField = None
    name: Name = ""

    @override
    def network(self) -> Matrix:
        return regions(self.sites, self.lan, self.name, hivemind=HivemindDescription.parse(self.hivemind))


class EdgeDescription(links.LinkDescription):
    """An edge of a graph: a link and the nodes that it leads ``from`` and ``to``."""

    needs = "a value: an edge has nodes that it is 'from' and 'to', a 'latency' and a 'bandwidth'"

    source: Name = Field(alias="from")
    to: Name
    directed: StrictBool = False


def _parse_edge(value: Any, path: str) -> Edge:
    """Return an edge of a graph from its fields in a spec."""
    if not isinstance(value, Mapping):
        raise SpecError(path, value, "fields: {from, to, latency, bandwidth}")
    edge = EdgeDescription.read(value, path)
    link = links.parse_network_link(edge.link(path), path)  # the link of a network has no slow start
    return Edge(edge.source, edge.to, link, edge.directed)


def _parse_route(value: Any, path: str) -> tuple[str, ...]:
    """Return the names of the nodes along a route as a tuple; refuse a value that is no list."""
    if not isinstance(value, list | tuple):
        raise SpecError(path, value, "a list: names of nodes")
    return tuple(map(str, value))


class GraphDescription(links.NetworkDescription):
    """A graph of links: ``hosts`` in the order of their ranks, ``edges``, optionally ``routes`` as lists of nodes.

    ``forwards``: hosts that forward messages of others, or ``true`` for all.
    """

    makes = Graph
    needs = "a value: a graph has 'hosts', in the order of their ranks, and 'edges'"

    hosts: Annotated[
        tuple[str, ...], list_validator(lambda value, _: str(value), "names of nodes, in the order of their ranks")
    ]
    edges: Annotated[
        tuple[Annotated[Edge, INSTANCE], ...], list_validator(_parse_edge, "{from, to, latency, bandwidth} each")
    ]
    routes: Annotated[tuple[tuple[str, ...], ...], list_validator(_parse_route, "lists of nodes")] = ()
    forwards: bool | tuple[Name, ...] = ()
    name: Name = ""

    @override
    def network(self) -> Graph:
        forwards = self.hosts if self.forwards is True else self.forwards or ()
        return Graph(self.hosts, self.edges, self.routes, forwards, self.name)

    @override
    @classmethod
    def fields_of(cls, network: Graph) -> dict[str, Any]:
        """Return the fields of a spec that describe this graph."""
        fields = super().fields_of(network)
        fields["edges"] = [
            {"from": edge.source, "to": edge.target, "directed": edge.directed} | links.link_fields(edge.link)
            for edge in network.edges
        ]
        required = ("hosts", "edges")
        return {name: value for name, value in fields.items() if value or name in required}


DESCRIPTIONS: dict[str, type[links.NetworkDescription]] = {
    "per_node": NodesDescription, "sites": SitesDescription, "levels": LevelsDescription, "hosts": GraphDescription,
    "places": MatrixDescription,
}  # fmt: skip
"""Descriptions of networks of several links, by the field that identifies each."""


def described_network(mapping: Mapping[str, Any], path: str) -> Network:
    """Return the network that the fields of a mapping describe; they decide the class of the network."""
    if mapping.get("kind") == "matrix" and "places" not in mapping:
        raise SpecError(f"{path}.places", None, MatrixDescription.needs)
    if isinstance(mapping.get("sites"), Mapping):  # workers by region
        with user_field_names(path):
            return RegionsDescription.read(mapping, path).network()
    changed_preset = _changed_preset(mapping, path)
    if changed_preset is not None:
        return changed_preset
    for identifying_field, description in DESCRIPTIONS.items():
        if identifying_field in mapping:
            with user_field_names(path):
                built_network = description.read(mapping, path).network()
                if isinstance(built_network, CostsOfLinks):
                    built_network.check_costs()
                return cast(Network, built_network)
    field_names = set(mapping) - {"name"}
    if not field_names.intersection(links.LINK_FIELDS):
        for identifying_field, description in DESCRIPTIONS.items():
            if field_names.intersection(description.names()):
                expected = f"a value beside {', '.join(repr(field_name) for field_name in mapping)}"
                raise SpecError(f"{path}.{identifying_field}", None, expected)
    return links.LinkDescription.read(mapping, path).link(path)


def _changed_preset(mapping: Mapping[str, Any], path: str) -> Network | None:
    """Return the preset that a mapping names, with the mapping's other fields.

    The result is None without a preset, or if the fields are those of a link: `LinkDescription` changes them.
    """
    preset = mapping.get("preset")
    if not isinstance(preset, str) or preset.lower() not in BY_NAME:
        return None
    network = BY_NAME.get(preset.lower(), path)
    changes = {field_name: value for field_name, value in mapping.items() if field_name != "preset"}
    if set(changes) <= {"name"}:
        return replace(network, name=str(changes.get("name", network.name)))
    for description in DESCRIPTIONS.values():
        if isinstance(network, description.makes) and set(changes) <= set(description.names()):
            return described_network(fields_of_network(cast(Network, network)) | changes, path)
    return None


def fields_of_network(network: Network) -> dict[str, Any]:
    """Return the fields from which `described_network` builds the same network again."""
    if isinstance(network, Link):
        return links.link_fields(network)
    for description in DESCRIPTIONS.values():
        if isinstance(network, description.makes):
            return {"name": network.name} | description.fields_of(network)
    raise SpecError("network", network.name, "a network that fields can describe, or that has a name module:name")


def from_networkx(
    graph: Any, hosts: Iterable[Any] | None = None, name: str = "", forwards: Iterable[Any] = ()
) -> Graph:
    """Return the network that a NetworkX graph describes.

    Args:
        graph: a ``Graph`` or a ``DiGraph``. Its edges have the fields of a link as attributes, in text or numbers:
            ``latency``, ``bandwidth``, and optionally the others (see `LinkDescription`).
        hosts: nodes of the workers in the order of their ranks; by default those with a true attribute ``host``.
        name: name for people; by default the graph's own.
        forwards: hosts that forward the messages of others.
    """
    if graph.is_multigraph():
        raise SpecError("network", type(graph).__name__, "a graph with at most one edge between two nodes")
    if hosts is None:
        hosts = [node for node, is_host in graph.nodes(data="host") if is_host]
    edges = []
    for source, target, attributes in graph.edges(data=True):
        link = links.parse_network_link(attributes, f"network.edges.{source}-{target}")
        edges.append(Edge(str(source), str(target), link, graph.is_directed()))
    name = name or str(getattr(graph, "name", ""))
    return Graph(tuple(map(str, hosts)), tuple(edges), forwards=tuple(map(str, forwards)), name=name)
