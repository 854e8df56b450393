"""Networks of any number of levels from a user's description, and descriptions of such networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import StrictBool
from typing_extensions import override

from syncline.costmodel.network.link import Link
from syncline.costmodel.network.multi_level import CrossRail, Level, MultiLevel
from syncline.costmodel.network.two_level import Sites, TwoLevel, levels_of
from syncline.errors import SpecError, one_of
from syncline.fields import INSTANCE, parsed
from syncline.specs.cluster.links import NetworkDescription, Part, link_fields
from syncline.specs.cluster.network_names import BY_NAME
from syncline.specs.cluster.reading import Description, Name, Number, count_validator, user_field_names

_EXAMPLE = "{units: 8, link: nvlink4}"


class LevelDescription(Description):
    """A level: ``units`` of the level below, and the ``link`` that connects them; see `Level`.

    A ``preset`` in place of a link stands for all its levels; other fields replace those of the outermost level.
    """

    needs = f"a value: a level has a 'link', as in {_EXAMPLE}, or is the 'preset' of a network"

    units: Annotated[int | None, count_validator("units of the level below")] = None
    link: Part | None = None
    preset: Name | None = None
    rails: Annotated[int | None, count_validator("links of a unit below")] = None
    oversubscription: Number | None = None
    shares_lower_links: StrictBool | None = None
    cross_rail: CrossRail | None = None
    name: Name = ""

    def levels(self, path: str) -> tuple[Level, ...]:
        """Return the level, or the levels of its ``preset`` from the inside out."""
        if self.preset is None:
            if self.link is None:
                raise SpecError(f"{path}.link", None, self.needs)
            fields = {name: getattr(self, name) for name in LEVEL_FIELDS}
            return (Level(link=self.link, **fields),)
        if self.link is not None:
            raise SpecError(f"{path}.link", self.link.name, "none with a preset, which has its own")
        key = self.preset.strip().lower()
        network: Any = BY_NAME.get(key, f"{path}.preset") if key in BY_NAME else None
        if not isinstance(network, (Link, TwoLevel, Sites, MultiLevel)):
            raise SpecError(f"{path}.preset", self.preset, one_of(BY_NAME.names(), key))
        with user_field_names(f"{path}.preset"):
            *inner_levels, outermost = levels_of(network)
        return *inner_levels, replace(outermost, **_fields_without_link(self))


LEVEL_FIELDS = ("units", "rails", "oversubscription", "shares_lower_links", "cross_rail", "name")
"""The fields of a level but its link."""


def _fields_without_link(level: LevelDescription | Level) -> dict[str, Any]:
    """Return the fields of a level that have a value, by name, without its link."""
    values = {name: getattr(level, name) for name in LEVEL_FIELDS}
    return {name: value for name, value in values.items() if value not in (None, "")}


def _parse_level(value: Any, path: str) -> tuple[Level, ...]:
    """Return the level that a link's name or fields describe, or all levels of a preset, from the inside out."""
    if isinstance(value, Level):
        return (value,)
    if isinstance(value, str):
        value = {"preset": value}
    if not isinstance(value, Mapping):
        raise SpecError(path, value, f"a level's fields, as in {_EXAMPLE}, or the name of a network")
    return LevelDescription.read(value, path).levels(path)


def _parse_levels(value: Any, path: str) -> tuple[Level, ...]:
    """Return the levels of a list, from the inside out; only its first entry may be a preset of several levels."""
    if not isinstance(value, list | tuple):
        raise SpecError(path, value, f"a list from the inside out: {_EXAMPLE} each")
    levels: list[Level] = []
    for index, entry in enumerate(value):
        entry_levels = _parse_level(entry, f"{path}.{index}")
        if len(entry_levels) > 1 and levels:
            preset = entry if isinstance(entry, str) else entry["preset"]
            expected = "a link: a network of several begins in the innermost level"
            raise SpecError(f"{path}.{index}.preset", preset, expected)
        levels += entry_levels
    return tuple(levels)


class LevelsDescription(NetworkDescription):
    """A network of any number of levels, from the inside out."""

    makes = MultiLevel
    needs = f"a value: 'levels' from the inside out, as in [{_EXAMPLE}, {{units: 4, link: ib-ndr}}]"

    levels: Annotated[tuple[Annotated[Level, INSTANCE], ...], parsed(_parse_levels)]
    name: Name = ""

    @override
    @classmethod
    def fields_of(cls, network: MultiLevel) -> dict[str, Any]:
        """Return the fields of a spec that describe this network."""
        levels = [_fields_without_link(level) | {"link": link_fields(level.link)} for level in network.levels]
        return {"levels": levels}
