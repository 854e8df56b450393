"""The solver: for each setting the value of one variable that meets a target, and the assumptions of the answers.

With the option ``best`` the solver chooses among all methods, layouts and memory plans that ``syncline advise`` tries.
A rough search first finds the value at which each plan meets the deadline, from the plan's step without bounds. The
best plans are then solved like any other method. The search runs again on the network of the first answer, because
another layout may be the fastest on that network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from syncline.costmodel import ModelShape, Network
from syncline.costmodel.scaling.published import whole_batch
from syncline.errors import SpecError
from syncline.planner.advice.plan_costs import price_plans
from syncline.planner.advice.plans import TrainingPlan, advice_assumptions
from syncline.planner.advice.question import TOKENS_PER_PARAMETER, AdviceQuestion
from syncline.planner.advice.ranking_changes import PreparedPlan, prepare_plan
from syncline.planner.advice.search import search_plans
from syncline.planner.assumptions import (
    GIVEN,
    Assumption,
    batch_assumption,
    nearest_text,
    projection_assumptions,
    spec_batch,
)
from syncline.planner.projection.thresholds import HIGHEST, LOWEST
from syncline.planner.projection.training_totals import WholeTraining
from syncline.planner.solving.answers import SolvedAnswer, answer_of, network_rows, ranked_answers
from syncline.planner.solving.question import KNOWN, UNKNOWN, InverseProblem
from syncline.planner.solving.variables import LATENCIES_S, DecisionVariable
from syncline.specs import ProjectSpec
from syncline.specs.study import Record

FINALISTS = 4
"""Number of plans of each list that are solved with bounds, in addition to the best of data parallelism."""

HALVINGS = 12
"""Number of bisections between the logarithms of the extreme values: to a hundredth."""

SEARCHES = 2
"""Number of searches: on the spec's network, and on the network of the first answer."""


@dataclass(frozen=True)
class RoughPlan:
    """A plan, with an estimate of the bandwidth or latency at which the plan just meets the deadline.

    Args:
        list_name: `KNOWN` if the plan's loss is known, else `UNKNOWN`.
        estimate: bandwidth in bytes per second, or latency in seconds; None if the plan never meets the deadline.
    """

    plan: TrainingPlan
    tokens: float
    list_name: str
    estimate: float | None


def as_advice_question(question: InverseProblem, spec: ProjectSpec, network: Network) -> AdviceQuestion:
    """Return the same question as a question for advice, without its deadline and budget.

    Args:
        question: the question; with ``own_methods`` the plans have the spec's methods, else all that advice tries.
        spec: spec with the model, hardware and workers.

    Raises:
        SpecError: the model is a module of code, whose layouts are unknown; there is no hardware; or the workers cannot
            share the batch.
    """
    shape, machine, training = spec.model, spec.compute.hardware, question.training
    if not isinstance(shape, ModelShape):
        raise SpecError("model", shape.name, "a transformer by name or config, whose layouts are known")
    if machine is None:
        raise SpecError("hardware", None, "what computes, as a100")
    tokens = TOKENS_PER_PARAMETER * shape.parameters if training.tokens is None else training.tokens
    batch_tokens, batch = spec.batch_tokens, spec_batch(spec, origins={})
    if question.batch_tokens:
        batch_tokens = whole_batch(question.batch_tokens, spec.workers, shape.sequence)
        origin = GIVEN if batch_tokens == question.batch_tokens else nearest_text(question.batch_tokens)
        batch = batch_assumption(batch_tokens, spec.workers, origin)
    return AdviceQuestion(
        shape, network, hardware=machine, workers=spec.workers, batch_tokens=batch_tokens, tokens=tokens,
        target_loss=training.target_loss, prices=training.prices, extrapolate=training.extrapolate,
        methods=spec.methods if question.own_methods else (), assumptions=(batch,),
    )  # fmt: skip


def _rows_of_plans(question: InverseProblem, spec: ProjectSpec, network: Network) -> list[dict[str, Any]]:
    """Return the rows of the best plans on a network: plans of known loss first, the best first in each list.

    Raises:
        SpecError: the variable is not a link's, there is no deadline, or no plan fits into the memory.
    """
    if question.variable not in ("bandwidth", "latency"):
        raise SpecError("best", True, "bandwidth or latency as the variable, as plans depend on everything else")
    deadline_s = question.targets.deadline_s
    if deadline_s is None:
        raise SpecError("best", True, "a deadline as well")
    advice = as_advice_question(question, spec, network)
    variable = question.decision_variable(spec, network, spec.methods[0])  # a link's variable is the same for all
    search_network = network
    rough_plans: dict[tuple[Any, ...], RoughPlan] = {}
    for _ in range(SEARCHES):
        plans, _ = search_plans(advice.on(search_network))
        new_plans = [plan for plan in plans if _key(plan) not in rough_plans]
        for rough_plan in _rough_plans(advice, variable, deadline_s, new_plans):
            rough_plans[_key(rough_plan.plan)] = rough_plan
        sorted_plans = _best_first(list(rough_plans.values()), variable)
        if not new_plans or not sorted_plans or sorted_plans[0].estimate is None:
            break
        # Which plans are fast depends on the link: search again with the link that the best plan needs.
        search_network = variable.setting_at(sorted_plans[0].estimate).network
    rows: list[dict[str, Any]] = []
    for list_name in (KNOWN, UNKNOWN):
        candidates = [plan for plan in _best_first(list(rough_plans.values()), variable) if plan.list_name == list_name]
        data_parallel = [candidate for candidate in candidates if candidate.plan.method.sends_in_backward]
        # The best plan of data parallelism is always among the answers, for comparison.
        finalists = candidates[:FINALISTS]
        finalists += [candidate for candidate in data_parallel[:1] if candidate not in finalists]
        answers = [_exact_answer(question, advice, network, rough_plan) for rough_plan in finalists]
        rows += [answer.flat() for answer in ranked_answers(answers)]
    if not rows:
        raise SpecError("best", advice.model.name, "a plan that fits into the memory of the workers")
    return rows


