"""Overlap by lockstep, by the events and in closed form: whole histories."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.costmodel import Exchange, Link, Sites, TwoLevel, calls_of, mean_step
from syncline.costmodel.collectives.prices import collective_prices
from syncline.costmodel.traffic.call import groups_like
from syncline.costmodel.traffic.overlap import OVERLAPS, WHOLE, Bucket, gradient_buckets
from syncline.errors import SpecError
from syncline.sim import Call, Contention, chrome_trace, clock
from syncline.sim.clocks.overlap import overlapped
from tests.sim.strategies import kinds, links, sizes

FIELDS = ("step_end_s", "end_s", "step_time_s", "compute_s", "encode_s", "trigger_s", "optimizer_s",
          "communication_s", "exposed_communication_s", "wall_s")  # fmt: skip
BUCKETS = gradient_buckets([5, 1, 3], 8.0)
SPANS = ((), ((0.0, 0.25),), ((0.1, 0.3), (0.6, 1.0)))
LINK = Link(0.0, 1.0)  # two workers: an all-reduce of n bytes takes n seconds


@st.composite
def overlapping(draw):
    """Arguments of ``clock``: calls of all kinds that start on the way or at the end, and are needed now or later."""
    workers, steps = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    parts = st.lists(st.integers(0, workers - 1), min_size=1, unique=True).map(tuple)
    fields = st.tuples(
        st.integers(0, steps - 1), kinds, sizes, st.sampled_from([None, range(workers)]) | parts, st.none(),
        st.sampled_from([0.0, 0.01]), st.integers(0, 3), st.booleans(),
        st.sampled_from([0.0, 0.3, 0.7, 1.0, 1.0]), st.sampled_from(["", "x"]),
        st.sampled_from([0.0, 0.5, 0.7, 1.0, 1.0]), st.sampled_from(SPANS),
    )  # fmt: skip
    calls = [Call(*each) for each in draw(st.lists(fields, max_size=5))]
    calls = [call._replace(needed=max(call.ready, call.needed)) for call in calls]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    compute_s = rng.lognormal(0.0, 0.5, (steps, workers)) * draw(st.sampled_from([0.0, 0.01, 0.1, 1.0]))
    network = draw(st.one_of(links, st.lists(links, min_size=workers, max_size=workers)))
    options = {
        "overlap": draw(st.sampled_from(OVERLAPS)),
        "rule": draw(st.sampled_from(["eager", "rendezvous"])),
        "trigger_s": draw(st.one_of(st.sampled_from([0.0, 0.02]), st.just(0.01 * np.arange(steps)))),
        "encode_bytes_per_s": draw(st.sampled_from([None, 1.0])),
        "optimizer_s": draw(st.one_of(st.sampled_from([0.0, 0.03]), st.just(0.01 * np.arange(workers)))),
        "starts_s": draw(st.one_of(st.none(), st.lists(st.floats(0.0, 1.0), min_size=workers, max_size=workers))),
    }
    return (calls, compute_s, network, workers, steps), options


@settings(deadline=None, max_examples=200)
@given(overlapping())
def test_lockstep_and_events_tell_the_same_history(arguments):
    positional, options = arguments
    one, other = (
        clock(*positional, evaluator=evaluator, buckets=BUCKETS, **options) for evaluator in ("lockstep", "events")
    )
    for name in FIELDS:
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-9, atol=1e-12, err_msg=name)
    for name in ("start_s", "end_s", "nbytes"):
        mine, theirs = getattr(one.timeline, name), getattr(other.timeline, name)
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12, err_msg=name)
    assert one.timeline.label.tolist() == other.timeline.label.tolist()
    assert one.timeline.step.tolist() == other.timeline.step.tolist()


def test_a_port_in_stays_busy_for_workers_outside_of_the_group_that_used_it_last():
    """Messages of 1/16 s. What 2 alone calls moves nothing; its port in is taken all the same when 1 sends to it."""
    calls = [Call(0, "all_reduce", 0.0, (0, 2)), Call(0, "all_reduce", 0.0, (2,)), Call(0, "broadcast", 0.0, (1, 2))]
    for evaluator in ("lockstep", "events"):
        told = clock(calls, np.zeros((1, 3)), Link(1 / 16, 1.0), 3, 1, evaluator=evaluator)
        assert told.end_s.tolist() == [2 / 16, 1 / 16, 2 / 16], evaluator


exchanges = st.lists(
    st.builds(
        Exchange, sizes, st.integers(1, 6), st.just("x"), st.sampled_from(["all_reduce", "all_gather", "all_to_all"]),
        offset=st.integers(0, 3), shares_call=st.booleans(), start=st.integers(0, 5),
        stop=st.one_of(st.none(), st.integers(5, 30)), wait_steps=st.integers(0, 4), in_backward=st.booleans(),
        encoded_bytes=sizes, ready=st.sampled_from([0.0, 0.4, 1.0]), needed=st.sampled_from([1.0, 1.0, 1.0]),
        spans=st.sampled_from(SPANS),
    ) | st.builds(
        Exchange, sizes, st.integers(1, 4), st.just("x"), st.just("all_gather"), shares_call=st.booleans(),
        ready=st.sampled_from([0.0, 0.2]), needed=st.sampled_from([0.2, 0.6]),
    ),
    max_size=4,
)  # fmt: skip


@settings(deadline=None, max_examples=200)
@given(
    exchanges, links, st.integers(2, 5), st.integers(1, 120), st.sampled_from([0.0, 1e-3, 0.1, 5.0]),
    st.sampled_from(OVERLAPS), st.sampled_from([None, 1e9]), st.sampled_from([0.0, 0.01]),
    st.sampled_from([0.0, 0.02]),
)  # fmt: skip
def test_equal_workers_take_what_the_closed_form_says(
    sent, link, workers, steps, compute_s, overlap, encode, trigger_s, optimizer_s
):
    options = {"overlap": overlap, "buckets": BUCKETS, "trigger_s": trigger_s, "encode_bytes_per_s": encode}
    options["optimizer_s"] = optimizer_s
    told = mean_step(compute_s, sent, steps, workers, link, **options)
    timed = clock(calls_of(sent, steps), compute_s, link, workers, steps, keep_steps=0, **options)
    for name in FIELDS[2:-1]:
        np.testing.assert_allclose(getattr(told, name), getattr(timed, name), rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("evaluator", ["lockstep", "events"])
def test_a_strided_fragment_by_hand(evaluator):
    """The 1st and 3rd quarter of a gradient, 4 s each, ready at 6 and 10 of 12 s, and needed at the end of step 1."""
    quarters = [Bucket(0.25, ready) for ready in (0.5, 2 / 3, 5 / 6, 1.0)]
    fragment = Call(0, "all_reduce", 8.0, wait_steps=1, in_backward=True, label="f", spans=((0.0, 0.25), (0.5, 0.75)))
    told = clock([fragment], 12.0, LINK, 2, 2, overlap="ddp", buckets=quarters, evaluator=evaluator)
    assert spans(told) == [("f 1/2", 6.0, 10.0), ("f 2/2", 10.0, 14.0)]
    assert (told.wall_s, told.exposed_communication_s) == (24.0, 0.0)
    slow = clock([fragment], 1.0, LINK, 2, 2, overlap="ddp", buckets=quarters, evaluator=evaluator)
    assert slow.step_end_s.tolist() == pytest.approx([1.0, 0.5 + 8.0])


def gradients(steps, nbytes=12.0):
    return [Call(step, "all_reduce", nbytes, in_backward=True, label="gradient") for step in range(steps)]


def spans(told, worker=0, stream="network"):
    mine = told.timeline[(told.timeline.worker == worker) & (told.timeline.stream == stream)]
    return list(zip(mine.label.tolist(), mine.start_s.round(9).tolist(), mine.end_s.round(9).tolist(), strict=True))


@pytest.mark.parametrize("evaluator", ["lockstep", "events"])
def test_an_update_comes_after_all_that_it_waits_for(evaluator):
    """A gradient of 12 s is sent after 12 s of the slower, and waited for a step later; updates take 5 and 1 s."""
    late = [call._replace(wait_steps=1) for call in gradients(2)]
    told = clock(late, [[10.0, 12.0], [5.0, 12.0]], LINK, 2, 2, evaluator=evaluator, optimizer_s=[5.0, 1.0])
    computing = told.timeline[(told.timeline.worker == 0) & (told.timeline.stream == "compute")]
    spans = list(zip(computing.what.tolist(), computing.start_s.tolist(), computing.end_s.tolist(), strict=True))
    assert spans[:2] == [("compute", 0.0, 10.0), ("optimizer", 10.0, 15.0)]
    assert spans[2:] == [("compute", 15.0, 20.0), ("wait", 20.0, 24.0), ("optimizer", 24.0, 29.0)]
    assert told.end_s.tolist() == [29.0, 26.0]
    now = clock(gradients(1), [[10.0, 12.0]], LINK, 2, 1, evaluator=evaluator, optimizer_s=[5.0, 1.0])
    assert now.end_s.tolist() == [29.0, 25.0]
    assert (now.optimizer_s, now.compute_s, now.exposed_communication_s) == (3.0, 11.0, 13.0)


@pytest.mark.parametrize("evaluator", ["lockstep", "events"])
def test_buckets_by_hand(evaluator):
    """Thirds of the gradient at 6, 9 and 12 s of computing; each takes 4 s."""
    third = [Bucket(1 / 3, ready) for ready in (0.5, 0.75, 1.0)]
    told = clock(gradients(2), 12.0, LINK, 2, 2, overlap="ddp", buckets=third, evaluator=evaluator)
    first = [("gradient 1/3", 6.0, 10.0), ("gradient 2/3", 10.0, 14.0), ("gradient 3/3", 14.0, 18.0)]
    assert spans(told)[:3] == first
    assert spans(told)[3:] == [(label, start + 18.0, end + 18.0) for label, start, end in first]
    assert told.step_end_s.tolist() == pytest.approx([18.0, 36.0])
    assert (told.communication_s, told.exposed_communication_s) == (pytest.approx(12.0), pytest.approx(6.0))


@pytest.mark.parametrize("evaluator", ["lockstep", "events"])
def test_a_late_worker_by_hand(evaluator):
    """Worker 1 needs 20 s: its halves are ready at 10 and 20, worker 0's at 6 and 12; each takes two rounds of 3 s."""
    halves = [Bucket(0.5, 0.5), Bucket(0.5, 1.0)]
    told = clock(gradients(1), [[12.0, 20.0]], LINK, 2, 1, overlap="ddp", buckets=halves, evaluator=evaluator)
    # Worker 0 sends 6-9, worker 1 sends 10-13; second round: worker 0 13-16, worker 1 13-16. Second half: 0 begins at
    # 16, 1 at 20: 0 sends 16-19, 1 sends 20-23; second round both 23-26.
    assert spans(told, 0) == [("gradient 1/2", 6.0, 16.0), ("gradient 2/2", 16.0, 26.0)]
    assert spans(told, 1) == [("gradient 1/2", 10.0, 16.0), ("gradient 2/2", 20.0, 26.0)]
    assert told.timeline.exposed_communication_s().tolist() == pytest.approx([14.0, 6.0])


