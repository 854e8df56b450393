"""The 7B question, answered once: enough plans, each as the projection has it, what decides, and tables of it."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

import syncline as sl
from syncline.planner.advice.advice import Advice, compute_advice
from syncline.planner.advice.question import AdviceQuestion, advice_question
from syncline.planner.advice.sentences import fastest_of_each_kind, plan_words
from syncline.planner.advice.tables import SHORT, TIED, advice_tables
from syncline.questions.projections import Advise
from syncline.runs.folders.result_files import json_value


@pytest.fixture(scope="module")
def advice(question: AdviceQuestion) -> Advice:
    return compute_advice(question)


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
    told = " ".join([*advice.decides, *advice.changes, *advice.unknown])
    for words in ("waiting for exchanges", "bandwidth between sites", "latency", "Memory of the first", "the batch",
                  "no published fit", "holds outside its range", "none of it is counted"):  # fmt: skip
        assert words in told, words
    assert {one["what"] for one in advice.thresholds} == {"bandwidth", "latency", "workers"}


def test_rows_are_plain_and_have_the_fields(advice: Advice) -> None:
    record = json.loads(json.dumps(json_value(advice.record())))
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


# Tables for people: they fit 80 columns and never name a bare winner.


def shown(advice: Advice, every_plan: bool = False) -> str:
    console = Console(file=io.StringIO(), width=80, markup=False, emoji=False, highlight=False)
    for table in advice_tables(advice, every_plan):
        console.print(table)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return str(text)


def test_it_fits_a_terminal_in_one_piece(advice: Advice) -> None:
    text = shown(advice, every_plan=True)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("Ranked by time") == 1 and text.count("bounds") == 2  # not cut into blocks
    for words in ("524,288 tokens in a step", "the longest period is always the fastest", "What decides",
                  "What is unknown", "played by events, message by message",
                  "USD", "Cannot be", "memory: "):  # fmt: skip
        assert words in " ".join(text.split()), words


def test_ties_are_marked(advice: Advice) -> None:
    text = shown(advice, every_plan=True)
    assert re.search(r"\n \d+ = ", text) and "cannot be told from the first" in text


def test_the_short_form_is_assumptions_a_verdict_and_ten_plans(advice: Advice) -> None:
    text = shown(advice)
    assert max(map(len, text.splitlines())) <= 80
    assumptions, verdict, plans = (text.index(words) for words in ("\nAssumptions", "\nVerdict", "\nPlans by time"))
    assert assumptions < verdict < plans
    assert " ".join(text[verdict:plans].split()) == " ".join(["Verdict", *advice.verdict])
    others = fastest_of_each_kind(advice.question, advice.loss_unknown)
    assert {row["period"] for row in others} == {1, advice.question.compared_period}
    assert " same " in text[plans:] and " unknown " in text[plans:] and f"{TIED} " in text[plans:]
    lines = [line for line in text[plans:].splitlines() if line.startswith(" ") and line.strip().endswith(" d")]
    assert len(lines) == SHORT


def test_the_verdict_has_the_saving_and_its_interval(advice: Advice) -> None:
    do, saving, change = advice.verdict
    first = advice.ranked[0]
    parallel = next(row for row in advice.ranked if row["method"] == "ddp-adam")
    assert do.startswith(f"Train with {first['method']}") and "to the same loss" in do
    assert f"It saves {1 - first['time_s'] / parallel['time_s']:.0%} (" in saving and "ddp-adam" in saving
    assert change == advice.changes[0]


def test_a_deadline_that_an_upper_bound_misses_is_told(advice: Advice) -> None:
    between = (advice.ranked[0]["time_s"] + advice.ranked[0]["high_s"]) / 2
    late = replace(advice, question=replace(advice.question, deadline_s=between))
    assert f"{len(advice.ranked)} of {len(advice.ranked)} may miss the deadline" in " ".join(shown(late).split())


@pytest.mark.parametrize(
    "methods", [None, ["ddp-adam", "diloco", "local-adam", "mt-dao", "des-loc", "streaming-diloco"]]
)
def test_methods_have_the_periods_of_their_presets_if_asked(methods: list[str] | None) -> None:
    asked = Advise(model="gpt-160m", network="wan", hardware="h100", workers=4, methods=methods, period="preset")
    advice = compute_advice(advice_question(asked))
    rows = advice.ranked + advice.loss_unknown
    periods = {(row["plan"].method.kind, row["period"]) for row in rows if row["period"] > 1}
    assert periods == {("diloco", 32), ("local", 32), ("mt-dao", 32), ("des-loc", 32), ("streaming-diloco", 100)}
    shown_rows = [row for row in fastest_of_each_kind(advice.question, rows) if row["period"] > 1]
    assert {(row["plan"].method.kind, row["period"]) for row in shown_rows} == periods
    assert all(f" every {row['period']}" in plan_words(row) for row in shown_rows)
    assert "each method at its own period" in " ".join(shown(advice).split())


def test_the_short_form_says_why_a_plan_is_faster_than_computing_alone(advice: Advice) -> None:
    text = " ".join(shown(advice).split())
    faster = [row for row in advice.ranked + advice.loss_unknown if row["below_computing"]]
    assert faster and any(f"{plan_words(row)}: {row['below_computing']}." in text for row in faster)
