"""Ranks of a layout on a matrix: by rule, or the fastest rule, in projections and in advice."""

from __future__ import annotations

import pytest

import syncline as sl
from syncline.costmodel.layouts.layout import Layout, placed_network, placements_of
from syncline.errors import SpecError
from syncline.specs.cluster.networks import network

LINES = {
    "name": "case3", "kind": "matrix", "places": {"ohio": 8, "virginia": 8}, "per": "host",
    "lines": [{"from": "ohio", "to": "virginia", "latency": "11 ms", "bandwidth": "1.12 Gbit/s"}],
    "inside": {"latency": "1 ms", "bandwidth": "5 Gbit/s"},
}  # fmt: skip
DEALT = LINES | {"ranks": ["ohio", "virginia"] * 8}
"""The same machines with ranks that are dealt out to the regions in turn."""

ASKED = {
    "model": "gpt2-xl", "hardware": "v100", "workers": 16, "layout": "pipeline=8", "methods": "ddp-adam",
}  # fmt: skip


def step_s(lines, placement=None):
    (row,) = sl.project(networks=[lines], placement=placement, **ASKED).rows
    return row["step_time_s"]


def test_a_replica_inside_each_region_is_fastest_wherever_the_ranks_were():
    inside_s = step_s(LINES)
    assert step_s(DEALT, "stages-inside") == step_s(DEALT, "search") == step_s(LINES, "search") == inside_s
    assert step_s(DEALT) > 1.1 * inside_s and step_s(LINES, "replicas-inside") > 1.1 * inside_s


def test_with_a_small_batch_replicas_inside_are_faster():
    few = ASKED | {"tokens_per_worker": 4096}
    inside, searched = (
        sl.project(networks=[LINES], placement=rule, **few).rows[0]["step_time_s"] for rule in ("given", "search")
    )
    assert searched < 0.85 * inside


def test_the_assumptions_say_which_rule_the_search_found():
    result = sl.project(networks=[DEALT], placement="search", **ASKED)
    (found,) = [entry for entry in result.json()["assumptions"] if entry["name"] == "placement"]
    assert found["value"] == "stages-inside" and "fastest of given" in found["origin"]
    assert not [
        entry for entry in sl.project(networks=[LINES], **ASKED).json()["assumptions"] if "placement" in entry["name"]
    ]


def test_ranks_of_a_rule():
    dealt, layout = network(DEALT), Layout(pipeline=4, data=2)
    stages = placed_network(dealt, "stages-inside", layout, 16).ranks
    assert stages == (0,) * 8 + (1,) * 8
    replicas = placed_network(dealt, "replicas-inside", layout, 16).ranks
    assert replicas[:8] == replicas[8:] == (0,) * 4 + (1,) * 4
    assert placements_of(dealt, layout, 16) == ("given", "stages-inside", "replicas-inside")
    assert placements_of(network(LINES), layout, 16) == ("given", "replicas-inside")
    assert placements_of(network("wan"), layout, 16) == ("given",)


def test_a_rule_twice_is_the_rule_once():
    dealt, layout = network(DEALT), Layout(pipeline=8)
    for rule in ("stages-inside", "replicas-inside"):
        placed = placed_network(dealt, rule, layout, 16)
        assert placed_network(placed, rule, layout, 16) == placed


def test_advice_chooses_the_placement_so_that_it_does_not_depend_on_the_ranks_of_the_network():
    few = LINES | {"places": {"ohio": 4, "virginia": 4}}
    asked = {"model": "gpt2-xl", "hardware": "v100", "workers": 8, "methods": "ddp-adam", "batch_tokens": 2**15}
    both = few | {"ranks": ["ohio", "virginia"] * 4}, few
    dealt, in_order = (sl.advise(network=lines, **asked).rows[0] for lines in both)
    assert dealt["step_time_s"] == pytest.approx(in_order["step_time_s"], rel=1e-9)
    assert dealt["layout"] == in_order["layout"] and dealt["layout"].startswith("pipeline")
    assert dealt["placement"] != in_order["placement"] == in_order["fields"]["placement"]


def test_an_unknown_rule_is_refused():
    with pytest.raises(SpecError, match="placement"):
        sl.project(networks=[LINES], placement="everywhere", **ASKED)