@pytest.mark.parametrize("evaluator", ["lockstep", "events"])
def test_pairs_beside_each_other_by_hand(evaluator):
    """Pairs average in every step, the first worker of each with that of the other in the second; 4 s each."""
    pairs = [Call(step, "all_reduce", 4.0, pair) for step in (0, 1) for pair in ((0, 1), (2, 3))]
    calls = [*pairs, Call(1, "all_reduce", 4.0, (2, 0), label="firsts")]
    told = clock(calls, [[1.0, 2.0, 5.0, 1.0], [1.0] * 4], LINK, 4, 2, evaluator=evaluator)
    # Pairs end at 2 + 4 and 5 + 4, then at 7 + 4 and 10 + 4, where the firsts begin.
    assert told.end_s.tolist() == pytest.approx([18.0, 11.0, 18.0, 14.0])
    assert told.step_end_s.tolist() == pytest.approx([9.0, 18.0])
    assert spans(told, 0)[-1] == ("firsts", 11.0, 18.0) and spans(told, 2)[-1] == ("firsts", 14.0, 18.0)
    assert "firsts" not in told.timeline[told.timeline.worker % 2 == 1].label
    assert told.bytes_per_worker == pytest.approx((4.0 + 4.0 + 2.0) / 2)


def test_a_part_of_the_workers_is_timed_as_if_they_were_alone():
    compute_s = np.random.default_rng(2).exponential(0.1, (6, 5))
    some = [Call(step, "all_reduce", 1e6, (4, 1, 2)) for step in range(6)]
    link = [Link(1e-3, rate) for rate in (1e6, 2e6, 3e6, 4e6, 5e6)]
    together = clock(some, compute_s, link, 5, 6)
    alone = clock(
        [call._replace(group=None) for call in some], compute_s[:, [4, 1, 2]], [link[4], link[1], link[2]], 3, 6
    )
    np.testing.assert_allclose(together.end_s[[4, 1, 2]], alone.end_s, rtol=1e-12)
    np.testing.assert_allclose(together.end_s[[0, 3]], compute_s.sum(0)[[0, 3]], rtol=1e-12)


