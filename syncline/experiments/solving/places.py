"""The links of a network, by the level that each joins, and the network with another one in its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from syncline.costmodel import Link, Network
from syncline.costmodel.network.multi_level import Level, MultiLevel
from syncline.costmodel.network.sites import Sites
from syncline.costmodel.network.two_level import TwoLevel
from syncline.errors import SpecError, one_of


@dataclass(frozen=True)
class LinkPlace:
    """A link of a network.

    Args:
        name: of the level that it joins; empty of one link to everybody.
        link: it; that of sites' uplinks has the latency from site to site, of which each uplink has half.
        with_link: the network with another in its place.
    """

    name: str
    link: Link
    with_link: Callable[[Link], Network]

    def describe(self) -> str:
        """For people: ``both (wan-20ms)``."""
        own = self.link.name or self.link.describe()
        return f"{self.name} ({own})" if self.name and self.name != own else own


def link_places(network: Network, path: str = "network") -> list[LinkPlace]:
    """The links of a network, from the inside out.

    Raises:
        SpecError: a network that is no link and has no levels, or sites whose uplinks differ.
    """
    if isinstance(network, Link):
        return [LinkPlace("", network, lambda link: link)]
    if isinstance(network, TwoLevel):
        return [
            LinkPlace("node", network.inner, lambda link: replace(network, inner=link)),
            LinkPlace("between", network.outer, lambda link: replace(network, outer=link)),
        ]
    if isinstance(network, Sites):
        uplinks = set(network.uplinks)
        if len(uplinks) > 1:
            raise SpecError(path, network.name, "sites whose uplinks are alike, or a cluster of levels")
        uplink = uplinks.pop()

        def joined_by(link: Link) -> Network:
            return replace(network, uplink=replace(link, latency_s=link.latency_s / 2))

        return [
            LinkPlace("site", network.lan, lambda link: replace(network, lan=link)),
            LinkPlace("uplink", replace(uplink, latency_s=2 * uplink.latency_s), joined_by),
        ]
    if isinstance(network, MultiLevel):
        return [_of_level(network, number) for number in range(len(network.levels))]
    raise SpecError(path, network.name, "one link to everybody, nodes, sites or levels")


def _of_level(network: MultiLevel, number: int) -> LinkPlace:
    level = network.levels[number]

    def with_link(link: Link) -> Network:
        return with_level(network, number, replace(level, link=link))

    return LinkPlace(level.name or str(number), level.link, with_link)


def with_level(network: MultiLevel, number: int, level: Level) -> MultiLevel:
    """The network with another level in the place of one."""
    levels = list(network.levels)
    levels[number] = level
    return replace(network, levels=tuple(levels))


def place_of(network: Network, level: str | int | None = None, path: str = "level") -> LinkPlace:
    """The link that is meant.

    Args:
        network: whose.
        level: its name, or its number from the inside out; the outermost unless given.
        path: what it is called.

    Raises:
        SpecError: there is no such level.
    """
    known = link_places(network)
    if level is None:
        return known[-1]
    names = [one.name for one in known if one.name]
    for number, one in enumerate(known):
        if str(level) in (one.name, str(number)):
            return one
    expected = one_of(names, level) if names else "none, as this network is one link to everybody"
    raise SpecError(path, level, expected)
