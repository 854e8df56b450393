"""Pipelines run by the events: whole histories, delays that emerge, memory."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from syncline.costmodel.layouts.pipelines import stage_delays
from syncline.costmodel.network.link import Link
from syncline.errors import SpecError, SynclineError
from syncline.sim.pipelines.gradients import PipelineMath
from syncline.sim.pipelines.pipeline import Durations, Pipeline
from syncline.sim.pipelines.report import report, task_spans
from syncline.sim.pipelines.run import run_pipeline
from syncline.sim.pipelines.schedules import PipelineTask, schedule, schedule_kind
from tests.sim.pipelines.schedules import FLUSHING, NAMES, made_of

FREE = Link(0.0, 1e15)


def stages_of(made):
    return len(made.orders or made.limits)


def play(made, durations, network=FREE, **options):
    return run_pipeline(Pipeline(made, stages_of(made), durations, **options), network)


def told_of(made, durations, network=FREE, **options):
    return report(play(made, durations, network, **options), made, stages_of(made))


def order_of(timeline, made):
    return [(span.stage, span.kind, span.microbatch) for span in task_spans(timeline, made)]


def jittered(stages, microbatches, seed, slow=()):
    rng = np.random.default_rng(seed)
    times = rng.uniform(0.1, 3.0, (2, stages, microbatches))
    times[:, list(slow)] *= 4
    return Durations(*times)


def history(timeline, stage):
    mine = (timeline.worker == stage) & timeline.computes
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
    sent = timeline.stream != "compute"
    assert np.bincount(timeline.worker[sent], timeline.nbytes[sent]).tolist() == [5.0, 5.0]


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


@pytest.mark.parametrize("name", FLUSHING)
def test_nothing_is_late_where_updates_wait(name):
    made = made_of(name, 4, 8)
    told = told_of(made, Durations(1.0, 2.0, 1.0))
    assert all(set(stage.delays) == {0} and stage.weight_versions == 1 for stage in told.stages)


def test_the_same_schedule_gives_the_same_bits():
    times = Durations(np.random.default_rng(0).uniform(0.5, 1.5, (4, 12)), 2.0)
    first, second = (play(schedule("async-1f1b", 4, 12), times, Link(0.1, 1e6)) for _ in range(2))
    for name, column in first.to_columns().items():
        np.testing.assert_array_equal(column, second.to_columns()[name])


@pytest.mark.parametrize("stages", [1, 2, 5, 12])
@pytest.mark.parametrize("times", [(1.0, 2.0), (0.1, 0.2), (0.3, 0.1), (1.0, 1.0)])
def test_greedy_is_asynchronous_where_stages_are_even(stages, times):
    for microbatches in (1, stages // 2 + 1, 2 * stages + 3):
        fixed, free = (schedule(name, stages, microbatches) for name in ("async-1f1b", "greedy"))
        first, second = play(fixed, Durations(*times)), play(free, Durations(*times))
        assert task_spans(first, fixed) == task_spans(second, free)
        expected = [tuple(min(i, late) for i in range(microbatches)) for late in stage_delays(stages)]
        for timeline, made in ((first, fixed), (second, free)):
            assert [stage.delays for stage in report(timeline, made, stages).stages] == expected


def test_greedy_with_a_slow_stage():
    """Stage 2 of 4 takes three times as long: greedy ones after it update sooner, and all end 6 s later of 579 s."""
    forward_s = np.array([[1.0], [3.0], [1.0], [1.0]])
    times = Durations(forward_s, 2 * forward_s)
    fixed, free = (told_of(schedule(name, 4, 64), times) for name in ("async-1f1b", "greedy"))
    assert (fixed.makespan_s, free.makespan_s) == (579.0, 585.0)
    assert [stage.delay_steady for stage in fixed.stages] == [3, 2, 1, 0]
    mean = [np.mean(stage.delays[4:]) for stage in free.stages]
    assert mean == pytest.approx([3.0, 1.0, 2 / 3, 0.0], abs=0.02)
    assert free.bubble > fixed.bubble


def test_greedy_by_hand():
    """Two stages, limit 3: a backward that is there goes first, and a forward where it is not.

    Stage 2: F1 [1, 2], B1 [2, 3], F2 [3, 4], B2 [4, 5]. Stage 1 ends forward 3 at 3 s, takes backward 1 till 4.5 s, and
    as backward 2 is not there then, forward 4.
    """
    timeline = play(schedule("greedy", 2, 4, max_in_flight=3), Durations(1.0, [[1.5], [1.0]]))
    assert [span[:2] for span in history(timeline, 0)] == [
        ("forward", 0), ("forward", 1), ("forward", 2), ("backward", 0), ("forward", 3), ("backward", 1),
        ("backward", 2), ("backward", 3),
    ]  # fmt: skip
    assert history(timeline, 0)[4][2:] == (4.5, 5.5)


def test_of_messages_at_one_instant_the_backward_wins():
    """Stage 2 of 3 waits at 5 s, where forward 2 of stage 1 and backward 1 of stage 3 both arrive.

    Forward 1: [0, 4/3], [4/3, 2], [2, 3]; backward 1 at stage 3 [3, 5], and forward 2 of stage 1 [4/3, 5].
    """
    forward_s = [[1.0, 4.0], [1.0, 1.0], [1.0, 1.0]]
    times = Durations(forward_s, [[2.0], [2.0], [2.0]])
    assert [span[:3] for span in history(play(schedule("greedy", 3, 2), times), 1)] == [
        ("forward", 0, 1.0), ("backward", 0, 5.0), ("forward", 1, 7.0), ("backward", 1, 11.0),
    ]  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    stages=st.integers(1, 9),
    groups=st.integers(1, 4),
    replicas=st.integers(1, 2),
    seed=st.integers(0, 2**32 - 1),
    link=st.sampled_from([FREE, Link(0.3, 1e9), Link(2.0, 5.0)]),
)
def test_what_holds_of_every_history(name, stages, groups, replicas, seed, link):
    """Clocks never run backward, nothing is lost on the wire, inputs come first, limits hold, and bits repeat."""
    made = made_of(name, stages, stages * groups)
    times = jittered(stages, stages * groups, seed)
    options = {"activation_bytes": 3.0, "replicas": replicas, "gradient_bytes": [2.0] * stages}
    timeline = play(made, times, link, **options)
    for _, rows in timeline_streams(timeline):
        assert (rows.end_s >= rows.start_s).all() and (rows.start_s[1:] >= rows.end_s[:-1]).all()
    sent, received = (timeline.nbytes[timeline.what == what].sum() for what in ("send", "recv"))
    parts = stages * made.chunks
    assert sent == received == 3.0 * replicas * stages * groups * 2 * ((parts - 1) if stages > 1 else 0)
    spans = [span for span in task_spans(timeline, made) if span.stage < stages]
    ends = {(s.kind, s.microbatch, s.chunk * stages + s.stage): s.end_s for s in spans}
    assert len(ends) == len(spans) == parts * stages * groups * (3 if made.splits_backward else 2)
    for s in spans:
        before = {"forward": ("forward", -1), "backward": ("backward", 1), "weight": ("backward", 0)}[s.kind]
        part = s.chunk * stages + s.stage
        assert s.start_s >= ends.get((before[0], s.microbatch, part + before[1]), 0.0)
        assert s.kind == "forward" or s.start_s >= ends["forward", s.microbatch, part]
    told = report(timeline, made, stages)
    if name in ("1f1b", "async-1f1b", "greedy"):
        assert all(stage.peak_activations <= stages - k for k, stage in enumerate(told.stages))
    again = play(made, times, link, **options)
    for column, values in timeline.to_columns().items():
        np.testing.assert_array_equal(values, again.to_columns()[column])


def timeline_streams(timeline):
    for worker, stream in sorted(set(zip(timeline.worker.tolist(), timeline.stream.tolist(), strict=True))):
        yield (worker, stream), timeline[(timeline.worker == worker) & (timeline.stream == stream)]


@pytest.mark.parametrize("name", ["1f1b", "async-1f1b", "greedy"])
@pytest.mark.parametrize("stages, microbatches", [(2, 5), (8, 16)])
def test_with_a_limit_of_one_nothing_overlaps(name, stages, microbatches):
    """Each micro-batch goes to the end and back alone: M K (F + B), utilisation 1 / K, and no delay."""
    told = told_of(schedule(name, stages, microbatches, max_in_flight=1), Durations(1.0, 2.0))
    assert told.makespan_s == 3 * stages * microbatches
    for stage in told.stages:
        assert stage.utilisation == pytest.approx(1 / stages)
        assert set(stage.delays) == {0} and stage.peak_activations == 1


@pytest.mark.parametrize("name", ["1f1b", "async-1f1b", "greedy"])
@pytest.mark.parametrize("limit", [1, 2, 4, 8])
def test_smaller_limits_are_slower(name, limit):
    """Seconds per micro-batch: greedy stages pass n in the time of one there and back, K (F + B).

    In a fixed order backward i of stage k comes after forward i + n - 1, and so after backward i - 1 of stage 1: a
    micro-batch each (K - n + 1)(F + B).
    """
    made = [schedule(name, 8, count, max_in_flight=limit) for count in (32, 64)]
    times = [play(of, Durations(1.0, 2.0)).makespan_s for of in made]
    assert (times[1] - times[0]) / 32 == (24 / limit if name == "greedy" else 3 * (8 - limit + 1))


def test_a_latency_takes_what_the_limits_cannot_hide():
    """K micro-batches per round trip of K (F + B) + 2 (K - 1) latencies: 24 of 31 s for K 8 and half a forward."""
    times = [
        play(schedule("async-1f1b", 8, count), Durations(1.0, 2.0), Link(0.5, 1e15)).makespan_s for count in (64, 128)
    ]
    assert 64 * 3 / (times[1] - times[0]) == pytest.approx(24 / 31)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("stages, microbatches", [(1, 1), (1, 4), (6, 1), (6, 3)])
def test_few_stages_and_few_microbatches(name, stages, microbatches):
    if schedule_kind(name).takes_chunks:
        microbatches *= stages
    told = told_of(made_of(name, stages, microbatches), Durations(1.0, 2.0, 1.0))
    if stages == 1:
        assert told.bubble == pytest.approx(0.0, abs=1e-12)
    assert [stage.peak_activations > 0 for stage in told.stages] == [True] * stages


@pytest.mark.parametrize("name", NAMES)
def test_one_replica_or_nothing_to_average_is_none(name):
    made, times = made_of(name, 4, 8), jittered(4, 8, 0)
    plain = play(made, times)
    for replicas, nbytes in ((1, 8.0), (2, 0.0)):
        timeline = play(made, times, replicas=replicas, gradient_bytes=[nbytes] * 4)
        first = timeline[timeline.worker < 4]
        for name_of, column in first.to_columns().items():
            np.testing.assert_array_equal(column, plain.to_columns()[name_of])
        assert not (timeline.what == "all_reduce").any()


@pytest.mark.parametrize("name, sums", [("1f1b", 1), ("async-1f1b", 6), ("greedy", 6)])
def test_replicas_join_an_all_reduce_per_update(name, sums):
    timeline = play(
        schedule(name, 3, 6), jittered(3, 6, 1, slow=[1]), Link(0.1, 1e3), replicas=2, gradient_bytes=[8.0, 0.0, 4.0]
    )
    of = timeline[timeline.what == "all_reduce"]
    assert np.bincount(of.worker, minlength=6).tolist() == [sums, 0, sums, sums, 0, sums]
    for stage in (0, 2):
        np.testing.assert_array_equal(of.step[of.worker == stage], of.step[of.worker == stage + 3])
        np.testing.assert_allclose(of.end_s[of.worker == stage], of.end_s[of.worker == stage + 3])


@pytest.mark.parametrize(
    "orders, line",
    [
        (
            ["F0 B0 F1 B1", "F0 F1 B0 B1"],
            "stage 1 never runs backward 1: it waits for stage 2, which is at forward 2 and itself waits for stage 1",
        ),
        (["F0 B0", "F0 B0 F1 B1"], "stage 1 never runs forward 2, which is not in its order: stage 2 waits for it"),
        (["F0 B0 F1 B1", "F0 F1 B1"], "stage 2 never runs backward 1, which is not in its order: stage 1 waits for it"),
        (["F0 F1 B0 B1", "B0 F0 F1 B1"], "stage 2 never runs backward 1: it waits for forward 1 of stage 2"),
        (["F0 F0 F1 B0 B1", "F0 F1 B0 B1"], "stage 1 runs forward 1 twice"),
        (["F0 F1 F2 B0 B1 B2", "F0 F1 B0 B1"], "stage 1 runs forward 3, which hand does not have"),
        (["F0 F1 B0 B1"], "got 1 stages; expected the pipeline's 2"),
    ],
)
def test_orders_that_cannot_be(orders, line):
    kinds = {"F": "forward", "B": "backward"}
    listed = [[PipelineTask(kinds[short[0]], int(short[1:])) for short in order.split()] for order in orders]
    made = schedule("1f1b", 2, 2)._replace(name="hand", orders=listed)
    with pytest.raises(SynclineError) as refused:
        run_pipeline(Pipeline(made, 2, Durations()), FREE)
    assert line in str(refused.value) and "\n" not in str(refused.value)


@settings(max_examples=60, deadline=None)
@given(stages=st.integers(2, 4), microbatches=st.integers(1, 4), random=st.randoms(use_true_random=False))
def test_any_orders_finish_or_say_who_waits(stages, microbatches, random):
    """Stages that shuffle their micro-batches, with each forward before its backward."""
    orders = []
    for _ in range(stages):
        tasks = [i for i in range(microbatches) for _ in range(2)]
        random.shuffle(tasks)
        kinds = [iter(("forward", "backward")) for _ in range(microbatches)]
        orders.append([PipelineTask(next(kinds[i]), i) for i in tasks])
    made = schedule("1f1b", stages, microbatches)._replace(name="hand", orders=orders)
    try:
        timeline = play(made, Durations())
        assert timeline.computes.sum() == 2 * stages * microbatches
    except SynclineError as error:
        found = re.fullmatch(
            r"stage (\d) never runs (\w+) (\d): it waits for stage (\d), which is at (\w+) (\d) and itself waits for "
            r"stage \d; expected orders in which one of them can go on",
            str(error),
        )
        assert found
        stage, kind, i, source, other, j = found.groups()
        order = orders[int(source) - 1]
        wanted, at = PipelineTask(kind, int(i) - 1), PipelineTask(other, int(j) - 1)
        assert abs(int(stage) - int(source)) == 1 and order.index(at) < order.index(wanted)


def test_micro_batches_may_overtake_each_other():
    made = schedule("1f1b", 2, 2)
    f, b = ([PipelineTask(kind, i) for i in range(2)] for kind in ("forward", "backward"))
    made = made._replace(orders=[[*f, *b], [f[1], b[1], f[0], b[0]]])
    assert play(made, Durations()).makespan_s == 1 + 1 + 6 + 2 + 2


def test_a_limit_of_nothing_in_a_schedule_made_by_hand():
    made = schedule("greedy", 3, 4)._replace(limits=(2, 1, 0))
    with pytest.raises(SynclineError, match="stage 3 never runs forward 1: its in-flight limit is 0; expected at leas"):
        play(made, Durations())


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


def test_jitter_costs_a_greedy_pipeline_more():
    """With 30% log-normal jitter stages that take what is there let forwards in before a backward that is nearly there.

    K 8, M 128, mean utilisation of 5 seeds: .756 in a fixed order, .668 greedy; .948 without jitter.
    """
    for seed in range(3):
        factor = np.exp(0.3 * np.random.default_rng(seed).standard_normal((2, 8, 128)))
        times = Durations(factor[0], 2 * factor[1])
        fixed, free = (1 - told_of(schedule(name, 8, 128), times).bubble for name in ("async-1f1b", "greedy"))
        assert free + 0.04 < fixed < 0.8


@pytest.mark.parametrize("name", ["async-1f1b", "greedy"])
def test_the_delays_that_the_math_counts_are_the_reports(name):
    made, stages, count = schedule(name, 4, 16), 4, 16
    parts = [nn.Linear(3, 3, dtype=torch.float64) for _ in range(stages)]
    steppers = [torch.optim.SGD(part.parameters(), lr=0.01) for part in parts]
    x = torch.ones(2, 3, dtype=torch.float64)
    math = PipelineMath(made, parts, lambda i: x, lambda out, i: out.square().mean(), steppers)
    forward_s = np.array([[1.0], [1.0], [4.0], [1.0]])
    told = told_of(made, Durations(forward_s, 2 * forward_s), effects=math.effect)
    assert math.delays == [list(stage.delays) for stage in told.stages]
    usual = [[min(i, 3 - k) for i in range(count)] for k in range(stages)]
    assert (math.delays == usual) == (name == "async-1f1b")
    assert sorted(math.losses) == list(range(count))
