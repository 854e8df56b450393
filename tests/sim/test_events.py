"""Whole histories, worked out by hand: links of 1 byte/s and latency 10 s, unless said otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.costmodel.link import Link
from syncline.errors import SynclineError
from syncline.sim import Collective, Compute, Recv, Send, Wait, run_events
from tests.sim.strategies import links

LINK = Link(10.0, 1.0)


def history(timeline):
    """(worker, what, start, end) of each span."""
    columns = timeline.worker, timeline.what, timeline.start_s, timeline.end_s
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_there_and_back():
    timeline = run_events([[Send(1, 5.0), Recv(1)], [Recv(0), Compute(3.0), Send(0, 2.0)]], LINK)
    assert history(timeline) == [
        (0, "recv", 0.0, 30.0),  # 5 + 10 there, 3 of computing, 2 + 10 back
        (0, "send", 0.0, 5.0),
        (1, "recv", 0.0, 15.0),
        (1, "compute", 15.0, 18.0),
        (1, "send", 18.0, 20.0),
    ]
    assert timeline.nbytes.tolist() == [2.0, 5.0, 5.0, 0.0, 2.0]


def test_messages_queue_on_the_senders_link_and_overlap_in_flight():
    timeline = run_events([[Send(1, 5.0, "a"), Send(2, 3.0, "b")], [Recv(0, "a")], [Recv(0, "b")]], LINK)
    assert history(timeline) == [
        (0, "send", 0.0, 5.0),
        (0, "send", 5.0, 8.0),
        (1, "recv", 0.0, 15.0),
        (2, "recv", 0.0, 18.0),  # not 28: latency does not occupy the link
    ]


def test_a_link_carries_both_directions_at_once_and_a_receiver_takes_from_many():
    incast = [[Recv(1), Recv(2)], [Send(0, 5.0), Recv(2)], [Send(0, 5.0), Send(1, 5.0)]]
    assert history(run_events(incast, LINK))[:2] == [(0, "recv", 0.0, 15.0), (0, "recv", 15.0, 15.0)]


def test_a_message_waits_for_a_receiver_that_is_late():
    timeline = run_events([[Send(1, 5.0)], [Compute(40.0), Recv(0)]], LINK)
    assert history(timeline)[1:] == [(1, "compute", 0.0, 40.0), (1, "recv", 40.0, 40.0)]


def test_messages_are_told_apart_by_tag():
    timeline = run_events([[Send(1, 5.0, "a"), Send(1, 3.0, "b")], [Recv(0, "b"), Recv(0, "a")]], LINK)
    assert history(timeline)[2:] == [(1, "recv", 0.0, 18.0), (1, "recv", 18.0, 18.0)]


def test_the_sender_has_the_slow_link():
    slow, fast = Link(10.0, 0.5), LINK
    timeline = run_events([[Send(1, 5.0), Recv(1)], [Send(0, 5.0), Recv(0)]], [slow, fast])
    assert history(timeline) == [
        (0, "recv", 0.0, 15.0),
        (0, "send", 0.0, 10.0),
        (1, "recv", 0.0, 20.0),
        (1, "send", 0.0, 5.0),
    ]


def test_a_collective_runs_beside_the_computing():
    program = [Compute(1.0, step=0), Collective("all_reduce", 8.0, "g", step=0), Compute(20.0, step=0), Wait("g")]
    expected = [("compute", 0.0, 1.0), ("compute", 1.0, 21.0), ("wait", 21.0, 29.0), ("all_reduce", 1.0, 29.0)]
    timeline = run_events([program, program], LINK)  # 2 rounds of 4 bytes: 2 (4 + 10) = 28
    assert history(timeline) == [(worker, *span) for worker in (0, 1) for span in expected]
    assert timeline.nbytes[timeline.what == "all_reduce"].tolist() == [8.0, 8.0]


def test_collectives_of_a_worker_run_one_after_another():
    program = [Collective("all_reduce", 8.0, "a"), Collective("all_gather", 4.0, "b"), Wait("b"), Wait("a")]
    timeline = run_events([program, program], LINK)
    assert history(timeline)[:4] == [
        (0, "wait", 0.0, 42.0),
        (0, "wait", 42.0, 42.0),
        (0, "all_reduce", 0.0, 28.0),
        (0, "all_gather", 28.0, 42.0),
    ]


def test_a_collective_queues_behind_a_message_on_the_same_link():
    join = [Collective("all_gather", 4.0, "g"), Wait("g")]
    timeline = run_events([[Send(1, 6.0), *join], [*join, Recv(0)]], LINK)
    assert history(timeline) == [
        (0, "wait", 0.0, 14.0),
        (0, "all_gather", 0.0, 14.0),
        (0, "send", 0.0, 6.0),
        (1, "wait", 0.0, 20.0),
        (1, "recv", 20.0, 20.0),
        (1, "all_gather", 0.0, 20.0),
    ]


def test_a_worker_is_done_when_its_own_last_message_has_left():
    join = [Collective("broadcast", 4.0, "g"), Wait("g")]
    timeline = run_events([join, join], Link(0.0, 1.0))
    assert timeline.end_s.tolist() == [4.0] * 4


def test_a_late_start():
    join = [Collective("all_gather", 4.0, "g"), Wait("g")]
    timeline = run_events([join, join], LINK, starts_s=[0.0, 100.0])
    assert history(timeline) == [
        (0, "wait", 0.0, 114.0),
        (0, "all_gather", 0.0, 114.0),
        (1, "wait", 100.0, 104.0),  # the other's message is long there; only its own has to leave
        (1, "all_gather", 100.0, 104.0),
    ]


def test_effects_happen_when_their_instruction_completes():
    seen = []
    note = lambda name: lambda: seen.append(name)  # noqa: E731
    join = Collective("all_gather", 4.0, "g")
    run_events(
        [
            [Send(1, 5.0), join, Compute(1.0, effect=note("computed")), Wait("g", effect=note("waited 0"))],
            [Recv(0, effect=note("received")), join, Wait("g", effect=note("waited 1"))],
        ],
        LINK,
    )
    assert seen == ["computed", "received", "waited 1", "waited 0"]  # at 1, 15, 19 and 29


def test_a_late_gradient_meets_newer_parameters():
    version, staleness = [0], []

    def train(seconds, steps):
        def step():
            held = {}
            return [
                Compute(0.0, "read", effect=lambda: held.update(version=version[0])),
                Compute(seconds, "gradient", effect=lambda: staleness.append((seconds, version[0] - held["version"]))),
                Compute(0.0, "write", effect=lambda: version.__setitem__(0, version[0] + 1)),
            ]

        return [instruction for _ in range(steps) for instruction in step()]

    run_events([train(2.0, 5), train(9.0, 1)], LINK)
    assert staleness == [(2.0, 0), (2.0, 0), (2.0, 0), (2.0, 0), (9.0, 4), (2.0, 1)]


def test_what_happens_at_one_instant_happens_in_one_order():
    def order():
        seen = []
        run_events([[Compute(1.0, effect=lambda w=w: seen.append(w)) for _ in range(2)] for w in range(8)], LINK)
        return seen

    assert order() == [*range(8)] * 2 == order()


@pytest.mark.parametrize(
    ("programs", "line"),
    [
        ([[Recv(1)], []], "worker 0 never gets past Recv"),
        ([[Collective("all_reduce", 8.0, "g")], []], "worker 0 never finishes Collective.*every worker must join"),
        ([[Wait("g")], []], "worker 0 waits for collective 'g', which it has not started"),
        ([[Collective("broadcast", 1.0, "g")] * 2] * 2, "starts collective 'g' twice"),
        (
            [[Collective("all_reduce", 8.0, "g")], [Collective("all_reduce", 4.0, "g")]],
            "expected the same kind, size and algorithm",
        ),
        ([[Send(1, 1.0, "a"), Send(1, 1.0, "a")], []], "expected a tag of its own"),
        ([[Send(2, 1.0)], []], "worker 0 sends '' to 2; expected a worker"),
    ],
)
def test_programs_that_cannot_finish_say_where(programs, line):
    with pytest.raises(SynclineError, match=line):
        run_events(programs, LINK)


@pytest.mark.parametrize("starts_s", [-1.0, [0.0, float("nan")], [0.0, 0.0, 0.0]])
def test_starts_that_cannot_be(starts_s):
    with pytest.raises(SynclineError, match="starts_s"):
        run_events([[], []], LINK, starts_s)


def test_a_wrong_number_of_links():
    with pytest.raises(SynclineError, match="links: got 3; expected one link, or one for each of the 2 workers"):
        run_events([[], []], [LINK] * 3)


@st.composite
def traffic(draw):
    """Programs in which any worker sends to any other; receivers take in the order of sending, so none can hang."""
    workers = draw(st.integers(2, 6))
    programs = [[] for _ in range(workers)]
    for tag in range(draw(st.integers(1, 20))):
        sender, receiver = draw(st.permutations(range(workers)))[:2]
        programs[sender] += [Compute(draw(st.floats(0.0, 1.0))), Send(receiver, draw(st.floats(0.0, 1e6)), tag)]
        programs[receiver].append(Recv(sender, tag))
    return programs


@settings(deadline=None)
@given(traffic(), links)
def test_clocks_never_run_backward_and_what_is_sent_is_received(programs, link):
    timeline = run_events(programs, link)
    assert np.all(timeline.duration_s >= 0)
    for worker in range(len(programs)):
        for stream in ("compute", "send"):
            mine = timeline[(timeline.worker == worker) & (timeline.stream == stream)]
            assert np.all(mine.start_s[1:] >= mine.end_s[:-1])
    sent, received = timeline[timeline.what == "send"], timeline[timeline.what == "recv"]
    by_tag = {tag: index for index, tag in enumerate(received.label)}
    match = [by_tag[tag] for tag in sent.label]
    assert len(sent) == len(received)
    assert sent.nbytes.tolist() == received.nbytes[match].tolist()
    assert np.all(received.end_s[match] >= (sent.end_s + link.latency_s) * (1 - 1e-12))
