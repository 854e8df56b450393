"""Placements of replicated pipelines on a network: by rule, or by a local search with a fast clock.

The *clock* is exact for flushes on unshared lines, and approximate for averaging. The flushes of each replica follow
`syncline.costmodel.layouts.pipelines.gpipe_ends_s`; all replicas that send over a line in the same direction share its
channels. Then the D replicas of a stage average n bytes, over routes of bandwidth R:

| averaging          | seconds                                                                           |
|--------------------|-----------------------------------------------------------------------------------|
| `reduce+broadcast` | 2 (n / R + sum of latencies), R of the slowest link of the chain of replicas       |
| `direct`           | 2 max over messages (latency + n / (D R)), all D (D - 1) of a stage at once        |
| others             | 2 (D - 1) max over neighbours of a ring (latency + n / (D R))                      |

The averaging of all stages shares channels, but not with the last gradients of the flush, as in the event simulation.
So the clock ranks placements, and the event simulation of the schedule times the best ones.

Most swaps of two ranks change nothing, because the slowest replica decides the time. The search therefore minimises a
*score*: the seconds, plus ``MEAN_WEIGHT`` times the seconds if the mean replica and the mean stage decided.

DT-FM's scheduler (B. Yuan et al., "Decentralized Training of Foundation Models in Heterogeneous Environments", NeurIPS
2022) minimises two levels: the averaging inside balanced groups, and a path over the groups; its steps move machines
between groups. In this search a step swaps the positions of two ranks, or of a rank and a position without a rank, and
both levels are one clock. From each start the search times all swaps in a random order, ``BATCH_SWAPS`` at a time. It
makes the best swap of a batch if the score gets lower, and ends when a whole round of swaps finds no lower score, or
after ``MAX_SWAPS`` timed swaps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from syncline.costmodel.collectives.placed import DIRECT
from syncline.costmodel.layouts import layout
from syncline.costmodel.layouts.pipelines import CENTRAL, gpipe_ends_s
from syncline.costmodel.network.link import Link, among, topology
from syncline.costmodel.network.matrix import Matrix
from syncline.costmodel.network.paths import Floats, Ints, Network, Topology
from syncline.costmodel.network.software_costs import messages_ahead
from syncline.seeds import generator
from syncline.sim.pipelines.pipeline import NetworkLike
from syncline.sim.pipelines.run import run_pipeline
from syncline.sim.program.timeline import Timeline
from syncline.specs import PipelineSpec

MEAN_WEIGHT = 0.1
"""Weight of the means in a score; they distinguish placements with equal slowest replicas."""


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
        message_bytes: bytes of an activation, and equally of its gradient.
        gradient_bytes: bytes that the replicas of each stage average, ``(K,)``.
        averaging: name of the collectives that average, see `syncline.costmodel.layouts.pipelines`.
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


class _MessageCosts(NamedTuple):
    """Seconds per byte and latency in seconds of each of several simultaneous messages."""

    byte_s: Floats
    latency_s: Floats


class PlacementTimes(NamedTuple):
    """Times of S placements, both ``(S,)``: the seconds, and the score that a search minimises, see this module."""

    seconds: Floats
    score: Floats


@dataclass(frozen=True, eq=False)
class PlacementClock:
    """A clock that predicts the time of replicated pipelines from the position of each rank on a topology."""

    work: PipelineWork
    topology: Topology

    @cached_property
    def _paths(self) -> tuple[Ints, Floats]:
        """Return the channels, ``(N, N, C)``, and latencies in seconds, ``(N, N)``, between all pairs of N positions.

        An index beyond the last channel fills up a route of fewer than C channels.
        """
        count, no_channel = self.topology.workers, len(self.topology.bandwidth_bytes_per_s)
        senders, receivers = np.divmod(np.arange(count * count), count)
        different = senders != receivers
        paths = self.topology.paths(senders[different], receivers[different])
        channels = np.full((count * count, paths.channels.shape[1]), no_channel)
        channels[different] = np.where(paths.channels < 0, no_channel, paths.channels)
        latency_s = np.zeros(count * count)
        latency_s[different] = paths.latency_s + paths.overhead_s
        return channels.reshape(count, count, -1), latency_s.reshape(count, count)

    @cached_property
    def _channel_byte_s(self) -> Floats:
        """Return the seconds per byte of each channel, and 0 for the index that stands for none."""
        return np.append(1 / np.asarray(self.topology.bandwidth_bytes_per_s, dtype=np.float64), 0.0)

    def _message_costs(self, senders: Ints, receivers: Ints) -> _MessageCosts:
        """Return the seconds per byte and the latency of messages between positions ``(S, ...)`` of S placements.

        All messages of a placement are sent at the same time and share the channels equally.
        """
        channels, latency_s = self._paths
        used_channels = channels[senders, receivers]
        num_placements, num_channels = len(used_channels), len(self._channel_byte_s)
        # Each placement has its own range of channel numbers: one count covers the messages of all.
        placements = np.arange(num_placements).reshape(-1, *(1,) * (used_channels.ndim - 1))
        numbered_channels = used_channels + num_channels * placements
        messages_of_channel = np.bincount(numbered_channels.ravel(), minlength=num_channels * num_placements)
        byte_s = self._channel_byte_s[used_channels] * messages_of_channel[numbered_channels]
        # The slowest channel of a route decides.
        return _MessageCosts(byte_s.max(axis=-1), latency_s[senders, receivers])

    def times(self, positions: Ints) -> PlacementTimes:
        """Return the seconds that S placements of pipelines take for all flushes, the averaging and the updates.

        Args:
            positions: position of each of the D K ranks in each placement, ``(S, D K)``.
        """
        work = self.work
        grid = np.asarray(positions).reshape(-1, work.replicas, work.stages)
        forward = self._message_costs(grid[..., :-1], grid[..., 1:])
        backward = self._message_costs(grid[..., 1:], grid[..., :-1])
        ends_s = gpipe_ends_s(
            work.forward_s, work.backward_s,
            messages_s=np.stack([forward.byte_s, backward.byte_s], axis=-2) * work.message_bytes,
            latencies_s=np.stack([forward.latency_s, backward.latency_s], axis=-2),
            microbatches=work.microbatches, ahead=messages_ahead(self.topology, work.message_bytes),
            flushes=work.flushes,
        )  # fmt: skip
        averaging_and_update_s = self._averaging_s(grid) + np.array(work.update_s)
        stage_ends_s = ends_s.max(axis=1)  # a stage averages once its last replica has finished
        seconds = (stage_ends_s + averaging_and_update_s).max(axis=1)
        replica_ends_s = ends_s[..., 0]  # the backward pass of a replica's first stage ends last
        mean_s = replica_ends_s.mean(axis=1) + averaging_and_update_s.mean(axis=1)
        return PlacementTimes(seconds, seconds + MEAN_WEIGHT * mean_s)

    def _averaging_s(self, grid: Ints) -> Floats:
        """Return the seconds of each stage's averaging, ``(S, K)``; ``grid`` has the ranks' positions ``(S, D, K)``."""
        work, replicas, nbytes = self.work, self.work.replicas, np.array(self.work.gradient_bytes)
        if replicas == 1 or not nbytes.any():
            return np.zeros((len(grid), work.stages))
        if work.averaging == CENTRAL:  # up the chain of replicas to the first, and down again
            seconds = np.zeros((len(grid), work.stages))
            for senders, receivers in ((grid[:, 1:], grid[:, :-1]), (grid[:, :-1], grid[:, 1:])):
                costs = self._message_costs(senders, receivers)
                seconds += nbytes * costs.byte_s.max(axis=1) + costs.latency_s.sum(axis=1)
            return seconds
        if work.averaging == DIRECT:  # shards from each replica to each other one, and their means back
            senders, receivers = np.nonzero(~np.eye(replicas, dtype=bool))
            costs = self._message_costs(grid[:, senders], grid[:, receivers])
            return 2 * (costs.latency_s + nbytes / replicas * costs.byte_s).max(axis=1)
        # A reduce-scatter and an all-gather on a ring have D - 1 rounds each.
        ring = self._message_costs(grid, np.roll(grid, -1, axis=1))
        return 2 * (replicas - 1) * (ring.latency_s + nbytes / replicas * ring.byte_s).max(axis=1)


BATCH_SWAPS = 64
"""Number of swaps that the search times at once; it makes the best of them."""

MAX_SWAPS = 40_000
"""Limit on the swaps that are timed from each start; some seconds for 64 ranks."""

IMPROVEMENT = 1 - 1e-9
"""Factor on the score below which a swap counts as better."""


class FoundPlacement(NamedTuple):
    """The placement that a search found.

    Attributes:
        positions: position of each rank, ``(P,)``.
        score: the score that the search minimises.
        swaps: number of swaps that were timed.
    """

    positions: Ints
    score: float
    swaps: int


def search_placement(clock: PlacementClock, starts: Mapping[str, Ints], places: Ints) -> FoundPlacement:
    """Return the placement with the lowest score that the search finds; its ``swaps`` count those of all starts.

    Args:
        clock: the clock of pipelines on a topology of N positions.
        starts: placements by name: the position of each rank, ``(P,)``.
        places: index of each position's place, ``(N,)``. The search does not swap two positions of one place.
    """
    placements = [_improve_placement(clock, name, start, places) for name, start in starts.items()]
    best_placement = min(placements, key=lambda placement: placement.score)
    return best_placement._replace(swaps=sum(placement.swaps for placement in placements))


def _improve_placement(clock: PlacementClock, name: str, start: Ints, places: Ints) -> FoundPlacement:
    """Swap positions of ranks from one start until no swap lowers the score, and return the placement."""
    ranks = len(start)
    # The position of each rank, and then the positions without a rank.
    positions = np.concatenate([start, np.setdiff1d(np.arange(clock.topology.workers), start)])
    pairs = np.stack(np.triu_indices(len(positions), 1), axis=1)
    # The first of a pair is a rank, because a swap of two positions without a rank changes nothing.
    pairs = generator(0, f"placement {name}").permutation(pairs[pairs[:, 0] < ranks])
    score = float(clock.times(start[None]).score[0])
    num_swaps, tried_since_better, next_pair = 0, 0, 0
    while tried_since_better < len(pairs) and num_swaps < MAX_SWAPS:
        swaps = pairs[next_pair : next_pair + BATCH_SWAPS]
        next_pair = (next_pair + len(swaps)) % len(pairs)
        tried_since_better += len(swaps)
        swaps = swaps[places[positions[swaps[:, 0]]] != places[positions[swaps[:, 1]]]]
        if not len(swaps):  # each swap of the batch is between positions of one place
            continue
        swapped = np.tile(positions, (len(swaps), 1))  # a row for each swap
        row = np.arange(len(swaps))[:, None]
        swapped[row, swaps] = swapped[row, swaps[:, ::-1]]
        swap_scores = clock.times(swapped[:, :ranks]).score
        num_swaps += len(swaps)
        best = int(np.argmin(swap_scores))
        if swap_scores[best] < score * IMPROVEMENT:
            positions, score, tried_since_better = swapped[best], float(swap_scores[best]), 0
    return FoundPlacement(positions[:ranks], score, num_swaps)


NAMED, SEARCHED = "by rank", "searched"


@dataclass(frozen=True, eq=False)
class PlacedPipeline:
    """A simulated pipeline whose ranks each have a position on a network.

    Attributes:
        placement: name of the placement: ``given``, a rule, ``by rank`` or ``searched``.
        ranks: the name (on a matrix) or position of each rank's place; empty if none was chosen.
        network: the network or topology of the simulation.
        candidates: makespan of each simulated placement in seconds, by name.
    """

    placement: str
    ranks: list[Any]
    network: NetworkLike
    timeline: Timeline
    candidates: dict[str, float] = field(default_factory=dict)


def run_placed(spec: PipelineSpec, schedule: str, network: Network) -> PlacedPipeline:
    """Return a simulation of a schedule of a spec on a network, in the fastest placement that the spec allows.

    Raises:
        SynclineError: a schedule that cannot finish.
    """
    pipeline = spec.pipeline(schedule)
    if spec.placement == layout.GIVEN or isinstance(network, Link):  # on one link per worker all placements are alike
        timeline = run_pipeline(pipeline, network)
        return PlacedPipeline(layout.GIVEN, [], network, timeline, candidates={layout.GIVEN: timeline.makespan_s})
    best: PlacedPipeline | None = None
    candidates: dict[str, float] = {}
    for name, positions in _candidate_positions(spec, schedule, network).items():
        # A spec may name positions beyond those that as many ranks need.
        num_positions = max(layout.position_count(network, len(positions)), int(positions.max()) + 1)
        placed = among(topology(network, num_positions), positions)
        timeline = run_pipeline(pipeline, placed)
        candidates[name] = timeline.makespan_s
        if best is None or timeline.makespan_s < best.timeline.makespan_s:
            ranks = positions.tolist()
            if isinstance(network, Matrix):  # show the names of places
                ranks = [network.places[network.ranks[position]] for position in ranks]
            best = PlacedPipeline(name, ranks, placed, timeline, candidates)
    assert best is not None, "a placement has at least one candidate"
    return best


def _candidate_positions(spec: PipelineSpec, schedule: str, network: Network) -> dict[str, Ints]:
    """Return the candidates for the placement, by name: the positions of all ranks, ``(ranks,)``."""
    ranks = spec.stages * spec.replicas
    if not isinstance(spec.placement, str):  # the spec names the place of each rank
        return {NAMED: np.array(spec.positions(network))}
    ordered_ranks = layout.positions_by_place(network, ranks, spec.message_bytes())
    positions_by_rule = {
        rule: layout.ruled_positions(rule, ordered_ranks, spec.stages, spec.replicas)
        for rule in (layout.STAGES_INSIDE, layout.REPLICAS_INSIDE)
    }
    if spec.placement in positions_by_rule:
        return {spec.placement: positions_by_rule[spec.placement]}
    starts = {layout.GIVEN: np.arange(ranks)} | positions_by_rule
    position_topology = topology(network, layout.position_count(network, ranks))
    # Swaps inside a place of a matrix change nothing; on other networks each position is a place of its own.
    places = np.array(network.ranks) if isinstance(network, Matrix) else np.arange(position_topology.workers)
    clock = PlacementClock(pipeline_work(spec, schedule), position_topology)
    return starts | {SEARCHED: search_placement(clock, starts, places).positions}


def pipeline_work(spec: PipelineSpec, schedule: str) -> PipelineWork:
    """Return the work of a spec's pipelines between two updates; the two parts of a split backward pass are joined."""
    forward, backward, weight = spec.stage_seconds(schedule)
    pipeline = spec.pipeline(schedule)
    return PipelineWork(
        stages=spec.stages, replicas=spec.replicas, microbatches=spec.microbatches, flushes=spec.flushes,
        forward_s=tuple(forward),
        backward_s=tuple(input_s + weight_s for input_s, weight_s in zip(backward, weight, strict=True)),
        message_bytes=pipeline.activation_bytes,
        gradient_bytes=tuple(pipeline.gradient_bytes) or (0.0,) * spec.stages, averaging=spec.averaging,
        update_s=tuple(pipeline.updates_s()),
    )  # fmt: skip
