"""Clusters from a user's description (a network, the hardware and the number of workers), and spec fields of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

from pydantic import PlainSerializer

from syncline.costmodel import Link
from syncline.costmodel.compute.hardware import Hardware
from syncline.costmodel.network.graph import Graph
from syncline.costmodel.network.matrix import Matrix
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.paths import Network
from syncline.costmodel.network.two_level import Sites
from syncline.errors import SpecError
from syncline.fields import INSTANCE, parsed, refusal
from syncline.specs.cluster import reading
from syncline.specs.cluster.hardware import hardware, hardware_fields
from syncline.specs.cluster.networks import network, network_fields

LIBRARY = Path(__file__).parent / "library"

CLUSTER_FIELDS = ("name", "network", "hardware", "workers", "description", "source")
"""Fields of a cluster's file that are read; other fields are allowed and ignored."""

MISSPELLING_SIMILARITY = 0.8
"""Similarity, from 0 to 1, at which a name counts as a misspelt section."""

EXAMPLE = "a cluster's fields: 'network', and optionally 'hardware' and 'workers'"


@dataclass(frozen=True)
class Cluster:
    """A cluster: a network, the hardware of each worker, and the number of workers.

    Args:
        name: name for people.
        network: network that connects the workers.
        hardware: hardware of each worker; None if the description has none.
        workers: number of workers; None if the network connects any number.
        description: description for people.
        source: source of the numbers.
    """

    name: str
    network: Network
    hardware: Hardware | None = None
    workers: int | None = None
    description: str = ""
    source: str = ""


def bundled_clusters() -> dict[str, Path]:
    """Return the files of the bundled clusters by name."""
    return {path.stem: path for path in sorted(LIBRARY.glob("*.yaml"))}


def named_cluster(value: str | Path | Mapping[str, Any] | Cluster, path: str = "cluster") -> Cluster:
    """Return the cluster that a user describes.

    Args:
        value: name of a bundled cluster; path of a ``.yaml`` file with the sections ``network`` (required),
            ``hardware`` and ``workers``, or with the fields of a network alone; a mapping as in such a file; or a
            ``Cluster``.
        path: the field's name, for the error line.

    >>> both = named_cluster("two-sites-a100")
    >>> both.workers, both.hardware.name, [level.name for level in both.network.levels]
    (64, 'a100', ['node', 'site', 'both'])
    """
    if isinstance(value, Cluster):
        return value
    if isinstance(value, Mapping):
        return _from_fields(value, str(value.get("name") or "cluster"), path)
    files = bundled_clusters()
    if isinstance(value, str) and value.lower() in files:
        return _from_file(files[value.lower()], path)
    if reading.is_file(value):
        return _from_file(Path(value), path)
    if isinstance(value, str) and value.lstrip().startswith("{"):
        return named_cluster(reading.parse_fields(value, path, EXAMPLE), path)
    raise SpecError(
        path, value, reading.name_or_file(files, value, "a .yaml file with a cluster's sections", code=False)
    )


def _from_file(file: Path, path: str) -> Cluster:
    fields = reading.with_table_beside(file, reading.fields_of_file(file, path, EXAMPLE))
    if isinstance(fields.get("network"), Mapping):
        fields = {**fields, "network": reading.with_table_beside(file, fields["network"])}
    return _from_fields(fields, str(fields.get("name") or file.stem), path)


def _from_fields(fields: Mapping[str, Any], name: str, path: str) -> Cluster:
    """Return the cluster of a mapping with the sections of a cluster, or with the fields of a network alone."""
    if not any(section in fields for section in reading.SECTIONS):
        built_network = network({**fields, "name": name}, path)
        return Cluster(name, built_network, workers=worker_count(built_network))
    if fields.get("network") is None:
        raise SpecError(f"{path}.network", None, "a network: its name, or its fields")
    for field in fields:
        similar_names = get_close_matches(str(field), CLUSTER_FIELDS, n=1, cutoff=MISSPELLING_SIMILARITY)
        if similar_names and field not in CLUSTER_FIELDS:
            raise SpecError(f"{path}.{field}", fields[field], f"no such section, but {similar_names[0]!r}")

    def with_name(section: Any) -> Any:
        """Return a section's fields with the cluster's name, unless they have a name; other values unchanged."""
        return {"name": name, **section} if isinstance(section, Mapping) else section

    built_network = network(with_name(fields["network"]), f"{path}.network")
    workers = worker_count(built_network)
    if fields.get("workers") is not None:
        workers = reading.whole_number(fields["workers"], f"{path}.workers")
        try:
            built_network.among(workers)
        except SpecError as error:
            raise SpecError(f"{path}.workers", workers, error.expected) from None
    machine = fields.get("hardware")
    return Cluster(
        name, built_network,
        hardware=None if machine is None else hardware(with_name(machine), f"{path}.hardware"), workers=workers,
        description=str(fields.get("description") or ""), source=str(fields.get("source") or ""),
    )  # fmt: skip


