"""Advice where machines fail: nothing changes where none does, and who goes on without others gets ahead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import syncline as sl
from syncline.planner.advice.advice import Advice, compute_advice
from syncline.planner.advice.plan_costs import price_plans
from syncline.planner.advice.question import AdviceQuestion, advice_question
from syncline.planner.advice.tables import advice_tables
from syncline.planner.goodput.goodput import GOODPUT_FIELDS
from syncline.questions.projections import Advise
from syncline.specs.failures import parse_failures

MACHINES: dict[str, Any] = {
    "restart_time": "10 min",
    "detection_timeout": "1 min",
    "checkpoint": {"bandwidth": "1 GB/s"},
}


@pytest.fixture(scope="module")
def near() -> AdviceQuestion:
    """Two workers, on whose link data parallelism is the first."""
    methods = ["ddp-adam", {"kind": "diloco", "lr": 0.003, "period": 30}]
    return advice_question(
        Advise(model="gpt-160m", network="1us,100Gbit/s", hardware="h100", workers=2, methods=methods)
    )


@pytest.fixture(scope="module")
def never(near: AdviceQuestion) -> Advice:
    return compute_advice(near)


def failing(question: AdviceQuestion, rates: Any, **more: Any) -> Advice:
    return compute_advice(replace(question, failures=parse_failures(MACHINES | {"rates": rates} | more)))


def test_where_nothing_fails_nothing_changes(near: AdviceQuestion, never: Advice) -> None:
    other = failing(near, [])
    for row, same in zip(never.ranked, other.ranked, strict=True):
        changed = {name for name in row if row[name] != same[name]} - {"plan", "prepared"}
        assert changed <= {*GOODPUT_FIELDS, "events_goodput"}
        assert same["goodput"] == 1.0 and row["goodput"] is None
    assert never.changes == other.changes


def test_a_ranking_changes_where_machines_fail_often(near: AdviceQuestion, never: Advice) -> None:
    assert never.ranked[0]["method"] == "ddp-adam"
    often = failing(near, "3 h")
    assert often.ranked[0]["method"] == "diloco"
    assert "Something fails every 1.5 h" in " ".join(often.decides)
    assert all(0.7 < row["events_goodput"] <= 1 for row in often.ranked[:2])  # of one seed, and few failures


def test_the_goodput_is_that_of_the_same_machines(near: AdviceQuestion) -> None:
    row = next(one for one in failing(near, "50 h").ranked if one["method"] == "ddp-adam")
    nbytes = 4 * 3 * near.model.parameters
    fields = MACHINES | {"checkpoint": {"bandwidth": "1 GB/s", "size": nbytes}}
    (told,) = sl.goodput(fields | {"rates": "50 h"}, 2, row["step_time_s"], duration="1 d").rows
    assert row["goodput"] == pytest.approx(told["expected_goodput"], rel=1e-9)
    assert row["checkpoint_interval_s"] == pytest.approx(told["interval_s"])
    (without,) = price_plans(near, [row["plan"]])
    assert row["time_s"] * row["goodput"] == pytest.approx(without["time_s"], rel=1e-12)
    (projected,) = sl.project(
        [row["plan"].spec(near)], tokens=row["tokens"], thresholds=False, failures=fields | {"rates": "50 h"}
    ).rows
    assert projected["training_s"] == pytest.approx(row["time_s"], rel=1e-12)


def test_failures_faster_than_restarts_cannot_be(near: AdviceQuestion) -> None:
    told = failing(near, "1 min", recovery="restart")
    assert not told.ranked and all("failures: no progress possible" in row["infeasible"] for row in told.infeasible)
    assert advice_tables(told)
