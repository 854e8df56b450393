"""Networks from a user's description, and descriptions of networks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

from pydantic import Field, StrictBool
from typing_extensions import override

from syncline.costmodel.network.graph import Edge, Graph
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.matrix import Matrix
from syncline.costmodel.network.network_links import CostsOfLinks
from syncline.costmodel.network.paths import Network, Topology
from syncline.costmodel.network.regions import regions
from syncline.costmodel.network.software_costs import GlooCosts, NcclCosts
from syncline.costmodel.network.two_level import Sites, TwoLevel
from syncline.errors import SpecError, one_of
from syncline.fields import INSTANCE, parsed
from syncline.registry import PYTHON, call_from_fields, error_text, is_reference, name_of_call
from syncline.specs.cluster.levels import LevelsDescription
from syncline.specs.cluster.library_costs import HivemindDescription, HivemindField
from syncline.specs.cluster.links import (
    BY_NAME,
    LINK_FIELDS,
    LinkDescription,
    NetworkDescription,
    Part,
    describe_dataclass,
    link_fields,
    parse_link,
    parse_network_link,
)
from syncline.specs.cluster.matrix import MatrixDescription
from syncline.specs.cluster.reading import (
    FIELD_EXAMPLES,
    Name,
    count_validator,
    is_file,
    list_validator,
    parse_fields,
    read_section,
    user_field_names,
    whole_number,
)

__all__ = ["NetworkDescription", "describe_dataclass", "network", "network_fields"]

_EXPECTED = "a network's name, 'latency,bandwidth' (one way; '50us,10Gbit/s'), {latency, bandwidth}, or a .yaml file"


class NodesDescription(NetworkDescription):
    """A network of nodes of ``per_node`` workers: a link ``inside``, a link ``between``, optionally ``nics``."""

    makes: ClassVar[type] = TwoLevel
    attributes: ClassVar[Mapping[str, str]] = {"inside": "inner", "between": "outer", "nics": "nics_per_node"}
    needs: ClassVar[str] = "a value: nodes have 'per_node' workers, a link 'inside' and one 'between' them"

    per_node: Annotated[int, count_validator("workers")]
    inside: Part
    between: Part
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
        return tuple(parse_network_link(uplink, f"{path}.{i}", uplink=True) for i, uplink in enumerate(value))
    return parse_network_link(value, path, uplink=True)


class SitesDescription(NetworkDescription):
    """A network of sites: their number or sizes, the ``lan`` inside, one ``uplink`` for all or one for each."""

    makes: ClassVar[type] = Sites
    needs: ClassVar[str] = "a value: sites have a 'lan' inside and an 'uplink' each"

    sites: Annotated[Any, parsed(_parse_sites)]
    lan: Part
    uplink: Annotated[Any, parsed(_parse_uplinks)]
    name: Name = ""


def _parse_regions(value: Any, path: str) -> dict[str, int]:
    """Return the number of workers of each region by its name in lower case."""
    return {str(region).lower(): whole_number(count, f"{path}.{region}") for region, count in value.items()}


class RegionsDescription(NetworkDescription):
    """A network of a cloud's regions: the workers of each by its name, optionally a ``lan`` inside and ``hivemind``."""

    needs: ClassVar[str] = "a value: regions have workers each, as in {oregon: 4, frankfurt: 4}"

    sites: Annotated[Any, parsed(_parse_regions)]
    lan: Part | None = None
    hivemind: HivemindField = None
    name: Name = ""

    @override
    def network(self) -> Matrix:
        return regions(self.sites, self.lan, self.name, hivemind=HivemindDescription.parse(self.hivemind))


class EdgeDescription(LinkDescription):
    """An edge of a graph: a link and the nodes that it leads ``from`` and ``to``."""

    needs: ClassVar[str] = "a value: an edge has nodes that it is 'from' and 'to', a 'latency' and a 'bandwidth'"

    source: Name = Field(alias="from")
    to: Name
    directed: StrictBool = False


def _parse_edge(value: Any, path: str) -> Edge:
    """Return an edge of a graph from its fields in a spec."""
    if not isinstance(value, Mapping):
        raise SpecError(path, value, "fields: {from, to, latency, bandwidth}")
    edge = EdgeDescription.read(value, path)
    return Edge(edge.source, edge.to, parse_network_link(edge.link(path), path), edge.directed)


