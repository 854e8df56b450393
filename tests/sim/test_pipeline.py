"""Pipelines run by the events: whole histories, delays that emerge, memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.costmodel.link import Link
from syncline.costmodel.pipelines import stage_delays
from syncline.errors import SpecError
from syncline.sim.pipeline import Durations, Pipeline, report, run_pipeline
from syncline.sim.schedules import schedule

FREE = Link(0.0, 1e15)


def play(made, durations, network=FREE, **options):
    return run_pipeline(Pipeline(made, len(made.orders), durations, **options), network)


def told_of(made, durations, network=FREE, **options):
    return report(play(made, durations, network, **options), made, len(made.orders))


def history(timeline, stage):
    mine = (timeline.worker == stage) & (timeline.what == "compute")
    rows = zip(timeline.label[mine], timeline.step[mine], timeline.start_s[mine], timeline.end_s[mine], strict=True)
    return [(str(label), int(i), float(start), float(end)) for label, i, start, end in rows]


def test_two_stages_two_microbatches_by_hand():
    timeline = play(schedule("1f1b", 2, 2), Durations(1.0, 2.0))
    assert history(timeline, 0) == [
        ("forward", 0, 0.0, 1.0), ("forward", 1, 1.0, 2.0), ("backward", 0, 4.0, 6.0), ("backward", 1, 7.0, 9.0),
    ]  # fmt: skip
    assert history(timeline, 1) == [
        ("forward", 0, 1.0, 2.0), ("backward", 0, 2.0, 4.0), ("forward", 1, 4.0, 5.0), ("backward", 1, 5.0, 7.0),
    ]  # fmt: skip


def test_activations_take_their_time_on_the_links():
    """One byte per second and 10 s latency: an activation of 5 bytes is there 15 s after it was computed."""
    timeline = play(schedule("gpipe", 2, 1), Durations(1.0, 2.0), Link(10.0, 1.0), activation_bytes=5.0)
    assert history(timeline, 1) == [("forward", 0, 16.0, 17.0), ("backward", 0, 17.0, 19.0)]
    assert history(timeline, 0)[-1] == ("backward", 0, 34.0, 36.0)
    assert timeline.bytes_sent().tolist() == [5.0, 5.0]


@settings(max_examples=25, deadline=None)
@given(
    stages=st.integers(2, 32),
    microbatches=st.integers(1, 40),
    seed=st.integers(0, 2**32 - 1),
    latency_s=st.sampled_from([0.0, 0.3, 5.0]),
)
def test_delays_emerge_whatever_the_durations(stages, microbatches, seed, latency_s):
    """Micro-batch i at stage k (from 0): min(i, K - 1 - k) updates late, which no duration changes."""
    rng = np.random.default_rng(seed)
    times = Durations(rng.uniform(0.1, 3.0, (stages, microbatches)), rng.uniform(0.1, 3.0, (stages, microbatches)))
    made = schedule("async-1f1b", stages, microbatches)
    told = told_of(made, times, Link(latency_s, 1e9))
    for k, (stage, late) in enumerate(zip(told.stages, stage_delays(stages), strict=True)):
        assert stage.delays == tuple(min(i, late) for i in range(microbatches))
        assert stage.delay_steady == min(microbatches - 1, late)
        assert stage.peak_activations == min(microbatches, stages - k)
        assert stage.weight_versions <= stages - k


@pytest.mark.parametrize("stages", [2, 5, 8])
def test_asynchronous_time_is_three_times_what_passes(stages):
    """Forward 1, backward 2: T = 3 (M + K - 1). Notes on Basis Rotation."""
    made = schedule("async-1f1b", stages, 20)
    assert play(made, Durations(1.0, 2.0)).makespan_s == 3 * (20 + stages - 1)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved", "zb-h1"])
def test_nothing_is_late_where_updates_wait(name):
    made = schedule(name, 4, 8, 2 if name == "interleaved" else 1)
    told = told_of(made, Durations(1.0, 2.0, 1.0))
    assert all(set(stage.delays) == {0} and stage.weight_versions == 1 for stage in told.stages)


def test_the_same_schedule_gives_the_same_bits():
    times = Durations(np.random.default_rng(0).uniform(0.5, 1.5, (4, 12)), 2.0)
    first, second = (play(schedule("async-1f1b", 4, 12), times, Link(0.1, 1e6)) for _ in range(2))
    for name, column in first.to_columns().items():
        np.testing.assert_array_equal(column, second.to_columns()[name])


def test_times_that_cannot_be():
    with pytest.raises(SpecError, match="forward_s"):
        play(schedule("gpipe", 2, 2), Durations(-1.0))
    with pytest.raises(SpecError, match="stages and micro-batches"):
        play(schedule("gpipe", 2, 2), Durations([1.0, 2.0, 3.0]))


def test_replicas_average_each_stage_before_its_update():
    """Two replicas of two stages: after its last backward a stage's gradient of 8 bytes takes 2 (1 + 8 / 2) s."""
    made = schedule("gpipe", 2, 1)
    timeline = play(made, Durations(1.0, 2.0), Link(1.0, 1.0), replicas=2, gradient_bytes=[8.0, 8.0])
    sums = timeline.what == "all_reduce"
    rows = zip(timeline.worker[sums], timeline.start_s[sums], timeline.end_s[sums], strict=True)
    # Forward 1 s, an activation 1 s, forward 1 s, backward 2 s at stage 2; 1 s, backward 2 s at stage 1.
    assert [(int(worker), float(start), float(end)) for worker, start, end in rows] == [
        (0, 8.0, 18.0), (1, 5.0, 15.0), (2, 8.0, 18.0), (3, 5.0, 15.0),
    ]  # fmt: skip
