"""Rounds made ready are kept by what they are made of, and say the same as ones made anew."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from syncline.costmodel.collectives.algorithms import RoundTable
from syncline.costmodel.collectives.hierarchical import inner_sizes
from syncline.costmodel.network.link import Link, topology
from syncline.sim import collective_finish_s, rounds, rounds_finish_s
from syncline.sim.lockstep.collectives import GroupCollectives
from syncline.sim.lockstep.recurrences import RULES, Ports, run_routed
from syncline.sim.lockstep.routed import CollectiveKey, RoutedRounds, RoutedSequence, routed_rounds
from tests.sim.strategies import collectives_anywhere

KEY = CollectiveKey("all_reduce", 1e6, "rabenseifner")


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
    assert routed_rounds(KEY._replace(nbytes=2e6), one) is not routed_rounds(KEY, one)


def test_two_trainings_share_them():
    joined = topology(Link(1e-3, 1e9), 8)
    first, second = (GroupCollectives(joined, {KEY: 1}) for _ in range(2))
    assert first._routed(KEY) is second._routed(KEY)
    at_once, later = (maps.done_s(KEY, np.arange(8.0)) for maps in (first, second))
    assert np.array_equal(at_once, later)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("shape", [(9,), (3, 9)])
def test_rounds_of_one_message_each_are_the_same_bits_as_a_sequence(rule, shape):
    """A table of such rounds is one sequence of numbers; as separate rounds it takes the general way."""
    links = [Link(1e-3 * (1 + worker % 3), 1e6 * (1 + worker % 4), overhead_s=1e-5 * worker) for worker in range(9)]
    joined, table = topology(links, 9), rounds("all_reduce", 9, 1e4, "server-naive")
    assert isinstance(table, RoundTable)
    entry_s, ends_s = np.random.default_rng(0).exponential(1e-2, shape), []
    for of in (table, tuple(table)):
        routed = RoutedRounds.from_rounds(of, joined)
        ports = Ports.at_entry(entry_s, len(joined.bandwidth_bytes_per_s))
        run_routed(routed, ports, rule)
        ends_s.append(ports.done_s)
    assert [type(part) for part, _ in RoutedRounds.from_rounds(table, joined).runs] == [RoutedSequence]
    assert ends_s[0].tobytes() == ends_s[1].tobytes()
