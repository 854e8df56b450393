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
from syncline.costmodel.network.library_costs import CostsOfLinks, CostsOfNetwork
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.sites import Sites
from syncline.costmodel.network.topology import ByValue, Floats, Ints, Paths
from syncline.costmodel.network.two_level import TwoLevel
from syncline.errors import SpecError, one_of


@dataclass(frozen=True)
class MultiLevel(CostsOfLinks):
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
        ratio = level.oversubscription
        if ratio is not None and not (math.isfinite(ratio) and ratio >= 1):
            raise SpecError(f"{path}.oversubscription", ratio, "a number, at least 1: 2 is 2:1")
        if level.cross_rail is not None and level.cross_rail not in get_args(CrossRail):
            raise SpecError(f"{path}.cross_rail", level.cross_rail, one_of(get_args(CrossRail), str(level.cross_rail)))
        if number == 0:
            for name, value in (
                ("rails", level.rails),
                ("oversubscription", ratio),
                ("shares_lower_links", level.shares_lower_links),
            ):
                if value:
                    raise SpecError(
                        f"{path}.{name}", value, "none in the innermost level: its link is each worker's own"
                    )
        elif self.shares_lower_links(number) and level.rails is None and ratio is None:
            expected = "the uplinks of a unit below (1: one that all share), or an oversubscription beside it"
            raise SpecError(f"{path}.rails", None, expected)
        if level.cross_rail and number != 1:
            raise SpecError(f"{path}.cross_rail", level.cross_rail, "none but in the second level: nodes have rails")
        if level.cross_rail == "spine" and not (len(self.levels) > 2 and self.shares_lower_links(2)):
            raise SpecError(f"{path}.cross_rail", "spine", "a level above that is passed through this one, or 'inside'")
        if level.cross_rail == "inside" and self.shares_lower_links(number):
            raise SpecError(
                f"{path}.shares_lower_links",
                level.shares_lower_links,
                "false: nodes whose workers have cards of their own",
            )

    def shares_lower_links(self, number: int) -> bool:
        """Return whether a message to this level passes the links of the level below."""
        setting = self.levels[number].shares_lower_links
        inside = number == 0 or self.levels[number - 1].link.fabric != "network"
        return not inside if setting is None else setting

    def sizes(self, workers: int) -> tuple[int, ...]:
        """Return the number of units of the level below in a unit of each level, from the inside out.

        Raises:
            SpecError: workers that fill no units, or more than there are places for.
        """
        units = [level.units for level in self.levels]
        if None in units[:-1]:  # the levels around the open one are full
            full = math.prod(count for count in units if count is not None)
            if workers % full:
                raise SpecError("workers", workers, f"a multiple of {full}, the units around the level that is open")
            return tuple(workers // full if count is None else count for count in units)
        sizes, remaining = [], workers
        for number, size in enumerate(units):
            if size is None or remaining <= size:
                sizes.append(remaining)
                remaining = 1
            elif remaining % size:
                expected = f"a multiple of {math.prod(sizes) * size}, the workers of {self._unit(number)}"
                raise SpecError("workers", workers, expected)
            else:
                sizes.append(size)
                remaining //= size
        if remaining > 1:
            raise SpecError("workers", workers, f"at most {math.prod(sizes)}, the workers of all levels")
        return tuple(sizes)

    @property
    def inner_workers(self) -> int:
        """Return the workers of a unit of the second outermost level if the outermost is open; else 0."""
        *inner, last = (level.units for level in self.levels)
        return 0 if last is not None else math.prod(count or 0 for count in inner)

    def _unit(self, number: int) -> str:
        return f"a {self.levels[number].name}" if self.levels[number].name else f"a unit of level {number}"

    def shape(self, workers: int) -> LevelShape:
        """Return the sizes and rails of each level of the network, from the innermost to the outermost.

        Args:
            workers: P, number of all workers.

        Raises:
            SpecError: `sizes` refuses the number of workers; or messages cross a level that has more rails than a unit
                below has workers, or a number of rails that does not divide these workers.
        """
        sizes = self.sizes(workers)
        capacity = tuple(math.prod(sizes[: number + 1]) for number in range(len(sizes)))
        members, rails, begins = [1], [1], [0]
        for number, level in enumerate(self.levels[1:], start=1):
            by_rail = self.levels[number - 1].cross_rail == "spine"
            links_below = rails[-1] * sizes[number - 1] // (rails[-1] if by_rail else 1)
            members.append(capacity[number - 1] // (rails[-1] if by_rail else 1))
            count = level.rails or (min(links_below, members[-1]) if self.shares_lower_links(number) else members[-1])
            is_crossed = any(size > 1 for size in sizes[number:])
            if is_crossed and count > members[-1]:
                expected = f"at most {members[-1]}, the workers of a unit below"
                raise SpecError(f"network.levels.{number}.rails", count, expected)
            if is_crossed and level.cross_rail and members[-1] % count:
                expected = f"a number that divides the {members[-1]} workers of a unit below"
                raise SpecError(f"network.levels.{number}.rails", count, expected)
            rails.append(min(count, members[-1]))
            begins.append(begins[-1] if self.shares_lower_links(number) else number)
        return LevelShape(sizes, capacity, tuple(members), tuple(rails), tuple(begins))

    def crossing(self, number: int, workers: int, all_send: bool = True) -> Link:
        """Return the effective link of a message across a level while its peers in all units send and receive.

        Args:
            number: of the level.
            workers: P.
            all_send: whether all workers of the units below send and receive, or the first of each.
        """
        shape = self.shape(workers)
        shares = list(self._link_shares(number, shape, all_send))
        passed = [self.levels[index].link for index in range(shape.begins[number], number + 1)]
        if len(shares) == 1:
            return shares[0]
        return Link(
            sum(float(link.latency_s) for link in passed),
            min(float(link.down_bytes_per_s) for link in shares),
            overhead_s=sum(float(link.overhead_s) for link in passed),
            upload_bytes_per_s=min(float(link.up_bytes_per_s) for link in shares),
        )

    def _link_shares(self, number: int, shape: LevelShape, all_send: bool) -> Iterator[Link]:
        """Yield the message's share of every link and pool of rails that it passes."""
        for index in range(shape.begins[number], number + 1):
            level, members, rails = self.levels[index], shape.members[index], shape.rails[index]
            yield level.link.shared_by(-(-members // rails) if all_send else 1)
            if level.is_pooled:
                yield level.pool(rails).shared_by(members if all_send else 1)

    def shares_evenly(self, number: int, workers: int) -> bool:
        """Return whether all messages across a level get equal bandwidth if every worker sends.

        It also holds if the messages share nothing but one rail each.
        """
        shape = self.shape(workers)
        passed = range(shape.begins[number], number + 1)
        alone = len(passed) == 1 and not self.levels[number].is_pooled
        return alone or all(shape.members[index] % shape.rails[index] == 0 for index in passed)

    def is_half_duplex(self, number: int, workers: int) -> bool:
        """Return whether a message across a level passes a half-duplex link."""
        begin = self.shape(workers).begins[number]
        return any(level.link.duplex == "half" for level in self.levels[begin : number + 1])

    def among(self, workers: int) -> LevelTopology:
        """Return the topology of P workers.

        Raises:
            SpecError: as ``shape``.
        """
        return LevelTopology(self, workers, self.shape(workers))

    def describe(self) -> str:
        """Return a description that a user can read, from the inside out."""
        return ", ".join(f"{level.name} of {level.describe()}".removeprefix(" of ") for level in self.levels)


def levels_of(network: Link | TwoLevel | Sites | MultiLevel) -> tuple[Level, ...]:
    """Return the levels of a network; the number of units of the open level is None.

    Raises:
        SpecError: sites of different sizes or uplinks.
    """
    if isinstance(network, MultiLevel):
        return network.levels
    if isinstance(network, TwoLevel):
        nics = network.nics_per_node
        return Level(network.per_node, network.inner), Level(None, network.outer, nics, shares_lower_links=False)
    if isinstance(network, Link):
        return (Level(None, network),)
    return _levels_of_sites(network)


def _levels_of_sites(network: Sites) -> tuple[Level, ...]:
    if len(set(network.uplinks)) > 1 or len(set(network.sizes(_any_num_workers(network)))) > 1:
        raise SpecError("network.levels", network.name, "sites of one size and equal uplinks")
    uplink = network.uplinks[0]
    across = replace(uplink, latency_s=2 * uplink.latency_s)
    per_site = None if isinstance(network.sites, int) else network.sites[0]
    return Level(per_site, network.lan), Level(network.count, across, 1, shares_lower_links=True)


def _any_num_workers(network: Sites) -> int:
    return network.sites if isinstance(network.sites, int) else sum(network.sites)


@dataclass(frozen=True, eq=False)
class LevelTopology(ByValue, CostsOfNetwork):
    """The workers of some levels.

    Channels, level by level from the inside out: every unit's rails up, the same down (of the innermost, the workers'
    own links); then of each oversubscribed level what each unit's rails carry together, up and down. Of a half-duplex
    link both directions are the channel up.

    Args:
        network: the levels.
        workers: P.
        shape: of the levels.
    """

    network: MultiLevel
    workers: int
    shape: LevelShape

    @property
    def name(self) -> str:
        """Return the name that tables and messages show."""
        return self.network.name

    @property
    def value(self) -> Hashable:
        """Return the value by which topologies are compared and hashed."""
        return self.network, self.workers

    @property
    def innermost(self) -> tuple[int, Link]:
        """Return the workers of an innermost unit, and their link."""
        return self.shape.capacity[0], self.network.levels[0].link

    @cached_property
    def bandwidth_bytes_per_s(self) -> Floats:
        """Return the payload bytes per second that each channel carries."""
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
        """Return the number of units (or switches of rails) that have rails of a level."""
        return self.workers // self.shape.members[number]

    @cached_property
    def _firsts(self) -> tuple[list[int], dict[int, int]]:
        """Return the first channel of each level, and of the units of each oversubscribed level."""
        channel, rails, pools = 0, [], {}
        for number, count in enumerate(self.shape.rails):
            rails.append(channel)
            channel += 2 * count * self._owners(number)
        for number, level in enumerate(self.network.levels):
            if level.is_pooled:
                pools[number] = channel
                channel += 2 * self._owners(number)
        return rails, pools

    def channels_of(self, number: int) -> Iterator[tuple[int, int, bool]]:
        """Yield the channels of a level: the first, the last plus 1, whether the rails of a unit share them."""
        rails, pools = self._firsts
        yield rails[number], rails[number] + 2 * self.shape.rails[number] * self._owners(number), False
        if number in pools:
            yield pools[number], pools[number] + 2 * self._owners(number), True

    def _owner(self, number: int, workers: Ints) -> tuple[Ints, Ints]:
        """Return the unit (or switch) whose rails each worker uses, and the worker's number among its users."""
        shape = self.shape
        if number == 0:
            return workers, np.zeros_like(workers)
        unit, local = np.divmod(workers, shape.capacity[number - 1])
        if self.network.levels[number - 1].cross_rail != "spine":
            return unit, local
        inner, switches = shape.capacity[number - 2], shape.rails[number - 1]
        node, place = np.divmod(local, inner)
        rail, position = np.divmod(place, inner // switches)
        return unit * switches + rail, node * (inner // switches) + position

    def _rail(self, workers: Ints) -> Ints:
        """Return the number of each worker's rail in its node, for the second level."""
        inner = self.shape.capacity[0]
        return workers % inner * self.shape.rails[1] // inner

    def _level_channels(self, number: int, workers: Ints, down: bool) -> list[Ints]:
        """Return the channels that workers use in a level: a rail, and the pool of its unit's rails if there is one."""
        level, rails, owners = self.network.levels[number], self.shape.rails[number], self._owners(number)
        unit, local = self._owner(number, workers)
        first_rails, first_pools = self._firsts
        back = down and level.link.duplex != "half"
        rail = unit * rails + local * rails // self.shape.members[number]
        channels: list[Ints] = [first_rails[number] + back * owners * rails + rail]
        if number in first_pools:
            channels.append(first_pools[number] + back * owners + unit)
        return channels

    def paths(self, senders: Ints, receivers: Ints) -> Paths:
        """Return the paths: up to the lowest level that holds both ends, and down to the receiver."""
        senders, receivers = (np.asarray(ranks, dtype=np.int64) for ranks in (senders, receivers))
        levels, shape = self.network.levels, self.shape
        across = np.zeros(senders.shape, dtype=np.int64)
        for capacity in shape.capacity[:-1]:
            across += senders // capacity != receivers // capacity
        joined = levels[1].cross_rail if len(levels) > 1 else None
        other = (across >= 1) & (self._rail(senders) != self._rail(receivers)) if joined else None
        leaving, via_peer = senders, np.zeros(senders.shape, dtype=np.bool_)
        columns: list[Ints] = []
        if other is not None and joined == "spine":
            across = np.where(other, np.maximum(across, 2), across)
        elif other is not None:
            via_peer, inner = other, shape.capacity[0]
            leaving = np.where(via_peer, senders // inner * inner + receivers % inner, senders)
            to_other = *self._level_channels(0, senders, False), *self._level_channels(0, leaving, True)
            columns += [np.where(via_peer, channel, -1) for channel in to_other]
        begins = np.array(shape.begins)[across]
        latency_s = np.where(via_peer, np.float64(levels[0].link.latency_s), 0.0)
        overhead_s = np.where(via_peer, np.float64(levels[0].link.overhead_s), 0.0)
        up, down = [], []
        for number, level in enumerate(levels):
            passed = (begins <= number) & (number <= across)
            latency_s = latency_s + np.where(passed, level.link.latency_s, 0.0)
            overhead_s = overhead_s + np.where(passed, level.link.overhead_s, 0.0)
            up += [np.where(passed, channel, -1) for channel in self._level_channels(number, leaving, False)]
            down += [np.where(passed, channel, -1) for channel in self._level_channels(number, receivers, True)]
        return Paths(_pack_channels(np.stack([*columns, *up, *down[::-1]], axis=1)), latency_s, overhead_s)


def _pack_channels(channels: Ints) -> Ints:
    """Return the rows of channels with the entries -1 moved to the end, and surplus columns removed."""
    channels = np.take_along_axis(channels, np.argsort(channels < 0, axis=1, kind="stable"), axis=1)
    return channels[:, : max(1, int((channels >= 0).sum(axis=1).max(initial=0)))]