def _parse_route(value: Any, path: str) -> tuple[str, ...]:
    """Return the names of the nodes along a route as a tuple; refuse a value that is no list."""
    if not isinstance(value, list | tuple):
        raise SpecError(path, value, "a list: names of nodes")
    return tuple(map(str, value))


class GraphDescription(NetworkDescription):
    """A graph of links: ``hosts`` in the order of their ranks, ``edges``, optionally ``routes`` as lists of nodes.

    ``forwards``: hosts that forward messages of others, or ``true`` for all.
    """

    makes: ClassVar[type] = Graph
    needs: ClassVar[str] = "a value: a graph has 'hosts', in the order of their ranks, and 'edges'"

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
            {"from": edge.source, "to": edge.target, "directed": edge.directed} | link_fields(edge.link)
            for edge in network.edges
        ]
        return {name: value for name, value in fields.items() if value or name in ("hosts", "edges")}


DESCRIPTIONS: dict[str, type[NetworkDescription]] = {
    "per_node": NodesDescription, "sites": SitesDescription, "levels": LevelsDescription, "hosts": GraphDescription,
    "places": MatrixDescription,
}  # fmt: skip
"""Descriptions of networks of several links, by the field that identifies each."""

BUILT_IN: tuple[type[Any], ...] = (Link, *(description.makes for description in DESCRIPTIONS.values()))
"""The classes of networks that fields describe."""


def network(value: str | Path | Mapping[str, Any] | Network, path: str = "network") -> Network:
    """Return the network that a user describes.

    Args:
        value: a preset's name, or what an installed package or this process registers as one; ``"50us,10Gbit/s"``,
            latency (one way) and bandwidth; a mapping, or its text in braces; the path of a ``.yaml`` file that holds
            one, or has it as its section ``network``; ``module:name`` of any of these; ``{kind: python, target:
            module:name, ...}``, which is called with the other keys; or a network. The mapping describes a link
            (`LinkDescription`), nodes, sites, levels, a graph or a matrix (`DESCRIPTIONS`), the workers of regions by
            their names (`RegionsDescription`), or a ``preset`` with the fields that differ. All may have a ``name``.
        path: the field's name, for the error line.

    >>> network("wan").latency_s, network("50us,10Gbit/s").bandwidth_bytes_per_s
    (0.025, 1250000000.0)
    >>> network({"per_node": 8, "inside": "nvlink4", "between": "ib-ndr"}).describe()
    '8 per node, nvlink4 inside, ib-ndr between'
    """
    if not isinstance(value, str | Path | Mapping) and isinstance(value, (*BUILT_IN, ReferencedNetwork)):
        return value
    if isinstance(value, Mapping):
        return _from_mapping(value, path)
    if is_file(value):
        return _from_mapping(read_section(Path(value), "network", path), path)
    if isinstance(value, str):
        return _from_text(value, path)
    if isinstance(value, Path) or not is_network(value):
        raise SpecError(path, value, _EXPECTED)
    return value


def _from_text(value: str, path: str) -> Network:
    """Return the network of a name, a reference, ``latency,bandwidth``, or a mapping in braces."""
    if value.lstrip().startswith("{"):
        return _from_mapping(parse_fields(value, value, path, "fields", FIELD_EXAMPLES["network"]), path)
    name = value if is_reference(value) else value.lower()
    if is_reference(name) or name in BY_NAME:
        return _network_behind(name, BY_NAME.get(name, path), path)
    if "," not in value:
        expected = f"{one_of(BY_NAME.names(), name)}, or 'latency,bandwidth', or a .yaml file, or module:name"
        raise SpecError(path, value, expected)
    return parse_link(value, path)


