"""Groups of links that change together: all lines between places of a matrix, or each different link by itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from syncline.costmodel.network.link import Link
from syncline.costmodel.network.matrix import Matrix
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.network_links import links_of
from syncline.costmodel.network.paths import Network

BETWEEN, INSIDE = "lines between places", "lines inside places"


class LinkGroup(NamedTuple):
    """Links that change together.

    Attributes:
        name: display name.
        link: representative of the group: its narrowest link, then that of the longest latency.
        links: all links of the group.
    """

    name: str
    link: Link
    links: frozenset[Link]


def link_groups(network: Network) -> list[LinkGroup]:
    """Return the groups of a network's links, in a matrix the lines between places last.

    >>> from syncline.costmodel import NETWORKS
    >>> [group.name for group in link_groups(NETWORKS["two-sites"].network)]
    ['10gbe', 'wan']
    """
    if not isinstance(network, Matrix):
        return [LinkGroup(link.name or link.describe(), link, frozenset({link})) for link in links_of(network)]
    local_lines = [row[index] for index, row in enumerate(network.lines)]
    cross_lines = [line for index, row in enumerate(network.lines) for line in (*row[:index], *row[index + 1 :])]
    uplinks = network.uplinks if isinstance(network.uplinks, tuple) else (network.uplinks,)
    groups: dict[str, Iterable[Link | None]] = {
        INSIDE: local_lines,
        "cards of hosts": [network.card],
        "uplinks of places": uplinks,
        BETWEEN: cross_lines,
    }
    return [group for name, links in groups.items() if (group := _group(name, links)) is not None]


def outermost_links(network: Network) -> LinkGroup:
    """Return the links of the outermost level, or the lines between the places of a matrix."""
    if isinstance(network, MultiLevel):
        link = network.levels[-1].link
        return LinkGroup(link.name, link, frozenset({link}))
    return link_groups(network)[-1]


def _group(name: str, links: Iterable[Link | None]) -> LinkGroup | None:
    """Return the group of the links that are not None, or None if all are None."""
    present = [link for link in links if link is not None]
    if not present:
        return None
    narrowest = min(present, key=lambda link: (float(link.bandwidth_bytes_per_s), -float(link.latency_s)))
    return LinkGroup(name, narrowest, frozenset(present))
