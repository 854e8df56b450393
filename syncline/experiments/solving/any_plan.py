"""The best plan for a target: of all methods, layouts and ways to hold a step that `syncline advise` looks at.

Each plan is first told roughly, by its step without bounds: where a training of its tokens takes as long as the
deadline. The best of them are solved as any other method is, and the search is made again on the network that they
ask for, where another layout may be the fastest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from syncline.costmodel import ModelShape, Network
from syncline.errors import SpecError
from syncline.experiments.advice.plans import TrainingPlan
from syncline.experiments.advice.priced import priced
from syncline.experiments.advice.question import AdviceQuestion, default_batch
from syncline.experiments.advice.search import plans_searched
from syncline.experiments.advice.thresholds import PreparedPlan, prepared
from syncline.experiments.projection.answers import WholeTraining
from syncline.experiments.projection.thresholds import HIGHEST, LOWEST
from syncline.experiments.solving.question import KNOWN, UNKNOWN, Inverse
from syncline.experiments.solving.solved import SolvedAnswer, answer_of, ranked_answers, same_names
from syncline.experiments.solving.sought import LATENCIES_S, Sought
from syncline.specs import ProjectSpec

FINALISTS = 4
"""Plans of each list that are solved whole, beside the best of data parallelism."""

HALVINGS = 12
"""Of the logarithm between the least and the most: to a hundredth."""

SEARCHES = 2
"""On the network that there is, and on that of the first answer."""


@dataclass(frozen=True)
class RoughPlan:
    """A plan with about where it meets a deadline.

    Args:
        plan: which.
        tokens: that it trains on.
        list: one of `KNOWN` and `UNKNOWN`.
        value: about; None where it never does.
    """

    plan: TrainingPlan
    tokens: float
    list: str
    value: float | None


def solved_by_any_plan(question: Inverse) -> list[dict[str, Any]]:
    """Rows as `solved` has them, of plans: those of known loss first, the best first in each list.

    Args:
        question: of a bandwidth or a latency; its methods are those between replicas.

    Raises:
        SpecError: another variable, no deadline, or a model or hardware of which nobody can advise.
    """
    if question.variable not in ("bandwidth", "latency"):
        raise SpecError("best", True, "bandwidth or latency to be sought: plans change with all else")
    if question.targets.deadline_s is None:
        raise SpecError("best", True, "a deadline beside it")
    rows: list[dict[str, Any]] = []
    for spec in question.specs:
        for network in spec.networks:
            rows += _of_network(question, spec, network)
    return same_names(rows)


def advice_asked(question: Inverse, spec: ProjectSpec, network: Network, methods: bool) -> AdviceQuestion:
    """The same question of advice, without its deadline and budget.

    Args:
        question: what is asked.
        spec: whose model, hardware and workers.
        network: on which.
        methods: whether the spec's methods are meant; else all that advice tries.

    Raises:
        SpecError: a module, no hardware, or a batch that the workers cannot share.
    """
    shape, machine, training = spec.model, spec.compute.hardware, question.training
    if not isinstance(shape, ModelShape):
        raise SpecError("model", shape.name, "a transformer by name or config, whose layouts can be told")
    if machine is None:
        raise SpecError("hardware", None, "what computes, as a100")
    tokens = 20.0 * shape.parameters if training.tokens is None else training.tokens
    batch = question.batch_tokens or default_batch(shape.parameters, spec.workers, shape.sequence)
    return AdviceQuestion(
        shape,
        network,
        machine,
        spec.workers,
        int(batch),
        tokens,
        training.target_loss,
        prices=training.prices,
        extrapolate=training.extrapolate,
        methods=spec.methods if methods else (),
    )


def _of_network(question: Inverse, spec: ProjectSpec, network: Network) -> list[dict[str, Any]]:
    asked = advice_asked(question, spec, network, question.own_methods)
    sought = question.sought(spec, network, spec.methods[0])
    there = network
    rough: dict[tuple[Any, ...], RoughPlan] = {}
    for _ in range(SEARCHES):
        plans, _ = plans_searched(asked.on(there))
        new = [one for one in plans if _key(one) not in rough]
        rough |= {_key(one.plan): one for one in _told_roughly(question, asked, sought, new)}
        best = _best_first(list(rough.values()), sought)
        if not new or not best or best[0].value is None:
            break
        there = sought.at(best[0].value).network
    rows: list[dict[str, Any]] = []
    for name in (KNOWN, UNKNOWN):
        of_list = [one for one in _best_first(list(rough.values()), sought) if one.list == name]
        parallel = [one for one in of_list if one.plan.method.sends_in_backward]
        finalists = of_list[:FINALISTS] + [one for one in parallel[:1] if one not in of_list[:FINALISTS]]
        answers = [_whole(question, asked, network, one) for one in finalists]
        rows += [one.flat() for one in ranked_answers(answers)]
    if not rows:
        raise SpecError("best", asked.model.name, "a plan that fits into the memory of the workers")
    return rows


def _key(plan: TrainingPlan) -> tuple[Any, ...]:
    return plan.setting, plan.method.name


def _told_roughly(
    question: Inverse, asked: AdviceQuestion, sought: Sought, plans: Sequence[TrainingPlan]
) -> list[RoughPlan]:
    """Those of the plans that fit, with about where each meets the deadline."""
    deadline_s = question.targets.deadline_s
    assert deadline_s is not None
    out = []
    for row in priced(asked, plans):
        if row["fits"] is False or row["time_s"] is None:
            continue
        one = prepared(asked, row["plan"], row["tokens"])
        value = _crossing(one, sought, deadline_s)
        out.append(RoughPlan(row["plan"], row["tokens"], KNOWN if row["loss_unknown"] is None else UNKNOWN, value))
    return out


def _crossing(one: PreparedPlan, sought: Sought, deadline_s: float) -> float | None:
    """About where a plan takes as long as the deadline; the hardest value where all will do, None where none will."""
    easy, hard = (HIGHEST, LOWEST) if sought.name == "bandwidth" else LATENCIES_S

    def late(value: float) -> bool:
        return one.time_s(sought.at(value).network) > deadline_s

    if late(easy):
        return None
    if not late(hard):
        return hard
    for _ in range(HALVINGS):
        middle = math.sqrt(easy * hard)
        easy, hard = (easy, middle) if late(middle) else (middle, hard)
    return easy


def _best_first(plans: Sequence[RoughPlan], sought: Sought) -> list[RoughPlan]:
    sign = 1.0 if sought.name == "bandwidth" else -1.0
    return sorted(plans, key=lambda one: (one.value is None, sign * (one.value or 0.0)))


def _whole(question: Inverse, asked: AdviceQuestion, network: Network, one: RoughPlan) -> SolvedAnswer:
    """A plan solved as any method is: as a projection of it says, on its own tokens."""
    spec = one.plan.spec(asked)
    training = WholeTraining(tokens=one.tokens, prices=question.training.prices, extrapolate=asked.extrapolate)
    own = replace(question, specs=[spec], training=training, batch_tokens=None)
    answer = answer_of(own, spec, network, spec.methods[0])
    record = answer.record | {"target": question.describe()}
    fields = one.plan.fields | {"steps": spec.steps, "tokens_per_worker": spec.tokens_per_worker, "tokens": one.tokens}
    told = {"list": one.list, "activations": one.plan.activations, "fields": fields}
    return answer._replace(record=record | told)
