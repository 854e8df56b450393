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
    """Links of a network whose speed changes together in a question such as "what if the lines were twice as fast?".

    Attributes:
        name: display name.
        link: the narrowest link of the group; of equally narrow links, that of the longest latency.
        links: all links of the group.
    """

    name: str
    link: Link
    links: frozenset[Link]


def link_groups(network: Network) -> list[LinkGroup]:
    """Return the groups of a network's links; in a matrix, the lines between places are the last group.

    >>> from syncline.costmodel import NETWORKS
    >>> [group.name for group in link_groups(NETWORKS["two-sites"].network)]
    ['10gbe', 'wan']
    """
    if not isinstance(network, Matrix):
        return [LinkGroup(link.label, link, frozenset({link})) for link in links_of(network)]
    lines_inside: list[Link | None] = []
    lines_between: list[Link | None] = []
    for source, row in enumerate(network.lines):
        lines_inside.append(row[source])
        lines_between += row[:source] + row[source + 1 :]
    candidates: dict[str, Iterable[Link | None]] = {
        INSIDE: lines_inside,
        "cards of hosts": [network.card],
        "uplinks of places": network.uplink_by_place,
        BETWEEN: lines_between,
    }
    groups = []
    for name, optional_links in candidates.items():
        links = [link for link in optional_links if link is not None]
        if links:
            narrowest = min(links, key=lambda link: (float(link.bandwidth_bytes_per_s), -float(link.latency_s)))
            groups.append(LinkGroup(name, narrowest, frozenset(links)))
    return groups


def outermost_links(network: Network) -> LinkGroup:
    """Return the links of a network's outermost level, or the lines between the places of a matrix."""
    if isinstance(network, MultiLevel):  # `link_groups` lists equal links of several levels once
        link = network.levels[-1].link
        return LinkGroup(link.name, link, frozenset({link}))
    return link_groups(network)[-1]
