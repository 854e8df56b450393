"""A plan that is faster than data parallelism's computing alone says why, and no other plan does."""

from __future__ import annotations

import pytest

from syncline.planner.advice.plan_costs import price_plans, with_computing_alone
from syncline.planner.advice.plans import TrainingPlan
from syncline.planner.advice.question import AdviceQuestion, advice_question
from syncline.planner.projection.training_totals import below_computing
from syncline.questions.projections import Advise
from tests.planner.advice.test_significance import plan

NETWORK = {
    "levels": [
        {"name": "node", "units": 8, "link": "nvlink3"},
        {"name": "site", "units": 4, "link": "ib-hdr"},
        {"name": "both", "units": 2, "link": {"latency": "20 ms", "bandwidth": "100 Gbit/s"}, "rails": 1},
    ]
}


@pytest.fixture(scope="module")
def fast() -> AdviceQuestion:
    asked = {"network": NETWORK, "hardware": "a100", "workers": 64, "tokens": "140B", "methods": ["ddp-adam"]}
    return advice_question(Advise(model="llama-7b", extrapolate=True, **asked))


def test_a_plan_below_computing_alone_names_its_tokens_and_their_source(fast: AdviceQuestion) -> None:
    plans: list[TrainingPlan] = [
        plan("ddp"),
        plan("streaming-diloco", period=30, wire="bf16"),
        plan("streaming-diloco", period=100, wire="bf16"),
    ]
    ddp, often, seldom = with_computing_alone(fast, price_plans(fast, plans))
    computing_s = ddp["steps"] * ddp["compute_s"]
    assert often["time_s"] < computing_s < min(ddp["time_s"], seldom["time_s"])
    assert ddp["below_computing"] is None and seldom["below_computing"] is None
    why = often["below_computing"]
    assert f"{often['tokens_factor']:.2g} times its tokens to the same loss" in why
    assert "fit streaming-diloco beyond what it has seen" in why and "two largest models (Douillard et al." in why
    # The gain is no more than measured, a few percent of the tokens.
    assert often["time_s"] > 0.93 * computing_s


def test_a_faster_layout_is_the_other_reason() -> None:
    assert below_computing(1.0, 1.0, 0.9, (0.8, 1.0), "fit") is None
    assert below_computing(None, 1.0, 0.9, (0.8, 1.0), "fit") is None
    why = below_computing(0.5, 1.0, None, (None, None), None)
    assert why is not None and why.endswith("a step of its layout computes faster")
