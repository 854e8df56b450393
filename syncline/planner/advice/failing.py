"""The goodput of a plan on machines that fail."""

from __future__ import annotations

import math
from functools import lru_cache

from syncline.costmodel import ModelShape
from syncline.methods import MethodBase
from syncline.planner.advice.plans import TrainingPlan
from syncline.planner.advice.question import AdviceQuestion
from syncline.planner.goodput.goodput import FailingTraining, Goodput, KeptState, failing_training, kept_state
from syncline.units import format_seconds


def failing_plan(
    question: AdviceQuestion, plan: TrainingPlan, step_s: float, steps: float, sharding: str = "none"
) -> FailingTraining:
    """Return a plan in the form that the failure model takes.

    Args:
        question: the question.
        plan: the plan.
        step_s: seconds of a step in which nothing fails.
        steps: number of steps of the training.
        sharding: the states that are sharded; in data parallelism over all replicas.
    """
    replicas = plan.layout.replicas(question.workers)
    state = _state(question.model, plan.method, replicas)
    return failing_training(plan.method, state, question.network, question.workers, replicas, sharding, step_s, steps)


@lru_cache(maxsize=4096)
def _state(model: ModelShape, method: MethodBase, replicas: int) -> KeptState:
    return kept_state(method, model.tensors, replicas)


def plan_goodput(
    question: AdviceQuestion, plan: TrainingPlan, step_s: float | None, steps: float, sharding: str = "none"
) -> Goodput | None:
    """Return a plan's goodput, or None without failures or a known step time.

    The arguments are those of `failing_plan`.
    """
    if question.failures is None or step_s is None:
        return None
    from syncline.planner.goodput.planned import (
        estimate_goodput,
    )  # only here: questions without failures need no simulation

    return estimate_goodput(question.failures, failing_plan(question, plan, step_s, steps, sharding))


def time_with_failures_s(
    question: AdviceQuestion, plan: TrainingPlan, step_s: float, steps: float, sharding: str = "none"
) -> float:
    """Return the seconds of a training with failures, infinite without progress.

    The arguments are those of `failing_plan`.
    """
    if question.failures is None or not math.isfinite(step_s):
        return steps * step_s
    outcome = plan_goodput(question, plan, step_s, steps, sharding)
    assert outcome is not None
    return steps * step_s / outcome.goodput if outcome.goodput else math.inf


FIELDS = ("recovery", "checkpoint_interval_s", "goodput", "repair_s", "spares", "rejoin_s")
"""Fields of a row, null without failures."""


MOST_FAILURES = 20_000
"""Limit on the simulated failures, which take less than a second; above it only the formula gives the goodput."""


def goodput_by_events(question: AdviceQuestion, row: dict[str, object]) -> float | None:
    """Return the simulated goodput of a row's plan with the failures of one seed.

    None if nothing fails, or if failures are so frequent that the simulation would take minutes.
    """
    plan, step_s, steps, goodput = (row[name] for name in ("plan", "step_time_s", "steps", "goodput"))
    if question.failures is None or not goodput:
        return None
    from syncline.planner.goodput.planned import simulated_goodput

    assert isinstance(plan, TrainingPlan) and isinstance(step_s, float) and isinstance(steps, float)
    assert isinstance(goodput, float)
    if steps * step_s / goodput > MOST_FAILURES * question.failures.mtbf_s(question.workers):
        return None
    failures = question.failures.model_copy(update={"recovery": row["recovery"]})
    return simulated_goodput(failures, failing_plan(question, plan, step_s, steps, str(row["sharding"])))[0]


def failure_words(question: AdviceQuestion, row: dict[str, object]) -> list[str]:
    """Return a sentence on the rate of failures and the plan's goodput, or no sentence without failures."""
    if question.failures is None or row["goodput"] is None:
        return []
    interval_s, goodput = row["checkpoint_interval_s"], row["goodput"]
    assert isinstance(goodput, float)
    saves = "at its end alone" if interval_s is None else f"every {format_seconds(float(str(interval_s)))}"
    mtbf = format_seconds(question.failures.mtbf_s(question.workers))
    return [
        f"Something fails every {mtbf}: of the first's time {goodput:.1%} is in steps that count. "
        f"{HOW[str(row['recovery'])]}; it saves {saves}. A replica that returns fetches its state in "
        f"{format_seconds(float(str(row['rejoin_s'])))}.",
    ]


HOW = {
    "restart": "All go back to the last checkpoint",
    "elastic": "The replicas that are there go on",
}
"""Ways in which a training continues, in words."""