def test_parts_of_the_workers_on_shared_channels_are_for_the_events():
    """The two sites' pairs stay inside; pairs across share the uplinks, each with half of them."""
    network = Sites((2, 2), Link(0.0, 10.0), Link(0.0, 1.0))
    inside, across = (
        clock([Call(0, "broadcast", 8.0, pair) for pair in pairs], 0.0, network, 4, 1)
        for pairs in (((0, 1), (2, 3)), ((0, 2), (1, 3)))
    )
    assert (inside.evaluator, across.evaluator) == ("events", "events")
    assert (inside.wall_s, across.wall_s) == (pytest.approx(0.8), pytest.approx(16.0))
    with pytest.raises(Contention, match="parts of the workers"):
        clock([Call(0, "broadcast", 8.0, (0, 1))], 0.0, network, 4, 1, evaluator="lockstep")
    with pytest.raises(SpecError, match="algorithm: got 'nccl'; expected an algorithm's name, for parts of workers"):
        clock([Call(0, "broadcast", 8.0, (1, 2))], 0.0, network, 4, 1, algorithm="nccl")
    pairs = [Call(0, "broadcast", 8.0, pair) for pair in ((0, 1), (2, 3))]
    assert clock(pairs, 0.0, network, 4, 1, algorithm="auto").wall_s == inside.wall_s


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize("algorithm", ["auto", "nccl"])
@pytest.mark.parametrize("first", [range(4), range(8), range(0, 16, 4), range(0, 16, 2)])
def test_groups_on_nodes_take_the_time_of_projections(kind, algorithm, first):
    """Inside a node, over nodes level by level, and between the nodes alone; all such groups send at once."""
    nodes = TwoLevel(4, Link(1e-6, 1e9), Link(2e-6, 1e8))
    calls = [Call(0, kind, 1e6, group) for group in groups_like(first, 16)]
    priced = collective_prices(kind, np.array([16]), 1e6, nodes, algorithm, groups=[first])
    assert clock(calls, 0.0, nodes, 16, 1, algorithm=algorithm).wall_s == pytest.approx(priced.seconds.item(), rel=1e-9)


