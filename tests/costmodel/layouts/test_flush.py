"""A flush of GPipe on lines: closed form, lockstep and events agree."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from syncline.costmodel import Link, Matrix, NcclCosts
from syncline.costmodel.layouts import pipelines
from syncline.costmodel.layouts.pipelines import gpipe_ends_s, gpipe_s, pipeline_s
from syncline.costmodel.network.link import topology
from syncline.costmodel.network.software_costs import MESSAGES_AHEAD, messages_ahead
from syncline.errors import SpecError
from syncline.sim import Durations, Pipeline, run_pipeline, schedule
from syncline.sim.pipelines.schedules import repeated

COSTS = st.sampled_from([None, NcclCosts(buffer_bytes=1.0)])
"""Lines without NCCL, and lines whose buffers hold all messages that may travel together."""

seconds = st.floats(0.1, 3.0)


def played(stages, microbatches, flushes, forward_s, backward_s, network):
    """Return the end of each stage's computing in the event simulation."""
    order = repeated(schedule("gpipe", stages, microbatches), flushes)
    durations = Durations(np.reshape(forward_s, (-1, 1)), np.reshape(backward_s, (-1, 1)))
    timeline = run_pipeline(Pipeline(order, stages, durations, activation_bytes=1.0), network)
    return [timeline.end_s[(timeline.worker == stage) & timeline.computes].max() for stage in range(stages)]


def is_decided_by_rounding(*arguments):
    """Return whether a message is ready just as the one before it leaves, up to rounding: both answers are right then.

    Exact ties are in `test_a_message_ready_as_another_leaves_is_not_queued`.
    """
    with patch.object(pipelines, "TIE", -pipelines.TIE):
        as_queued = gpipe_ends_s(*arguments)
    return not np.array_equal(as_queued, gpipe_ends_s(*arguments))


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 6), st.integers(1, 24), st.integers(1, 3), seconds, seconds, seconds, st.floats(0, 2), COSTS)
def test_equal_lines(stages, microbatches, flushes, forward_s, backward_s, message_s, latency_s, costs):
    line = Link(latency_s, 1 / message_s, nccl=costs)
    ahead = messages_ahead(topology(line, stages), 1.0)
    assert ahead == (0 if costs is None else MESSAGES_AHEAD)
    closed_s = flushes * gpipe_s(stages, microbatches, forward_s, backward_s, message_s, latency_s, ahead)
    lines = np.ones((2, stages - 1))
    arguments = (
        np.full(stages, forward_s), np.full(stages, backward_s), message_s * lines, latency_s * lines, microbatches,
        ahead, flushes,
    )  # fmt: skip
    assume(not is_decided_by_rounding(*arguments))
    ends_s = gpipe_ends_s(*arguments)
    assert closed_s == pytest.approx(ends_s[0], rel=1e-9) and ends_s[0] == ends_s.max()
    events_s = played(stages, microbatches, flushes, forward_s, backward_s, line)
    np.testing.assert_allclose(events_s, ends_s, rtol=1e-9)


@settings(deadline=None, max_examples=40)
@given(st.data(), st.integers(2, 5), st.integers(1, 16), st.integers(1, 2), COSTS)
def test_different_stages_and_lines(data, stages, microbatches, flushes, costs):
    def draw(*shape):
        return np.reshape(
            data.draw(st.lists(seconds, min_size=int(np.prod(shape)), max_size=int(np.prod(shape)))), shape
        )

    forward_s, backward_s = draw(stages), draw(stages)
    messages_s, latencies_s = draw(2, stages - 1), draw(2, stages - 1)
    lines = [[Link(1.0, 1.0, nccl=costs) if i != j else None for j in range(stages)] for i in range(stages)]
    for hop in range(stages - 1):
        lines[hop][hop + 1] = Link(latencies_s[0, hop], 1 / messages_s[0, hop], nccl=costs)
        lines[hop + 1][hop] = Link(latencies_s[1, hop], 1 / messages_s[1, hop], nccl=costs)
    network = Matrix(tuple(map(str, range(stages))), tuple(map(tuple, lines)), tuple(range(stages)))
    ahead = messages_ahead(network, 1.0)
    arguments = forward_s, backward_s, messages_s, latencies_s, microbatches, ahead, flushes
    assume(not is_decided_by_rounding(*arguments))
    ends_s = gpipe_ends_s(*arguments)
    np.testing.assert_allclose(played(stages, microbatches, flushes, forward_s, backward_s, network), ends_s, rtol=1e-9)


@pytest.mark.parametrize("costs", [None, NcclCosts(buffer_bytes=0.3), NcclCosts(buffer_bytes=1.0)])
@pytest.mark.parametrize("stages", [2, 3, 5])
@pytest.mark.parametrize(("forward_s", "backward_s", "message_s"), [(1.0, 1.0, 1.0), (1.0, 2.0, 2.0), (2.0, 1.0, 2.0)])
def test_a_message_ready_as_another_leaves_is_not_queued(stages, forward_s, backward_s, message_s, costs):
    line = Link(0.5, 1 / message_s, nccl=costs)
    ahead = messages_ahead(topology(line, stages), 1.0)
    lines = np.full((2, stages - 1), message_s)
    stage = np.ones(stages)
    ends_s = gpipe_ends_s(forward_s * stage, backward_s * stage, lines, np.full_like(lines, 0.5), 6, ahead)
    np.testing.assert_array_equal(played(stages, 6, 1, forward_s * stage, backward_s * stage, line), ends_s)
    assert gpipe_s(stages, 6, forward_s, backward_s, message_s, 0.5, ahead) == ends_s[0]


def test_without_lines_it_is_the_form_of_the_schedule():
    assert gpipe_s(4, 8, 1.0, 2.0) == pipeline_s("gpipe", 4, 8, 1.0, 2.0)


def test_pipelines_side_by_side():
    forward_s = np.array([[1.0, 2.0], [3.0, 1.0]])
    lines = np.full((2, 2, 1), 0.5)
    together = gpipe_ends_s(forward_s, 2 * forward_s, lines, lines, 5, ahead=2)
    for row in range(2):
        alone = gpipe_ends_s(forward_s[row], 2 * forward_s[row], lines[row], lines[row], 5, ahead=2)
        np.testing.assert_array_equal(together[row], alone)


def test_lines_of_another_number_of_stages_are_refused():
    with pytest.raises(SpecError, match="the lines between 3 stages"):
        gpipe_ends_s(np.ones(3), np.ones(3), np.ones((2, 1)), np.ones((2, 1)), 4)
