"""Ratios of times: what both rest on drops out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from syncline.costmodel.layouts.layout import Layout
from syncline.methods import method_of
from syncline.planner.advice.plan_costs import price_plans
from syncline.planner.advice.plans import TrainingPlan
from syncline.planner.advice.question import AdviceQuestion
from syncline.planner.advice.ranking_changes import compare_with_first, fastest_by_loss


def plan(kind: str, **fields: Any) -> TrainingPlan:
    label = " ".join(f"{value}" for value in fields.values()) or kind
    return TrainingPlan(method_of({"kind": kind, "lr": 0.003, "label": label, **fields}), Layout(data=32))


def test_a_plan_against_itself_is_one(question: AdviceQuestion) -> None:
    one = plan("streaming-diloco", period=100)
    rows = price_plans(question, [one, replace(one, overlap="none")])
    first, second = compare_with_first(question, rows)
    assert (first["over_first"], first["over_first_low"], first["over_first_high"], first["tied"]) == (1, 1, 1, False)
    assert second["over_first"] == pytest.approx(rows[1]["time_s"] / rows[0]["time_s"])
    # The same loss and machine: the ratio is far surer than either time.
    assert second["over_first_high"] / second["over_first_low"] < 1.1 < rows[0]["high_s"] / rows[0]["low_s"]


def test_losses_of_other_periods_are_off_by_themselves(question: AdviceQuestion) -> None:
    rows = price_plans(question, [plan("streaming-diloco", period=100), plan("streaming-diloco", period=30)])
    _, other = compare_with_first(question, rows)
    step = rows[1]["step_time_s"] / rows[0]["step_time_s"]
    assert other["over_first"] == pytest.approx(step * rows[1]["tokens_factor"] / rows[0]["tokens_factor"])
    assert other["over_first_low"] < other["over_first"] < other["over_first_high"]
    factors = [
        rows[1]["tokens_factor_high"] / rows[1]["tokens_factor"],
        rows[0]["tokens_factor"] / rows[0]["tokens_factor_low"],
    ]
    assert other["over_first_high"] > other["over_first"] * max(factors)


def test_of_the_same_loss_the_first_alone_is_different(question: AdviceQuestion) -> None:
    rows = price_plans(
        question,
        [
            plan("streaming-diloco", period=100, wire="bf16"),
            plan("streaming-diloco", period=100),
            plan("diloco", period=100),
            plan("ddp"),
            replace(plan("ddp"), overlap="none"),
        ],
    )
    assert fastest_by_loss(rows) == [rows[0], rows[2], rows[3], rows[4]]


def test_only_the_first_ones_are_compared_where_so_many_are_asked_for(question: AdviceQuestion) -> None:
    rows = price_plans(question, [plan("diloco", period=period, compressor="lp") for period in (1000, 300, 100)])
    told = compare_with_first(question, rows, limit=2)
    assert [row["over_first_low"] is None for row in told] == [False, False, True]
    assert told[1]["over_first_low"] > 1 and not told[1]["tied"]
