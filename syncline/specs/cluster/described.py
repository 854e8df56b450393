"""Base class of networks' descriptions, and descriptions by the fields of a network's dataclass."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, ClassVar, get_type_hints

from pydantic import create_model

from syncline.costmodel.network.link import Link
from syncline.specs.cluster.links import Part, link_fields
from syncline.specs.cluster.reading import Description, Name


class NetworkDescription(Description):
    """A description of the networks of one class; by default its fields are those of the class."""

    makes: ClassVar[type]
    """The class of the networks."""

    def network(self) -> Any:
        """Return the network that the fields describe."""
        return self.makes(**{name: getattr(self, name) for name in type(self).model_fields})

    @classmethod
    def fields_of(cls, network: Any) -> dict[str, Any]:
        """Return the fields that describe a network of this class, without its name."""
        values = {
            network_field.name: getattr(network, network_field.name)
            for network_field in fields(network)
            if network_field.name != "name"
        }
        return {name: link_fields(value) if isinstance(value, Link) else value for name, value in values.items()}


def describe_dataclass(network_class: type, missing_message: str) -> type[NetworkDescription]:
    """Return the description of a class of networks by its dataclass fields, which are links and numbers.

    Args:
        network_class: frozen dataclass of the networks; it checks its fields itself.
        missing_message: error text for a missing field: what would be accepted.
    """
    types: dict[str, Any] = get_type_hints(network_class) | {"name": Name}
    definitions: dict[str, Any] = {
        network_field.name: (
            Part if types[network_field.name] is Link else types[network_field.name],
            ... if network_field.default is MISSING else network_field.default,
        )
        for network_field in fields(network_class)
    }
    described_class = create_model(
        f"{network_class.__name__}Described", __base__=NetworkDescription, __doc__=network_class.__doc__, **definitions
    )
    described_class.makes, described_class.needs = network_class, missing_message
    return described_class
