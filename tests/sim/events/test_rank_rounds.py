from __future__ import annotations

import numpy as np

from syncline.costmodel.network.link import Link
from syncline.costmodel.network.topology import Paths, topology
from syncline.sim import Round, rounds
from syncline.sim.events.flows import Route
from syncline.sim.events.rank_rounds import IDLE_ROUND, RankRound, RankRounds, Routes, rounds_by_rank

TOLD = [
    Round(np.array([0]), np.array([2]), 5.0),
    Round(np.array([0, 2]), np.array([1, 3]), np.array([5.0, 4.0])),
    Round(np.array([3]), np.array([1]), 1.0),
]


def test_rounds_worker_by_worker():
    routes = Routes(topology(Link(10.0, 2.0, overhead_s=1.0), 8), eager=True)
    assert routes.between(0, 1) == Route((0, 9), 2.0, 1.0, 10.0)
    get = RankRound((), 1)
    assert rounds_by_rank(TOLD, [4, 5, 6, 7], routes) == {
        4: RankRounds(
            [
                RankRound([(2, 0, 5.0, routes.between(4, 6))], 0),
                RankRound([(1, 0, 5.0, routes.between(4, 5))], 0),
                IDLE_ROUND,
            ],
            [0, 0, 0, 0],
            10.0,
        ),
        5: RankRounds([IDLE_ROUND, get, get], [0, 0, 1, 2], 0.0),
        6: RankRounds([get, RankRound([(3, 0, 4.0, routes.between(6, 7))], 0), IDLE_ROUND], [0, 1, 1, 1], 4.0),
        7: RankRounds([IDLE_ROUND, get, RankRound([(1, 0, 1.0, routes.between(7, 5))], 0)], [0, 0, 1, 1], 1.0),
    }


def test_rounds_that_are_one_are_told_once():
    of, routes = rounds("all_reduce", 4, 8.0), Routes(topology(Link(10.0, 2.0), 4), eager=True)
    does, before, nbytes = rounds_by_rank(of, range(4), routes)[3]
    assert does == [RankRound([(0, 0, 2.0, routes.between(3, 0))], 1)] * 6
    assert (before, nbytes) == ([0, 1, 2, 3, 4, 5, 6], 12.0)


def test_a_worker_may_send_and_get_several_messages_in_a_round():
    routes = Routes(topology(Link(10.0, 2.0), 3), eager=True)
    of = [Round(np.array([1, 2, 0, 0]), np.array([0, 0, 1, 2]), 1.0)] * 2
    made = rounds_by_rank(of, range(3), routes)
    assert made[2].rounds == [RankRound([(0, 1, 1.0, routes.between(2, 0))], 1)] * 2
    assert made[0].before == [0, 2, 4]
    assert made[0].nbytes == 4.0


def test_by_rendezvous_the_latency_comes_first():
    over = topology(Link(10.0, 2.0, overhead_s=1.0), 2)
    assert Routes(over, eager=False).between(1, 0) == Route((1, 2), 2.0, 11.0, 0.0)


def test_a_way_is_as_narrow_as_its_narrowest_channel_and_may_be_short():
    class Chain:
        name, workers = "chain", 3
        bandwidth_bytes_per_s = np.array([4.0, 3.0])

        def paths(self, senders, receivers):
            channels = np.where((abs(senders - receivers) == 2)[:, None], [[0, 1]], [[0, -1]])
            return Paths(channels, np.zeros(len(senders)), np.zeros(len(senders)))

    routes = Routes(Chain(), eager=True)
    assert routes.between(0, 1) == Route((0,), 4.0, 0.0, 0.0)
    assert routes.between(0, 2) == Route((0, 1), 3.0, 0.0, 0.0)
