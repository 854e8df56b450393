"""Any number of levels, from the inside out: sockets, nodes, racks, sites; each with a link of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

from syncline.costmodel.network.level_topology import LevelTopology
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.sites import Sites
from syncline.costmodel.network.two_level import TwoLevel
from syncline.errors import SpecError, one_of

CrossRail = Literal["spine", "inside"]
"""How a message gets from one rail to another: over the level above, or within its node first."""


@dataclass(frozen=True)
class Level:
    """One level of a `MultiLevel` network: units of the level below, and the link that joins them.

    Args:
        units: how many units of the level below (workers, of the innermost) one of this level holds; None: as many as
            there are workers for, in one of the levels at most.
        link: what each unit below has towards the others; its latency is from unit to unit.
        rails: of these links that a unit below has, network cards or uplinks. The l-th of its n workers uses rail
            ``l x rails // n``. None: one per worker where messages leave by this link directly; as many as there are
            links in the level below where they pass through it, and an ``oversubscription`` is given.
        oversubscription: k: all rails of a unit together carry 1/k of their bandwidths. None: all of it.
        through: whether a message passes the links of the level below on its way to this one's, as through a site's
            local network to its uplink or through a leaf switch to the spine; else it leaves by this link directly, as
            a node's does by its worker's own card. None: directly where the level below is the inside of a node, by its
            link's fabric (NVLink, PCI Express), else through.
        cross_rail: of the second level: rail r of every unit ends at switch r, and a message to another rail goes by
            the level above (``spine``), or by the innermost link to the worker whose number its receiver has
            (``inside``). None: all rails end at one switch.
        name: of what this level is, for people: node, rack, site.
    """

    units: int | None
    link: Link
    rails: int | None = None
    oversubscription: float | None = None
    through: bool | None = None
    cross_rail: CrossRail | None = None
    name: str = ""

    @property
    def is_pooled(self) -> bool:
        """Whether a unit's rails carry less together than each by itself."""
        return self.oversubscription not in (None, 1)

    def pool(self, rails: int) -> Link:
        """What so many rails of a unit carry together."""
        part = rails / (self.oversubscription or 1.0)
        upload = self.link.upload_bytes_per_s
        return replace(
            self.link,
            bandwidth_bytes_per_s=part * self.link.bandwidth_bytes_per_s,
            upload_bytes_per_s=None if upload is None else part * upload,
        )

    def describe(self) -> str:
        """What it is, for people: ``2 racks by ib-ndr (8 rails, 2:1)``."""
        beside = [
            *([f"{self.rails} rail{'s' if self.rails > 1 else ''}"] if self.rails else []),
            *([f"{self.oversubscription:g}:1"] if self.is_pooled else []),
            *(
                [f"rails joined {'by the spine' if self.cross_rail == 'spine' else 'inside'}"]
                if self.cross_rail
                else []
            ),
        ]
        link = self.link.name or self.link.describe()
        told = f" ({', '.join(beside)})" if beside else ""
        return f"{self.units or 'any'} by {link}{told}"


class LevelShape(NamedTuple):
    """The levels of so many workers.

    Attributes:
        sizes: how many units of the level below one of each level holds, from the inside out; their product is P.
        capacity: workers of one unit of each level.
        members: of each level how many workers share the rails of a unit below (of a rail's switch, where the level
            below has one for each rail); 1 for the innermost.
        rails: of each level, that they share.
        begins: of each level the one by whose link a message across it leaves its worker.
    """

    sizes: tuple[int, ...]
    capacity: tuple[int, ...]
    members: tuple[int, ...]
    rails: tuple[int, ...]
    begins: tuple[int, ...]


