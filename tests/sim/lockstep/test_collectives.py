"""Events, lockstep and the closed forms hold each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.costmodel.collectives.table import COLLECTIVES
from syncline.costmodel.network.link import Link, topology
from syncline.costmodel.network.two_level import TwoLevel
from syncline.sim import Call, data_parallel, rounds, run_events, run_lockstep
from syncline.sim.lockstep.collectives import GroupCollectives
from syncline.sim.lockstep.routed import CollectiveKey, Contention
from tests.sim.lockstep.rounds import run_rounds
from tests.sim.strategies import trainings

RTOL = 1e-9
WAN = Link(25e-3, 125e6)


def assert_same(one, other):
    for name, column in one.to_columns().items():
        if name in ("start_s", "end_s", "nbytes"):
            np.testing.assert_allclose(column, getattr(other, name), rtol=RTOL, err_msg=name)
        else:
            assert column.tolist() == getattr(other, name).tolist(), name


@settings(deadline=None)
@given(trainings())
def test_lockstep_tells_the_history_of_the_events(training):
    compute_s, calls, network, starts_s = training
    assert_same(run_events(data_parallel(compute_s, calls), network, starts_s), run_lockstep(*training))


@pytest.mark.parametrize("rule", ["eager", "rendezvous"])
@pytest.mark.parametrize("kind", COLLECTIVES)
@pytest.mark.parametrize("network", [WAN, [WAN, WAN, Link(1e-3, 1e6), WAN, WAN]], ids=["equal", "one slow link"])
def test_the_matrix_is_the_rounds(kind, network, rule):
    joined, key = topology(network, 5), CollectiveKey(kind, 1e6, None)
    of = rounds(kind, 5, 1e6)
    entries = np.random.default_rng(0).exponential(0.1, (20, 5)) + 100 * np.arange(20)[:, None]
    by_matrix = GroupCollectives(joined, {key: 6}, rule)
    for entry_s in entries:
        expected = np.maximum(*run_rounds(of, joined, entry_s, rule))
        np.testing.assert_allclose(by_matrix.done_s(key, entry_s), expected, rtol=RTOL)
        np.testing.assert_allclose(GroupCollectives(joined, {key: 1}, rule).done_s(key, entry_s), expected, rtol=RTOL)
    np.testing.assert_allclose(
        np.maximum(*run_rounds(of, joined, entries, rule))[7], np.maximum(*run_rounds(of, joined, entries[7], rule))
    )


def test_an_early_worker_waits_for_a_port_that_the_collective_before_still_uses():
    # Two gathers of messages of 4 s, that arrive 10 s later. 1 sends to 0 from 0 to 4, and 2, for 0's port in, from 4
    # to 8. 1 is done at 4, and can begin the next when that port is free: 8 to 12, then 2 from 12 to 16.
    key, link = CollectiveKey("gather", 4.0, None), Link(10.0, 1.0)
    maps = GroupCollectives(topology(link, 3), {key: 2})
    first_s = maps.done_s(key, np.zeros(3))
    second_s = maps.done_s(key, first_s)
    assert first_s.tolist() == [18.0, 4.0, 8.0] and second_s.tolist() == [26.0, 12.0, 16.0]
    training = np.zeros((2, 3)), [Call(0, *key[:2]), Call(1, *key[:2])]
    np.testing.assert_allclose(run_events(data_parallel(*training), link).step_end_s, [first_s, second_s])


def test_algorithms_of_calls():
    calls = [Call(0, "all_reduce", 8e6, algorithm=name) for name in ("ring", "rabenseifner", "tree")]
    training = np.random.default_rng(0).exponential(0.01, (1, 6)), calls, WAN
    assert_same(run_events(data_parallel(*training[:2]), WAN), run_lockstep(*training))
    ends = run_lockstep(np.zeros((1, 6)), calls[2:], WAN).step_end_s.max()
    assert ends > run_lockstep(np.zeros((1, 6)), calls[:1], WAN).step_end_s.max()


NODES = TwoLevel(4, Link(2e-6, 450e9), Link(2e-6, 50e9), 2)


def test_a_training_on_nodes_that_share_cards():
    calls = [Call(step, "all_reduce", 1e8, algorithm="hierarchical") for step in range(3)]
    compute_s = np.full((3, 16), 0.01)
    assert_same(run_events(data_parallel(compute_s, calls), NODES), run_lockstep(compute_s, calls, NODES))
    compute_s[1, 5] = 0.011
    with pytest.raises(Contention, match="share a channel"):
        run_lockstep(compute_s, calls, NODES)


def test_a_long_training_by_matrix_tells_the_history_of_the_events():
    compute_s = np.random.default_rng(1).exponential(0.01, (12, 4))
    calls = [Call(step, "all_reduce", 1e6, label="x") for step in range(12)]  # more often than there are workers
    assert_same(run_events(data_parallel(compute_s, calls), WAN), run_lockstep(compute_s, calls, WAN))


@given(trainings(), st.floats(0.0, 100.0))
def test_a_later_beginning_for_all_moves_everything_by_as_much(training, delay_s):
    compute_s, calls, network, _ = training
    at_zero, later = (run_lockstep(compute_s, calls, network, starts_s) for starts_s in (0.0, delay_s))
    np.testing.assert_allclose(later.end_s, at_zero.end_s + delay_s, rtol=RTOL)


@given(trainings(), st.integers(0, 15), st.floats(0.0, 1.0))
def test_a_delay_of_one_worker_makes_nobody_earlier_and_nobody_later_than_the_delay(training, worker, delay_s):
    compute_s, calls, network, _ = training
    starts_s = np.zeros(compute_s.shape[1])
    starts_s[worker % len(starts_s)] = delay_s
    on_time, late = (
        run_lockstep(compute_s, calls, network).end_s,
        run_lockstep(compute_s, calls, network, starts_s).end_s,
    )
    assert np.all(late >= on_time * (1 - RTOL))
    assert np.all(late <= (on_time + delay_s) * (1 + RTOL))


def test_a_late_worker_holds_up_a_ring_by_its_messages_only():
    # Worker 0 is a second late; the others' messages have gone as far as they can by then.
    timeline = run_lockstep(np.zeros((1, 3)), [Call(0, "all_gather", 4.0)], Link(10.0, 1.0), [100.0, 0.0, 0.0])
    done = timeline.end_s[timeline.what == "all_gather"]
    # 0: has both of the others' parts at 28 and sends 0 .. 104 .. 108; 1 receives its part at 114; 2 by 1 at 128.
    assert done.tolist() == [108.0, 118.0, 128.0]