@dataclass(frozen=True)
class ReferencedNetwork:
    """A network of a user's own class with the reference by which a spec finds it; equal references are equal networks.

    Args:
        network: the network.
        reference: ``module:name``, a registered name, or ``{kind: python, target: module:name, ...}``.
    """

    network: Network = field(compare=False)
    reference: str | Mapping[str, Any] = field(hash=False)

    @property
    def name(self) -> str:
        """Return the network's own name, or its reference as text."""
        if self.network.name:
            return self.network.name
        return self.reference if isinstance(self.reference, str) else name_of_call(self.reference)

    @property
    def gloo(self) -> GlooCosts | None:
        """Return the costs of gloo on the network."""
        return self.network.gloo

    @property
    def nccl(self) -> NcclCosts | None:
        """Return the costs of NCCL on the network; None if its class has none."""
        return getattr(self.network, "nccl", None)

    def among(self, workers: int) -> Topology:
        """Return the topology of this number of workers.

        Raises:
            SpecError: the user's class raised an error; the error line repeats it.
        """
        try:
            return self.network.among(workers)
        except SpecError:
            raise
        except Exception as error:  # a user's class can raise any error
            expected = f"workers that {self.name} can join; it says: {error_text(error)}"
            raise SpecError("workers", workers, expected) from error

    def describe(self) -> str:
        """Return a description of the network for people."""
        return self.network.describe()


MEMBERS = ("name", "gloo", "among", "describe")
"""The members of the protocol `Network`."""


def is_network(value: Any) -> bool:
    """Return whether a value satisfies the protocol `Network`."""
    return not isinstance(value, type) and all(hasattr(value, member) for member in MEMBERS)


def _network_behind(reference: str | Mapping[str, Any], target: Any, path: str) -> Network:
    """Return the network from what was found behind a reference such as ``module:NAME``: a network or its description.

    The result remembers the reference if it is of the user's class, so that a spec file can name the network again.
    """
    if isinstance(target, Mapping | str | Path) and not is_reference(target):
        return network(target, path)
    if not is_network(target):
        lacks = ", ".join(member for member in MEMBERS if not hasattr(target, member)) or "an instance of this class"
        expected = (
            f"a network: {', '.join(MEMBERS)} (this {type(target).__name__} lacks {lacks}), or a description of one"
        )
        raise SpecError(path, reference, expected)
    user_network: Network = target
    return user_network if isinstance(target, BUILT_IN) else ReferencedNetwork(user_network, reference)


def network_fields(network: Network) -> dict[str, Any] | str:
    """Return a mapping or a reference, from which ``network`` builds the same network again."""
    if isinstance(network, Link):
        return link_fields(network)
    if isinstance(network, ReferencedNetwork):
        return network.reference if isinstance(network.reference, str) else dict(network.reference)
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
        link = parse_link(attributes, f"network.edges.{source}-{target}")
        edges.append(Edge(str(source), str(target), link, graph.is_directed()))
    name = name or str(getattr(graph, "name", ""))
    return Graph(tuple(map(str, hosts)), tuple(edges), forwards=tuple(map(str, forwards)), name=name)


def _from_mapping(mapping: Mapping[str, Any], path: str) -> Network:
    """Return the network that a mapping describes; its fields decide the class of the network."""
    if mapping.get("kind") == PYTHON:
        return _network_behind(dict(mapping), call_from_fields(mapping, path), path)
    if mapping.get("kind") == "matrix" and "places" not in mapping:
        raise SpecError(f"{path}.places", None, MatrixDescription.needs)
    if isinstance(mapping.get("sites"), Mapping):
        with user_field_names(path):
            return RegionsDescription.read(mapping, path).network()
    preset = mapping.get("preset")
    if isinstance(preset, str) and preset.lower() in BY_NAME:
        preset_network = BY_NAME.get(preset.lower(), path)
        changes = {field_name: value for field_name, value in mapping.items() if field_name != "preset"}
        if set(changes) <= {"name"}:
            return replace(preset_network, name=str(changes.get("name", preset_network.name)))
        for description in DESCRIPTIONS.values():
            if isinstance(preset_network, description.makes) and set(changes) <= set(description.names()):
                fields = network_fields(cast(Network, preset_network))
                assert isinstance(fields, dict)
                return _from_mapping(fields | changes, path)
    for key, description in DESCRIPTIONS.items():
        if key in mapping:
            with user_field_names(path):
                built_network = description.read(mapping, path).network()
                if isinstance(built_network, CostsOfLinks):
                    built_network.check_costs()
                return cast(Network, built_network)
    # A network of several links without the field that identifies it.
    field_names = set(mapping) - {"name"}
    for key, description in DESCRIPTIONS.items():
        if field_names.intersection(description.names()) and not field_names.intersection(LINK_FIELDS):
            expected = f"a value beside {', '.join(repr(field_name) for field_name in mapping)}"
            raise SpecError(f"{path}.{key}", None, expected)
    return LinkDescription.read(mapping, path).link(path)
