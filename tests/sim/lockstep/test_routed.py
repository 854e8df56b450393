"""Rounds made ready are kept by what they are made of, and say the same as ones made anew."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from syncline.costmodel.collectives.hierarchical import inner_sizes
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.topology import topology
from syncline.sim import collective_finish_s, rounds, rounds_finish_s
from syncline.sim.lockstep.maps import CollectiveMaps
from syncline.sim.lockstep.routed import routed_rounds
from tests.sim.strategies import collectives_anywhere

KEY = ("all_reduce", 1e6, "rabenseifner")


@settings(deadline=None)
@given(collectives_anywhere())
def test_kept_rounds_take_as_long_as_new_ones(collective):
    kind, workers, nbytes, network, algorithm, starts_s = collective
    again = [collective_finish_s(kind, workers, nbytes, network, algorithm, starts_s) for _ in range(2)]
    if algorithm.startswith("gloo"):
        return
    of = rounds.__wrapped__(kind, workers, nbytes, algorithm, inner_sizes(network, workers))
    anew = rounds_finish_s(of, workers, network, starts_s)
    for one in again:
        assert np.array_equal(one, anew)


def test_equal_topologies_share_them():
    links = [Link(i * 1e-3, 1e9) for i in range(8)]
    one, other = (topology(list(links), 8) for _ in range(2))
    assert one is not other
    assert routed_rounds(KEY, one) is routed_rounds(KEY, other)
    links[3] = Link(1.0, 1e9)
    assert routed_rounds(KEY, topology(links, 8)) is not routed_rounds(KEY, one)
    assert routed_rounds(("all_reduce", 2e6, "rabenseifner"), one) is not routed_rounds(KEY, one)


def test_two_trainings_share_them():
    joined = topology(Link(1e-3, 1e9), 8)
    first, second = (CollectiveMaps(joined, {KEY: 1}) for _ in range(2))
    assert first._routed(KEY) is second._routed(KEY)
    at_once, later = (maps.done_s(KEY, np.arange(8.0)) for maps in (first, second))
    assert np.array_equal(at_once, later)
