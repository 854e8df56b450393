"""Clusters as a user describes them: a network, what computes there, and how many of it there are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from syncline.costmodel.compute.hardware import Hardware
from syncline.costmodel.network.graph import Graph
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.sites import Sites
from syncline.costmodel.network.topology import Network
from syncline.errors import SpecError, one_of
from syncline.specs.cluster.files import SECTIONS, fields_of, is_file, text_in
from syncline.specs.cluster.hardware import hardware
from syncline.specs.cluster.networks import network
from syncline.specs.cluster.reading import whole

LIBRARY = Path(__file__).parent / "library"

READ = ("name", "network", "hardware", "workers", "description", "source")
"""Sections of a cluster's file that are read; others may stand beside them."""

MISSPELT = 0.8
"""How near to one of them another name has to be, to be taken for it."""

AS_IN = "a cluster's fields: 'network', and at will 'hardware' and 'workers'"


@dataclass(frozen=True)
class Cluster:
    """What trains.

    Args:
        name: for people.
        network: that joins the workers.
        hardware: of each worker; None: nobody says.
        workers: how many there are; None: as many as are asked for.
        description: for people.
        source: where the numbers come from.
    """

    name: str
    network: Network
    hardware: Hardware | None = None
    workers: int | None = None
    description: str = ""
    source: str = ""


def bundled_clusters() -> dict[str, Path]:
    """Files of the clusters that come with the package, by name."""
    return {path.stem: path for path in sorted(LIBRARY.glob("*.yaml"))}


def named_cluster(value: str | Path | Mapping[str, Any] | Cluster, path: str = "cluster") -> Cluster:
    """The cluster that a user means.

    Args:
        value: a bundled one's name; the path of a ``.yaml`` file with the sections ``network``, ``hardware`` and
            ``workers``, of which the first is needed, or with a network's fields alone; a mapping of these; or one.
        path: the field's name, for the error line.

    Raises:
        SpecError: what is unknown, missing or cannot be used, and what would be accepted.

    >>> both = named_cluster("two-sites-a100")
    >>> both.workers, both.hardware.name, [level.name for level in both.network.levels]
    (64, 'a100', ['node', 'site', 'both'])
    """
    if isinstance(value, Cluster):
        return value
    if isinstance(value, Mapping):
        return _from_fields(value, str(value.get("name") or "cluster"), path)
    known = bundled_clusters()
    if isinstance(value, str) and value.lower() in known:
        return _from_file(known[value.lower()], path)
    if is_file(value):
        return _from_file(Path(value), path)
    if isinstance(value, str) and value.lstrip().startswith("{"):
        return named_cluster(fields_of(value, value, path, "fields", AS_IN), path)
    raise SpecError(path, value, f"{one_of(known, value)}, or a .yaml file with a cluster's sections")


def _from_file(file: Path, path: str) -> Cluster:
    fields = fields_of(text_in(file, path), str(file), path, "a file", AS_IN)
    return _from_fields(fields, str(fields.get("name") or file.stem), path)


def _from_fields(fields: Mapping[str, Any], name: str, path: str) -> Cluster:
    if not any(section in fields for section in SECTIONS):
        made = network({**fields, "name": name}, path)
        return Cluster(name, made, workers=places_of(made))
    if fields.get("network") is None:
        raise SpecError(f"{path}.network", None, "a network: its name, or its fields")
    for name_given in fields:
        meant = get_close_matches(str(name_given), READ, 1, MISSPELT)
        if meant and name_given not in READ:
            raise SpecError(f"{path}.{name_given}", fields[name_given], f"no such section, but {meant[0]!r}")
    given = fields["network"]
    made = network({"name": name, **given} if isinstance(given, Mapping) else given, f"{path}.network")
    return Cluster(
        name,
        made,
        _hardware(fields.get("hardware"), name, f"{path}.hardware"),
        _workers(fields.get("workers"), made, f"{path}.workers"),
        str(fields.get("description") or ""),
        str(fields.get("source") or ""),
    )


def _hardware(given: Any, name: str, path: str) -> Hardware | None:
    if given is None:
        return None
    return hardware({"name": name, **given} if isinstance(given, Mapping) else given, path)


def _workers(given: Any, of: Network, path: str) -> int | None:
    if given is None:
        return places_of(of)
    count = whole(given, path, "a number of workers, at least 1")
    try:
        of.among(count)
    except SpecError as error:
        raise SpecError(path, count, error.expected) from None
    return count


def places_of(given: Network) -> int | None:
    """How many workers a network is for; None where it joins any number."""
    if isinstance(given, MultiLevel):
        units = [level.units for level in given.levels]
        return None if None in units else math.prod(one for one in units if one is not None)
    if isinstance(given, Graph):
        return len(given.hosts)
    return sum(given.sites) if isinstance(given, Sites) and not isinstance(given.sites, int) else None


def asked_of(
    given: Any, networks: Sequence[Any] | None, machines: Sequence[Any] | None, workers: Any, path: str = "--cluster"
) -> tuple[list[Any] | None, list[Any] | None, Any]:
    """What a cluster says where nothing else does: networks, hardware, workers.

    Args:
        given: a cluster as `named_cluster` takes it, or none.
        networks: that are asked for beside it: none may be.
        machines: hardware that is asked for, in place of the cluster's.
        workers: how many, in place of all of them.
        path: what the cluster is called.

    Raises:
        SpecError: it cannot be read, or a network is asked for beside it.
    """
    asked = list(networks) if networks else None
    if given is None:
        return asked, list(machines) if machines else None, workers
    made = named_cluster(given, path)
    if asked:
        raise SpecError("--network", asked[0], f"none beside --cluster, which has its own ({made.name})")
    own = [made.hardware] if made.hardware else None
    return [made.network], list(machines) if machines else own, workers or made.workers
