"""What failures leave of a plan's time."""

from __future__ import annotations

import math
from functools import lru_cache

from syncline.costmodel import ModelShape
from syncline.experiments.advice.plans import TrainingPlan
from syncline.experiments.advice.question import AdviceQuestion
from syncline.experiments.goodput.left import FailingTraining, KeptState, WhatIsLeft, kept_state
from syncline.methods import MethodBase
from syncline.units import format_seconds


def as_failing(
    question: AdviceQuestion, plan: TrainingPlan, step_s: float, steps: float, sharding: str = "none"
) -> FailingTraining:
    """A plan, as failures know it.

    Args:
        question: what is asked.
        plan: it.
        step_s: in which nothing fails.
        steps: of the training.
        sharding: what is shared out; of data parallelism over all replicas.
    """
    shared = plan.method.sends_in_backward and sharding != "none"
    replicas = plan.layout.replicas(question.workers)
    state = _state(question.model, plan.method, replicas)
    copies = 1 if shared else replicas
    return FailingTraining(question.workers, copies, state.exchanges_every, state.nbytes, step_s, steps)


@lru_cache(maxsize=4096)
def _state(model: ModelShape, method: MethodBase, replicas: int) -> KeptState:
    return kept_state(method, model.tensors, replicas)


def left_of(
    question: AdviceQuestion, plan: TrainingPlan, step_s: float | None, steps: float, sharding: str = "none"
) -> WhatIsLeft | None:
    """What is left of a plan; None where nobody asks, or nobody knows its step. Arguments are those of `as_failing`."""
    if question.failures is None or step_s is None:
        return None
    from syncline.experiments.goodput.planned import what_is_left  # only here: where nothing fails nothing is played

    return what_is_left(question.failures, as_failing(question, plan, step_s, steps, sharding))


def lasting_s(
    question: AdviceQuestion, plan: TrainingPlan, step_s: float, steps: float, sharding: str = "none"
) -> float:
    """Seconds of a training, with what failures cost; infinite without progress. Arguments are as above."""
    if question.failures is None or not math.isfinite(step_s):
        return steps * step_s
    left = left_of(question, plan, step_s, steps, sharding)
    assert left is not None
    return steps * step_s / left.goodput if left.goodput else math.inf


FIELDS = ("recovery", "checkpoint_interval_s", "goodput")
"""Of a row; null where nobody asks."""


MOST_FAILURES = 20_000
"""Failures of a training that are played, in less than a second; of more the formula's goodput stands alone."""


def goodput_by_events(question: AdviceQuestion, row: dict[str, object]) -> float | None:
    """Return the goodput of a row's plan with the failures of one seed, played.

    None where nothing fails, or so often that playing the training would take minutes.
    """
    plan, step_s, steps, goodput = (row[name] for name in ("plan", "step_time_s", "steps", "goodput"))
    if question.failures is None or not goodput:
        return None
    from syncline.experiments.goodput.planned import played_goodput

    assert isinstance(plan, TrainingPlan) and isinstance(step_s, float) and isinstance(steps, float)
    assert isinstance(goodput, float)
    if steps * step_s / goodput > MOST_FAILURES * question.failures.mtbf_s(question.workers):
        return None
    failures = question.failures.model_copy(update={"recovery": row["recovery"]})
    return played_goodput(failures, as_failing(question, plan, step_s, steps, str(row["sharding"])))[0]


def failure_words(question: AdviceQuestion, row: dict[str, object]) -> list[str]:
    """How often something fails, and what it leaves of a plan."""
    if question.failures is None or row["goodput"] is None:
        return []
    interval_s, goodput = row["checkpoint_interval_s"], row["goodput"]
    assert isinstance(goodput, float)
    saves = "at its end alone" if interval_s is None else f"every {format_seconds(float(str(interval_s)))}"
    each = format_seconds(question.failures.mtbf_s(question.workers))
    return [
        f"Something fails every {each}: of the first's time {goodput:.1%} is in steps that count. "
        f"{HOW[str(row['recovery'])]}; it saves {saves}."
    ]


HOW = {
    "restart": "All go back to the last checkpoint",
    "reform": "The replicas that are there go on",
}
"""How a training goes on, in words."""