@pytest.mark.parametrize("evaluator", ["lockstep", "events"])
def test_asynchronous_handles_by_hand(evaluator):
    """12 s of network beside 10 s of computing: from the second step on, steps end with the exchange before them."""
    told = clock(gradients(4), 10.0, LINK, 2, 4, overlap="async", evaluator=evaluator)
    assert told.step_end_s.tolist() == pytest.approx([10.0, 22.0, 34.0, 46.0])
    assert spans(told)[:2] == [("gradient", 10.0, 22.0), ("gradient", 22.0, 34.0)]
    waits = told.timeline[told.timeline.what == "wait"]
    assert waits.step.tolist() == [1, 2, 3] * 2  # the steps that wait, not those that sent
    assert told.exposed_communication_s == pytest.approx(2.0 * 3 / 4)


@pytest.mark.parametrize("evaluator", ["lockstep", "events"])
def test_what_is_sent_last_counts_as_far_as_the_training_goes(evaluator):
    """Exchanges of 12 s beside steps of 1 s: the last of three begins when the training ends, at 25 s."""
    told = clock(gradients(3), 1.0, LINK, 2, 3, overlap="async", evaluator=evaluator)
    assert (told.wall_s, 3 * told.communication_s) == (pytest.approx(25.0), pytest.approx(24.0))
    step = mean_step(1.0, [Exchange(12.0)], 3, 2, LINK, overlap="async")
    assert (3 * step.step_time_s, 3 * step.communication_s) == (pytest.approx(25.0), pytest.approx(24.0))