def _key(plan: TrainingPlan) -> tuple[Any, ...]:
    """Return a key that identifies a plan: its layout, its options and the method's name."""
    return plan.setting, plan.method.name


def _rough_plans(
    advice: AdviceQuestion, variable: DecisionVariable, deadline_s: float, plans: Sequence[TrainingPlan]
) -> list[RoughPlan]:
    """Return the plans that fit into memory, with the approximate value at which each meets the deadline."""
    rough_plans = []
    for row in price_plans(advice, plans):
        if row["fits"] is False or row["time_s"] is None:
            continue
        estimate = _value_for_deadline(prepare_plan(advice, row["plan"], row["tokens"]), variable, deadline_s)
        list_name = KNOWN if row["loss_unknown"] is None else UNKNOWN
        rough_plans.append(RoughPlan(row["plan"], row["tokens"], list_name=list_name, estimate=estimate))
    return rough_plans


def _value_for_deadline(plan: PreparedPlan, variable: DecisionVariable, deadline_s: float) -> float | None:
    """Return the approximate bandwidth or latency at which a plan just meets a deadline.

    The value is None if even the fastest network that is tried is too slow.
    """
    fast, slow = (HIGHEST, LOWEST) if variable.name == "bandwidth" else LATENCIES_S

    def misses_deadline(value: float) -> bool:
        return plan.time_s(variable.setting_at(value).network) > deadline_s

    if misses_deadline(fast):
        return None
    if not misses_deadline(slow):
        return slow
    for _ in range(HALVINGS):
        middle = math.sqrt(fast * slow)
        if misses_deadline(middle):
            slow = middle
        else:
            fast = middle
    return fast


def _best_first(plans: Sequence[RoughPlan], variable: DecisionVariable) -> list[RoughPlan]:
    """Sort plans by the value that they need: a low bandwidth or a long latency first, plans without a value last."""
    sign = 1.0 if variable.name == "bandwidth" else -1.0
    return sorted(plans, key=lambda plan: (plan.estimate is None, sign * (plan.estimate or 0.0)))


def _exact_answer(
    question: InverseProblem, advice: AdviceQuestion, network: Network, rough_plan: RoughPlan
) -> SolvedAnswer:
    """Solve exactly for a plan with an estimate: return the value that meets the targets, with bounds."""
    spec = rough_plan.plan.spec(advice)
    training = WholeTraining(tokens=rough_plan.tokens, prices=question.training.prices, extrapolate=advice.extrapolate)
    # The plan's spec already has the question's batch.
    plan_question = replace(question, specs=[spec], training=training, batch_tokens=None)
    answer = answer_of(plan_question, spec, network, method=spec.methods[0])
    lengths = {"steps": spec.steps, "tokens_per_worker": spec.worker_tokens, "tokens": rough_plan.tokens}
    plan_fields = {"list": rough_plan.list_name, "fields": rough_plan.plan.fields | lengths}
    return answer._replace(record=answer.record | {"target": question.describe()} | plan_fields)


def solve_rows(question: InverseProblem) -> list[dict[str, Any]]:
    """Return a row per answer, the best first in each setting: the value, and the projection at this value.

    All rows have the same fields; None stands for a field that a row does not have.

    Raises:
        SpecError: there is nothing to vary, or `syncline advise` does not support the model or the hardware.
    """
    rows_of_setting = _rows_of_methods
    if question.best:
        rows_of_setting = _rows_of_plans
    elif question.variable == "network":
        rows_of_setting = network_rows
    rows = [
        row for spec in question.specs for network in spec.networks for row in rows_of_setting(question, spec, network)
    ]
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in names} for row in rows]


def _rows_of_methods(question: InverseProblem, spec: ProjectSpec, network: Network) -> list[dict[str, Any]]:
    """Return a row for each method of a spec on a network, the best first."""
    answers = [answer_of(question, spec, network, method) for method in question.methods(spec)]
    return [answer.flat() for answer in ranked_answers(answers)]


def solve_assumptions(rows: Sequence[Record], question: InverseProblem, origins: Mapping[str, str]) -> list[Assumption]:
    """Return the assumptions of the answers, without the value to find."""
    if question.best:  # the plans are those of `advise`
        spec = question.specs[0]
        return advice_assumptions(as_advice_question(question, spec, spec.networks[0]), origins)
    return projection_assumptions(question.specs, rows, origins)
