"""Networks and hardware as fields of a spec."""

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
    """The network that a user means; one without a name is called by what it is."""
    made: Any = network(value, path)
    return made if made.name else dataclasses.replace(made, name=made.describe().replace(" one way", ""))


def _link(value: Any, path: str) -> Link:
    made = _network(value, path)
    if not isinstance(made, Link):
        raise SpecError(path, made.name, "one link that all workers have, as 10gbe is")
    return made


def check_joinable(networks: Sequence[Network], workers: int) -> None:
    """Refuse a number of workers that a network cannot join.

    Raises:
        PydanticCustomError: with the path from the spec's root.
    """
    for one in networks:
        if isinstance(one, Link):  # joins any number; to see it, billions of workers would fill the memory
            continue
        try:
            one.among(workers)
        except SpecError as error:
            of = f"{error.expected} (network {one.name!r})"
            raise refusal(error.path, error.value, of) from None


NetworkField = Annotated[Any, parsed(_network), PlainSerializer(network_fields)]
"""A preset's name, ``"latency,bandwidth"``, a mapping of a link, nodes, sites or a graph, a file, ``module:name``."""

LinkField = Annotated[InstanceOf[Link], parsed(_link), PlainSerializer(network_fields)]
"""One link that all workers have: where a formula is written for nothing else."""

HardwareField = Annotated[InstanceOf[Hardware], parsed(hardware), PlainSerializer(hardware_fields)]
"""A preset's name, a machine's fields, a file, ``module:name``; written back as a name or as all fields."""
