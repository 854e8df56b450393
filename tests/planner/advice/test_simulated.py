"""Plans by events: the closed form's steps, where both run the same algorithms."""

from __future__ import annotations

from typing import Any

import pytest

from syncline.costmodel.layouts.layout import Layout
from syncline.costmodel.traffic.call import Call
from syncline.methods import method_of
from syncline.planner.advice.plan_costs import price_plans
from syncline.planner.advice.plans import TrainingPlan
from syncline.planner.advice.question import AdviceQuestion
from syncline.planner.advice.simulated import calls_by_level, level_groups, simulate_by_events

OF = (8, 32, 64)


@pytest.mark.parametrize(
    ("fields", "layout", "most"),
    [
        ({"kind": "ddp"}, Layout(data=64), 1e-12),
        ({"kind": "ddp"}, Layout(tensor=4, data=8, pipeline=2), 1e-3),  # NCCL over NVLink in place of levels
        ({"kind": "diloco", "period": 30}, Layout(data=32), 1e-3),
        ({"kind": "streaming-diloco", "period": 30}, Layout(data=32), 1e-3),
        ({"kind": "diloco", "period": 30, "compressor": "top-k"}, Layout(tensor=8), 1e-3),
    ],
)
def test_events_take_what_the_closed_form_says(
    question: AdviceQuestion, fields: dict[str, Any], layout: Layout, most: float
) -> None:
    (row,) = price_plans(question, [TrainingPlan(method_of({"lr": 0.003} | fields), layout)])
    told = simulate_by_events(question, row)
    assert abs(told["events_difference"]) < most


def test_a_cycle_that_is_too_long_is_not_played(question: AdviceQuestion) -> None:
    long = method_of({"kind": "diloco", "lr": 0.003, "period": 1500})
    (row,) = price_plans(question, [TrainingPlan(long, Layout(data=32))])
    assert simulate_by_events(question, row)["events_step_s"] is None


def test_groups_of_levels() -> None:
    assert level_groups(range(0, 64, 8), OF) == [range(0, 32, 8), range(0, 64, 32)]
    assert level_groups(range(1), OF) == []


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "gather", "broadcast"])
def test_each_worker_takes_part_once_at_each_level(kind: str) -> None:
    calls = list(calls_by_level(Call(0, kind, 64.0), range(64), 64, OF))
    kinds: dict[tuple[str, int, int], list[int]] = {}
    for call in calls:
        assert isinstance(call.group, range)
        kinds.setdefault((call.collective, len(call.group), call.group.step), []).extend(call.group)
    assert all(sorted(ranks) == [*range(64)] for ranks in kinds.values())
    assert len(kinds) == (5 if kind == "all_reduce" else 3)
