"""Placements of ranks: by rule, by rank, and searched."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from syncline.costmodel import Link, Matrix
from syncline.costmodel.layouts.layout import place_path, positions_by_place, ruled_positions
from syncline.planner.pipeline_placement import PlacementClock, pipeline_work, run_placed, search_placement
from syncline.sim import run_pipeline
from syncline.specs import PipelineSpec, validate

PLACES = {
    "name": "places", "kind": "matrix", "places": {"us": 2, "eu": 2, "asia": 2}, "per": "host",
    "inside": {"latency": "1 ms", "bandwidth": "5 Gbit/s"},
    "lines": [
        {"from": "us", "to": "eu", "latency": "40 ms", "bandwidth": "500 Mbit/s"},
        {"from": "eu", "to": "asia", "latency": "80 ms", "bandwidth": "200 Mbit/s"},
        {"from": "us", "to": "asia", "latency": "60 ms", "bandwidth": "300 Mbit/s"},
    ],
}  # fmt: skip


def spec_of(**fields):
    base = {
        "kind": "pipeline", "name": "p", "schedules": ["gpipe"], "stages": 3, "microbatches": 6, "forward": 0.02,
        "backward": 0.06, "activation_bytes": "2 MB", "replicas": 2, "gradient_bytes": "20 MB", "networks": [PLACES],
    }  # fmt: skip
    return validate(PipelineSpec, base | fields)


def seconds_of(spec, positions):
    network = spec.networks[0]
    placed = replace(network, ranks=tuple(network.ranks[position] for position in positions))
    return run_pipeline(spec.pipeline("gpipe"), placed).makespan_s


@pytest.mark.parametrize("fields", [{}, {"averaging": "direct"}, {"averaging": "reduce+broadcast"}, {"flushes": 8}])
def test_the_search_finds_the_fastest_of_all_placements(fields):
    """All 90 ways to place six ranks in three places of two, timed by the events."""
    spec = spec_of(placement="search", **fields)
    placed = run_placed(spec, "gpipe", spec.networks[0])
    names = sorted(set(itertools.permutations(["us"] * 2 + ["eu"] * 2 + ["asia"] * 2)))
    assert len(names) == 90
    fastest_s = min(
        run_placed(spec_of(placement=list(ranks), **fields), "gpipe", spec.networks[0]).timeline.makespan_s
        for ranks in names
    )
    assert placed.timeline.makespan_s <= 1.02 * fastest_s
    assert placed.timeline.makespan_s == min(placed.candidates.values())


def test_a_placement_is_the_network_with_its_workers_in_another_order():
    spec = spec_of(placement=[5, 0, 3, 2, 1, 4])
    placed = run_placed(spec, "gpipe", spec.networks[0])
    assert placed.timeline.makespan_s == pytest.approx(seconds_of(spec, [5, 0, 3, 2, 1, 4]), rel=1e-12)
    assert placed.ranks == ["asia", "us", "eu", "eu", "us", "asia"] and placed.placement == "by rank"
    named = spec_of(placement=placed.ranks)
    assert run_placed(named, "gpipe", spec.networks[0]).timeline.makespan_s == pytest.approx(placed.timeline.makespan_s)


def test_rules_put_stages_or_replicas_next_to_each_other():
    network = spec_of().networks[0]
    ordered = positions_by_place(network, 6, 2e6)
    assert sorted(ordered.tolist()) == list(range(6))
    stages = ruled_positions("stages-inside", ordered, 3, 2).reshape(2, 3)
    replicas = ruled_positions("replicas-inside", ordered, 3, 2).reshape(2, 3)
    places = np.array(network.ranks)
    assert (places[replicas[0]] == places[replicas[1]]).all()
    assert stages.ravel().tolist() == ordered.tolist()


def test_the_path_of_places_avoids_the_slowest_line():
    network = spec_of().networks[0]
    path = [network.places[place] for place in place_path(network, 2e6)]
    assert path in (["eu", "us", "asia"], ["asia", "us", "eu"])


def test_the_search_is_repeatable_and_uses_workers_that_no_rank_has():
    """Of 8 workers 4 are used: those of the fast place."""
    slow, fast = Link(0.05, 1e7), Link(0.001, 1e9)
    network = Matrix(("far", "near"), ((slow, slow), (slow, fast)), (0,) * 4 + (1,) * 4)
    spec = spec_of(stages=2, networks=[PLACES])
    clock = PlacementClock(pipeline_work(spec, "gpipe"), network.among(8))
    starts = {
        "given": np.arange(4),
        "stages-inside": ruled_positions("stages-inside", positions_by_place(network, 4, 2e6), 2, 2),
    }
    found, again = (search_placement(clock, starts, np.array(network.ranks)) for _ in range(2))
    assert sorted(found.positions.tolist()) == [4, 5, 6, 7] and found.swaps == again.swaps > 0
    np.testing.assert_array_equal(found.positions, again.positions)
    given_s, found_s = clock.times(np.array([np.arange(4), found.positions])).seconds
    assert found_s < given_s


def test_the_clock_is_near_the_events():
    spec = spec_of()
    clock = PlacementClock(pipeline_work(spec, "gpipe"), spec.networks[0].among(6))
    for positions in itertools.islice(itertools.permutations(range(6)), 0, 720, 97):
        fast_s = clock.times(np.array([positions])).seconds[0]
        assert fast_s == pytest.approx(seconds_of(spec, positions), rel=0.25)


def test_one_replica_without_averaging_is_timed_exactly():
    spec = spec_of(stages=6, replicas=1, gradient_bytes=None)
    clock = PlacementClock(pipeline_work(spec, "gpipe"), spec.networks[0].among(6))
    for positions in ([0, 1, 2, 3, 4, 5], [3, 0, 5, 1, 4, 2]):
        fast_s = clock.times(np.array([positions])).seconds[0]
        assert fast_s == pytest.approx(seconds_of(spec, positions), rel=1e-9)


def test_on_a_link_every_placement_is_the_same():
    spec = spec_of(placement="search", networks=["wan"])
    placed = run_placed(spec, "gpipe", spec.networks[0])
    assert placed.placement == "given" and list(placed.candidates) == ["given"]


def test_a_graph_is_placed_by_position():
    hosts = ["a", "b", "c", "d"]
    edges = [
        {"from": one, "to": other, "latency": "1 ms", "bandwidth": "1 Gbit/s"}
        for one, other in (("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"), ("a", "c"), ("b", "d"))
    ]
    graph = {"name": "graph", "hosts": hosts, "edges": edges}
    spec = spec_of(stages=2, networks=[graph], placement=[3, 1, 2, 0])
    placed = run_placed(spec, "gpipe", spec.networks[0])
    assert placed.ranks == [3, 1, 2, 0]
