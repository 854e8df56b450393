"""Events, lockstep and the closed forms hold each other."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.costmodel.collectives import COLLECTIVES
from syncline.costmodel.link import Link
from syncline.sim import Call, data_parallel, rounds, run_events, run_lockstep
from syncline.sim.lockstep import CollectiveMaps, run_rounds
from syncline.sim.uplinks import Uplinks
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


@pytest.mark.parametrize("kind", COLLECTIVES)
@pytest.mark.parametrize("network", [WAN, [WAN, WAN, Link(1e-3, 1e6), WAN, WAN]], ids=["equal", "one slow link"])
def test_the_matrix_is_the_rounds(kind, network):
    uplinks, uses = Uplinks.of(network, 5), Counter({(kind, 1e6): 6})
    of = rounds(kind, 5, 1e6)
    entries = np.random.default_rng(0).exponential(0.1, (20, 5))
    by_matrix = CollectiveMaps(uplinks, uses)
    for entry_s in entries:
        expected = np.maximum(*run_rounds(of, uplinks, entry_s))
        np.testing.assert_allclose(by_matrix.done_s(kind, 1e6, entry_s), expected, rtol=RTOL)
        np.testing.assert_allclose(CollectiveMaps(uplinks, Counter()).done_s(kind, 1e6, entry_s), expected, rtol=RTOL)
    np.testing.assert_allclose(
        np.maximum(*run_rounds(of, uplinks, entries))[7], np.maximum(*run_rounds(of, uplinks, entries[7]))
    )


def test_a_long_training_by_matrix_tells_the_history_of_the_events():
    compute_s = np.random.default_rng(1).exponential(0.01, (12, 4))
    calls = [Call(step, "all_reduce", 1e6, "x") for step in range(12)]  # more often than there are workers
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
