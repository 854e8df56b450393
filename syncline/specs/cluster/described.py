"""What users write of a class of networks: its fields as they are called."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, ClassVar, get_type_hints

from pydantic import create_model

from syncline.costmodel.network.link import Link
from syncline.specs.cluster.links import Part, link_fields
from syncline.specs.cluster.reading import Described, Name


class NetworkDescribed(Described):
    """What users write of networks of one class, and back: its fields as they are called, unless it says otherwise."""

    makes: ClassVar[type]
    """The class."""

    def network(self) -> Any:
        """The network."""
        return self.makes(**{name: getattr(self, name) for name in type(self).model_fields})

    @classmethod
    def fields_of(cls, given: Any) -> dict[str, Any]:
        """What describes a network of that class, but for its name."""
        own = {one.name: getattr(given, one.name) for one in fields(given) if one.name != "name"}
        return {name: link_fields(value) if isinstance(value, Link) else value for name, value in own.items()}


def by_its_fields(makes: type, needs: str) -> type[NetworkDescribed]:
    """What users write of a class of networks: its dataclass fields, links and numbers, by their own names.

    Args:
        makes: the frozen dataclass; it checks its fields itself.
        needs: what is expected where a field is missing.
    """
    types: dict[str, Any] = get_type_hints(makes) | {"name": Name}
    own: dict[str, Any] = {
        one.name: (
            Part if types[one.name] is Link else types[one.name],
            ... if one.default is MISSING else one.default,
        )
        for one in fields(makes)
    }
    made = create_model(f"{makes.__name__}Described", __base__=NetworkDescribed, __doc__=makes.__doc__, **own)
    made.makes, made.needs = makes, needs
    return made
