"""A fast clock of a placement of replicated pipelines: the flush exact on lines of its own, the averaging in short.

The flushes of each replica follow `syncline.costmodel.pipeline.flush.gpipe_ends_s`, with each line's channels shared by
all replicas that send over it in the same direction. A stage k then averages n_k bytes among D replicas:

| averaging          | seconds                                                                           |
|--------------------|-----------------------------------------------------------------------------------|
| `reduce+broadcast` | 2 (n / R + sum of latencies), R of the slowest link of the chain of replicas       |
| `direct`           | 2 max over messages (latency + n / (D R)), all D (D - 1) of a stage at once        |
| others             | 2 (D - 1) max over neighbours of a ring (latency + n / (D R))                      |

Averaging of all stages shares channels, and does not meet the last gradients on their way, as it does in the event
simulation. So this clock ranks placements, and users of a search time the best in their own clock.

The slowest replica decides, so that most swaps of two ranks change nothing. A search therefore minimises a *score*: the
seconds, and ``MEAN_WEIGHT`` times what they would be if the mean replica and the mean stage decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from syncline.costmodel.collectives.direct import DIRECT
from syncline.costmodel.network.nccl_costs import messages_ahead
from syncline.costmodel.network.paths import Floats, Ints
from syncline.costmodel.network.topology import Topology
from syncline.costmodel.pipeline.averaging import CENTRAL
from syncline.costmodel.pipeline.flush import gpipe_ends_s

MEAN_WEIGHT = 0.1
"""Part of a score that tells placements apart whose slowest replicas are equal."""


@dataclass(frozen=True)
class PipelineWork:
    """The work of replicated pipelines between two updates.

    Args:
        stages: K.
        replicas: D.
        microbatches: M, in a flush.
        flushes: flushes before an update.
        forward_s: seconds of a micro-batch at each stage, ``(K,)``.
        backward_s: likewise.
        message_bytes: bytes of an activation, and of its gradient back.
        gradient_bytes: bytes that the replicas of each stage average, ``(K,)``.
        averaging: way in which they average.
        update_s: seconds of each stage's update, ``(K,)``.
    """

    stages: int
    replicas: int
    microbatches: int
    flushes: int
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    message_bytes: float
    gradient_bytes: tuple[float, ...]
    averaging: str
    update_s: tuple[float, ...]


class _Lines(NamedTuple):
    """Messages that are sent at the same time: their seconds per byte and latencies, in the shape of their ends."""

    byte_s: Floats
    latency_s: Floats


class PlacementTimes(NamedTuple):
    """Times of S placements, ``(S,)`` each: the seconds, and the score that a search minimises."""

    seconds: Floats
    score: Floats


@dataclass(frozen=True, eq=False)
class PlacementClock:
    """The clock of the placements of a work on a topology, whose workers are the positions."""

    work: PipelineWork
    topology: Topology

    @cached_property
    def _paths(self) -> tuple[Ints, Floats]:
        """Return the channels ``(N, N, C)`` and the latency ``(N, N)`` from each position to each; unused: the last."""
        count = self.topology.workers
        ends = np.divmod(np.arange(count * count), count)
        different = ends[0] != ends[1]
        paths = self.topology.paths(ends[0][different], ends[1][different])
        channels = np.full((count * count, paths.channels.shape[1]), -1)
        channels[different] = paths.channels
        latency_s = np.zeros(count * count)
        latency_s[different] = paths.latency_s + paths.overhead_s
        channels[channels < 0] = len(self.topology.bandwidth_bytes_per_s)
        return channels.reshape(count, count, -1), latency_s.reshape(count, count)

    @cached_property
    def _channel_byte_s(self) -> Floats:
        """Return the seconds per byte of each channel, and 0 of the one that stands for none."""
        return np.append(1 / np.asarray(self.topology.bandwidth_bytes_per_s, dtype=np.float64), 0.0)

    def _lines(self, senders: Ints, receivers: Ints) -> _Lines:
        """Return the lines of messages ``(S, ...)`` that share the channels of their placement equally."""
        channels, latency_s = self._paths
        used, count = channels[senders, receivers], len(self._channel_byte_s)
        numbered = used + count * np.arange(len(used)).reshape(-1, *(1,) * (used.ndim - 1))
        load = np.bincount(numbered.ravel(), minlength=count * len(used))
        return _Lines((self._channel_byte_s[used] * load[numbered]).max(axis=-1), latency_s[senders, receivers])

    def times(self, positions: Ints) -> PlacementTimes:
        """Return the times of placements, ``(S, D K)`` positions by rank: all flushes, averaging and updates."""
        work = self.work
        grid = np.asarray(positions).reshape(-1, work.replicas, work.stages)
        forth, back = self._lines(grid[..., :-1], grid[..., 1:]), self._lines(grid[..., 1:], grid[..., :-1])
        ends_s = gpipe_ends_s(
            work.forward_s, work.backward_s,
            np.stack([forth.byte_s, back.byte_s], axis=-2) * work.message_bytes,
            np.stack([forth.latency_s, back.latency_s], axis=-2),
            work.microbatches, messages_ahead(self.topology, work.message_bytes), work.flushes,
        )  # fmt: skip
        after_s = self._averaging_s(grid) + np.array(work.update_s)
        seconds = (ends_s.max(axis=1) + after_s).max(axis=1)
        return PlacementTimes(seconds, seconds + MEAN_WEIGHT * (ends_s[..., 0].mean(axis=1) + after_s.mean(axis=1)))

    def _averaging_s(self, grid: Ints) -> Floats:
        """Return the seconds in which each stage averages its gradient, ``(S, K)``."""
        work, count, nbytes = self.work, self.work.replicas, np.array(self.work.gradient_bytes)
        if count == 1 or not nbytes.any():
            return np.zeros((len(grid), work.stages))
        if work.averaging == CENTRAL:  # up the chain of replicas to the first, and down again
            up, down = self._lines(grid[:, 1:], grid[:, :-1]), self._lines(grid[:, :-1], grid[:, 1:])
            passes_s = [nbytes * line.byte_s.max(axis=1) + line.latency_s.sum(axis=1) for line in (up, down)]
            return passes_s[0] + passes_s[1]
        if work.averaging == DIRECT:
            ends = np.nonzero(~np.eye(count, dtype=bool))
            lines = self._lines(grid[:, ends[0]], grid[:, ends[1]])
            return 2 * (lines.latency_s + nbytes / count * lines.byte_s).max(axis=1)
        ring = self._lines(grid, np.roll(grid, -1, axis=1))
        return 2 * (count - 1) * (ring.latency_s + nbytes / count * ring.byte_s).max(axis=1)
