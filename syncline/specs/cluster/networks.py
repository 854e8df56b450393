"""Networks from what a user writes: a name, a reference, text or fields; and back to what a spec file holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from syncline.costmodel.network.graph import Graph
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.matrix import Matrix
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.paths import Network, Topology
from syncline.costmodel.network.software_costs import GlooCosts, NcclCosts
from syncline.costmodel.network.two_level import Sites, TwoLevel
from syncline.errors import SpecError, error_text
from syncline.registry import PYTHON, call_from_fields, is_reference, lazy_function, name_of_call
from syncline.specs.cluster.network_names import BY_NAME
from syncline.specs.cluster.reading import FIELD_EXAMPLES, is_file, name_or_file, parse_fields, read_section

_EXPECTED = "a network's name, 'latency,bandwidth' (one way; '50us,10Gbit/s'), {latency, bandwidth}, or a .yaml file"

BUILT_IN: tuple[type[Any], ...] = (Link, TwoLevel, Sites, MultiLevel, Graph, Matrix)
"""The classes of networks that fields describe."""

# Imported late, because a network's name does not need the slow models of descriptions.
_described_link: Callable[[str, str], Link] = lazy_function("syncline.specs.cluster.links:parse_link")
_described_network: Callable[[Mapping[str, Any], str], Network] = lazy_function(
    "syncline.specs.cluster.descriptions:described_network"
)
_fields_of_network: Callable[[Network], dict[str, Any]] = lazy_function(
    "syncline.specs.cluster.descriptions:fields_of_network"
)


def network(value: str | Path | Mapping[str, Any] | Network, path: str = "network") -> Network:
    """Return the network that a user describes.

    Args:
        value: the name of a preset or of a registered network; ``"50us,10Gbit/s"``, latency (one way) and bandwidth; a
            mapping, or its text in braces; the path of a ``.yaml`` file with such a mapping, or with a section
            ``network``; ``module:name`` of any of these; ``{kind: python, target: module:name, ...}``, which calls
            ``target`` with the other keys; or a network. The mapping describes a link (`LinkDescription`), nodes,
            sites, levels, a graph, a matrix, the workers of regions by their names
            (`syncline.specs.cluster.descriptions`), or a ``preset`` with the fields that differ. All may have a
            ``name``.
        path: the field's name, for the error line.

    >>> network("wan").latency_s, network("50us,10Gbit/s").bandwidth_bytes_per_s
    (0.025, 1250000000.0)
    >>> network({"per_node": 8, "inside": "nvlink4", "between": "ib-ndr"}).describe()
    '8 per node, nvlink4 inside, ib-ndr between'
    """
    if isinstance(value, Mapping):
        return _from_mapping(value, path)
    if not isinstance(value, str | Path) and isinstance(value, (*BUILT_IN, ReferencedNetwork)):
        return value
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
        return _from_mapping(parse_fields(value, path, FIELD_EXAMPLES["network"]), path)
    name = value if is_reference(value) else value.lower()
    if is_reference(name) or name in BY_NAME:
        return _network_of_reference(name, BY_NAME.get(name, path), path)
    if "," not in value:
        expected = name_or_file(BY_NAME.names(), name, "'latency,bandwidth', or a .yaml file")
        raise SpecError(path, value, expected)
    return _described_link(value, path)


@dataclass(frozen=True)
class ReferencedNetwork:
    """A network of a user's own class, with the reference that names it in a spec; it equals any with this reference.

    Args:
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


def _network_of_reference(reference: str | Mapping[str, Any], target: Any, path: str) -> Network:
    """Return the network that a reference such as ``module:NAME`` leads to, directly or by a description.

    A network of a user's own class keeps the reference, so that a spec file can name it again.
    """
    if isinstance(target, Mapping | str | Path) and not is_reference(target):  # a reference may not lead to another one
        return network(target, path)
    if not is_network(target):
        missing_members = ", ".join(member for member in MEMBERS if not hasattr(target, member))
        lacks = missing_members or "an instance of this class"  # a class with the members is no network
        expected = f"a network: {', '.join(MEMBERS)} (this {type(target).__name__} lacks {lacks})"
        raise SpecError(path, reference, f"{expected}, or a description of one")
    target_network: Network = target
    return target_network if isinstance(target, BUILT_IN) else ReferencedNetwork(target_network, reference)


def network_fields(network: Network) -> dict[str, Any] | str:
    """Return the mapping or reference from which ``network`` builds the same network again."""
    if isinstance(network, ReferencedNetwork):
        return network.reference if isinstance(network.reference, str) else dict(network.reference)
    return _fields_of_network(network)


def _from_mapping(mapping: Mapping[str, Any], path: str) -> Network:
    """Return the network that a mapping describes by its fields, or by a call that returns a network."""
    if mapping.get("kind") == PYTHON:
        return _network_of_reference(dict(mapping), call_from_fields(mapping, path), path)
    return _described_network(mapping, path)