@pytest.mark.parametrize("evaluator", ["lockstep", "events"])
def test_streamed_fragments_by_hand(evaluator):
    """A fragment every other step that takes 15 s and is needed 2 steps of 6 s later; the queue has one at a time."""
    streamed = [Exchange(15.0, period=2, wait_steps=2)]
    told = clock(calls_of(streamed, 6), 6.0, LINK, 2, 6, evaluator=evaluator)
    # Sent after steps 1, 3, 5: at 12 (done 27), at 27 (done 42), ...; needed after steps 3 and 5.
    assert told.step_end_s.tolist() == pytest.approx([6.0, 12.0, 18.0, 27.0, 33.0, 42.0])
    assert told.exposed_communication_s == pytest.approx((3.0 + 3.0) / 6)


def test_one_bucket_of_everything_is_no_overlap():
    one, other = (clock(gradients(3), 2.0, LINK, 3, 3, overlap=overlap, buckets=WHOLE) for overlap in ("ddp", "none"))
    np.testing.assert_array_equal(one.step_end_s, other.step_end_s)
    assert one.timeline.end_s.tolist() == other.timeline.end_s.tolist()


def test_only_what_is_ready_in_the_backward_pass_is_cut():
    calls = [Call(0, "all_reduce", 8.0, label="params"), *gradients(1, 8.0)]
    cut = overlapped(calls, "ddp", (Bucket(0.25, 0.5), Bucket(0.75, 1.0)))
    assert [(call.label, call.payload_bytes, call.ready) for call in cut] == [
        ("params", 8.0, 1.0), ("gradient 1/2", 2.0, 0.5), ("gradient 2/2", 6.0, 1.0)
    ]  # fmt: skip
    late = overlapped([calls[0]._replace(wait_steps=3), calls[1]], "async")
    assert [call.wait_steps for call in late] == [3, 1]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from(OVERLAPS), st.floats(1.0, 20.0))
def test_more_bandwidth_is_never_slower(seed, overlap, factor):
    compute_s = np.random.default_rng(seed).lognormal(0.0, 0.5, (4, 4))
    slow, fast = (
        clock(gradients(4, 1e8), compute_s, Link(1e-3, each), 4, 4, overlap=overlap, buckets=BUCKETS, keep_steps=0)
        for each in (1e8, factor * 1e8)
    )
    assert np.all(fast.step_end_s <= slow.step_end_s * (1 + 1e-12))


