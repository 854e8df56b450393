"""Any number of levels, from the inside out: sockets, nodes, racks, sites; each with a link of its own."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.level import CrossRail, Level, LevelShape
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.sites import Sites
from syncline.costmodel.network.topology import ByValue, Floats, Ints, Paths
from syncline.costmodel.network.two_level import TwoLevel
from syncline.errors import SpecError, one_of


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


@dataclass(frozen=True, eq=False)
class LevelTopology(ByValue):
    """The workers of some levels.

    Channels, level by level from the inside out: every unit's rails up, the same down (of the innermost, the workers'
    own links); then of each oversubscribed level what each unit's rails carry together, up and down. Of a half-duplex
    link both directions are the channel up.

    Args:
        network: what the levels are.
        workers: P.
        shape: of the levels.
    """

    gloo = None

    network: MultiLevel
    workers: int
    shape: LevelShape

    @property
    def name(self) -> str:
        """For people."""
        return self.network.name

    @property
    def value(self) -> Hashable:
        """All that it is."""
        return self.network, self.workers

    @cached_property
    def bandwidth_bytes_per_s(self) -> Floats:
        """Payload bytes per second that each channel carries."""
        rates: list[NDArray[np.float64]] = []
        levels = self.network.levels
        for number, (level, rails) in enumerate(zip(levels, self.shape.rails, strict=True)):
            both = np.array([level.link.up_bytes_per_s, level.link.down_bytes_per_s], dtype=np.float64)
            rates.append(np.repeat(both, self._owners(number) * rails))
        for number, level in enumerate(levels):
            if level.is_pooled:
                pool = level.pool(self.shape.rails[number])
                both = np.array([pool.up_bytes_per_s, pool.down_bytes_per_s], dtype=np.float64)
                rates.append(np.repeat(both, self._owners(number)))
        return np.concatenate(rates)

    def _owners(self, number: int) -> int:
        """How many units (or switches of rails) have rails of a level."""
        return self.workers // self.shape.members[number]

    @cached_property
    def _firsts(self) -> tuple[list[int], dict[int, int]]:
        """The first channel of each level, and of each oversubscribed one's units."""
        at, rails, pools = 0, [], {}
        for number, count in enumerate(self.shape.rails):
            rails.append(at)
            at += 2 * count * self._owners(number)
        for number, level in enumerate(self.network.levels):
            if level.is_pooled:
                pools[number] = at
                at += 2 * self._owners(number)
        return rails, pools

    def channels_of(self, number: int) -> Iterator[tuple[int, int, bool]]:
        """The channels of a level: the first, the one behind the last, whether a unit's rails share them."""
        rails, pools = self._firsts
        yield rails[number], rails[number] + 2 * self.shape.rails[number] * self._owners(number), False
        if number in pools:
            yield pools[number], pools[number] + 2 * self._owners(number), True

    def _owner(self, number: int, workers: Ints) -> tuple[Ints, Ints]:
        """Whose rails of a level workers use, and each one's number among those who do."""
        shape = self.shape
        if number == 0:
            return workers, np.zeros_like(workers)
        unit, local = np.divmod(workers, shape.capacity[number - 1])
        if self.network.levels[number - 1].cross_rail != "spine":
            return unit, local
        inner, switches = shape.capacity[number - 2], shape.rails[number - 1]
        node, place = np.divmod(local, inner)
        rail, beside = np.divmod(place, inner // switches)
        return unit * switches + rail, node * (inner // switches) + beside

    def _rail(self, workers: Ints) -> Ints:
        """Of the second level, the number of each worker's rail in its node."""
        inner = self.shape.capacity[0]
        return workers % inner * self.shape.rails[1] // inner

    def _way(self, number: int, workers: Ints, down: bool) -> list[Ints]:
        """The channels that workers use in a level: a rail, and what its unit's rails carry together."""
        level, rails, owners = self.network.levels[number], self.shape.rails[number], self._owners(number)
        unit, local = self._owner(number, workers)
        first_rails, first_pools = self._firsts
        back = down and level.link.duplex != "half"
        rail = unit * rails + local * rails // self.shape.members[number]
        way: list[Ints] = [first_rails[number] + back * owners * rails + rail]
        if number in first_pools:
            way.append(first_pools[number] + back * owners + unit)
        return way

    def paths(self, senders: Ints, receivers: Ints) -> Paths:
        """Out by the links of the levels up to the lowest that holds both ends, and in by the same of the receiver."""
        senders, receivers = (np.asarray(each, dtype=np.int64) for each in (senders, receivers))
        levels, shape = self.network.levels, self.shape
        across = np.zeros(senders.shape, dtype=np.int64)
        for capacity in shape.capacity[:-1]:
            across += senders // capacity != receivers // capacity
        joined = levels[1].cross_rail if len(levels) > 1 else None
        other = (across >= 1) & (self._rail(senders) != self._rail(receivers)) if joined else None
        leaving, beside = senders, np.zeros(senders.shape, dtype=np.bool_)
        columns: list[Ints] = []
        if other is not None and joined == "spine":
            across = np.where(other, np.maximum(across, 2), across)
        elif other is not None:
            beside, inner = other, shape.capacity[0]
            leaving = np.where(beside, senders // inner * inner + receivers % inner, senders)
            to_other = *self._way(0, senders, False), *self._way(0, leaving, True)
            columns += [np.where(beside, way, -1) for way in to_other]
        begins = np.array(shape.begins)[across]
        latency_s = np.where(beside, np.float64(levels[0].link.latency_s), 0.0)
        overhead_s = np.where(beside, np.float64(levels[0].link.overhead_s), 0.0)
        up, down = [], []
        for number, level in enumerate(levels):
            passed = (begins <= number) & (number <= across)
            latency_s = latency_s + np.where(passed, level.link.latency_s, 0.0)
            overhead_s = overhead_s + np.where(passed, level.link.overhead_s, 0.0)
            up += [np.where(passed, way, -1) for way in self._way(number, leaving, False)]
            down += [np.where(passed, way, -1) for way in self._way(number, receivers, True)]
        return Paths(_in_front(np.stack([*columns, *up, *down[::-1]], axis=1)), latency_s, overhead_s)


def _in_front(channels: Ints) -> Ints:
    """Rows of channels with what is none behind the others."""
    channels = np.take_along_axis(channels, np.argsort(channels < 0, axis=1, kind="stable"), axis=1)
    return channels[:, : max(1, int((channels >= 0).sum(axis=1).max(initial=0)))]
