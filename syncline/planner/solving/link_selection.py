"""The links of a network, by the level that each joins, and the network with one of these links replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from syncline.costmodel import Link, Network
from syncline.costmodel.network.link_groups import BETWEEN, INSIDE, LinkGroup, link_groups
from syncline.costmodel.network.matrix import Matrix
from syncline.costmodel.network.multi_level import Level, MultiLevel
from syncline.costmodel.network.network_links import scaled_link, with_links
from syncline.costmodel.network.two_level import Sites, TwoLevel
from syncline.errors import SpecError, one_of


@dataclass(frozen=True)
class LinkPlace:
    """A link of a network, and a function that replaces the link.

    Args:
        name: name of the level whose units the link joins; empty if the network is this link.
        link: the link; the latency of an uplink is doubled, because a message from site to site takes two uplinks.
        with_link: function that returns the network with another link in this place.
    """

    name: str
    link: Link
    with_link: Callable[[Link], Network]

    def describe(self) -> str:
        """Return the name of the network's part and of its link for tables, such as ``both (wan-20ms)``."""
        link_name = self.link.name or self.link.describe()
        return f"{self.name} ({link_name})" if self.name and self.name != link_name else link_name


def link_places(network: Network) -> list[LinkPlace]:
    """Return the links of a network, from the innermost level to the outermost.

    For a matrix, see `_matrix_places`.

    Raises:
        SpecError: the network is neither a link nor has levels, or it has sites with different uplinks.
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
            raise SpecError("network", network.name, "sites with equal uplinks, or a cluster of levels")
        uplink = uplinks.pop()

        def with_uplink(link: Link) -> Network:
            # Each of two uplinks has half of the latency from site to site.
            return replace(network, uplink=replace(link, latency_s=link.latency_s / 2))

        return [
            LinkPlace("site", network.lan, lambda link: replace(network, lan=link)),
            LinkPlace("uplink", replace(uplink, latency_s=2 * uplink.latency_s), with_uplink),
        ]
    if isinstance(network, MultiLevel):
        return [_level_place(network, number) for number in range(len(network.levels))]
    if isinstance(network, Matrix):
        return _matrix_places(network)
    raise SpecError("network", network.name, "one link for all workers, nodes, sites, levels or places")


MAX_LINES = 16
"""Largest number of different lines that have a place each."""


def _matrix_places(network: Matrix) -> list[LinkPlace]:
    """Return the different lines of a matrix by latency, and at the end all lines between its places as one link.

    A matrix with many different lines returns only two: all lines inside places, and all lines between places.
    """
    groups = [group for group in link_groups(network) if group.name in (INSIDE, BETWEEN)]
    group_places = [_group_place(network, group) for group in groups]  # the last joins the matrix's places
    if sum(len(group.links) for group in groups) > MAX_LINES:
        return group_places
    line_by_numbers: dict[Link, Link] = {}  # lines that differ in their names alone have the same key
    for row in network.lines:
        line_by_numbers |= {replace(line, name=""): line for line in row if line is not None}
    line_places = [_line_place(network, line) for line in line_by_numbers.values()]
    line_places.sort(key=lambda place: float(place.link.latency_s))
    return line_places + group_places[-1:] if len(line_places) > 1 else line_places


def _line_place(network: Matrix, line: Link) -> LinkPlace:
    """Return a line between places as a replaceable link; lines with equal numbers are replaced together."""

    def with_link(link: Link) -> Network:
        def replace_if_equal(other: Link) -> Link:
            has_equal_numbers = replace(other, name=line.name) == line
            return replace(link, name=other.name) if has_equal_numbers else other

        return replace(network, lines=with_links(network.lines, replace_if_equal))

    return LinkPlace(line.name, line, with_link)


def _group_place(network: Matrix, group: LinkGroup) -> LinkPlace:
    """Return the narrowest of several lines as a replaceable link; another link in its place scales all lines.

    If the narrowest line has no latency, the latency of the other link is added to all lines.
    """

    def with_link(link: Link) -> Network:
        narrowest = group.link
        bandwidth_factor = float(link.bandwidth_bytes_per_s) / float(narrowest.bandwidth_bytes_per_s)
        latency_factor, added_s = 1.0, float(link.latency_s)  # no factor changes a latency of 0
        if narrowest.latency_s:
            latency_factor, added_s = float(link.latency_s) / float(narrowest.latency_s), 0.0

        def scaled(line: Link) -> Link:
            if line not in group.links:
                return line
            changed_line = scaled_link(line, bandwidth_factor, latency_factor)
            return replace(changed_line, latency_s=changed_line.latency_s + added_s)

        return replace(network, lines=with_links(network.lines, scaled))

    return LinkPlace(group.name, group.link, with_link)


def _level_place(network: MultiLevel, level_index: int) -> LinkPlace:
    """Return the link of a network level as a replaceable link, by the level's index from the innermost."""
    level = network.levels[level_index]

    def with_link(link: Link) -> Network:
        return with_level(network, level_index, replace(level, link=link))

    return LinkPlace(level.name or str(level_index), level.link, with_link)


def with_level(network: MultiLevel, level_index: int, level: Level) -> MultiLevel:
    """Return the network with another level at index ``level_index``."""
    levels = network.levels
    return replace(network, levels=(*levels[:level_index], level, *levels[level_index + 1 :]))


def link_place(network: Network, level: str | int | None = None, path: str = "level") -> LinkPlace:
    """Return the link of a network level, with a function that replaces it.

    Args:
        level: name of the level, or its index from the innermost; the outermost by default.
        path: name of the input in errors.
    """
    places = link_places(network)
    if level is None:
        return places[-1]
    for index, place in enumerate(places):
        if str(level) in (place.name, str(index)):
            return place
    names = [place.name for place in places if place.name]
    expected = one_of(names, level) if names else "none, as this network has one link for all workers"
    raise SpecError(path, level, expected)
