"""A slowed network: everything on it takes so many times as long, in closed form, in lockstep and in events."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from syncline.costmodel import NETWORKS, GlooCosts, Link, collective_s, gloo_s
from syncline.costmodel.network.graph import Edge, Graph
from syncline.costmodel.network.multi_level import Level, MultiLevel
from syncline.costmodel.network.network_links import slow_down
from syncline.costmodel.network.software_costs import NcclCosts
from syncline.costmodel.network.two_level import Sites, TwoLevel
from syncline.errors import SpecError
from syncline.sim import Call, clock

LINE = Link(1e-3, 1e8, "line", overhead_s=1e-5)
OF_ALL_KINDS = {
    "link": LINE,
    "up and down": Link(1e-3, 1e8, upload_bytes_per_s=3e7),
    "half": Link(1e-3, 1e8, duplex="half"),
    "gloo": replace(LINE, gloo=GlooCosts(1e-4, ((2, 2e-4), (8, 5e-4)))),
    "nodes": TwoLevel(4, Link(1e-5, 1e10), LINE, nics_per_node=2),
    "sites": Sites(2, Link(1e-5, 1e9), (LINE, Link(5e-3, 5e7))),
    "graph": Graph(
        tuple("abcdefgh"),
        tuple(Edge(one, other, LINE) for one, other in pairwise("abcdefgh")),
        forwards=tuple("abcdefgh"),
    ),
    "levels": MultiLevel((Level(2, Link(1e-6, 1e10)), Level(2, Link(1e-5, 1e9), 1), Level(None, LINE, 1))),
}

COSTS = GlooCosts(1e-4, ((2, 2e-4), (4, 5e-4)), (("all_reduce", 1e-10),), (("all_gather", ((4, 1e-3),)),))


@pytest.mark.parametrize("factor", [0.5, 3.0])
@pytest.mark.parametrize("by", ["auto", "events"])
@pytest.mark.parametrize("name", OF_ALL_KINDS)
def test_a_step_takes_as_many_times_as_long(name: str, by: str, factor: float) -> None:
    network = OF_ALL_KINDS[name]
    calls = [Call(0, "all_reduce", 1e6), Call(0, "broadcast", 1e5), Call(1, "all_gather", 1e4)]
    times_s = [
        clock(calls, np.full((2, 8), compute_s), over, 8, 2, evaluator=by).wall_s
        for compute_s, over in ((0.1, network), (0.1 * factor, slow_down(network, factor)))
    ]
    assert times_s[1] == pytest.approx(factor * times_s[0])


def test_software_is_slowed_too() -> None:
    link = Link(1e-3, 1e8, "line", overhead_s=1e-5, upload_bytes_per_s=5e7, gloo=COSTS)
    for kind in ("all_reduce", "all_gather", "broadcast"):
        slow = gloo_s(kind, 4, 1e6, slow_down(link, 2.0))
        assert slow == pytest.approx(2 * gloo_s(kind, 4, 1e6, link))
        assert slow == collective_s(kind, 4, 1e6, slow_down(link, 2.0))
    assert slow_down(link, 2.0).name == "line" and slow_down(link, 1.0) == link


def test_a_call_of_nccl_is_slowed_too() -> None:
    link = Link(1e-3, 1e8, nccl=NcclCosts(call_s=0.5))
    slow = collective_s("all_reduce", 4, 1e6, slow_down(link, 3.0))
    assert slow == pytest.approx(3 * collective_s("all_reduce", 4, 1e6, link))


def test_what_has_no_links_stays_as_it_is() -> None:
    nodes = NETWORKS["dgx-h100"].network
    assert slow_down(nodes, 2.0) != nodes and slow_down(slow_down(nodes, 2.0), 0.5) == nodes
    assert slow_down(COSTS, 2.0) is COSTS


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_a_factor_is_positive(factor: float) -> None:
    with pytest.raises(SpecError, match=r"^factor: got .*; expected a positive number"):
        slow_down(replace(Link(1e-3, 1e8)), factor)
