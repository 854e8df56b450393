"""Networks of any number of levels, from the inside out: sockets, nodes, racks, sites. Each level has its own link."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.link import Link
from syncline.costmodel.network.network_links import CostsOfLinks, NetworkTopology
from syncline.costmodel.network.paths import ByValue, Floats, Ints, Paths
from syncline.errors import SpecError, one_of

CrossRail = Literal["spine", "inside"]
"""The way of a message from one rail to another: over the level above (``spine``), or first within its node."""


@dataclass(frozen=True)
class Level:
    """One level of a `MultiLevel` network: units of the level below, and the link that joins them.

    Args:
        units: number of units of the level below (of workers, in the innermost level) in a unit of this level. At most
            one level has None; its number is computed from that of all workers.
        link: link of each unit below to the others; its latency is from unit to unit.
        rails: number of these links of each unit below (its network cards or uplinks). Worker l of the n workers of
            the unit uses rail ``l x rails // n``. None: one rail per worker; but one per link of the level below if
            ``shares_lower_links``, which needs an ``oversubscription`` then.
        oversubscription: k; all rails of a unit together carry 1/k of their bandwidths. None: all of their bandwidths.
        shares_lower_links: whether a message passes the links of the level below on its way to this level's link, as a
            message passes a site's local network to the uplink, or a leaf switch to the spine. False: messages leave by
            this link directly, as by a worker's own card. None: False if the level below is the inside of a node (its
            link's fabric is NVLink or PCI Express), else True.
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
        pool = self.link.times_bandwidth(rails / (self.oversubscription or 1.0))
        return replace(pool, measured=None)  # the measured times are those of a single rail

    def describe(self) -> str:
        """Return a short description for users: ``2 racks by ib-ndr (8 rails, 2:1)``."""
        details = []
        if self.rails:
            details.append("1 rail" if self.rails == 1 else f"{self.rails} rails")
        if self.is_pooled:
            details.append(f"{self.oversubscription:g}:1")
        if self.cross_rail:
            details.append("rails joined by the spine" if self.cross_rail == "spine" else "rails joined inside")
        suffix = f" ({', '.join(details)})" if details else ""
        return f"{self.units or 'any'} by {self.link.label}{suffix}"


class LevelShape(NamedTuple):
    """The sizes and rails of each level of a `MultiLevel` network for a number of workers P.

    Attributes:
        sizes: number of units of the level below in a unit of each level, from the inside out; their product is P.
        unit_workers: number of workers in a unit of each level.
        rails: number of rails (links) of each owner in each level. An owner is a unit of the level below; or a switch
            in this unit, if the unit has a switch for each of its own rails (``cross_rail: spine``).
        rail_sharers: number of workers that share the rails of an owner, for each level; 1 for the innermost.
        first_levels: for each level, the level whose link a message takes first if it crosses this level.
    """

    sizes: tuple[int, ...]
    unit_workers: tuple[int, ...]
    rails: tuple[int, ...]
    rail_sharers: tuple[int, ...]
    first_levels: tuple[int, ...]


