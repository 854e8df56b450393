"""Collectives of many groups at once: playing one of several equal groups gives the same time, to the bit."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from syncline.costmodel import Link, Network, Sites, TwoLevel
from syncline.costmodel.layouts.groups import copies_of_groups
from syncline.costmodel.network.multi_level import Level, MultiLevel
from syncline.costmodel.traffic.call import groups_like
from syncline.sim.clocks import single_collective
from syncline.sim.clocks.single_collective import simulated_s
from tests.sim.strategies import rules

INNER, OUTER, FAR = Link(0.6e-6, 300e9), Link(2e-6, 25e9, overhead_s=1e-6), Link(1e-2, 1e9)
COLLECTIVES = (
    ("all_reduce", "ring"),
    ("all_reduce", "recursive-doubling"),
    ("all_reduce", "tree"),
    ("all_gather", "recursive-doubling"),
    ("all_to_all", "pairwise"),
    ("broadcast", "scatter-all-gather"),
)


@st.composite
def networks(draw: st.DrawFn) -> tuple[Network, int]:
    """Draw a network of levels, and its number of workers."""
    per_node, nodes, upper = draw(st.integers(1, 8)), draw(st.integers(1, 6)), draw(st.integers(1, 4))
    kind = draw(st.sampled_from(["nodes", "sites", "unequal sites", "levels", "spine"]))
    if kind == "nodes":
        return TwoLevel(per_node, INNER, OUTER, draw(st.integers(1, per_node))), per_node * nodes
    if kind == "sites":
        return Sites(nodes, OUTER, FAR), per_node * nodes
    if kind == "unequal sites":
        uplinks = tuple(Link(1e-2, 1e9 * (1 + site)) for site in range(nodes))
        return Sites(nodes, OUTER, uplinks), per_node * nodes
    crosses = "spine" if kind == "spine" else None
    levels = (
        Level(per_node, INNER),
        Level(nodes, OUTER, shares_lower_links=False, cross_rail=crosses),
        Level(upper, FAR, **draw(st.sampled_from([{"rails": 1}, {"oversubscription": 2.0}])), shares_lower_links=True),
    )
    return MultiLevel(levels), per_node * nodes * upper


@st.composite
def cases(draw: st.DrawFn) -> tuple[Network, int, range]:
    """Draw a network, its number of workers, and the first of equal groups of these."""
    network, workers = draw(networks())
    block = draw(st.sampled_from([size for size in range(1, workers + 1) if workers % size == 0]))
    step = draw(st.sampled_from([size for size in range(1, block + 1) if block % size == 0]))
    return network, workers, range(0, block, step)


RAILS = Level(2, INNER), Level(4, OUTER, shares_lower_links=False, cross_rail="spine"), Level(2, FAR, rails=1)


@settings(deadline=None, max_examples=150)
@given(cases(), rules, st.sampled_from(COLLECTIVES))
@example((MultiLevel(RAILS), 16, range(4)), "eager", ("all_to_all", "pairwise"))
def test_one_of_equal_groups_takes_what_all_take(case, rule, collective):
    network, workers, group = case
    kind, algorithm = collective
    simulated_s.cache_clear()
    one = simulated_s(kind, workers, 1e6, network, algorithm, rule, group)
    with pytest.MonkeyPatch.context() as patch:
        all_groups = [list(members) for members in groups_like(group, workers)]
        everybody = np.array(all_groups)
        patch.setattr(single_collective, "different_groups", lambda *_: everybody)
        patch.setattr(single_collective, "copies_of_groups", lambda *_: (everybody, np.ones(len(everybody), int)))
        simulated_s.cache_clear()
        assert simulated_s(kind, workers, 1e6, network, algorithm, rule, group) == one
    simulated_s.cache_clear()


def test_groups_of_a_hundred_thousand_workers_are_as_fast_as_those_of_few():
    dgx = TwoLevel(8, INNER, OUTER)
    for group in (range(5), range(0, 25, 5), range(0, 5000, 625)):
        few = prod((8, len(group) * group.step))
        assert simulated_s("all_reduce", 100_000, 1e6, dgx, "ring", group=group) == simulated_s(
            "all_reduce", few, 1e6, dgx, "ring", group=group
        )


@pytest.mark.parametrize("sizes", [4, (3, 5, 4)])
def test_groups_between_sites_are_played_twice_each_for_all(sizes):
    network, group = Sites(sizes, OUTER, FAR), range(0, 12, 4)
    groups, copies = copies_of_groups(group, 12, network)
    assert copies.sum() == 4
    for row in groups:
        assert (row == np.arange(row[0], 12, 4)).all()
    assert len(groups) <= 4


def test_a_pair_of_groups_stands_for_fifty_thousand():
    groups, copies = copies_of_groups(range(0, 100_000, 50_000), 100_000, Sites(2, OUTER, FAR))
    assert groups.tolist() == [[0, 50_000], [1, 50_001]]
    assert copies.tolist() == [49_999, 1]
    seconds, evaluator = simulated_s(
        "all_reduce", 100_000, 1e6, Sites(2, OUTER, FAR), "ring", "eager", range(0, 100_000, 50_000)
    )
    assert evaluator == "lockstep"
    few, _ = simulated_s("all_reduce", 1_000, 1e8, Sites(2, OUTER, FAR), "ring", "eager", range(0, 1_000, 500))
    assert seconds == pytest.approx(few, rel=1e-3)  # as many bytes over each uplink
