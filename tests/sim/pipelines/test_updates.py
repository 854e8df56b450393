"""Updates of replicated pipelines: flushes before them, averaging, their own time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.costmodel import Link, NcclCosts, collective_s
from syncline.costmodel.collectives.table import default_algorithm
from syncline.costmodel.layouts.pipelines import AVERAGINGS, averaging_calls, pipeline_s
from syncline.errors import SpecError
from syncline.sim import Durations, Pipeline, report, run_pipeline, schedule
from syncline.sim.pipelines.schedules import Schedule, repeated

LINE = Link(0.0, 1e6, nccl=NcclCosts(buffer_bytes=5e4))


def update_end_s(made, stages=3, **fields):
    return run_pipeline(Pipeline(made, stages, Durations(1.0, 2.0), **fields), LINE).makespan_s


@settings(deadline=None, max_examples=20)
@given(
    st.sampled_from(["gpipe", "1f1b"]), st.integers(1, 4), st.integers(1, 3), st.integers(2, 4),
    st.sampled_from(["library", "reduce+broadcast", "direct", "ring", "tree"]), st.floats(0, 2),
)  # fmt: skip
def test_without_messages_an_update_is_flushes_averaging_and_its_time(
    name, stages, flushes, replicas, averaging, update_s
):
    """The first stage is last; nothing meets its averaging, whose seconds are those of `collective_s`."""
    made, nbytes = repeated(schedule(name, stages, 4), flushes), 2e6
    found_s = update_end_s(
        made, stages, replicas=replicas, gradient_bytes=[nbytes] * stages, averaging=averaging, update_s=update_s
    )
    calls = [(kind, algorithm or default_algorithm(kind, LINE)) for kind, algorithm in averaging_calls(averaging)]
    averaged_s = sum(float(collective_s(kind, replicas, nbytes, LINE, algorithm)) for kind, algorithm in calls)
    expected_s = flushes * pipeline_s(name, stages, 4, 1.0, 2.0) + averaged_s + update_s
    assert found_s == pytest.approx(expected_s, rel=1e-9)


def test_every_stage_has_its_own_update():
    """The first stage ends at 18, the last at 14, so that an update of 5 seconds there is the end."""
    made = schedule("gpipe", 3, 4)
    assert update_end_s(made, update_s=[0.0, 0.0, 5.0]) == update_end_s(made) + 1 == 19
    assert update_end_s(made, update_s=2.0) == 20


def test_updates_after_each_micro_batch_take_their_time_each():
    assert update_end_s(schedule("async-1f1b", 1, 4), 1, update_s=0.5) == 4 * 3.5


def test_averaging_shares_the_line_with_the_gradients_that_are_still_sent():
    """Two stages; a gradient takes 1 s, and the second stage's averaging begins as its last gradient leaves.

    The direct exchange of 2 replicas sends half of the bytes twice, 10 s each. Alone the last gradient arrives at 10 +
    1 s; sharing the sender's line with the exchange it takes 2 s, so that the first stage ends a second later.
    """
    line = Link(0.0, 1.0)
    made, times = schedule("gpipe", 2, 1), Durations(1.0, 2.0)
    alone, shared = (
        run_pipeline(
            Pipeline(made, 2, times, activation_bytes=1.0, replicas=2, gradient_bytes=sizes, averaging="direct"), line
        )
        for sizes in ([0.0, 0.0], [0.0, 20.0])
    )
    first = [timeline.end_s[(timeline.worker == 0) & timeline.computes].max() for timeline in (alone, shared)]
    assert first == [1 + 1 + 1 + 2 + 1 + 2, 1 + 1 + 1 + 2 + 2 + 2]


def test_flushes_follow_each_other_and_their_micro_batches_are_counted_on():
    made = repeated(schedule("interleaved", 2, 4, chunks=2), 3)
    assert made.microbatches == 12 and len(made.orders[0]) == 3 * 16
    assert sorted(made.orders[1]) == sorted(schedule("interleaved", 2, 12, chunks=2).orders[1])
    timeline = run_pipeline(Pipeline(made, 2, Durations(1.0, 2.0)), LINE)
    assert sorted(set(timeline.step.tolist())) == list(range(12))
    once = schedule("1f1b", 3, 4)
    peaks = [
        [
            stage.peak_activations
            for stage in report(run_pipeline(Pipeline(order, 3, Durations()), LINE), order, 3).stages
        ]
        for order in (once, repeated(once, 2))
    ]
    assert peaks[0] == peaks[1] == [3, 2, 1]


def test_what_cannot_be_repeated_is_refused():
    assert repeated(schedule("greedy", 2, 4), 1).microbatches == 4
    with pytest.raises(SpecError, match="1 with async-1f1b, which updates after each micro-batch"):
        repeated(schedule("async-1f1b", 2, 4), 2)
    uneven = Schedule("mine", [schedule("gpipe", 1, 2).orders[0], []], 2)
    with pytest.raises(SpecError, match="different numbers of tasks"):
        repeated(uneven, 2)


def test_times_and_names_that_cannot_be():
    made = schedule("gpipe", 2, 2)
    for update_s in ([1.0, 2.0, 3.0], -1.0, np.inf):
        with pytest.raises(SpecError, match="update_s"):
            run_pipeline(Pipeline(made, 2, Durations(), update_s=update_s), LINE)
    with pytest.raises(SpecError, match="averaging"):
        averaging_calls("rings")
    assert {"library", "reduce+broadcast", "direct", "ring", "nccl-ring"} <= set(AVERAGINGS)