def worker_count(network: Network) -> int | None:
    """Return the number of workers that a network connects; None if it connects any number."""
    if isinstance(network, MultiLevel):
        known_units = [level.units for level in network.levels if level.units is not None]
        return math.prod(known_units) if len(known_units) == len(network.levels) else None
    if isinstance(network, Graph):
        return len(network.hosts)
    if isinstance(network, Matrix):
        return network.workers
    if isinstance(network, Sites) and not isinstance(network.sites, int):  # numbers of workers, not of sites
        return sum(network.sites)
    return None


def networks_and_workers(networks: Sequence[Any] | None) -> tuple[list[Any] | None, int | None]:
    """Return the networks' descriptions with each matrix built, and the networks' common number of workers.

    Matrices are built once here, because their tables are long. The count is None if the networks connect different
    numbers of workers, or any number.
    """
    if networks is None:
        return None, None
    counts, resolved = set(), []
    for index, value in enumerate(networks):
        built_network = network(value, f"--network.{index}")
        counts.add(worker_count(built_network))
        resolved.append(built_network if isinstance(built_network, Matrix) else value)
    common_count = counts.pop() if len(counts) == 1 else None
    return resolved, common_count


def resolve_cluster_options(
    cluster_value: Any, networks: Sequence[Any] | None, machines: Sequence[Any] | None, workers: Any
) -> tuple[list[Any] | None, list[Any] | None, Any]:
    """Return networks, hardware and number of workers: those of a command's options, else those of a cluster.

    Args:
        cluster_value: a cluster as `named_cluster` takes it, or None.
        networks: networks of the options; not allowed together with a cluster.
        machines: hardware of the options, in place of the cluster's.
        workers: number of workers of the options, in place of the cluster's.
    """
    chosen_networks = list(networks) if networks else None
    chosen_machines = list(machines) if machines else None
    if cluster_value is None:
        return chosen_networks, chosen_machines, workers
    cluster = named_cluster(cluster_value, "--cluster")
    if chosen_networks:
        raise SpecError("--network", chosen_networks[0], f"none with --cluster, which has its own ({cluster.name})")
    if chosen_machines is None and cluster.hardware is not None:
        chosen_machines = [cluster.hardware]
    return [cluster.network], chosen_machines, cluster.workers if workers is None else workers


def _named_network(value: Any, path: str) -> Any:
    """Return the network that a user describes; without a name, its description becomes its name."""
    described_network: Any = network(value, path)
    if described_network.name:
        return described_network
    short_description = described_network.describe().replace(" one way", "")
    return dataclasses.replace(described_network, name=short_description)


def _single_link(value: Any, path: str) -> Link:
    """Return the link that a user describes; refuse a network of several links."""
    link = _named_network(value, path)
    if not isinstance(link, Link):
        raise SpecError(path, link.name, "one link that all workers have, as 10gbe is")
    return link


def check_network_sizes(networks: Sequence[Network], workers: int) -> None:
    """Refuse a number of workers that a network cannot connect."""
    for checked_network in networks:
        if isinstance(checked_network, Link):
            continue  # a link connects any number; a topology of billions would fill the memory
        try:
            checked_network.among(workers)
        except SpecError as error:
            raise refusal(error.path, error.value, f"{error.expected} (network {checked_network.name!r})") from None


NetworkField = Annotated[Any, parsed(_named_network), PlainSerializer(network_fields)]
"""A preset's name, ``"latency,bandwidth"``, a mapping of a link, nodes, sites or a graph, a file, ``module:name``."""

LinkField = Annotated[Link, INSTANCE, parsed(_single_link), PlainSerializer(network_fields)]
"""One link that all workers have, for formulas that hold for no other network."""

HardwareField = Annotated[Hardware, INSTANCE, parsed(hardware), PlainSerializer(hardware_fields)]
"""A preset's name, a machine's fields, a file, ``module:name``; written to files as a name or as all fields."""
