"""A fast clock of a placement of replicated pipelines: exact for flushes on unshared lines, approximate for averaging.

The flushes of each replica follow `syncline.costmodel.pipeline.flush.gpipe_ends_s`; all replicas that send over a line
in the same direction share its channels. Then the D replicas of a stage average n bytes, over routes of bandwidth R:

| averaging          | seconds                                                                           |
|--------------------|-----------------------------------------------------------------------------------|
| `reduce+broadcast` | 2 (n / R + sum of latencies), R of the slowest link of the chain of replicas       |
| `direct`           | 2 max over messages (latency + n / (D R)), all D (D - 1) of a stage at once        |
| others             | 2 (D - 1) max over neighbours of a ring (latency + n / (D R))                      |

The averaging of all stages shares channels, but not with the last gradients of the flush, as in the event simulation.
So this clock ranks placements, and users of a search time the best placement in another clock.

The slowest replica decides, so that most swaps of two ranks change nothing. A search therefore minimises a *score*: the
seconds, plus ``MEAN_WEIGHT`` times the seconds if the mean replica and the mean stage decided.
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
"""Weight of the means in a score, which distinguish placements whose slowest replicas are equal."""


@dataclass(frozen=True)
class PipelineWork:
    """The work of replicated pipelines between two updates.

    Args:
        stages: K, number of stages.
        replicas: D, number of replicas.
        microbatches: number of micro-batches in a flush.
        flushes: number of flushes before an update.
        forward_s: seconds of a micro-batch's forward at each stage, ``(K,)``.
        backward_s: seconds of a micro-batch's backward at each stage, ``(K,)``.
        message_bytes: bytes of an activation, and of its gradient back.
        gradient_bytes: bytes that the replicas of each stage average, ``(K,)``.
        averaging: name of the collectives that average, see `syncline.costmodel.pipeline.averaging`.
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
    """Seconds per byte and latencies of messages that are sent at the same time; arrays have the senders' shape."""

    byte_s: Floats
    latency_s: Floats


class PlacementTimes(NamedTuple):
    """Times of S placements, both ``(S,)``: the seconds, and the score that a search minimises."""

    seconds: Floats
    score: Floats


@dataclass(frozen=True, eq=False)
class PlacementClock:
    """The clock of placements of pipelines; the workers of the topology are the positions."""

    work: PipelineWork
    topology: Topology

    @cached_property
    def _paths(self) -> tuple[Ints, Floats]:
        """Return the channels, ``(N, N, C)``, and the seconds of latency, ``(N, N)``, from each of N positions to each.

        A route of fewer than C channels ends in the index after the last channel, which stands for none.
        """
        count = self.topology.workers
        senders, receivers = np.divmod(np.arange(count * count), count)
        different = senders != receivers
        paths = self.topology.paths(senders[different], receivers[different])
        channels = np.full((count * count, paths.channels.shape[1]), -1)
        channels[different] = paths.channels
        latency_s = np.zeros(count * count)
        latency_s[different] = paths.latency_s + paths.overhead_s
        channels[channels < 0] = len(self.topology.bandwidth_bytes_per_s)
        return channels.reshape(count, count, -1), latency_s.reshape(count, count)

    @cached_property
    def _channel_byte_s(self) -> Floats:
        """Return the seconds per byte of each channel, and 0 for the index that stands for none."""
        return np.append(1 / np.asarray(self.topology.bandwidth_bytes_per_s, dtype=np.float64), 0.0)

    def _lines(self, senders: Ints, receivers: Ints) -> _Lines:
        """Return the lines of simultaneous messages of S placements, ``(S, ...)``.

        All messages of a placement share its channels equally.
        """
        channels, latency_s = self._paths
        used, count = channels[senders, receivers], len(self._channel_byte_s)
        index = used + count * np.arange(len(used)).reshape(-1, *(1,) * (used.ndim - 1))  # of placement and channel
        load = np.bincount(index.ravel(), minlength=count * len(used))
        return _Lines((self._channel_byte_s[used] * load[index]).max(axis=-1), latency_s[senders, receivers])

    def times(self, positions: Ints) -> PlacementTimes:
        """Return the times of S placements: all flushes, averaging and updates.

        Args:
            positions: position of each rank in each placement, ``(S, D K)``.
        """
        work = self.work
        grid = np.asarray(positions).reshape(-1, work.replicas, work.stages)
        forward = self._lines(grid[..., :-1], grid[..., 1:])
        backward = self._lines(grid[..., 1:], grid[..., :-1])
        ends_s = gpipe_ends_s(
            work.forward_s, work.backward_s,
            np.stack([forward.byte_s, backward.byte_s], axis=-2) * work.message_bytes,
            np.stack([forward.latency_s, backward.latency_s], axis=-2),
            work.microbatches, messages_ahead(self.topology, work.message_bytes), work.flushes,
        )  # fmt: skip
        after_s = self._averaging_s(grid) + np.array(work.update_s)
        seconds = (ends_s.max(axis=1) + after_s).max(axis=1)
        return PlacementTimes(seconds, seconds + MEAN_WEIGHT * (ends_s[..., 0].mean(axis=1) + after_s.mean(axis=1)))

    def _averaging_s(self, grid: Ints) -> Floats:
        """Return the seconds in which each stage averages, ``(S, K)``; ``grid`` has the positions, ``(S, D, K)``."""
        work, count, nbytes = self.work, self.work.replicas, np.array(self.work.gradient_bytes)
        if count == 1 or not nbytes.any():
            return np.zeros((len(grid), work.stages))
        if work.averaging == CENTRAL:  # up the chain of replicas to the first, and down again
            up, down = self._lines(grid[:, 1:], grid[:, :-1]), self._lines(grid[:, :-1], grid[:, 1:])
            passes_s = [nbytes * line.byte_s.max(axis=1) + line.latency_s.sum(axis=1) for line in (up, down)]
            return passes_s[0] + passes_s[1]
        if work.averaging == DIRECT:
            senders, receivers = np.nonzero(~np.eye(count, dtype=bool))
            lines = self._lines(grid[:, senders], grid[:, receivers])
            return 2 * (lines.latency_s + nbytes / count * lines.byte_s).max(axis=1)
        ring = self._lines(grid, np.roll(grid, -1, axis=1))
        return 2 * (count - 1) * (ring.latency_s + nbytes / count * ring.byte_s).max(axis=1)
