from __future__ import annotations

import numpy as np
import pytest

from syncline.costmodel.network.link import Link
from syncline.sim import Collective, Compute, Recv, Send, Span, Timeline, Wait, run_events
from syncline.sim.program.timeline import Words

LINK = Link(10.0, 1.0)


@pytest.fixture
def overlap():
    """Two workers; an all-gather of 5 bytes takes 15 s, of which 12 s hide behind the computing of worker 0."""
    join = Collective("all_gather", 5.0, "g", "gradient", step=0)
    return run_events(
        [
            [Compute(2.0, step=0), join, Compute(12.0, step=0), Wait("g"), Compute(1.0, step=1)],
            [Compute(2.0, step=0), join, Wait("g"), Send(0, 3.0, "late", step=1), Compute(8.0, step=1)],
        ],
        LINK,
    )


def test_exposed_communication_by_hand(overlap):
    # Both are done with the all-gather at 2 + 15 = 17: worker 0 waits from 14, worker 1 from 2.
    assert overlap.exposed_communication_s().tolist() == [3.0, 15.0]
    assert overlap.communication_s().tolist() == [15.0, 15.0 + 3.0]


def test_computing_and_utilisation_by_hand(overlap):
    assert overlap.makespan_s == 25.0
    assert overlap.compute_s().tolist() == [15.0, 10.0]
    assert overlap.utilisation().tolist() == [15 / 25, 10 / 25]


def test_bytes_and_step_ends_by_hand(overlap):
    sent = overlap.stream != "compute"
    assert np.bincount(overlap.worker[sent], overlap.nbytes[sent]).tolist() == [5.0, 8.0]
    assert overlap.step_end_s.tolist() == [[17.0, 17.0], [18.0, 25.0]]


def test_the_compute_stream_of_a_worker_has_no_gaps(overlap):
    for worker in (0, 1):
        mine = overlap[(overlap.worker == worker) & (overlap.stream == "compute")]
        assert mine.start_s[0] == 0.0
        assert mine.start_s[1:].tolist() == mine.end_s[:-1].tolist()


def test_waiting_for_a_message_is_exposed():
    timeline = run_events([[Send(1, 5.0)], [Compute(4.0), Recv(0)]], LINK)
    assert timeline.exposed_communication_s().tolist() == [0.0, 11.0]


def test_time_that_two_streams_share_counts_once():
    def span(stream, start_s, end_s):
        return Span(0, stream, "x", "", start_s, end_s, 1.0, 0)

    spans = [span("network", 0.0, 10.0), span("send", 2.0, 4.0), span("send", 8.0, 13.0), span("send", 20.0, 21.0)]
    timeline = Timeline.from_spans(spans, workers=2)
    assert timeline.communication_s().tolist() == [14.0, 0.0]


def test_the_head_has_the_first_steps(overlap):
    head = overlap.head(1)
    assert set(head.step) == {0} and len(head) == 3 + 1 + 2 + 1
    assert head.step_end_s.tolist() == [[17.0, 17.0]]


def test_columns_are_of_one_length_and_in_order(overlap):
    columns = overlap.to_columns()
    assert list(columns) == ["worker", "stream", "what", "label", "start_s", "end_s", "nbytes", "step"]
    assert {len(column) for column in columns.values()} == {len(overlap)}
    rows = list(zip(columns["worker"], columns["stream"], columns["start_s"], strict=True))
    assert rows == sorted(rows)


def test_a_step_without_a_worker_is_nan():
    timeline = run_events([[Compute(1.0, step=0), Compute(1.0, step=1)], [Compute(3.0, step=0)]], LINK)
    np.testing.assert_array_equal(timeline.step_end_s, [[1.0, 3.0], [2.0, np.nan]])


def test_an_empty_timeline():
    timeline = Timeline.from_spans([], workers=2)
    assert len(timeline) == 0 and timeline.makespan_s == 0.0
    assert timeline.step_end_s.shape == (0, 2)
    for query in (
        timeline.utilisation,
        timeline.communication_s,
        timeline.exposed_communication_s,
    ):
        assert query().tolist() == [0.0, 0.0]


def test_a_column_of_words_is_an_array_of_strings():
    words = Words.from_words(["b", "a", "b", "", "a"])
    assert words.tolist() == list(words) == np.asarray(words).tolist() == ["b", "a", "b", "", "a"]
    assert len(words.words) == 3 and len(words) == 5
    assert (words == "a").tolist() == [False, True, False, False, True]
    assert (words != "a").tolist() == [True, False, True, True, False]
    assert (words == np.array(["b", "b", "b", "b", "b"])).tolist() == [True, False, True, False, False]
    assert words.isin(["a", "b"]).tolist() == [True, True, True, False, True]
    assert words[1] == "a" and words[words == "b"].tolist() == ["b", "b"] and words[3:].tolist() == ["", "a"]
    assert np.argsort(words.rank(), kind="stable").tolist() == [3, 1, 4, 0, 2]
    assert Words.from_words(words) is words
    assert Words.repeated(["x", "y", "x"], [2, 0, 1]).tolist() == ["x", "x", "x"]


@pytest.mark.parametrize("none", [Words.from_words([]), Words.repeated([], [])])
def test_a_column_without_words(none):
    assert len(none) == 0 and none.tolist() == [] and np.asarray(none).shape == (0,)
    assert (none == "a").tolist() == none.isin(["a"]).tolist() == none.rank().tolist() == []
