"""The workers of a network of several levels: which channels each message passes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.topology import ByValue, Floats, Ints, Paths

if TYPE_CHECKING:
    from syncline.costmodel.network.multi_level import LevelShape, MultiLevel


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
