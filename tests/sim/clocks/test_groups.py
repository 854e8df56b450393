"""Collectives of many groups at once: playing one of several equal groups gives the same time, to the bit."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from syncline.costmodel import Link, Network, Sites, TwoLevel
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
        patch.setattr(single_collective, "copies_of_groups", lambda groups, *_: (groups, np.ones(len(groups), int)))
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
