"""The links of a network, by the level that each joins, and the network with another link in one's place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from syncline.costmodel import Link, Network
from syncline.costmodel.network.level import Level
from syncline.costmodel.network.link_groups import BETWEEN, INSIDE, LinkGroup, link_groups
from syncline.costmodel.network.matrix import Matrix
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.scaled_links import scaled_link, with_links
from syncline.costmodel.network.sites import Sites
from syncline.costmodel.network.two_level import TwoLevel
from syncline.errors import SpecError, one_of


@dataclass(frozen=True)
class LinkPlace:
    """A link of a network, with its place.

    Args:
        name: name of the level that the link joins; empty for one link to every worker.
        link: the link; the uplink of sites has the latency from site to site, half of it on each uplink.
        with_link: returns the network with another link in its place.
    """

    name: str
    link: Link
    with_link: Callable[[Link], Network]

    def describe(self) -> str:
        """Return the place for people: ``both (wan-20ms)``."""
        link_name = self.link.name or self.link.describe()
        return f"{self.name} ({link_name})" if self.name and self.name != link_name else link_name


def link_places(network: Network) -> list[LinkPlace]:
    """Return the links of a network, from the innermost level to the outermost.

    Those of a matrix are its lines by latency, and last all lines between its places together.

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
            raise SpecError("network", network.name, "sites whose uplinks are alike, or a cluster of levels")
        uplink = uplinks.pop()

        def joined_by(link: Link) -> Network:
            return replace(network, uplink=replace(link, latency_s=link.latency_s / 2))

        return [
            LinkPlace("site", network.lan, lambda link: replace(network, lan=link)),
            LinkPlace("uplink", replace(uplink, latency_s=2 * uplink.latency_s), joined_by),
        ]
    if isinstance(network, MultiLevel):
        return [_of_level(network, number) for number in range(len(network.levels))]
    if isinstance(network, Matrix):
        return _lines_of(network)
    raise SpecError("network", network.name, "one link to everybody, nodes, sites, levels or places")


MOST_LINES = 16
"""Largest number of different lines that have a name of their own."""


def _lines_of(network: Matrix) -> list[LinkPlace]:
    """Return the different lines of a matrix, the one of least latency first, then all lines between places together.

    Equal lines change together. A matrix of many different lines has only those inside and those between places.
    """
    groups = [group for group in link_groups(network) if group.name in (INSIDE, BETWEEN)]
    together = [_together(network, group) for group in groups]
    if sum(len(group.links) for group in groups) > MOST_LINES:
        return together
    lines = {replace(line, name=""): line for row in network.lines for line in row if line is not None}

    def place(numbers: Link, line: Link) -> LinkPlace:
        def change(other: Link, link: Link) -> Link:
            return replace(link, name=other.name) if replace(other, name="") == numbers else other

        def with_link(link: Link) -> Network:
            changed = with_links(network.lines, lambda other: change(other, link))
            return replace(network, lines=changed)

        return LinkPlace(line.name, line, with_link)

    places = [place(numbers, line) for numbers, line in lines.items()]
    by_latency = sorted(places, key=lambda place: float(place.link.latency_s))
    return [*by_latency, *together[-1:]] if len(places) > 1 else by_latency


def _together(network: Matrix, group: LinkGroup) -> LinkPlace:
    """Return the place of several lines, which the narrowest stands for: another one in its place scales all."""

    def with_link(link: Link) -> Network:
        now = group.link
        rate = float(link.bandwidth_bytes_per_s) / float(now.bandwidth_bytes_per_s)
        latency = float(link.latency_s) / float(now.latency_s) if now.latency_s else 1.0
        changed = with_links(
            network.lines, lambda line: scaled_link(line, rate, latency) if line in group.links else line
        )
        return replace(network, lines=changed)

    return LinkPlace(group.name, group.link, with_link)


def _of_level(network: MultiLevel, number: int) -> LinkPlace:
    level = network.levels[number]

    def with_link(link: Link) -> Network:
        return with_level(network, number, replace(level, link=link))

    return LinkPlace(level.name or str(number), level.link, with_link)


def with_level(network: MultiLevel, number: int, level: Level) -> MultiLevel:
    """Return the network with another level at index ``number``."""
    levels = list(network.levels)
    levels[number] = level
    return replace(network, levels=tuple(levels))


def place_of(network: Network, level: str | int | None = None, path: str = "level") -> LinkPlace:
    """Return the place of the selected link.

    Args:
        network: the network.
        level: name of the level, or its index from the innermost; the outermost by default.
        path: name of the input in errors.

    Raises:
        SpecError: there is no such level.
    """
    places = link_places(network)
    if level is None:
        return places[-1]
    names = [place.name for place in places if place.name]
    for number, place in enumerate(places):
        if str(level) in (place.name, str(number)):
            return place
    expected = one_of(names, level) if names else "none, as this network is one link to everybody"
    raise SpecError(path, level, expected)
