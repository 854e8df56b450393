"""A level of a network of several levels, and the shape that its levels have among some workers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from syncline.costmodel.network.link import Link

CrossRail = Literal["spine", "inside"]
"""How a message gets from one rail to another: over the level above, or within its node first."""


@dataclass(frozen=True)
class Level:
    """One level of a `MultiLevel` network: units of the level below, and the link that joins them.

    Args:
        units: number of units of the level below (of workers, in the innermost level) in a unit of this level; None:
            computed from the number of all workers, in at most one level.
        link: link of each unit below to the others; its latency is from unit to unit.
        rails: number of these links that a unit below has, its network cards or uplinks. Worker l of the n workers of
            the unit uses rail ``l x rails // n``. None: one rail per worker if messages leave by this link directly;
            one per link of the level below if messages pass the level below and ``oversubscription`` is set.
        oversubscription: k; all rails of a unit together carry 1/k of their bandwidths. None: all of their bandwidths.
        shares_lower_links: whether a message passes the links of the level below on its way to this level's link, as a
            message passes a site's local network to the uplink, or a leaf switch to the spine. False: messages leave by
            this link directly, as by a worker's own card. None: False if the level below is the inside of a node by
            its link's fabric (NVLink, PCI Express), else True.
        cross_rail: only of the second level. Rail r of every unit ends at switch r, and a message to another rail goes
            by the level above (``spine``), or by the innermost link to the worker with the receiver's number in the
            node (``inside``). None: all rails end at one switch.
        name: display name of a unit of this level: node, rack, site.
    """

    units: int | None
    link: Link
    rails: int | None = None
    oversubscription: float | None = None
    shares_lower_links: bool | None = None
    cross_rail: CrossRail | None = None
    name: str = ""

    @property
    def is_pooled(self) -> bool:
        """Return whether oversubscription limits the rails of a unit together."""
        return self.oversubscription not in (None, 1)

    def pool(self, rails: int) -> Link:
        """Return a link with the bandwidth that a number of rails of a unit carry together."""
        part = rails / (self.oversubscription or 1.0)
        upload = self.link.upload_bytes_per_s
        return replace(
            self.link,
            measured=None,
            bandwidth_bytes_per_s=part * self.link.bandwidth_bytes_per_s,
            upload_bytes_per_s=None if upload is None else part * upload,
        )

    def describe(self) -> str:
        """Return a short description for users: ``2 racks by ib-ndr (8 rails, 2:1)``."""
        details = [
            *([f"{self.rails} rail{'s' if self.rails > 1 else ''}"] if self.rails else []),
            *([f"{self.oversubscription:g}:1"] if self.is_pooled else []),
        ]
        if self.cross_rail:
            details.append(f"rails joined {'by the spine' if self.cross_rail == 'spine' else 'inside'}")
        link = self.link.name or self.link.describe()
        suffix = f" ({', '.join(details)})" if details else ""
        return f"{self.units or 'any'} by {link}{suffix}"


class LevelShape(NamedTuple):
    """The sizes and rails of each level for a number of workers P.

    Attributes:
        sizes: number of units of the level below in a unit of each level, from the inside out; their product is P.
        capacity: number of workers in a unit of each level.
        members: for each level, number of workers that share the rails of a unit below (of a rail's switch, if the
            level below has one for each rail); 1 for the innermost.
        rails: for each level, number of rails that these workers share.
        begins: for each level, the level whose link a message across it takes first.
    """

    sizes: tuple[int, ...]
    capacity: tuple[int, ...]
    members: tuple[int, ...]
    rails: tuple[int, ...]
    begins: tuple[int, ...]
