"""The 7B question: enough plans, each as the projection has it, told with what decides."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import syncline as sl
from syncline.planner.advice.advice import Advice, compute_advice
from syncline.planner.advice.question import AdviceQuestion
from syncline.runs.folders.result_files import plain

FIELDS = ("method", "layout", "time_s", "low_s", "high_s", "utilisation", "memory_bytes", "wan_bytes", "cost",
          "energy_j", "why")  # fmt: skip


def test_there_are_plans_of_all_kinds(advice: Advice) -> None:
    feasible = advice.ranked + advice.loss_unknown
    assert len(feasible) >= 20 and len(advice.ranked) >= 5
    parallel = [row for row in advice.ranked if row["method"] == "ddp-adam"]
    assert {row["overlap"] for row in parallel} == {"ddp", "none"}
    assert any("hierarchical" in row["carried_by"] and "pipeline" not in row["layout"] for row in parallel)
    assert {row["infeasible"].partition(":")[0] for row in advice.infeasible} == {"memory", "a divisor"}
    assert all(row["fits"] for row in feasible)


def test_lists_are_in_their_order(advice: Advice) -> None:
    for rows in (advice.ranked, advice.loss_unknown):
        times = [row["time_s"] for row in rows]
        assert times == sorted(times)
    assert all(row["loss_unknown"] is None and row["low_s"] < row["time_s"] for row in advice.ranked)
    assert all(row["high_s"] is None or row["time_s"] < row["high_s"] for row in advice.ranked)
    assert all(row["loss_unknown"] for row in advice.loss_unknown)
    for row in advice.ranked + advice.loss_unknown:
        assert row["utilisation_low"] < row["utilisation"] < row["utilisation_high"] <= 1
        assert row["wan_bytes_low"] <= row["wan_bytes"]
        assert row["wan_bytes_high"] is None or row["wan_bytes"] <= row["wan_bytes_high"]
        assert row["cost_low"] < row["cost"] and row["energy_low_j"] < row["energy_j"]


def test_each_plan_equals_the_projection_of_it(advice: Advice) -> None:
    question = advice.question
    for row in (advice.ranked + advice.loss_unknown)[::4]:
        asked = {"tokens": row["tokens"], "prices": question.prices, "extrapolate": True, "thresholds": False}
        (told,) = sl.project([row["plan"].spec(question)], **asked).rows
        same = {"time_s": "training_s", "utilisation": "utilisation", "memory_bytes": "memory_bytes", "cost": "cost",
                "energy_j": "energy_j", "wan_bytes": "egress_bytes"}  # fmt: skip
        for name, of in same.items():
            assert row[name] == pytest.approx(told[of], rel=1e-12, abs=0), (row["method"], name)


def test_the_first_three_are_played_by_events(advice: Advice) -> None:
    assert all(abs(row["events_difference"]) < 2e-3 for row in advice.ranked[:3])


def test_ties_are_those_that_cannot_be_told_from_the_first(advice: Advice) -> None:
    assert advice.ties
    for place, row in enumerate(advice.ranked):
        assert (place in advice.ties) is (place > 0 and row["over_first_low"] <= 1)
    assert all(advice.ranked[place]["method"] != "ddp-adam" for place in advice.ties)


def test_it_is_said_what_decides(advice: Advice) -> None:
    told = " ".join(advice.words)
    for words in ("waiting for exchanges", "bandwidth between sites", "latency", "Memory of the first", "the batch",
                  "no published fit", "holds where it has not seen the like", "none of it is counted"):  # fmt: skip
        assert words in told, words
    assert {one["what"] for one in advice.thresholds} == {"bandwidth", "latency", "workers"}


def test_rows_are_plain_and_have_the_fields(advice: Advice) -> None:
    record = json.loads(json.dumps(plain(advice.record())))
    rows = record["rows"]
    assert [set(rows[0])] * len(rows) == [set(row) for row in rows]
    assert set(FIELDS) <= set(rows[0]) and {row["list"] for row in rows} == {"ranked", "loss unknown", "infeasible"}
    assert record["question"]["batch_tokens"] == advice.question.batch_tokens
    names = [assumption["name"] for assumption in record["assumptions"]]
    assert {"batch", "sequence", "tokens", "period", "wire format", "overlap", "sharding", "computing"} <= {*names}
    assert all(assumption["origin"] for assumption in record["assumptions"])
    assert len(record["verdict"]) == 3


def test_a_deadline_and_a_budget_refuse_with_the_reason(small: AdviceQuestion) -> None:
    free = compute_advice(small)
    slowest = max(row["time_s"] for row in free.ranked)
    late = compute_advice(replace(small, deadline_s=0.9 * slowest))
    assert len(late.ranked) < len(free.ranked)
    assert any(row["infeasible"].startswith("deadline") for row in late.infeasible)
    from syncline.costmodel.prices import Prices

    dear = compute_advice(replace(small, prices=Prices(accelerator_hour=3.0), budget=0.01))
    assert not dear.ranked and all(row["infeasible"].startswith("budget") for row in dear.infeasible if row["time_s"])


def test_without_extrapolation_long_periods_are_refused(advice: Advice) -> None:
    told = compute_advice(replace(advice.question, extrapolate=False, methods=(advice.ranked[0]["plan"].method,)))
    assert not told.ranked and "--extrapolate" in " ".join(told.unknown)
