"""Schedules: their orders, and the bubbles that their papers give them."""

from __future__ import annotations

from itertools import product

import pytest

from syncline.costmodel.layouts.pipelines import bubble, pipeline_s
from syncline.costmodel.network.link import Link
from syncline.errors import SpecError
from syncline.sim.pipelines.pipeline import Durations, Pipeline
from syncline.sim.pipelines.report import report
from syncline.sim.pipelines.run import run_pipeline
from syncline.sim.pipelines.schedules import SCHEDULES, PipelineTask, schedule, zb_h1
from tests.sim.pipelines.schedules import IN_ORDER, ROWS, chunks_of, made_of

FREE = Link(0.0, 1e15)
SIZES = [(1, 1), (2, 2), (2, 8), (3, 6), (4, 4), (4, 12), (8, 16)]


def short(order):
    return " ".join(f"{task.kind[0].upper()}{task.microbatch}" for task in order)


def test_the_orders_of_three_stages():
    assert [short(order) for order in schedule("1f1b", 3, 4).orders] == [
        "F0 F1 F2 B0 F3 B1 B2 B3",
        "F0 F1 B0 F2 B1 F3 B2 B3",
        "F0 B0 F1 B1 F2 B2 F3 B3",
    ]
    assert [short(order) for order in zb_h1(3, 4).orders] == [
        "F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3",
        "F0 F1 B0 F2 B1 W0 F3 B2 W1 B3 W2 W3",
        "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3",
    ]
    assert short(schedule("gpipe", 3, 2).orders[1]) == "F0 F1 B0 B1"


def test_an_interleaved_order_by_hand():
    """Two stages, two chunks each: stage 0 is (2 - 1) 2 + (2 - 1) 2 = 4 forwards ahead."""
    order = schedule("interleaved", 2, 4, chunks=2).orders[0]
    assert order[:6] == [
        PipelineTask("forward", 0, 0), PipelineTask("forward", 1, 0), PipelineTask("forward", 0, 1),
        PipelineTask("forward", 1, 1), PipelineTask("forward", 2, 0), PipelineTask("backward", 0, 1),
    ]  # fmt: skip


def test_the_table_has_every_schedule():
    assert set(ROWS) == set(SCHEDULES)


@pytest.mark.parametrize("name", IN_ORDER)
@pytest.mark.parametrize("stages, microbatches", SIZES)
def test_each_schedule_runs_each_task_once(name, stages, microbatches):
    chunks = chunks_of(name)
    made = schedule(name, stages, microbatches, chunks)
    kinds = ("forward", "backward", "weight") if made.splits_backward else ("forward", "backward")
    every = {PipelineTask(kind, i, chunk) for kind in kinds for i in range(microbatches) for chunk in range(chunks)}
    assert len(made.orders) == stages
    for order in made.orders:
        assert len(order) == len(every) and set(order) == every


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.makespan_s])
@pytest.mark.parametrize("stages, microbatches", SIZES)
def test_makespans_are_what_is_known(name, stages, microbatches):
    made, chunks = made_of(name, stages, microbatches), chunks_of(name)
    told = report(run_pipeline(Pipeline(made, stages, Durations(1.0 / chunks, 2.0 / chunks)), FREE), made, stages)
    assert told.makespan_s == pytest.approx(ROWS[name].makespan_s(stages, microbatches, 1.0, 2.0), rel=1e-9)
    assert told.bubble == pytest.approx(1 - 3.0 * microbatches / told.makespan_s, abs=1e-9)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved", "async-1f1b"])
def test_bubbles_are_the_closed_forms(name):
    for (stages, microbatches), chunks in product(SIZES, [2, 3] if name == "interleaved" else [1]):
        made = schedule(name, stages, microbatches, chunks)
        told = report(run_pipeline(Pipeline(made, stages, Durations(1.0 / chunks, 2.0 / chunks)), FREE), made, stages)
        expected_s = pipeline_s(name, stages, microbatches, 1.0, 2.0, chunks=chunks)
        assert told.makespan_s == pytest.approx(expected_s, rel=1e-9), (stages, microbatches)
        assert told.bubble == pytest.approx(bubble(stages, microbatches, chunks), abs=1e-9), (stages, microbatches)


@pytest.mark.parametrize("stages, microbatches", [size for size in SIZES if size[1] >= size[0]])
@pytest.mark.parametrize("times", [(1.0, 1.0, 1.0), (1.0, 1.2, 0.8), (2.0, 2.5, 1.0)])
def test_the_zero_bubble_schedule(stages, microbatches, times):
    """Its bubble is (K - 1)(F + B - W), and no stage holds more than the first one of 1F1B."""
    forward_s, backward_s, weight_s = times
    made = schedule("zb-h1", stages, microbatches)
    told = report(run_pipeline(Pipeline(made, stages, Durations(*times)), FREE), made, stages)
    expected = pipeline_s("zb-h1", stages, microbatches, forward_s, backward_s, weight_s=weight_s)
    assert told.makespan_s == pytest.approx(expected, rel=1e-9)
    assert max(stage.peak_activations for stage in told.stages) <= stages


@pytest.mark.parametrize(
    "arguments, field, expected",
    [
        (("gpip", 2, 2), "schedule", "'gpipe'"),
        (("gpipe", 0, 2), "stages", "at least 1"),
        (("gpipe", 2, 0), "microbatches", "at least 1"),
        (("interleaved", 4, 6, 2), "microbatches", "a multiple of the 4 stages"),
        (("interleaved", 4, 8), "chunks", "at least 2"),
        (("1f1b", 4, 8, 2), "chunks", "1f1b does not interleave"),
        (("gpipe", 4, 8, 1, 2), "max_in_flight", "a limit is for 1f1b, async-1f1b, greedy"),
        (("1f1b", 4, 8, 1, [4, 3, 2]), "max_in_flight", "one for each of the 4 stages"),
        (
            ("1f1b", 3, 8, 1, [1, 2, 1]),
            "max_in_flight",
            "it waits for forward 2 of stage 1, which with the limit 1 waits",
        ),
        (("async-1f1b", 8, 8, 1, [7 - k for k in range(8)]), "max_in_flight", "stage 8 never runs forward 1"),
        (("greedy", 8, 8, 1, 0), "max_in_flight", "stage 1 never runs forward 1"),
    ],
)
def test_what_cannot_be(arguments, field, expected):
    with pytest.raises(SpecError) as refused:
        schedule(*arguments)
    assert refused.value.path == field and expected in refused.value.expected


@pytest.mark.parametrize("name", ["1f1b", "async-1f1b"])
def test_a_limit_of_its_own(name):
    """One less than the limit ahead, then in turn; the usual limits are K - k."""
    assert [short(order) for order in schedule(name, 3, 4, max_in_flight=2).orders] == [
        "F0 F1 B0 F2 B1 F3 B2 B3",
        "F0 F1 B0 F2 B1 F3 B2 B3",
        "F0 B0 F1 B1 F2 B2 F3 B3",
    ]
    for same in (5, 99, [5, 4, 3, 2, 1]):
        assert schedule(name, 5, 9, max_in_flight=same) == schedule(name, 5, 9)
    assert schedule("greedy", 3, 4, max_in_flight=9).limits == (9, 9, 9)
