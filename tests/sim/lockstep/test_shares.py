"""Transfers that begin together."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.costmodel.network.link import Link, topology
from syncline.costmodel.network.two_level import TwoLevel
from syncline.sim import Round, rounds, rounds_finish_s
from syncline.sim.lockstep.routed import Contention, RoutedRounds, shared_channels
from syncline.sim.lockstep.shared_flow import SharedFlow

ALL = np.array([True, True, False])
BANDWIDTH = np.array([10.0, 4.0, np.inf])


def flow_s(begin_s, nbytes, channels, busy_s=(-np.inf,) * 3):
    busy = np.array(busy_s)
    end_s = SharedFlow(np.array(nbytes), np.array(channels), BANDWIDTH, ALL).end_s(np.array(begin_s), busy)
    return end_s.tolist(), busy.tolist()


def test_equal_transfers_have_equal_parts():
    assert flow_s([1.0, 1.0], [10.0, 10.0], [[0], [0]]) == ([3.0, 3.0], [3.0, -np.inf, -np.inf])


def test_each_is_as_slow_as_its_slowest_channel():
    # Both pass channel 1, which gives each 2 bytes per second; channel 0 could give 5.
    assert flow_s([0.0, 0.0], [4.0, 4.0], [[0, 1], [0, 1]])[0] == [2.0, 2.0]


def test_an_empty_message_takes_no_part():
    assert flow_s([0.0, 0.0], [10.0, 0.0], [[0], [0]])[0] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("begin_s", "nbytes", "channels", "line"),
    [
        ([0.0, 0.5], [10.0, 10.0], [[0, -1], [0, -1]], "different times"),
        ([0.0, 0.0], [10.0, 5.0], [[0, -1], [0, -1]], "unequal"),
        # The one on channel 0 alone could have 8, as the other has but 2 of it: no equal parts.
        ([0.0, 0.0, 0.0], [10.0] * 3, [[0, -1], [0, 1], [-1, 1]], "unequal"),
    ],
)
def test_what_lockstep_cannot_follow(begin_s, nbytes, channels, line):
    with pytest.raises(Contention, match=line):
        flow_s(begin_s, nbytes, channels)


def test_a_transfer_that_begins_before_an_earlier_round_is_through():
    with pytest.raises(Contention, match="different times"):
        flow_s([1.0], [10.0], [[0]], busy_s=(1.5, 0.0, -np.inf))
    assert flow_s([1.5], [10.0], [[0]], busy_s=(1.5, 0.0, -np.inf))[0] == [2.5]


def test_which_channels_are_shared():
    ring = rounds("all_reduce", 4, 8.0)
    assert not shared_channels([ring], topology(Link(1.0, 1.0), 4)).any()
    half = topology(Link(1.0, 1.0, duplex="half"), 4)
    assert shared_channels([ring], half).tolist() == [True] * 4 + [False] * 4
    one_way = [Round(np.array([0, 1]), np.array([2, 3]), 8.0)]
    assert not shared_channels([one_way], half).any()
    back = [Round(np.array([2, 3]), np.array([0, 1]), 8.0)]
    assert shared_channels([one_way, back], half).tolist() == [True] * 4 + [False] * 4
    cards = TwoLevel(2, Link(0.0, 1e9), Link(0.0, 1.0), nics_per_node=1).among(4)
    assert shared_channels([ring], cards).sum() == 0  # one worker of a node sends out of it, and one receives
    assert RoutedRounds.from_rounds(rounds("all_reduce", 4, 8.0, "recursive-doubling"), cards).shares_channels


def test_rounds_that_share_a_card_take_turns():
    # Two workers of a node send 4 bytes each over one card of 1 byte per second, three times: 8 s each, and latency.
    cards = TwoLevel(2, Link(0.0, 1e9), Link(0.5, 1.0), nics_per_node=1)
    across = Round(np.arange(4), np.array([2, 3, 0, 1]), 4.0)
    for by in ("lockstep", "events"):
        np.testing.assert_allclose(rounds_finish_s([across] * 3, 4, cards, evaluator=by), [25.5] * 4)
