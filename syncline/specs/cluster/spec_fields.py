"""Spec fields of networks, links and hardware."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import InstanceOf, PlainSerializer

from syncline.costmodel import Hardware, Link, Network
from syncline.errors import SpecError
from syncline.fields import parsed, refusal
from syncline.specs.cluster.hardware import hardware, hardware_fields
from syncline.specs.cluster.networks import network, network_fields


def _network(value: Any, path: str) -> Any:
    """Return the network that a user describes; without a name, its description becomes its name."""
    named: Any = network(value, path)
    return named if named.name else dataclasses.replace(named, name=named.describe().replace(" one way", ""))


def _link(value: Any, path: str) -> Link:
    link = _network(value, path)
    if not isinstance(link, Link):
        raise SpecError(path, link.name, "one link that all workers have, as 10gbe is")
    return link


def check_network_sizes(networks: Sequence[Network], workers: int) -> None:
    """Refuse a number of workers that a network cannot connect.

    Raises:
        PydanticCustomError: with the path from the spec's root.
    """
    for joined in networks:
        if isinstance(
            joined, Link
        ):  # a link connects any number, and its topology of billions of workers would fill the memory
            continue
        try:
            joined.among(workers)
        except SpecError as error:
            expected = f"{error.expected} (network {joined.name!r})"
            raise refusal(error.path, error.value, expected) from None


NetworkField = Annotated[Any, parsed(_network), PlainSerializer(network_fields)]
"""A preset's name, ``"latency,bandwidth"``, a mapping of a link, nodes, sites or a graph, a file, ``module:name``."""

LinkField = Annotated[InstanceOf[Link], parsed(_link), PlainSerializer(network_fields)]
"""One link that all workers have, for formulas that hold for no other network."""

HardwareField = Annotated[InstanceOf[Hardware], parsed(hardware), PlainSerializer(hardware_fields)]
"""A preset's name, a machine's fields, a file, ``module:name``; written to files as a name or as all fields."""
