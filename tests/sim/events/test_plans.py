from __future__ import annotations

import numpy as np

from syncline.costmodel.network.link import Link, topology
from syncline.costmodel.network.paths import Paths
from syncline.sim import Round, rounds
from syncline.sim.events.plans import Routes, plan_of
from syncline.sim.events.state import CoreState

TOLD = (
    Round(np.array([0]), np.array([2]), 5.0),
    Round(np.array([0, 2]), np.array([1, 3]), np.array([5.0, 4.0])),
    Round(np.array([3]), np.array([1]), 1.0),
)


def told(plan):
    """Of each rank its entries: which run, how often, what it sends (to whom, turn, stride, bytes), what it gets."""
    out = []
    for place in plan.places:
        own = []
        for entry in plan.entries[place["entry0"] : place["entry1"]]:
            sends = plan.sendings[entry["send0"] : entry["send0"] + entry["sends"]]
            to = [tuple(one[name].item() for name in ("to", "turn", "stride", "nbytes")) for one in sends]
            own.append((int(entry["round"]), int(entry["times"]), to, int(entry["receives"])))
        out.append(own)
    return out


def test_rounds_rank_by_rank_leave_out_who_idles():
    plan = plan_of(TOLD, 4)
    assert told(plan) == [
        [(0, 1, [(2, 0, 1, 5.0)], 0), (1, 1, [(1, 0, 1, 5.0)], 0)],
        [(1, 1, [], 1), (2, 1, [], 1)],
        [(0, 1, [], 1), (1, 1, [(3, 0, 1, 4.0)], 0)],
        [(1, 1, [], 1), (2, 1, [(1, 1, 1, 1.0)], 0)],
    ]
    assert plan.places["receives"].tolist() == [0, 2, 1, 1]
    assert plan.places["nbytes"].tolist() == [10.0, 0.0, 4.0, 1.0]


def test_rounds_that_are_one_are_told_once():
    of = rounds("all_reduce", 4, 8.0)
    plan = plan_of(of, 4)
    assert told(plan) == [[(0, 6, [((rank + 1) % 4, 0, 1, 2.0)], 1)] for rank in range(4)]
    assert plan.places["nbytes"].tolist() == [12.0] * 4
    assert plan_of(of, 4) is plan
    assert [len(own) for own in told(plan_of(of, 4, one_by_one=True))] == [6] * 4


def test_a_worker_may_send_and_get_several_messages_in_a_round():
    of = (Round(np.array([1, 2, 0, 0]), np.array([0, 0, 1, 2]), 1.0),) * 2
    plan = plan_of(of, 3)
    assert told(plan) == [
        [(0, 2, [(1, 0, 1, 1.0), (2, 0, 1, 1.0)], 2)],
        [(0, 2, [(0, 0, 2, 1.0)], 1)],
        [(0, 2, [(0, 1, 2, 1.0)], 1)],
    ]
    assert plan.places["nbytes"].tolist() == [4.0, 2.0, 2.0]


def routes_of(over, pairs, eager=True):
    """Of each pair the channels, and the rate, seconds before and after."""
    state = CoreState()
    first = Routes(state, over, eager).add(*np.array(pairs).T)
    rows = state["routes"][first : first + len(pairs)]
    hops = [state["hops"][row["hop0"] : row["hop0"] + row["hops"]].tolist() for row in rows]
    fields = "rate", "before_s", "after_s"
    return [(hop, *(row[name].item() for name in fields)) for hop, row in zip(hops, rows, strict=True)]


def test_the_latency_comes_last_or_by_rendezvous_first():
    over = topology(Link(10.0, 2.0, overhead_s=1.0), 8)
    assert routes_of(over, [(0, 1)]) == [([0, 9], 2.0, 1.0, 10.0)]
    assert routes_of(over, [(1, 0)], eager=False) == [([1, 8], 2.0, 11.0, 0.0)]


def test_a_way_is_as_narrow_as_its_narrowest_channel_and_may_be_short():
    class Chain:
        name, workers = "chain", 3
        bandwidth_bytes_per_s = np.array([4.0, 3.0])

        def paths(self, senders, receivers):
            channels = np.where((abs(senders - receivers) == 2)[:, None], [[0, 1]], [[0, -1]])
            return Paths(channels, np.zeros(len(senders)), np.zeros(len(senders)))

    assert routes_of(Chain(), [(0, 1), (0, 2)]) == [([0], 4.0, 0.0, 0.0), ([0, 1], 3.0, 0.0, 0.0)]