def test_where_lockstep_cannot_follow_the_events_do():
    """Two sites behind one uplink each, all-to-all among workers that are late in their own ways."""
    network = Sites((2, 2), Link(1e-4, 1e9), Link(1e-2, 1e8))
    compute_s = np.random.default_rng(0).random((3, 4))
    calls = [Call(step, "all_to_all", 1e7, in_backward=True) for step in range(3)]
    options = {"overlap": "ddp", "buckets": BUCKETS}
    told = clock(calls, compute_s, network, 4, 3, **options)
    events = clock(calls, compute_s, network, 4, 3, evaluator="events", **options)
    assert told.evaluator == "events"
    np.testing.assert_array_equal(told.step_end_s, events.step_end_s)


def test_algorithms_are_chosen_by_size():
    """Rounds count for a flag, bytes for a gradient."""
    link = Link(1e-3, 1e9)
    flag, gradient = (
        {each: clock([Call(0, "all_reduce", n)], 0.0, link, 8, 1, algorithm=each).wall_s for each in
         ("auto", "ring", "recursive-doubling", "rabenseifner", "gloo")}
        for n in (4.0, 1e9)
    )  # fmt: skip
    assert flag["auto"] == flag["recursive-doubling"] < flag["ring"] < flag["gloo"]  # which waits for one notice
    assert gradient["auto"] == gradient["rabenseifner"] < gradient["recursive-doubling"]
    # By kind, by a call's own name, and where links differ.
    calls = [Call(0, "all_reduce", 4.0, algorithm="ring"), Call(0, "broadcast", 4.0)]
    both = clock(calls, 0.0, link, 8, 1, algorithm={"all_reduce": "tree", "broadcast": "binomial"})
    assert both.wall_s == pytest.approx(flag["ring"] + 3 * link.transfer_s(4.0), rel=1e-9)
    unequal = [link] * 7 + [Link(2e-3, 1e9)]
    assert clock([Call(0, "all_reduce", 4.0)], 0.0, unequal, 8, 1, algorithm="auto").wall_s < flag["ring"]


def test_a_policy_of_equal_links_is_refused_where_they_differ():
    with pytest.raises(SpecError, match="algorithm: got 'nccl'; expected a different one where links differ"):
        clock([Call(0, "all_reduce", 4.0)], 0.0, [Link(0.0, 1.0)] * 2, 2, 1, algorithm="nccl")


def test_the_trace_shows_the_overlap():
    told = clock(gradients(1), 12.0, LINK, 2, 1, overlap="ddp", buckets=(Bucket(0.5, 0.5), Bucket(0.5, 1.0)))
    slices = {event["name"]: event for event in chrome_trace(told.timeline)["traceEvents"] if event["ph"] == "X"}
    first = next(event for name, event in slices.items() if "gradient 1/2" in name)
    assert (first["ts"], first["dur"]) == (6e6, 6e6)  # microseconds, before the computing ends at 12 s


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (Call(0, "all_reduce", 1.0, ready=1.5), "ready: got 1.5; expected a part"),
        (Call(0, "all_reduce", 1.0, wait_steps=-1), "wait_steps: got -1; expected a whole number of steps"),
        (Call(0, "all_reduce", 1.0, encoded_bytes=-1.0), "encoded_bytes: got -1.0; expected a finite number of bytes"),
        (Call(0, "all_reduce", 1.0, "gradient"), "group: got 'gradient'; expected a range or a tuple of ranks"),
        (Call(0, "all_reduce", 1.0, (0, 0)), "calls.group: got .0, 0.; expected different workers"),
        (Call(0, "all_reduce", 1.0, (0, 2)), "calls.group: got .0, 2.; expected different workers from 0 to 1"),
    ],
)
def test_calls_that_cannot_be(call, line):
    with pytest.raises(SpecError, match=line):
        clock([call], 0.1, LINK, 2, 1)
