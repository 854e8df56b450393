"""The clock of a training whose workers come and go."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from syncline.costmodel.network.link import Link, among
from syncline.costmodel.network.two_level import Sites
from syncline.errors import SpecError
from syncline.sim import Call, Clock, Recv, Send, clock, phased_clock, run_events

LINK = Link(1e-3, 1e6)
STEPS, WORKERS = 6, 4
CALLS = [Call(step, "all_reduce", 10_000.0) for step in range(STEPS)]


def everybody():
    return np.ones((STEPS, WORKERS), dtype=bool)


def varied(seed=0):
    return np.random.default_rng(seed).uniform(0.01, 0.05, (STEPS, WORKERS))


def test_a_group_that_stays_has_the_usual_clock():
    one, other = phased_clock(everybody(), CALLS, varied(), LINK), clock(CALLS, varied(), LINK, WORKERS, STEPS)
    for field in dataclasses.fields(Clock):
        if field.name != "timeline":
            np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), err_msg=field.name)
    for name, column in one.timeline.to_columns().items():
        np.testing.assert_array_equal(column, getattr(other.timeline, name))


def test_who_is_never_there_is_one_worker_less():
    present, others = everybody(), [0, 1, 3]
    present[:, 2] = False
    links = [Link(1e-3, 1e6), Link(2e-3, 1e6), Link(5.0, 1.0), Link(1e-3, 2e6)]
    without = clock(CALLS, varied()[:, others], [links[i] for i in others], 3, STEPS)
    timed = phased_clock(present, CALLS, varied(), links)
    np.testing.assert_allclose(timed.step_end_s, without.step_end_s, rtol=1e-12)
    assert timed.exposed_communication_s == pytest.approx(without.exposed_communication_s)
    assert not (timed.timeline.worker == 2).any()


def test_a_leave_and_a_return_by_hand():
    """Two workers; worker 1, twice as slow, is away in steps 1 and 2. A message takes 1 ms to leave, 1 ms to travel.

    Worker 0's first message is there before worker 1 comes to the exchange, at 2 s. So worker 1 sends both of its own
    at once, until 2.002 s, and worker 0 is through when the second is there, at 2.003 s; it sent its own second at
    2.002 s, when the first was there, and worker 1 is through at 2.004 s.
    """
    calls = [Call(step, "all_reduce", 2000.0) for step in range(4)]
    present = np.array([[True, True], [True, False], [True, False], [True, True]])
    timed = phased_clock(present, calls, [[1.0, 2.0]] * 4, LINK)
    np.testing.assert_allclose(timed.step_end_s, [2.004, 3.003, 4.003, 4.003 + 2.004], rtol=1e-12)
    np.testing.assert_allclose(timed.end_s, [4.003 + 2.003, 4.003 + 2.004], rtol=1e-12)
    assert timed.compute_s == pytest.approx((3.0 + 2 * 1.0 + 3.0) / 6)  # per step and worker present
    assert timed.wall_s == timed.step_end_s[-1] == 4 * timed.step_time_s
    back = timed.timeline[(timed.timeline.worker == 1) & (timed.timeline.step == 3)]
    assert back.start_s.min() == pytest.approx(4.003)


@pytest.mark.parametrize("evaluator", ["events", "lockstep"])
def test_what_is_under_way_ends_before_the_group_changes(evaluator):
    """Two workers; worker 1 leaves after step 1. An exchange takes 4 ms and is waited for a step later, but that one.

    In the last phase an exchange that is waited for later than the training ends is not waited for, as in any clock.
    """
    present = np.array([[True, True], [True, True], [True, False], [True, False]])
    calls = [Call(step, "all_reduce", 2000.0) for step in range(4)]
    by_overlap = phased_clock(present, calls, 1.0, LINK, overlap="async", evaluator=evaluator)
    by_calls = phased_clock(present, [call._replace(wait_steps=1) for call in calls], 1.0, LINK, evaluator=evaluator)
    for timed in (by_overlap, by_calls):
        np.testing.assert_allclose(timed.step_end_s, [1.0, 2.004, 3.004, 4.004], rtol=1e-12)
        assert timed.exposed_communication_s == pytest.approx(2 * 0.004 / 6)
        assert timed.bytes_per_worker == 2000.0


def test_encoding_and_triggers_are_means_over_those_present():
    present = np.array([[True, True], [True, False]])
    calls = [
        Call(0, "all_reduce", 2000.0, (0, 1), encoded_bytes=5.0),
        Call(1, "all_reduce", 2000.0, (0,), encoded_bytes=2.0),
    ]
    options = {"trigger_s": [0.1, 0.4], "encode_bytes_per_s": 10.0, "optimizer_s": [0.2, 0.8]}
    timed = phased_clock(present, calls, 1.0, LINK, **options)
    assert timed.encode_s == pytest.approx((2 * 0.5 + 0.2) / 3)
    assert timed.trigger_s == pytest.approx((2 * 0.1 + 0.4) / 3)
    assert timed.optimizer_s == pytest.approx((2 * 0.2 + 0.8) / 3)
    with pytest.raises(SpecError, match=r"calls.group: got .0, 1.; expected those present in steps 1 to 1"):
        phased_clock(present, [calls[0]._replace(step=1)], 1.0, LINK)


def test_those_that_stay_go_on_in_their_own_time():
    """No exchange: worker 2 leaves for one step, worker 0 never waits for worker 1."""
    present = everybody()
    present[2, 2] = False
    compute_s = np.broadcast_to([1.0, 3.0, 1.0, 1.0], (STEPS, WORKERS))
    timed = phased_clock(present, [], compute_s, LINK)
    # Worker 2 is back when worker 1 is through with three steps, and computes three more.
    assert timed.end_s.tolist() == [6.0, 18.0, 12.0, 6.0]


@settings(max_examples=25, deadline=None)
@given(hnp.arrays(bool, (STEPS, WORKERS)), st.integers(0, 9))
def test_events_and_lockstep_agree(present, seed):
    present[:, 1] = True
    one, other = (phased_clock(present, CALLS, varied(seed), LINK, evaluator=by) for by in ("events", "lockstep"))
    np.testing.assert_allclose(one.step_end_s, other.step_end_s, rtol=1e-9)
    np.testing.assert_allclose(one.end_s, other.end_s, rtol=1e-9)
    assert one.exposed_communication_s == pytest.approx(other.exposed_communication_s)
    assert len(one.timeline) == len(other.timeline)


def test_members_keep_their_ways():
    """Of two sites of two, workers 0, 2, 3: messages go where they went in the whole."""
    sites = Sites(2, Link(1e-3, 1e9), Link(0.1, 1e6)).among(4)
    some = among(sites, [0, 2, 3])

    def takes_s(over, sender, receiver):
        programs = [[] for _ in range(over.workers)]
        programs[sender], programs[receiver] = [Send(receiver, 1e6)], [Recv(sender)]
        return run_events(programs, over).makespan_s

    assert takes_s(some, 0, 1) == takes_s(sites, 0, 2)
    assert takes_s(some, 1, 2) == takes_s(sites, 2, 3) != takes_s(sites, 0, 2)


def test_delays_are_asked_for_by_the_numbers_in_the_whole_group():
    present = everybody()
    present[:, 1] = False
    asked = set()

    def delay(sender, receiver):
        asked.update((sender, receiver))
        return 0.0

    phased_clock(present, CALLS, 0.01, LINK, delay=delay)
    assert asked == {0, 2, 3}


def test_the_timeline_keeps_the_first_steps_of_all_phases():
    present = everybody()
    present[2:4, 0] = False
    steps = phased_clock(present, CALLS, 0.01, LINK, keep_steps=3).timeline
    assert set(zip(steps.step.tolist(), steps.worker.tolist(), strict=True)) == {
        (step, worker) for step in range(3) for worker in range(WORKERS) if present[step, worker]
    }


def test_somebody_must_be_there():
    present = everybody()
    present[3] = False
    with pytest.raises(SpecError, match="present: got 3; expected at least one worker"):
        phased_clock(present, CALLS, 0.01, LINK)
