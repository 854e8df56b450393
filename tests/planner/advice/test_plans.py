"""Plans: each is a projection, whose row has its numbers."""

from __future__ import annotations

import pytest

import syncline as sl
from syncline.costmodel.layouts.layout import Layout
from syncline.methods import method_of
from syncline.planner.advice.plan_costs import price_plans
from syncline.planner.advice.plans import TrainingPlan
from syncline.planner.advice.question import AdviceQuestion, advice_question
from syncline.questions.projections import Advise

PLANS = [
    TrainingPlan(method_of("ddp-adam"), Layout(data=32)),
    TrainingPlan(method_of("ddp-adam"), Layout(tensor=4, data=8, pipeline=2), overlap="none"),
    TrainingPlan(method_of({"kind": "diloco", "lr": 0.003, "period": 30}), Layout(data=32)),
    TrainingPlan(method_of({"kind": "diloco", "lr": 0.003, "wire": "bf16"}), Layout(tensor=8), sharding="full"),
    TrainingPlan(method_of("streaming-diloco"), Layout(data=32)),
]


def test_each_plan_equals_the_projection_of_it(question: AdviceQuestion) -> None:
    for plan, row in zip(PLANS, price_plans(question, PLANS), strict=True):
        asked = {"tokens": row["tokens"], "prices": question.prices, "extrapolate": True, "thresholds": False}
        (told,) = sl.project([plan.spec(question)], **asked).rows
        same = {"time_s": "training_s", "utilisation": "utilisation", "memory_bytes": "memory_bytes", "cost": "cost",
                "energy_j": "energy_j", "wan_bytes": "egress_bytes", "step_time_s": "step_time_s"}  # fmt: skip
        for name, of in same.items():
            assert row[name] == pytest.approx(told[of], rel=1e-12, abs=0), (plan, name)
        if row["loss_unknown"] is None:
            assert told["loss"] == pytest.approx(row["loss"], rel=1e-12)


def test_a_plan_is_written_as_a_projection_s_fields(question: AdviceQuestion) -> None:
    plan = PLANS[3]
    setting = {"model": "llama-7b", "cluster": "two-sites-a100", "tokens_per_worker": question.tokens_per_worker}
    (row,) = sl.project(**setting, **plan.fields, steps=question.steps, thresholds=False).rows
    assert row["step_time_s"] == price_plans(question, [plan])[0]["step_time_s"]


@pytest.mark.parametrize(
    ("network", "workers"), [("dgx-a100", 16), ("two-sites", 3), ("two-sites", 4), ("wan", 2)], ids=str
)
def test_what_leaves_sites_is_paid_as_a_projection_does(network: str, workers: int) -> None:
    prices = {"egress_gb": 0.02, "accelerator_hour": 2.0}
    asked = advice_question(Advise(model="gpt-160m", network=network, hardware="a100", workers=workers, prices=prices))
    for plan in (TrainingPlan(method_of("ddp-adam")), TrainingPlan(method_of("diloco"))):
        (row,) = price_plans(asked, [plan])
        (told,) = sl.project([plan.spec(asked)], tokens=row["tokens"], prices=asked.prices, thresholds=False).rows
        assert row["cost"] == pytest.approx(told["cost"], rel=1e-12)
