"""Synchronous trainings on machines that fail: each step where it is done for good, and the rest told."""

from __future__ import annotations

import math

import numpy as np
import pytest

from syncline.costmodel import Link
from syncline.errors import SynclineError
from syncline.sim import Call, Clock, clock
from syncline.sim.clocks.phases_and_failures import FAILURES, failing_clock
from syncline.sim.failures.costs import CheckpointTimes
from syncline.sim.failures.outages import FailingGroup, Outage

FREE = Link(latency_s=0.0, bandwidth_bytes_per_s=1e15)


def undisturbed(steps: int = 10, compute_s: object = 1.0) -> Clock:
    calls = [Call(step, "all_reduce", 8.0) for step in range(steps)]
    return clock(calls, compute_s, FREE, 2, steps)


def failing(outages: list[Outage], saving: CheckpointTimes | None = None, of: Clock | None = None) -> Clock:
    group = FailingGroup(2, timeout_s=0.5, restart_s=2.0)
    return failing_clock(of or undisturbed(), group, saving or CheckpointTimes(3, stop_s=0.25, load_s=0.5), outages, 50)


def test_where_nothing_fails_and_saving_is_free_every_number_is_the_same() -> None:
    base = undisturbed(compute_s=np.random.default_rng(0).uniform(1, 2, (10, 2)))
    told = failing([], CheckpointTimes(3), base)
    assert np.array_equal(told.step_end_s, base.step_end_s) and told.wall_s == base.wall_s
    assert np.array_equal(told.end_s, base.end_s)
    for name, column in told.timeline.to_columns().items():
        assert np.array_equal(column, base.timeline.to_columns()[name])


def test_by_hand() -> None:
    """Saved after 3, 6, 9 steps, 0.25 s each; at 5.5 s, in step 6, a machine fails that is back at 7 s.

    Steps 4 and 5 had ended at 4.25 and 5.25 s. At 7 s all start, for 2 + 0.5 s, and do steps 4 to 6 by 12.5 s.
    """
    told = failing([Outage(5.5, 1, 2, 7.0)])
    ends_s = [1, 2, 3, 10.5, 11.5, 12.5, 13.75, 14.75, 15.75, 17.0]
    assert told.step_end_s == pytest.approx(ends_s, abs=1e-6) and told.failed is not None
    assert (told.failed.interruptions, told.failed.lost_steps) == (1, 2)
    assert told.failed.lost_s == pytest.approx(2 * 2.25, abs=1e-6)
    assert told.failed.down_s == pytest.approx(2 * 1.5) and told.failed.restart_s == pytest.approx(2 * 2.5)
    shown = told.timeline[(told.timeline.stream == FAILURES) & (told.timeline.worker == 0)]
    spans = zip(shown.what.tolist(), shown.start_s.tolist(), shown.end_s.tolist(), strict=True)
    assert [(what, round(start, 3), round(end, 3)) for what, start, end in spans] == [
        ("checkpoint", 3.0, 3.25), ("lost", 3.25, 5.5), ("down", 5.5, 7.0), ("restart", 7.0, 9.5),
        ("checkpoint", 12.5, 12.75), ("checkpoint", 15.75, 16.0),
    ]  # fmt: skip


def test_spans_of_steps_end_when_their_steps_do_and_none_of_a_stream_overlap() -> None:
    base = undisturbed(compute_s=np.random.default_rng(1).uniform(1, 2, (10, 2)))
    told = failing([Outage(5.5, 1, 2, 7.0), Outage(14.0, 0, 1, 14.0)], of=base)
    assert (np.diff(told.step_end_s) > 0).all()
    own = told.timeline[told.timeline.stream != FAILURES]
    assert own.duration_s == pytest.approx(base.timeline.duration_s)
    assert np.nanmax(own.step_end_s, axis=1) == pytest.approx(told.step_end_s)
    for worker in range(2):
        for stream in set(told.timeline.stream.tolist()):
            spans = told.timeline[(told.timeline.worker == worker) & (told.timeline.stream == stream)]
            assert (spans.start_s[1:] >= spans.end_s[:-1] - 1e-9).all()


def test_no_progress_is_a_sentence() -> None:
    with pytest.raises(SynclineError, match=r"^failures: no progress possible since 4 s: 1 of 2 places stay empty"):
        failing([Outage(4.0, 1, 2)])
    with pytest.raises(SynclineError, match=r"no progress possible since 0 s"):
        failing([Outage(0.0, 1, 2, math.inf)])
