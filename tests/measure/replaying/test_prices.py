"""Groups on networks: their levels by hand, and their times by closed forms and the simulation of every message."""

from __future__ import annotations

import pytest

from syncline.costmodel import NETWORKS, Link, collective_s
from syncline.costmodel.network.two_level import TwoLevel
from syncline.measure.recording.record import Started
from syncline.measure.replaying.prices import group_levels, group_price, levels_s
from syncline.sim import collective_finish_s

INNER, OUTER = Link(1e-6, 100e9, "inner"), Link(5e-6, 10e9, "outer")
NODES = TwoLevel(4, INNER, OUTER)


def test_levels_of_groups() -> None:
    assert group_levels(INNER, range(8), 8) == [(8, INNER)]
    assert group_levels(NODES, (4, 5, 6, 7), 16) == [(4, INNER)]
    assert group_levels(NODES, (1, 5, 9, 13), 16) == [(4, OUTER)]
    assert group_levels(NODES, range(16), 16) == [(4, INNER), (4, OUTER)]
    assert group_levels(NODES, (0, 1, 4, 5), 8) == [(2, INNER), (2, OUTER)]
    shared = TwoLevel(4, INNER, OUTER, 2)  # two workers to a card
    ((count, link),) = group_levels(shared, (0, 4), 8)
    assert (count, link.bandwidth_bytes_per_s) == (2, 5e9)
    pod = NETWORKS["dgx-h100-superpod"].network
    assert [count for count, _ in group_levels(pod, range(512), 512)] == [8, 32, 2]
    assert [count for count, _ in group_levels(pod, range(0, 512, 8), 512)] == [32, 2]
    assert [count for count, _ in group_levels(NETWORKS["two-sites"].network, range(6), 8)] == [4, 2]


@pytest.mark.parametrize("nbytes", [1e3, 1e8])
def test_an_all_reduce_of_all_is_the_hierarchical_one(nbytes: float) -> None:
    told = levels_s("all_reduce", nbytes, group_levels(NODES, range(16), 16), "ring")
    assert told == pytest.approx(float(collective_s("all_reduce", 16, nbytes, NODES, "hierarchical")))
    assert told == pytest.approx(collective_finish_s("all_reduce", 16, nbytes, NODES, "hierarchical").max())


def test_it_is_a_reduce_scatter_and_an_all_gather() -> None:
    of = group_levels(NODES, range(16), 16)
    halves = levels_s("reduce_scatter", 1e8, of, "ring") + levels_s("all_gather", 1e8 / 16, of, "ring")
    assert halves == pytest.approx(levels_s("all_reduce", 1e8, of, "ring"))


def test_a_price_is_the_closed_form_where_links_are_alike() -> None:
    event = Started(1, "all_gather", "all_gather", 1000, tuple(range(64)), ("all", 0), "x.py:1")
    assert group_price(OUTER, 64, "ring")(event) == float(collective_s("all_gather", 64, 1000, OUTER, "ring"))
    assert group_price(OUTER, 64, None)(event._replace(ranks=(3,))) == 0
    assert group_price(NODES, 64, "hierarchical")(event) > 0