@dataclass(frozen=True)
class MultiLevel:
    """Levels of units: consecutive ranks fill the units of each level.

    A message pays the links of the lowest level whose unit holds both ends, and before it those of the levels below
    that it passes through: the sum of their latencies and overheads, the bandwidth of the narrowest, which it shares.
    Fewer workers than there are places are the first ones; they fill the units of each level that they reach.

    Args:
        levels: from the inside out.
        name: for people.

    Raises:
        SpecError: no level, or a field out of range.
    """

    gloo = None  # a cost of the software is known of one link to everybody alone

    levels: tuple[Level, ...]
    name: str = ""

    def __post_init__(self) -> None:
        if not self.levels:
            raise SpecError("network.levels", [], "a level at least: {units, link}")
        for number, level in enumerate(self.levels):
            self._check(number, level, f"network.levels.{number}")
        free = [number for number, level in enumerate(self.levels) if level.units is None]
        if len(free) > 1:
            raise SpecError(f"network.levels.{free[1]}.units", None, "a number: in one level alone is it left open")

    def _check(self, number: int, level: Level, path: str) -> None:
        if level.units is not None and level.units < 1:
            raise SpecError(f"{path}.units", level.units, "a number of units of the level below, at least 1")
        if level.rails is not None and level.rails < 1:
            raise SpecError(f"{path}.rails", level.rails, "a number of links of a unit below, at least 1")
        over = level.oversubscription
        if over is not None and not (math.isfinite(over) and over >= 1):
            raise SpecError(f"{path}.oversubscription", over, "a number, at least 1: 2 is 2:1")
        if level.cross_rail is not None and level.cross_rail not in get_args(CrossRail):
            raise SpecError(f"{path}.cross_rail", level.cross_rail, one_of(get_args(CrossRail), str(level.cross_rail)))
        if number == 0:
            for name, value in (("rails", level.rails), ("oversubscription", over), ("through", level.through)):
                if value:
                    raise SpecError(
                        f"{path}.{name}", value, "none in the innermost level: its link is each worker's own"
                    )
        elif self.through(number) and level.rails is None and over is None:
            expected = "the uplinks of a unit below (1: one that all share), or an oversubscription beside it"
            raise SpecError(f"{path}.rails", None, expected)
        if level.cross_rail and number != 1:
            raise SpecError(f"{path}.cross_rail", level.cross_rail, "none but in the second level: nodes have rails")
        if level.cross_rail == "spine" and not (len(self.levels) > 2 and self.through(2)):
            raise SpecError(f"{path}.cross_rail", "spine", "a level above that is passed through this one, or 'inside'")
        if level.cross_rail == "inside" and self.through(number):
            raise SpecError(f"{path}.through", level.through, "false: nodes whose workers have cards of their own")

    def through(self, number: int) -> bool:
        """Whether a message passes the links of the level below on its way to those of this level."""
        given = self.levels[number].through
        inside = number == 0 or self.levels[number - 1].link.fabric != "network"
        return not inside if given is None else given

    def sizes(self, workers: int) -> tuple[int, ...]:
        """How many units of the level below one of each level holds, from the inside out.

        Raises:
            SpecError: workers that fill no units, or more than there are places for.
        """
        units = [level.units for level in self.levels]
        if None in units[:-1]:  # the levels around the open one are full
            known = math.prod(one for one in units if one is not None)
            if workers % known:
                raise SpecError("workers", workers, f"a multiple of {known}, the units around the level that is open")
            return tuple(workers // known if one is None else one for one in units)
        sizes, left = [], workers
        for number, size in enumerate(units):
            if size is None or left <= size:
                sizes.append(left)
                left = 1
            elif left % size:
                expected = f"a multiple of {math.prod(sizes) * size}, the workers of {self._unit(number)}"
                raise SpecError("workers", workers, expected)
            else:
                sizes.append(size)
                left //= size
        if left > 1:
            raise SpecError("workers", workers, f"at most {math.prod(sizes)}, the workers of all levels")
        return tuple(sizes)

    @property
    def inner_workers(self) -> int:
        """Workers of a unit of the outermost level but one, if the outermost is the one that is open; else 0."""
        *inner, last = (level.units for level in self.levels)
        return 0 if last is not None else math.prod(one or 0 for one in inner)

    def _unit(self, number: int) -> str:
        return f"a {self.levels[number].name}" if self.levels[number].name else f"a unit of level {number}"

    def shape(self, workers: int) -> LevelShape:
        """The levels of so many workers.

        Raises:
            SpecError: as ``sizes``; or rails that the workers of a unit do not use evenly, or at all.
        """
        sizes = self.sizes(workers)
        capacity = tuple(math.prod(sizes[: number + 1]) for number in range(len(sizes)))
        members, rails, begins = [1], [1], [0]
        for number, level in enumerate(self.levels[1:], start=1):
            by_rail = self.levels[number - 1].cross_rail == "spine"
            below = rails[-1] * sizes[number - 1] // (rails[-1] if by_rail else 1)
            members.append(capacity[number - 1] // (rails[-1] if by_rail else 1))
            count = level.rails or (min(below, members[-1]) if self.through(number) else members[-1])
            crossed = any(size > 1 for size in sizes[number:])
            if crossed and count > members[-1]:
                expected = f"at most {members[-1]}, the workers of a unit below"
                raise SpecError(f"network.levels.{number}.rails", count, expected)
            if crossed and level.cross_rail and members[-1] % count:
                expected = f"a number that divides the {members[-1]} workers of a unit below"
                raise SpecError(f"network.levels.{number}.rails", count, expected)
            rails.append(min(count, members[-1]))
            begins.append(begins[-1] if self.through(number) else number)
        return LevelShape(sizes, capacity, tuple(members), tuple(rails), tuple(begins))

    def crossing(self, number: int, workers: int, everybody: bool = True) -> Link:
        """The link that a message across a level finds on its way, while its peers in all units send and receive.

        Args:
            number: of the level.
            workers: P.
            everybody: whether all workers of the units below send and receive, or the first of each.
        """
        shape = self.shape(workers)
        found = list(self._shared(number, shape, everybody))
        passed = [self.levels[each].link for each in range(shape.begins[number], number + 1)]
        if len(found) == 1:
            return found[0]
        return Link(
            sum(float(link.latency_s) for link in passed),
            min(float(link.down_bytes_per_s) for link in found),
            overhead_s=sum(float(link.overhead_s) for link in passed),
            upload_bytes_per_s=min(float(link.up_bytes_per_s) for link in found),
        )

    def _shared(self, number: int, shape: LevelShape, everybody: bool) -> Iterator[Link]:
        """The shares that a message gets of all that it passes."""
        for each in range(shape.begins[number], number + 1):
            level, members, rails = self.levels[each], shape.members[each], shape.rails[each]
            yield level.link.shared_by(-(-members // rails) if everybody else 1)
            if level.is_pooled:
                yield level.pool(rails).shared_by(members if everybody else 1)

    def shares_evenly(self, number: int, workers: int) -> bool:
        """Whether all messages across a level get the same, if everybody sends; or what they share is one rail each."""
        shape = self.shape(workers)
        passed = range(shape.begins[number], number + 1)
        alone = len(passed) == 1 and not self.levels[number].is_pooled
        return alone or all(shape.members[each] % shape.rails[each] == 0 for each in passed)

    def is_half_duplex(self, number: int, workers: int) -> bool:
        """Whether a message across a level passes a half-duplex link."""
        begin = self.shape(workers).begins[number]
        return any(level.link.duplex == "half" for level in self.levels[begin : number + 1])

    def among(self, workers: int) -> LevelTopology:
        """The topology of so many workers.

        Raises:
            SpecError: as ``shape``.
        """
        return LevelTopology(self, workers, self.shape(workers))

    def describe(self) -> str:
        """What it is, for people, from the inside out."""
        return ", ".join(f"{level.name} of {level.describe()}".removeprefix(" of ") for level in self.levels)


def levels_of(network: Link | TwoLevel | Sites | MultiLevel) -> tuple[Level, ...]:
    """The levels that a network is; the number of units of the one that it leaves open is None.

    Raises:
        SpecError: sites of different sizes or uplinks.
    """
    if isinstance(network, MultiLevel):
        return network.levels
    if isinstance(network, TwoLevel):
        nics = network.nics_per_node
        return Level(network.per_node, network.inner), Level(None, network.outer, nics, through=False)
    if isinstance(network, Link):
        return (Level(None, network),)
    return _levels_of_sites(network)


def _levels_of_sites(network: Sites) -> tuple[Level, ...]:
    if len(set(network.uplinks)) > 1 or len(set(network.sizes(_some(network)))) > 1:
        raise SpecError("network.levels", network.name, "sites of one size and equal uplinks")
    uplink = network.uplinks[0]
    across = replace(uplink, latency_s=2 * uplink.latency_s)
    each = None if isinstance(network.sites, int) else network.sites[0]
    return Level(each, network.lan), Level(network.count, across, 1, through=True)


def _some(network: Sites) -> int:
    return network.sites if isinstance(network.sites, int) else sum(network.sites)
