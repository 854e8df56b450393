"""Costs of gloo and NCCL on networks of several links, against one link to everybody that has the same costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from syncline.costmodel import GlooCosts, Link, NcclCosts, Sites, TwoLevel, collective_s
from syncline.costmodel.collectives.prices import collective_prices
from syncline.costmodel.collectives.table import default_algorithm
from syncline.costmodel.network.network_links import slow_down
from syncline.sim import collective_finish_s
from syncline.specs.cluster.networks import network, network_fields

GLOO = {
    "message_overhead": "0.1 ms",
    "call_overhead": {2: "1 ms", 4: "2 ms"},
    "byte_overhead": {"all_reduce": "0.1 ns"},
}
NCCL = {"channels": 1, "call_overhead": "1 ms", "ring_latencies": 2.0}
LINE = {"latency": "2 ms", "bandwidth": "1 Gbit/s"}

STARS = {
    "graph": lambda costs: {
        "hosts": list("abcd"),
        "edges": [{"from": host, "to": "s", **LINE, "latency": "1 ms", **costs} for host in "abcd"],
    },
    "matrix": lambda costs: {
        "places": {"here": 4}, "lines": [], "inside": LINE, "per": "pair", **costs
    },
    "sites": lambda costs: {"sites": 1, "lan": {**LINE, **costs}, "uplink": LINE},
    "levels": lambda costs: {"levels": [{"units": 4, "link": {**LINE, **costs}}]},
    "nodes": lambda costs: {"per_node": 1, "inside": LINE, "between": {**LINE, **costs}},
}  # fmt: skip


@pytest.mark.parametrize("costs", [{"gloo": GLOO}, {"nccl": NCCL}], ids=["gloo", "nccl"])
@pytest.mark.parametrize("star", STARS)
@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "broadcast"])
def test_several_equal_links_are_one_link(star, costs, kind):
    made, link = network(STARS[star](costs)), network({**LINE, **costs})
    assert default_algorithm(kind, made) == default_algorithm(kind, link)
    assert network(network_fields(made)) == made
    done_s = collective_finish_s(kind, 4, 4e7, link, evaluator="events")
    for evaluator in ("events", "auto"):
        np.testing.assert_allclose(collective_finish_s(kind, 4, 4e7, made, evaluator=evaluator), done_s, rtol=1e-9)


def test_an_uplink_with_costs_makes_them_the_network_s():
    costs = GlooCosts(message_s=1e-3, call_s=((2, 5e-3),))
    lan, uplink = Link(50e-6, 1.25e9), Link(5e-3, 125e6)
    plain, made = Sites(2, lan, uplink), Sites(2, lan, replace(uplink, gloo=costs))
    assert made.gloo == costs and made.among(4).gloo == costs and made.nccl is None
    bare, priced = (float(collective_finish_s("all_reduce", 4, 1e7, on, "gloo-ring").max()) for on in (plain, made))
    assert priced >= bare + 5e-3
    assert slow_down(made, 2.0).gloo == replace(costs, message_s=2e-3, call_s=((2, 10e-3),))
    one_each = float(collective_s("all_reduce", 2, 1e7, made))
    np.testing.assert_allclose(collective_finish_s("all_reduce", 2, 1e7, made), one_each, rtol=1e-9)


def test_a_group_inside_a_node_is_carried_by_the_library():
    costs = NcclCosts(channels=1, call_s=1e-3)
    made = TwoLevel(4, Link(1e-5, 1e10), Link(1e-3, 1e9, nccl=costs))
    inside = collective_prices("all_reduce", np.array([8]), 1e9, made, groups=[range(4)])
    assert inside.names == ("nccl-ring",)
    expected = collective_s("all_reduce", 4, 1e9, replace(made.inner, nccl=costs))
    assert inside.seconds.item() == pytest.approx(float(expected))