@dataclass(frozen=True)
class MultiLevel(CostsOfLinks):
    """A network of ``levels`` from the inside out; consecutive ranks fill the units of each level.

    A message passes the link of the lowest level whose unit holds both ends, and the links of the levels below if it
    needs them on the way (`Level.shares_lower_links`). Its latency and overhead are the sums over these links; its
    bandwidth is that of the narrowest, which messages share. If there are fewer workers than the levels can hold, the
    workers fill the first units of each level.

    Args:
        levels: levels, from the inside out; at most one is *open*: its number of units follows from the workers.
        name: display name.
    """

    levels: tuple[Level, ...]
    name: str = ""

    def __post_init__(self) -> None:
        if not self.levels:
            raise SpecError("network.levels", [], "at least one level: {units, link}")
        for index, level in enumerate(self.levels):
            self._check(index, level, f"network.levels.{index}")
        open_levels = [index for index, level in enumerate(self.levels) if level.units is None]
        if len(open_levels) > 1:
            path = f"network.levels.{open_levels[1]}.units"
            raise SpecError(path, None, "a number; only one level may leave it open")

    def _check(self, level_index: int, level: Level, path: str) -> None:
        """Raise ``SpecError`` for a field of a level out of range, or one that the levels around it exclude."""
        if level.units is not None and level.units < 1:
            raise SpecError(f"{path}.units", level.units, "a number of units of the level below, at least 1")
        if level.rails is not None and level.rails < 1:
            raise SpecError(f"{path}.rails", level.rails, "a number of links of a unit below, at least 1")
        ratio = level.oversubscription
        if ratio is not None and not (math.isfinite(ratio) and ratio >= 1):
            raise SpecError(f"{path}.oversubscription", ratio, "a number, at least 1: 2 is 2:1")
        if level.cross_rail is not None and level.cross_rail not in get_args(CrossRail):
            raise SpecError(f"{path}.cross_rail", level.cross_rail, one_of(get_args(CrossRail), str(level.cross_rail)))
        if level_index == 0:
            for name in ("rails", "oversubscription", "shares_lower_links"):
                if getattr(level, name):
                    expected = "none in the innermost level: its link is each worker's own"
                    raise SpecError(f"{path}.{name}", getattr(level, name), expected)
        elif self.shares_lower_links(level_index) and level.rails is None and ratio is None:
            expected = "the uplinks of a unit below (1: one that all share), or an oversubscription instead"
            raise SpecError(f"{path}.rails", None, expected)
        if level.cross_rail and level_index != 1:
            expected = "none except in the second level, as nodes have rails"
            raise SpecError(f"{path}.cross_rail", level.cross_rail, expected)
        # Messages to other rails need a spine above that this level's links lead to, or links inside the nodes.
        if level.cross_rail == "spine" and not (len(self.levels) > 2 and self.shares_lower_links(2)):
            raise SpecError(f"{path}.cross_rail", "spine", "a level above that is passed through this one, or 'inside'")
        if level.cross_rail == "inside" and self.shares_lower_links(level_index):
            expected = "false: nodes whose workers have cards of their own"
            raise SpecError(f"{path}.shares_lower_links", level.shares_lower_links, expected)

    def shares_lower_links(self, level_index: int) -> bool:
        """Return whether a message to this level passes the links of the level below."""
        shares = self.levels[level_index].shares_lower_links
        if shares is None:  # by default a message passes all levels but the inside of a node
            shares = level_index > 0 and self.levels[level_index - 1].link.fabric == "network"
        return shares

    def sizes(self, workers: int) -> tuple[int, ...]:
        """Return the number of units of the level below in a unit of each level, from the inside out.

        Raises:
            SpecError: the workers leave a unit partly filled, or are more than the levels can hold.
        """
        largest_sizes = [level.units for level in self.levels]  # None: the open level
        if None in largest_sizes[:-1]:  # if a level inside others is open, the workers fill all others
            fixed_product = math.prod(size for size in largest_sizes if size is not None)
            if workers % fixed_product:
                expected = f"a multiple of {fixed_product}, the units around the level that is open"
                raise SpecError("workers", workers, expected)
            return tuple(workers // fixed_product if size is None else size for size in largest_sizes)
        sizes = []
        remaining = workers  # number of units of the level below that the workers fill
        for index, size in enumerate(largest_sizes):
            if size is None or remaining <= size:  # one unit of this level holds all of them
                sizes.append(remaining)
                remaining = 1
            elif remaining % size:
                unit = f"a {self.levels[index].name}" if self.levels[index].name else f"a unit of level {index}"
                raise SpecError("workers", workers, f"a multiple of {math.prod(sizes) * size}, the workers of {unit}")
            else:
                sizes.append(size)
                remaining //= size
        if remaining > 1:
            raise SpecError("workers", workers, f"at most {math.prod(sizes)}, the workers of all levels")
        return tuple(sizes)

    @property
    def inner_workers(self) -> int:
        """Return the number of workers inside each unit that the outermost level joins; 0 unless this level is open."""
        *inner_levels, outermost = self.levels
        if outermost.units is not None:
            return 0
        return math.prod(level.units or 0 for level in inner_levels)  # no other level is open

    def shape(self, workers: int) -> LevelShape:
        """Return the sizes and rails of each level of the network among a number of workers.

        Raises:
            SpecError: `sizes` refuses the number of workers; or messages cross a level that has more rails than a unit
                below has workers, or, with ``cross_rail``, a number of rails that does not divide these workers.
        """
        sizes = self.sizes(workers)
        unit_workers = tuple(math.prod(sizes[: number + 1]) for number in range(len(sizes)))
        rails, rail_sharers, first_levels = [1], [1], [0]
        for number, level in enumerate(self.levels[1:], start=1):
            # The owners of this level's rails: the unit below, or its switches, one for each of its own rails.
            num_owners = rails[-1] if self.levels[number - 1].cross_rail == "spine" else 1
            sharers = unit_workers[number - 1] // num_owners
            num_rails = level.rails or sharers
            if not level.rails and self.shares_lower_links(number):  # a rail for each link of the level below
                num_rails = min(rails[-1] * sizes[number - 1] // num_owners, sharers)
            if max(sizes[number:]) > 1:  # messages cross the level
                if num_rails > sharers:
                    expected = f"at most {sharers}, the workers of a unit below"
                    raise SpecError(f"network.levels.{number}.rails", num_rails, expected)
                if level.cross_rail and sharers % num_rails:
                    expected = f"a number that divides the {sharers} workers of a unit below"
                    raise SpecError(f"network.levels.{number}.rails", num_rails, expected)
            rails.append(min(num_rails, sharers))  # a level that no message crosses may have more rails than workers
            rail_sharers.append(sharers)
            first_levels.append(first_levels[-1] if self.shares_lower_links(number) else number)
        return LevelShape(sizes, unit_workers, tuple(rails), tuple(rail_sharers), tuple(first_levels))

    def link_across(self, level_index: int, workers: int, all_send: bool = True) -> Link:
        """Return the link that a message across a level sees while workers of all units send and receive.

        Args:
            level_index: index of the level, from the innermost.
            all_send: whether all workers of the units below send and receive, or only the first of each unit.
        """
        shape = self.shape(workers)
        shares = []  # the message's share of each link, and of each pool of rails, that it passes
        latency_s = overhead_s = 0.0
        for index in range(shape.first_levels[level_index], level_index + 1):
            level, rails = self.levels[index], shape.rails[index]
            senders = shape.rail_sharers[index] if all_send else 1
            latency_s += float(level.link.latency_s)
            overhead_s += float(level.link.overhead_s)
            shares.append(level.link.shared_by(math.ceil(senders / rails)))
            if level.is_pooled:
                shares.append(level.pool(rails).shared_by(senders))
        if len(shares) == 1:  # a share keeps the costs of its link; several links have no costs in common
            return shares[0]
        return Link(
            latency_s,
            min(float(share.down_bytes_per_s) for share in shares),
            overhead_s=overhead_s,
            upload_bytes_per_s=min(float(share.up_bytes_per_s) for share in shares),
        )

    def shares_evenly(self, level_index: int, workers: int) -> bool:
        """Return whether one effective link describes all messages across a level if every worker sends.

        This holds if equally many workers share each rail, or if a message shares nothing but a single rail.
        """
        shape = self.shape(workers)
        passed_levels = range(shape.first_levels[level_index], level_index + 1)
        if len(passed_levels) == 1 and not self.levels[level_index].is_pooled:
            return True  # the most shared rail, which `link_across` takes, decides the time
        return all(shape.rail_sharers[index] % shape.rails[index] == 0 for index in passed_levels)

    def is_half_duplex(self, level_index: int, workers: int) -> bool:
        """Return whether a message across a level passes a half-duplex link."""
        first_level = self.shape(workers).first_levels[level_index]
        return any(level.link.duplex == "half" for level in self.levels[first_level : level_index + 1])

    def among(self, workers: int) -> LevelTopology:
        """Return the topology of a number of workers."""
        return LevelTopology(self, workers, self.shape(workers))

    def describe(self) -> str:
        """Return a short description for users, from the inside out."""
        texts = [f"{level.name} of {level.describe()}" if level.name else level.describe() for level in self.levels]
        return ", ".join(texts)


class LevelChannels(NamedTuple):
    """The channels of a level's rails, or of its pools, with consecutive numbers.

    Attributes:
        link: link whose two rates the channels have.
        num_up: number of channels up; as many channels down follow them.
        is_pool: whether each channel is a pool of all rails of an owner (see `LevelShape.rails`), not a single rail.
    """

    level_index: int
    link: Link
    begin: int
    num_up: int
    is_pool: bool


@dataclass(frozen=True, eq=False)
class LevelTopology(ByValue, NetworkTopology):
    """The topology of workers on a network of levels: its channels, and the path of each message.

    The first channels are the rails, level by level from the inside out. A level has the channels of all its rails
    upwards, then those downwards; the innermost rails are the workers' own links. After the rails come those
    of the oversubscribed levels: a channel upwards for each unit, which its rails share, then the channels downwards. A
    half-duplex link uses its upward channel both ways.

    Args:
        shape: sizes and rails of the levels.
    """

    network: MultiLevel
    workers: int
    shape: LevelShape

    @property
    def innermost(self) -> tuple[int, Link]:
        """Return the number of workers of an innermost unit, such as a node, and the link of each."""
        return self.shape.unit_workers[0], self.network.levels[0].link

    @cached_property
    def bandwidth_bytes_per_s(self) -> Floats:
        """Return the payload bytes per second of each channel, in the order of the class's docstring."""
        rates: list[NDArray[np.float64]] = []
        for channels in self.channels:
            for rate in (channels.link.up_bytes_per_s, channels.link.down_bytes_per_s):
                rates.append(np.full(channels.num_up, rate, dtype=np.float64))
        return np.concatenate(rates)

    def _num_rail_owners(self, level_index: int) -> int:
        """Return the number of owners of rails in a level, see `LevelShape.rails`."""
        return self.workers // self.shape.rail_sharers[level_index]

    @cached_property
    def channels(self) -> list[LevelChannels]:
        """Return all channels: the rails of each level, then the pools of the levels that have any."""
        all_channels: list[LevelChannels] = []
        begin = 0
        for is_pool in (False, True):
            for index, level in enumerate(self.network.levels):
                if level.is_pooled or not is_pool:
                    rails, owners = self.shape.rails[index], self._num_rail_owners(index)
                    link, num_up = (level.pool(rails), owners) if is_pool else (level.link, owners * rails)
                    all_channels.append(LevelChannels(index, link, begin, num_up, is_pool))
                    begin += 2 * num_up  # as many down
        return all_channels

    def _rail_owner(self, level_index: int, workers: Ints) -> tuple[Ints, Ints]:
        """Return the number of the owner of each worker's rail in a level, and the worker's index in the owner."""
        shape = self.shape
        if level_index == 0:  # each worker has its own link
            return workers, np.zeros_like(workers)
        level_below = level_index - 1
        unit, rank_in_unit = np.divmod(workers, shape.unit_workers[level_below])
        if self.network.levels[level_below].cross_rail != "spine":
            return unit, rank_in_unit
        # The level below has a switch for each rail of its nodes, and each switch has rails of its own to this level.
        node_workers, switches = shape.unit_workers[level_below - 1], shape.rails[level_below]
        node, rank_in_node = np.divmod(rank_in_unit, node_workers)
        node_switch_workers = node_workers // switches
        switch, rank_at_switch = np.divmod(rank_in_node, node_switch_workers)
        return unit * switches + switch, node * node_switch_workers + rank_at_switch

    def level_channels(self, level_index: int, workers: Ints, down: bool) -> list[Ints]:
        """Return the channels of workers in a level: each worker's rail, and its unit's pool if the level has pools."""
        rails = self.shape.rails[level_index]
        owner, rank_at_owner = self._rail_owner(level_index, workers)
        # Channels down follow all channels up; on a half-duplex link a channel up serves both directions.
        if down and self.network.levels[level_index].link.duplex != "half":
            owner = owner + self._num_rail_owners(level_index)
        rail = owner * rails + rank_at_owner * rails // self.shape.rail_sharers[level_index]
        in_level = [channels for channels in self.channels if channels.level_index == level_index]
        return [channels.begin + (owner if channels.is_pool else rail) for channels in in_level]

    def paths(self, senders: Ints, receivers: Ints) -> Paths:
        """Return the paths of messages: up to the lowest level whose unit holds both ends, and down again.

        Between rails that are joined ``inside`` nodes, a message first passes the innermost link to the worker of the
        sender's node that has the receiver's rail, and leaves the node from there.
        """
        senders, receivers = np.asarray(senders, dtype=np.int64), np.asarray(receivers, dtype=np.int64)
        levels, shape = self.network.levels, self.shape
        top_level = np.zeros(senders.shape, dtype=np.int64)  # the lowest level of which one unit holds both ends
        for unit_workers in shape.unit_workers[:-1]:
            # The top level is above each level whose units do not hold both ends.
            top_level += senders // unit_workers != receivers // unit_workers

        cross_rail = levels[1].cross_rail if len(levels) > 1 else None
        leaving_workers, via_peer = senders, np.zeros(senders.shape, dtype=np.bool_)
        columns: list[Ints] = []  # the channels on the way: arrays with an entry for each message, -1 for no channel
        if cross_rail:
            node_workers, node_rails = shape.unit_workers[0], shape.rails[1]
            sender_rail = senders % node_workers * node_rails // node_workers
            receiver_rail = receivers % node_workers * node_rails // node_workers
            changes_rail = (top_level >= 1) & (sender_rail != receiver_rail)
            if cross_rail == "spine":
                top_level = np.where(changes_rail, np.maximum(top_level, 2), top_level)
            else:  # "inside": by the peer, the worker of the sender's node with the receiver's number in its node
                via_peer = changes_rail
                peers = senders // node_workers * node_workers + receivers % node_workers
                leaving_workers = np.where(via_peer, peers, senders)
                up, down = self.level_channels(0, senders, down=False), self.level_channels(0, peers, down=True)
                columns += [np.where(via_peer, channel, -1) for channel in (*up, *down)]

        first_level = np.array(shape.first_levels)[top_level]
        latency_s = np.where(via_peer, np.float64(levels[0].link.latency_s), 0.0)
        overhead_s = np.where(via_peer, np.float64(levels[0].link.overhead_s), 0.0)
        down_columns: list[Ints] = []
        for index, level in enumerate(levels):
            is_passed = (first_level <= index) & (index <= top_level)
            latency_s = latency_s + np.where(is_passed, level.link.latency_s, 0.0)
            overhead_s = overhead_s + np.where(is_passed, level.link.overhead_s, 0.0)
            for channel in self.level_channels(index, leaving_workers, down=False):
                columns.append(np.where(is_passed, channel, -1))
            for channel in self.level_channels(index, receivers, down=True):
                down_columns.append(np.where(is_passed, channel, -1))
        columns += down_columns[::-1]  # a message comes down from the outermost level that it passes
        return Paths(_pack_channels(columns), latency_s, overhead_s)


def _pack_channels(columns: Sequence[Ints]) -> Ints:
    """Return the channels of each message, ``(N, H)``, from columns ``(N,)`` in the order of the path.

    Entries of -1 (no channel) move to the end of their row, and surplus columns are removed.
    """
    num_channels = np.zeros(len(columns[0]), dtype=np.int64)  # number of channels of each message so far
    packed = np.full((len(num_channels), len(columns)), -1, dtype=np.int64)
    for column in columns:
        messages = np.flatnonzero(column >= 0)
        packed[messages, num_channels[messages]] = column[messages]
        num_channels[messages] += 1
    return packed[:, : max(1, int(num_channels.max(initial=0)))]
