"""The search finds what pricing everything finds."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from syncline.methods import MethodBase
from syncline.planner.advice.equal_loss import tokens_needed
from syncline.planner.advice.plan_costs import price_plans
from syncline.planner.advice.plans import TrainingPlan, batch_misfit, candidate_layouts, candidate_methods
from syncline.planner.advice.question import AdviceQuestion, advice_question
from syncline.planner.advice.search import PlanSetting, QuickEstimate, least_bytes, search_plans
from syncline.questions.projections import Advise

METHODS = ["ddp-adam", {"kind": "diloco", "lr": 0.003, "period": 30}, "streaming-diloco", "powersgd"]


def quick_estimates(question: AdviceQuestion, plan: TrainingPlan, methods: Sequence[MethodBase]) -> list[QuickEstimate]:
    return PlanSetting(question, plan, methods).estimates


@pytest.fixture(scope="module")
def eight() -> AdviceQuestion:
    own = {"levels": [{"units": 4, "link": "nvlink3"}, {"units": 2, "link": "20ms,1Gbit/s", "rails": 1}]}
    return advice_question(
        Advise(
            model="gpt2-xl",
            network=own,
            hardware="a100",
            workers=8,
            methods=METHODS,
            batch_tokens=2**18,
            extrapolate=True,
        )
    )


def test_nothing_that_is_left_out_is_faster(eight: AdviceQuestion) -> None:
    least: dict[str, float] = {}
    for layout in candidate_layouts(eight):
        replicas = layout.replicas(eight.workers)
        methods = [one for one in eight.methods if one.sends_in_backward or replicas > 1]
        for one in quick_estimates(eight, TrainingPlan(methods[0], layout), methods):
            needed = tokens_needed(eight, one.plan.method, replicas)
            if one.fits and (needed.unknown is None or one.plan.method.kind == "powersgd"):
                name = one.plan.method.name
                least[name] = min(least.get(name, math.inf), one.step_s * needed.tokens)
    found: dict[str, float] = {}
    for plan in search_plans(eight)[0]:
        (one,) = quick_estimates(eight, plan, [plan.method])
        tokens = tokens_needed(eight, plan.method, plan.layout.replicas(eight.workers)).tokens
        if one.fits:
            found[plan.method.name] = min(found.get(plan.method.name, math.inf), one.step_s * tokens)
    assert found.keys() == least.keys()
    for name, time_s in least.items():
        assert found[name] == pytest.approx(time_s, rel=0.002), name


@pytest.mark.parametrize("seed", range(6))
def test_bounds_rule_out_no_plan_that_is_chosen(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search finds the same plans, in the same order, if it prices every layout with every method."""
    draw = random.Random(seed)
    workers = draw.choice([8, 12, 16, 24])
    methods = [*draw.sample([method.name for method in candidate_methods(()) if not method.sends_in_backward], 6)]
    by_name = {method.name: method for method in candidate_methods(())}
    question = advice_question(
        Advise(
            model=draw.choice(["gpt2-xl", "llama-7b", "mixtral-8x7b"]),
            network=draw.choice(["two-sites", "dgx-a100", "10gbe"]),
            hardware=draw.choice(["a100", "h100"]),
            workers=workers,
            methods=[by_name["ddp-adam"], *(by_name[name] for name in methods)],
            extrapolate=True,
        )
    )
    plans, refused = search_plans(question)
    monkeypatch.setattr(QuickEstimate, "lower_bounds_s", lambda estimate: iter(()))
    assert search_plans(question) == (plans, refused)


def test_no_step_is_shorter_than_its_bounds(eight: AdviceQuestion) -> None:
    for layout in candidate_layouts(eight):
        methods = [method for method in eight.methods if method.sends_in_backward or layout.replicas(8) > 1]
        for estimate in quick_estimates(eight, TrainingPlan(methods[0], layout), methods):
            if estimate.fits:
                assert max(estimate.lower_bounds_s()) <= estimate.step_s


def test_what_does_not_divide_is_told(eight: AdviceQuestion) -> None:
    _, refused = search_plans(eight)
    assert refused and all(row["infeasible"].startswith("a divisor") for row in refused)  # 25 heads
    assert {row["method"] for row in refused} == {"any method"}


def test_all_compositions_divide(question: AdviceQuestion) -> None:
    plans = [
        TrainingPlan(method, layout)
        for layout in candidate_layouts(question)
        for method in question.methods or candidate_methods(question.periods)
        if method.sends_in_backward or layout.workers < question.workers
    ]
    assert len(plans) > 1000
    assert all(question.workers % plan.layout.workers == 0 for plan in plans)
    assert not any(batch_misfit(question, plan.layout) for plan in plans)


def test_the_least_memory_is_no_more_than_what_is_held(eight: AdviceQuestion) -> None:
    for layout in candidate_layouts(eight):
        methods = [one for one in eight.methods if one.sends_in_backward or layout.replicas(8) > 1]
        for one in quick_estimates(eight, TrainingPlan(methods[0], layout), methods):
            assert least_bytes(eight, layout, one.plan.method) <= one.memory_bytes


def test_a_model_that_is_too_large_for_a_replica_is_told_so() -> None:
    asked = advice_question(Advise(model="llama-2-70b", cluster="two-sites-a100", methods=["diloco"]))
    _, refused = search_plans(asked)
    assert any("at least of 81.6 GB" in row["infeasible"] for row in refused)


def test_plans_recompute_as_few_layers_as_fit_where_that_is_faster() -> None:
    asked = Advise(model="llama-3-8b", network="two-sites", hardware="h100", workers=16, methods=["ddp-adam"])
    question = advice_question(asked)
    plans = [plan for plan in search_plans(question)[0] if plan.recomputed_layers == "fewest"]
    assert plans
    for row, whole in zip(
        price_plans(question, plans),
        price_plans(question, [replace(plan, recomputed_layers=None) for plan in plans]),
        strict=True,
    ):
        assert row["activations"].startswith("recomputed: ") and whole["activations"] == "recomputed"
        assert row["step_time_s"] < whole["step_time_s"] and row["fits"] and whole["fits"]
        assert row["plan"].fields["memory"] == {"sharding": row["plan"].sharding, "recomputed_layers": "fewest"}
