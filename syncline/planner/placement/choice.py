"""The placement of a pipeline's ranks on a network that its spec names; of several candidates the fastest.

The event simulation of the schedule itself times the candidates.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from syncline.costmodel.layouts.placements import (
    GIVEN,
    REPLICAS_INSIDE,
    STAGES_INSIDE,
    by_place,
    position_count,
    ruled_positions,
)
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.matrix import Matrix
from syncline.costmodel.network.paths import Ints
from syncline.costmodel.network.topology import Network, Topology, among, topology
from syncline.planner.placement.clock import PipelineWork, PlacementClock
from syncline.planner.placement.search import search_placement
from syncline.sim.pipelines.pipeline import NetworkLike
from syncline.sim.pipelines.run import run_pipeline
from syncline.sim.program.timeline import Timeline
from syncline.specs import PipelineSpec

NAMED, SEARCHED = "by rank", "searched"


@dataclass(frozen=True, eq=False)
class PlacedPipeline:
    """A simulated pipeline whose ranks each have a position on a network.

    Attributes:
        placement: name of the placement: ``given``, a rule, ``by rank`` or ``searched``.
        ranks: place of each rank, by name on a matrix, else by position; empty if the network has the placement.
        network: the network or topology of the simulation.
        timeline: timeline of the simulation.
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
    if spec.placement == GIVEN or isinstance(network, Link):
        timeline = run_pipeline(pipeline, network)
        return PlacedPipeline(GIVEN, [], network, timeline, {GIVEN: timeline.makespan_s})
    best: PlacedPipeline | None = None
    candidates: dict[str, float] = {}
    for name, positions in _positions(spec, schedule, network).items():
        placed = _placed_topology(network, positions)
        timeline = run_pipeline(pipeline, placed)
        candidates[name] = timeline.makespan_s
        if best is None or timeline.makespan_s < best.timeline.makespan_s:
            best = PlacedPipeline(name, _places(network, positions), placed, timeline, candidates)
    assert best is not None, "a placement has a candidate at least"
    return best


def _positions(spec: PipelineSpec, schedule: str, network: Network) -> dict[str, Ints]:
    """Return the positions of all ranks, ``(ranks,)``, in each candidate, by name."""
    ranks = spec.stages * spec.replicas
    if not isinstance(spec.placement, str):
        return {NAMED: np.array(spec.positions(network))}
    ordered = by_place(network, ranks, spec.message_bytes())
    by_rule = {
        rule: ruled_positions(rule, ordered, spec.stages, spec.replicas) for rule in (STAGES_INSIDE, REPLICAS_INSIDE)
    }
    if spec.placement in by_rule:
        return {spec.placement: by_rule[spec.placement]}
    starts = {GIVEN: np.arange(ranks)} | by_rule
    joined = topology(network, position_count(network, ranks))
    classes = np.array(network.ranks) if isinstance(network, Matrix) else np.arange(joined.workers)
    searched = search_placement(PlacementClock(pipeline_work(spec, schedule), joined), starts, classes)
    return starts | {SEARCHED: searched.positions}


def pipeline_work(spec: PipelineSpec, schedule: str) -> PipelineWork:
    """Return the work of a spec's pipelines between two updates; a split backward pass counts as a whole."""
    forward, backward, weight = spec.stage_seconds(schedule)
    pipeline = spec.pipeline(schedule)
    return PipelineWork(
        spec.stages, spec.replicas, spec.microbatches, spec.flushes, tuple(forward),
        tuple(input_s + weight_s for input_s, weight_s in zip(backward, weight, strict=True)),
        pipeline.activation_bytes,
        tuple(pipeline.gradient_bytes) or (0.0,) * spec.stages, spec.averaging, tuple(pipeline.updates_s()),
    )  # fmt: skip


def _placed_topology(network: Network, positions: Ints) -> NetworkLike:
    """Return the topology of ranks at these positions of a network."""
    joined: Topology = topology(network, max(position_count(network, len(positions)), int(positions.max()) + 1))
    return among(joined, positions)


def _places(network: Network, positions: Ints) -> list[Any]:
    """Return the name of each rank's place on a matrix, or the position on other networks."""
    if isinstance(network, Matrix):
        return [network.places[network.ranks[position]] for position in positions.tolist()]
    return [int(position) for position in positions]
