"""Whole histories, worked out by hand: links of 1 byte/s and latency 10 s, unless said otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.costmodel.network.link import Link
from syncline.errors import SynclineError
from syncline.sim import Collective, Compute, Recv, Round, Send, Wait, collective_finish_s, run_events
from tests.sim.strategies import algorithms, sizes

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


def test_a_link_carries_both_directions_at_once():
    there_and_back = [[Send(1, 5.0), Recv(1)], [Send(0, 5.0), Recv(0)]]
    assert run_events(there_and_back, LINK).end_s.tolist() == [15.0, 5.0, 15.0, 5.0]


def test_half_duplex_directions_share_a_link():
    there_and_back = [[Send(1, 5.0), Recv(1)], [Send(0, 5.0), Recv(0)]]
    half = Link(10.0, 1.0, duplex="half")
    assert run_events(there_and_back, half).end_s.tolist() == [20.0, 10.0, 20.0, 10.0]
    assert run_events([[Send(1, 5.0)], [Recv(0)]], half).end_s.tolist() == [5.0, 15.0]


def test_messages_to_one_worker_share_its_link():
    programs = [[Recv(worker) for worker in range(1, 8)], *[[Send(0, 5.0)] for _ in range(7)]]
    timeline = run_events(programs, LINK)
    assert timeline.end_s.tolist() == [45.0] * 7 + [35.0] * 7


def test_a_collective_takes_messages_in_order():
    one_by_one = tuple(Round(np.array([worker]), np.array([0]), 5.0) for worker in range(1, 8))
    timeline = run_events([[Collective("gather", 5.0, "g", rounds=one_by_one)]] * 8, LINK)
    assert timeline.end_s.tolist() == [45.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0]


def test_sending_can_be_slower_than_receiving():
    programs = [[Recv(1), Recv(2)], [Send(0, 6.0)], [Send(0, 6.0)]]
    assert run_events(programs, Link(10.0, 4.0, upload_bytes_per_s=2.0)).end_s.tolist() == [13.0, 13.0, 3.0, 3.0]
    assert run_events(programs, Link(10.0, 3.0, upload_bytes_per_s=2.0)).end_s.tolist() == [14.0, 14.0, 4.0, 4.0]


def test_the_overhead_of_a_message_occupies_its_port_and_not_the_link():
    two = [[Send(1, 5.0, "a"), Send(1, 3.0, "b")], [Recv(0, "a"), Recv(0, "b")]]
    timeline = run_events(two, Link(10.0, 1.0, overhead_s=2.0))
    assert history(timeline) == [
        (0, "send", 0.0, 7.0),
        (0, "send", 7.0, 12.0),
        (1, "recv", 0.0, 17.0),
        (1, "recv", 17.0, 22.0),
    ]
    # Sent at once on two streams, their overheads pass beside each other; 3 bytes each by halves, then the others.
    two[0][1] = Send(1, 3.0, "b", stream="other")
    assert run_events(two, Link(10.0, 1.0, overhead_s=2.0)).end_s.tolist() == [8.0, 10.0, 20.0, 20.0]


def test_messages_of_two_streams_share_a_link_until_one_is_over():
    timeline = run_events([[Send(1, 6.0), Send(2, 2.0, stream="other")], [Recv(0)], [Recv(0)]], LINK)
    assert history(timeline) == [
        (0, "send", 0.0, 4.0),
        (0, "send", 0.0, 8.0),
        (1, "recv", 0.0, 18.0),
        (2, "recv", 0.0, 14.0),
    ]


def test_a_message_waits_for_a_receiver_that_is_late():
    timeline = run_events([[Send(1, 5.0)], [Compute(40.0), Recv(0)]], LINK)
    assert history(timeline)[1:] == [(1, "compute", 0.0, 40.0), (1, "recv", 40.0, 40.0)]


def test_messages_are_told_apart_by_tag():
    timeline = run_events([[Send(1, 5.0, "a"), Send(1, 3.0, "b")], [Recv(0, "b"), Recv(0, "a")]], LINK)
    assert history(timeline)[2:] == [(1, "recv", 0.0, 18.0), (1, "recv", 18.0, 18.0)]


def test_a_slow_link_is_slow_both_ways_and_half_of_the_way_is_on_each():
    slow, fast = Link(20.0, 0.5), LINK
    timeline = run_events([[Send(1, 5.0), Recv(1)], [Send(0, 5.0), Recv(0)]], [slow, fast])
    assert history(timeline) == [
        (0, "recv", 0.0, 25.0),
        (0, "send", 0.0, 10.0),
        (1, "recv", 0.0, 25.0),
        (1, "send", 0.0, 10.0),
    ]


def test_by_rendezvous_a_message_waits_for_both_ends():
    programs = [
        [Send(1, 5.0), Send(2, 5.0)],  # nobody waits for a `Send`, but the second is behind the first
        [Compute(40.0), Recv(0)],
        [Recv(0)],
        [Send(4, 5.0), Compute(1.0)],
        [Recv(3)],
    ]
    assert history(run_events(programs, LINK, rule="rendezvous")) == [
        (0, "send", 40.0, 55.0),  # 10 of latency, then the bytes
        (0, "send", 55.0, 70.0),
        (1, "compute", 0.0, 40.0),
        (1, "recv", 40.0, 55.0),
        (2, "recv", 0.0, 70.0),
        (3, "compute", 0.0, 1.0),
        (3, "send", 0.0, 15.0),
        (4, "recv", 0.0, 15.0),
    ]


def test_by_rendezvous_a_worker_comes_to_a_round_after_both_its_messages_of_the_last():
    # Round 1: 0 and 1 swap; round 2: 2 to 1, and 2 has come to it at once. Eagerly it leaves after 1's turn in.
    swap = Round(np.array([0, 1]), np.array([1, 0]), np.array([4.0, 8.0]))
    join = Collective("x", 1.0, "g", rounds=(swap, Round(np.array([2]), np.array([1]), 5.0)))
    assert run_events([[join]] * 3, LINK, rule="rendezvous").end_s.tolist() == [18.0, 33.0, 33.0]
    assert run_events([[join]] * 3, LINK).end_s.tolist() == [18.0, 19.0, 9.0]


def test_latency_before_the_bytes_leaves_the_link_to_others():
    programs = [[Send(1, 6.0), Send(2, 2.0, stream="other")], [Recv(0)], [Compute(10.0), Recv(0)]]
    timeline = run_events(programs, LINK, rule="rendezvous")  # bytes from 10 and from 20
    assert timeline[timeline.what == "recv"].end_s.tolist() == [16.0, 22.0]


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


def test_collectives_of_two_streams_share_the_links():
    program = [Collective("all_reduce", 8.0, "a", stream="one"), Collective("all_reduce", 8.0, "b", stream="two")]
    timeline = run_events([program] * 4, LINK)
    assert timeline.end_s.tolist() == [6 * (2 * 2.0 + 10.0)] * 8
    assert set(timeline.stream) == {"one", "two"}


def test_a_collective_shares_its_link_with_a_message():
    join = [Collective("all_gather", 4.0, "g"), Wait("g")]
    timeline = run_events([[Send(1, 6.0), *join], [*join, Recv(0)]], LINK)
    assert history(timeline) == [
        (0, "wait", 0.0, 14.0),
        (0, "all_gather", 0.0, 14.0),
        (0, "send", 0.0, 10.0),  # by halves until 8
        (1, "wait", 0.0, 18.0),
        (1, "recv", 18.0, 20.0),
        (1, "all_gather", 0.0, 18.0),
    ]


def test_a_collective_of_a_group():
    one, other = Collective("all_gather", 4.0, "one", group=(3, 1)), Collective("all_gather", 6.0, "two", group=(0, 4))
    timeline = run_events([[other], [one], [], [one], [other]], LINK)
    assert history(timeline) == [
        (0, "all_gather", 0.0, 16.0),
        (1, "all_gather", 0.0, 14.0),
        (3, "all_gather", 0.0, 14.0),
        (4, "all_gather", 0.0, 16.0),
    ]
    told = run_events([[Collective("broadcast", 4.0, "g", group=(2, 0, 1))]] * 3, LINK, starts_s=[0.0, 0.0, 50.0])
    assert told.start_s.tolist() == [0.0, 0.0, 50.0]
    assert told.end_s.tolist() == [68.0, 78.0, 54.0]  # 2 tells 0, which tells 1


def test_collectives_of_one_stream_take_turns_at_the_port_in():
    a, b = (Round(np.array([sender]), np.array([0]), 4.0) for sender in (1, 2))

    def finish(stream):
        program = [Collective("a", 4.0, "a", rounds=(a,)), Collective("b", 4.0, "b", stream=stream, rounds=(b,))]
        timeline = run_events([program] * 3, LINK, starts_s=[0.0, 100.0, 0.0])
        return timeline.end_s[(timeline.what == "b")].tolist()

    assert finish("network") == [118.0, 104.0, 108.0]  # 2 sends when 0 has taken what it takes before: at 104
    assert finish("other") == [14.0, 100.0, 4.0]


def test_a_message_can_be_late():
    calls = []

    def delay(sender, receiver):
        calls.append((sender, receiver))
        return 3.0 * receiver

    programs = [[Send(1, 5.0, "a"), Send(1, 5.0, "b"), Recv(1)], [Send(0, 5.0), Recv(0, "a"), Recv(0, "b")]]
    assert run_events(programs, LINK, delay=delay).end_s.tolist() == [15.0, 5.0, 10.0, 18.0, 23.0, 5.0]
    assert calls == [(0, 1), (1, 0), (0, 1)]
    by_rendezvous = run_events(programs, LINK, rule="rendezvous", delay=delay)
    assert by_rendezvous.end_s.tolist() == [15.0, 18.0, 36.0, 18.0, 36.0, 15.0]


def test_a_late_message_of_a_collective_waits_for_nobody_and_can_be_overtaken():
    late = iter([100.0, 0.0, 0.0, 0.0])
    rounds = tuple(Round(np.array([i]), np.array([j]), 4.0) for i, j in ((1, 0), (2, 0), (0, 1)))
    timeline = run_events([[Collective("x", 4.0, "g", rounds=rounds)]] * 3, LINK, delay=lambda *_: next(late))
    assert timeline.end_s.tolist() == [118.0, 128.0, 8.0]  # 0 has both at 114, though the second at 18


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
            "expected the same kind, size and algorithm, group, stream and rounds",
        ),
        ([[Send(1, 1.0, "a"), Send(1, 1.0, "a")], []], "expected a different tag"),
        ([[Send(0, 1.0)], []], "worker 0 sends '' to 0; expected another worker"),
        ([[Collective("broadcast", 1.0, "g", group=(0,))]] * 2, "worker 1 joins .*expected a worker of its group"),
        ([[Collective("broadcast", 1.0, "g", group=(0, 2))]] * 2, "expected distinct workers of 0 to"),
        ([[Collective("broadcast", 1.0, "g", group=(0, 0))]] * 2, "expected distinct workers of 0 to"),
        ([[Send(1, 1.0, stream="s"), Collective("broadcast", 1.0, "g", stream="s")], []], "sends on 's'; expected"),
        ([[Send(2, 1.0)], []], "worker 0 sends '' to 2; expected another worker"),
    ],
)
def test_programs_that_cannot_finish_say_where(programs, line):
    with pytest.raises(SynclineError, match=line):
        run_events(programs, LINK)


def test_collectives_in_another_order_than_the_others_cannot_finish():
    a, b = (Collective("all_reduce", 1.0, key) for key in "ab")
    for rule in ("eager", "rendezvous"):
        with pytest.raises(SynclineError, match=r"worker 0 never finishes .*in the same order"):
            run_events([[a, b], [b, a]], LINK, rule=rule)


def test_by_rendezvous_a_message_that_nobody_receives_never_leaves():
    assert run_events([[Send(1, 5.0, "a")], []], LINK).end_s.tolist() == [5.0]
    with pytest.raises(SynclineError, match="worker 0 never sends 'a' to 1, which does not receive it"):
        run_events([[Send(1, 5.0, "a")], []], LINK, rule="rendezvous")


def test_an_unknown_rule():
    with pytest.raises(SynclineError, match=r"rule: got 'egaer'.*did you mean 'eager'"):
        run_events([[], []], LINK, rule="egaer")


def test_a_thousand_messages_of_no_bytes_take_no_time():
    none = [[Send(1, 0.0, tag) for tag in range(2000)], [Recv(0, tag) for tag in range(2000)]]
    assert run_events(none, Link(0.0, 1.0)).makespan_s == 0.0
    many = [Collective("all_reduce", 0.0, key) for key in range(500)]
    assert run_events([many] * 3, Link(0.0, 1.0)).makespan_s == 0.0
    assert run_events([many], LINK).makespan_s == 0.0


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


networks = st.builds(
    Link,
    st.floats(0.0, 0.1),
    st.floats(1e6, 1e11),
    overhead_s=st.sampled_from([0.0, 1e-3]),
    duplex=st.sampled_from(["full", "half"]),
)
rules = st.sampled_from(["eager", "rendezvous"])


@settings(deadline=None)
@given(traffic(), networks, rules)
def test_clocks_never_run_backward_and_what_is_sent_is_received(programs, link, rule):
    timeline = run_events(programs, link, rule=rule)
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
    after_s = link.latency_s if rule == "eager" else 0.0
    assert np.all(received.end_s[match] >= (sent.end_s + after_s) * (1 - 1e-12))


@settings(deadline=None)
@given(traffic(), networks, rules)
def test_no_link_carries_more_than_it_can(programs, link, rule):
    """Between any two instants, of the messages that are sent within."""
    sent = run_events(programs, link, rule=rule)
    sent = sent[sent.what == "send"]
    ends = {str(send.tag): (worker, send.to) for worker, of in enumerate(programs) for send in of if type(send) is Send}
    pairs = np.array([ends[tag] for tag in sent.label])
    for worker in range(len(programs)):
        ways = [pairs[:, 0] == worker, pairs[:, 1] == worker]
        for on in [ways[0] | ways[1]] if link.duplex == "half" else ways:
            start, end, nbytes = sent.start_s[on], sent.end_s[on], sent.nbytes[on]
            within = (start >= start[:, None, None]) & (end <= end[None, :, None])
            capacity = link.goodput_bytes_per_s * np.maximum(end[None, :] - start[:, None], 0.0)
            assert np.all((within * nbytes).sum(axis=2) <= capacity * (1 + 1e-9) + 1e-3)


@settings(deadline=None, max_examples=30)
@given(traffic(), networks, rules)
def test_the_same_programs_have_the_same_history_bit_for_bit(programs, link, rule):
    one, other = (run_events(programs, link, rule=rule).to_columns() for _ in range(2))
    assert {name: column.tolist() for name, column in one.items()} == {
        name: column.tolist() for name, column in other.items()
    }


@settings(deadline=None)
@given(algorithms, st.integers(1, 12), sizes, networks)
def test_a_late_start_by_rendezvous_is_never_earlier_than_eagerly(of, workers, nbytes, link):
    join = [Collective(of[0], nbytes, "", algorithm=of[1])]
    starts_s = np.linspace(0.0, 0.1, workers)
    eager, rendezvous = (run_events([join] * workers, link, starts_s, rule).end_s for rule in ("eager", "rendezvous"))
    assert np.all(eager <= rendezvous * (1 + 1e-9))


FETCHED = 5000
"""So many workers that records are fetched ahead of the events."""


@pytest.mark.parametrize("algorithm", ["tree", "double-binary-tree"])
def test_what_is_fetched_ahead_changes_no_time(algorithm):
    starts_s = np.random.default_rng(0).exponential(1.0, FETCHED)
    events_s, lockstep_s = (
        collective_finish_s("all_reduce", FETCHED, 8.0, Link(0.5, 4.0), algorithm, starts_s, evaluator=evaluator)
        for evaluator in ("events", "lockstep")
    )
    np.testing.assert_allclose(events_s, lockstep_s, rtol=1e-12)


def test_messages_of_programs_need_no_collective_to_be_fetched_ahead():
    programs = []
    for worker in range(0, FETCHED, 2):
        programs += [[Send(worker + 1, 8.0)], [Recv(worker)]]
    starts_s = np.random.default_rng(0).exponential(1.0, FETCHED)
    timeline = run_events(programs, Link(0.5, 4.0), starts_s)
    receives = timeline.what == "recv"
    expected_s = np.maximum(starts_s[::2] + 2.5, starts_s[1::2])
    np.testing.assert_allclose(timeline.end_s[receives][np.argsort(timeline.worker[receives])], expected_s)
