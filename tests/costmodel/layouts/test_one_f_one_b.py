from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel.layouts.pipelines import one_f_one_b_s, pipeline_s
from syncline.costmodel.network.link import Link
from syncline.errors import SpecError
from syncline.sim.pipelines.pipeline import Durations, Pipeline
from syncline.sim.pipelines.run import run_pipeline
from syncline.sim.pipelines.schedules import one_f_one_b

TIMES = st.floats(0.0, 10.0)


@given(st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=5), st.integers(1, 7), st.sampled_from([0.0, 0.3, 4.0]))
def test_the_events_say_the_same(stages, microbatches, send_s):
    forward, backward = map(list, zip(*stages, strict=True))
    durations = Durations(np.array(forward)[:, None], np.array(backward)[:, None])
    of = Pipeline(one_f_one_b(len(stages), microbatches), len(stages), durations)
    # Nothing but a latency: messages do not hinder each other.
    timeline = run_pipeline(of, Link(send_s, 1e15))
    ends_s = [timeline.end_s[timeline.worker == stage].max() for stage in range(len(stages))]
    np.testing.assert_allclose(one_f_one_b_s(forward, backward, microbatches, send_s), ends_s, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("stages", [1, 2, 4, 9])
@pytest.mark.parametrize("microbatches", [1, 3, 16])
def test_equal_stages_have_a_closed_form(stages, microbatches):
    ends_s = one_f_one_b_s([0.5] * stages, [1.5] * stages, microbatches)
    assert ends_s[0] == pytest.approx(pipeline_s("1f1b", stages, microbatches, 0.5, 1.5))
    assert ends_s[-1] == pytest.approx((stages - 1) * 0.5 + microbatches * 2.0)


def test_a_slow_stage_sets_the_pace():
    """By hand: F = 1, 3 and B = 2, 4; the last stage works from 1 to 1 + 5 (3 + 4), and the first ends 2 later."""
    np.testing.assert_allclose(one_f_one_b_s([1.0, 3.0], [2.0, 4.0], 5), [38.0, 36.0])


def test_pipelines_side_by_side_are_alone():
    rng = np.random.default_rng(0)
    forward, backward, send = rng.random((3, 2, 5)), rng.random((3, 2, 5)), rng.random((2, 5))
    together = one_f_one_b_s(forward, backward, 6, send)
    for at in np.ndindex(2, 5):
        alone = one_f_one_b_s(forward[:, *at], backward[:, *at], 6, send[at])
        np.testing.assert_array_equal(together[:, *at], alone)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], [], 1), "one stage at least"),
        ((1.0, 1.0, 1), "one stage at least"),
        (([1.0], [1.0, 2.0], 1), "the shape of forward_s"),
        (([1.0], [1.0], 0), "microbatches: got 0"),
        (([1.0, -1.0], [1.0, 1.0], 1), r"forward_s: got -1\.0"),
        (([1.0], [-2.0], 1), r"backward_s: got -2\.0"),
        (([1.0], [1.0], 1, -0.5), r"send_s: got -0\.5"),
    ],
)
def test_what_cannot_be_is_refused(arguments, message):
    with pytest.raises(SpecError, match=message):
        one_f_one_b_s(*arguments)
