"""A direct exchange: closed form, lockstep and events tell one time, alone and with hivemind's software."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from syncline.costmodel import HivemindCosts, Link, Matrix, best_algorithm, collective_s, wire_bytes
from syncline.costmodel.collectives.policies import all_by_library
from syncline.costmodel.collectives.table import default_algorithm
from syncline.sim import collective_finish_s
from syncline.sim.lockstep.routed import Contention
from syncline.sim.program.rounds import rounds, sent_bytes

LINKS = {
    "plain": Link(10e-3, 125e6),
    "overhead": Link(10e-3, 125e6, overhead_s=1e-3),
    "slow upload": Link(1e-3, 125e6, upload_bytes_per_s=30e6),
    "half duplex": Link(1e-3, 125e6, duplex="half"),
}


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("link", LINKS)
def test_three_accounts_agree(link, workers):
    seconds = float(collective_s("all_reduce", workers, 1e8, LINKS[link], "direct"))
    for evaluator in ("lockstep", "events"):
        done_s = collective_finish_s("all_reduce", workers, 1e8, LINKS[link], "direct", evaluator=evaluator)
        np.testing.assert_allclose(done_s, seconds, rtol=1e-9)


def test_two_latencies_and_the_bytes_of_a_ring():
    seconds = float(collective_s("all_reduce", 5, 1e8, LINKS["plain"], "direct"))
    assert seconds == pytest.approx(2 * 10e-3 + 2 * 1e8 * 4 / 5 / 125e6)
    assert wire_bytes("all_reduce", 5, 1e8, "direct") == wire_bytes("all_reduce", 5, 1e8, "ring")
    np.testing.assert_allclose(sent_bytes(rounds("all_reduce", 5, 1e8, "direct"), 5), 1.6e8)
    assert best_algorithm("all_reduce", 5, 1e8, LINKS["plain"]) != "direct"  # its messages look free


def lines(near, far, sizes, **fields):
    names = tuple("abcdefgh"[: len(sizes)])
    made = tuple(tuple(near if i == j else far for j in range(len(sizes))) for i in range(len(sizes)))
    return Matrix(names, made, tuple(i for i, count in enumerate(sizes) for _ in range(count)), **fields)


def test_a_slow_line_takes_its_own_time_alone():
    """Each two workers have a line of their own, so that a worker's messages to 3 others take no longer than to one."""
    near, far = Link(1e-3, 1e9), Link(50e-3, 25e6)
    for sizes in ((1, 1), (2, 2), (3, 1)):
        network = lines(near, far, sizes)
        workers = sum(sizes)
        expected = 2 * (50e-3 + 1e8 / workers / 25e6)
        for evaluator in ("lockstep", "events"):
            done_s = collective_finish_s("all_reduce", workers, 1e8, network, "direct", evaluator=evaluator)
            np.testing.assert_allclose(done_s, expected, rtol=1e-9)


@pytest.mark.parametrize("starts_s", [None, [0.0, 0.3, 0.1, 0.2]])
@pytest.mark.parametrize("per", ["connection", "host", "pair"])
def test_lockstep_follows_the_events_where_it_can(per, starts_s):
    network = lines(Link(1e-3, 1e9), Link(50e-3, 25e6), (2, 2), per=per, card=Link(0.0, 3e9))
    events_s = collective_finish_s("all_reduce", 4, 1e8, network, "direct", starts_s, "events")
    try:
        lockstep_s = collective_finish_s("all_reduce", 4, 1e8, network, "direct", starts_s, "lockstep")
    except Contention:
        assert per != "connection"
    else:
        np.testing.assert_allclose(lockstep_s, events_s, rtol=1e-9)


@pytest.mark.parametrize("per", ["connection", "host"])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_software_comes_before_the_slowest_line(workers, per):
    costs = HivemindCosts(call_s=3.0, peer_s=0.5, byte_s=1e-8)
    fast = lines(Link(1e-3, 1e9), Link(1e-3, 1e9), (1,) * workers, per=per, hivemind=costs)
    assert default_algorithm("all_reduce", fast) == "direct" and default_algorithm("all_gather", fast) == "ring"
    assert not all_by_library(None, fast) and all_by_library({"all_gather": "gloo-ring"}, fast) is False
    before_s = 3.0 + (workers - 2) * (0.5 + 1e-8 * 1e8 / workers)
    # Inside a fast network the software handles a connection's bytes more slowly than its line, or than its share.
    share = 1e9 / (workers - 1 or 1) if per == "host" else 1e9
    expected = before_s + 2 * (1e-3 + 1e8 / workers / min(share, 1e8)) if workers > 1 else 0.0
    for evaluator in ("lockstep", "events"):
        done_s = collective_finish_s("all_reduce", workers, 1e8, fast, evaluator=evaluator)
        np.testing.assert_allclose(done_s, expected, rtol=1e-9)
    slow = replace(
        fast, lines=tuple(tuple(replace(link, bandwidth_bytes_per_s=1e7) for link in row) for row in fast.lines)
    )
    part_s = 1e8 / workers / (1e7 / (workers - 1 or 1) if per == "host" else 1e7)
    expected = before_s + 2 * (1e-3 + part_s) if workers > 1 else 0.0
    np.testing.assert_allclose(collective_finish_s("all_reduce", workers, 1e8, slow), expected, rtol=1e-9)
