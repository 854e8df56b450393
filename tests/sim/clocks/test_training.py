from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from syncline.costmodel.network.link import Link
from syncline.costmodel.traffic.exchanges import Exchange, calls_of, communication_s
from syncline.errors import SpecError
from syncline.seeds import generator
from syncline.sim import Call, ComputeTime, LogNormalJitter, Pause, clock
from tests.sim.strategies import trainings

WAN = Link(25e-3, 125e6)


@settings(deadline=None)
@given(trainings(max_workers=6))
def test_both_evaluators_read_the_same_clock(training):
    compute_s, calls, network, starts_s = training
    steps, workers = compute_s.shape
    one, other = (
        clock(calls, compute_s, network, workers, steps, starts_s=starts_s, evaluator=evaluator, keep_steps=2)
        for evaluator in ("events", "lockstep")
    )
    for name in ("step_end_s", "step_time_s", "compute_s", "communication_s", "exposed_communication_s", "wall_s"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-9, err_msg=name)
    assert one.bytes_per_worker == other.bytes_per_worker
    assert (one.evaluator, other.evaluator) == ("events", "lockstep")
    np.testing.assert_allclose(one.timeline.end_s, other.timeline.end_s, rtol=1e-9)


def test_a_training_of_20000_steps_on_256_workers_costs_what_the_closed_form_says():
    exchanges, steps, workers = [Exchange(1e8, period=32, label="params"), Exchange(1e6, period=5)], 20_000, 256
    told = clock(calls_of(exchanges, steps), 0.1, WAN, workers, steps)
    expected_s = communication_s(exchanges, steps, workers, WAN)
    assert told.wall_s == pytest.approx(0.1 * steps + expected_s, rel=1e-9)
    assert told.communication_s == told.exposed_communication_s == pytest.approx(expected_s / steps, rel=1e-9)
    assert told.compute_s == pytest.approx(0.1, rel=1e-9)
    assert told.step_time_s == told.wall_s / steps
    assert told.bytes_per_worker == pytest.approx((625 * 1e8 + 4000 * 1e6) / steps, rel=1e-12)
    assert told.step_end_s.shape == (steps,)
    assert told.evaluator == "lockstep"
    assert told.timeline.step.max() == 49 and told.timeline.step_end_s.shape == (50, workers)


def test_step_ends_never_go_back_and_are_those_of_the_last_worker():
    compute_s = ComputeTime(0.1, (LogNormalJitter(0.3),)).sample(40, 8, generator(0, "compute"))
    told = clock([Call(step, "all_reduce", 1e6) for step in range(0, 40, 4)], compute_s, WAN, 8, 40)
    assert np.all(np.diff(told.step_end_s) > 0)
    np.testing.assert_array_equal(told.step_end_s, told.timeline.step_end_s.max(axis=1))


def test_a_pause_of_one_worker_delays_all_that_wait_for_it():
    def wall_s(calls, *pauses):
        times = ComputeTime(0.1, pauses).sample(10, 4, generator(0, "compute"))
        return clock(calls, times, WAN, 4, 10).wall_s

    every_step = [Call(step, "all_reduce", 1e6) for step in range(10)]
    pauses = Pause(0, 2, 1.0), Pause(1, 7, 1.0)
    assert wall_s([], *pauses) == pytest.approx(10 * 0.1 + 1.0)  # alone, each worker pauses once
    # In a group both pauses are felt; the second worker's ring messages leave a little ahead of the late one's.
    assert wall_s(every_step) + 1.9 < wall_s(every_step, *pauses) <= wall_s(every_step) + 2.0


def test_a_late_start_delays_the_group():
    arguments = [Call(0, "all_reduce", 1e6)], 0.1, WAN, 4, 1
    assert clock(*arguments, starts_s=[0, 0, 5.0, 0]).wall_s == pytest.approx(clock(*arguments).wall_s + 5.0)


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"evaluator": "event"}, "clock.evaluator: got 'event'.*did you mean 'events'"),
        ({"workers": 0}, "clock.workers: got 0; expected at least 1"),
        ({"steps": 0}, "clock.steps: got 0"),
        ({"compute_s": [1.0, 2.0]}, r"compute_s: got \(2,\); expected a shape that broadcasts to \(3, 4\)"),
        ({"compute_s": -1.0}, "compute_s: got -1.0; expected seconds"),
        ({"network": [WAN] * 3}, "links: got 3"),
        ({"calls": [Call(3, "all_reduce", 1.0)]}, "step: got 3; expected a step from 0 to 2"),
    ],
)
def test_arguments_that_cannot_be(changed, line):
    arguments = {"calls": [], "compute_s": 0.1, "network": WAN, "workers": 4, "steps": 3}
    with pytest.raises(SpecError, match=line):
        clock(**(arguments | changed))
