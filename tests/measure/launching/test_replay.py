"""A pipeline played once more with the times that were measured: those of the events give the events' makespan."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.costmodel import Link
from syncline.costmodel.layouts.pipelines import pipeline_s
from syncline.measure.launching.pipeline import UPDATE, replayed_s
from syncline.sim import Timeline, run_pipeline
from syncline.sim.pipelines.pipeline import Durations, Pipeline
from syncline.sim.pipelines.schedules import Schedule, schedule

STAGES, MICROBATCHES = 4, 8
FREE = Link(0.0, 1e15)


def measured(made: Schedule, durations: Durations, update_s: float = 0.0) -> Timeline:
    """As stages of their own would have it: each task, and an update where the schedule has one."""
    played = run_pipeline(Pipeline(made, STAGES, durations), FREE)
    spans = [tuple(row) for row in zip(*played.to_columns().values(), strict=True)]
    updates = [(stage, "compute", UPDATE, "", 0.0, update_s, 0.0, 0) for stage in range(STAGES)]
    return Timeline.from_spans([*(updates if update_s else []), *spans], STAGES)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "async-1f1b", "zb-h1", "interleaved"])
def test_times_of_the_events_give_the_events_makespan(name: str) -> None:
    made = schedule(name, STAGES, MICROBATCHES, 2 if name == "interleaved" else 1)
    of_stages = np.array([1.0, 1.5, 0.5, 2.0])[:, None]
    again = [measured(made, Durations(of_stages, 2 * of_stages, of_stages)) for _ in range(2)]
    assert replayed_s(again, made, STAGES) == pytest.approx(again[0].makespan_s, rel=1e-12)


def test_one_task_that_took_long_does_not_count() -> None:
    made, even = schedule("1f1b", STAGES, MICROBATCHES), np.ones((STAGES, MICROBATCHES))
    late = even.copy()
    late[2, 3] = 50.0
    expected = pipeline_s("1f1b", STAGES, MICROBATCHES, 1.0, 2.0)
    found = measured(made, Durations(late, 2 * even))
    assert found.makespan_s > expected + 45
    assert replayed_s([found], made, STAGES) == pytest.approx(float(expected))


def test_updates_count_where_they_are() -> None:
    """One after each stage's last backward, before its gradient goes on to the stage below; or one after each one."""
    flushed, never = schedule("1f1b", STAGES, MICROBATCHES), schedule("async-1f1b", STAGES, MICROBATCHES)
    found = measured(flushed, Durations(1.0, 2.0), 0.25)
    expected = pipeline_s("1f1b", STAGES, MICROBATCHES, 1.0, 2.0)
    assert replayed_s([found], flushed, STAGES) == pytest.approx(float(expected) + STAGES * 0.25)
    found = measured(never, Durations(1.0, 2.0), 0.25)
    assert replayed_s([found], never, STAGES) == pytest.approx(measured(never, Durations(1.0, 2.25)).makespan_s)
