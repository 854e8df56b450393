"""The search over compositions: all layouts first, by steps without bounds, then all methods in the best layouts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from syncline.costmodel.collectives.prices import TIME_SOURCES
from syncline.costmodel.layouts.layout import Layout, placements_of
from syncline.costmodel.layouts.memory import usable_bytes
from syncline.errors import SpecError
from syncline.methods import MethodBase
from syncline.planner.advice.equal_loss import tokens_needed
from syncline.planner.advice.plan_costs import PlanRow, refused_row, time_with_failures_s
from syncline.planner.advice.plans import (
    TrainingPlan,
    candidate_layouts,
    candidate_methods,
    refused_layouts,
    specs_of,
    unit_sizes,
)
from syncline.planner.advice.question import AdviceQuestion
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.pricing import Known
from syncline.units import format_bytes

LAYOUTS_TRIED = 3
"""Number of layouts to try per number of replicas, the fastest first; a method takes the first that it fits into."""

REFUSED_KEPT = 6
"""Limit on the reported plans that do not fit; they need the least memory for their number of replicas."""


class QuickEstimate(NamedTuple):
    """A plan's step, without bounds.

    Attributes:
        plan: the plan.
        step_s: seconds of a step; infinite if it has no closed form, or does not fit.
        fits: whether the plan fits into a worker's memory; True if the memory is unknown.
        memory_bytes: memory of a worker.
    """

    plan: TrainingPlan
    step_s: float
    fits: bool
    memory_bytes: float


def quick_estimates(question: AdviceQuestion, plan: TrainingPlan, methods: Sequence[MethodBase]) -> list[QuickEstimate]:
    """Return a step of each method in a plan's setting, without bounds, and without methods that are invalid in it."""
    try:
        prepared = ProjectionPlan([specs_of(question, [plan], methods)])
    except SpecError:
        return (
            []
            if len(methods) == 1
            else [glance for single in methods for glance in quick_estimates(question, plan, [single])]
        )
    out = []
    cache: Known = {}
    network = plan.on(question.network, question.workers)
    for number, method in enumerate(methods):
        memory_plan = prepared.held[number]
        feasible, seconds = bool(memory_plan.fits.all()), math.nan
        if feasible:
            step = prepared.step(number, network, cache=cache)
            _, evaluators = prepared.evaluators(number, network, cache)
            if np.all(evaluators < len(TIME_SOURCES)):
                seconds = float(np.reshape(step.step_time_s, (-1,))[0])
        needs = float(np.max(memory_plan.memory.total_bytes))
        out.append(
            QuickEstimate(replace(plan, method=method), math.inf if math.isnan(seconds) else seconds, feasible, needs)
        )
    return out


def search_plans(question: AdviceQuestion) -> tuple[list[TrainingPlan], list[PlanRow]]:
    """Return the plans to price with bounds, and rows of layouts that do not divide evenly.

    The search first prices data parallelism and one method with replicas in every layout. For each number of replicas a
    method takes the fastest layout that it fits into. It then takes the number of replicas that is fastest to equal
    loss; plans of known loss precede others.
    """
    methods = question.methods or candidate_methods(question.periods)
    backward_methods = [method for method in methods if method.sends_in_backward]
    replica_methods = [method for method in methods if not method.sends_in_backward]
    by_replicas: dict[int, list[QuickEstimate]] = {}
    parallel: list[QuickEstimate] = []
    large: dict[int, tuple[float, Layout]] = {}
    for layout in candidate_layouts(question):
        replicas = layout.replicas(question.workers)
        firsts = [*backward_methods, *(replica_methods[:1] if replicas > 1 else [])]
        limit_bytes = usable_bytes(question.hardware)
        bytes_by_method = {method.name: least_bytes(question, layout, method) for method in firsts}
        firsts = [method for method in firsts if bytes_by_method[method.name] <= limit_bytes]
        if replica_methods and bytes_by_method.get(replica_methods[0].name, 0.0) > limit_bytes:
            needs = bytes_by_method[replica_methods[0].name], layout
            large[replicas] = min(large.get(replicas, needs), needs, key=lambda pair: pair[0])
        for placement in placements_of(question.network, layout, question.workers) if firsts else ():
            for glance in quick_estimates(question, TrainingPlan(firsts[0], layout, placement=placement), firsts):
                is_parallel = glance.plan.method.sends_in_backward
                (parallel if is_parallel else by_replicas.setdefault(replicas, [])).append(glance)
    plans = _parallel(question, parallel)
    refused = sorted((glance for glance in parallel if not glance.fits), key=lambda glance: glance.memory_bytes)[:1]
    best: dict[str, tuple[tuple[bool, float], TrainingPlan]] = {}
    for replicas, glances in by_replicas.items():
        glances.sort(key=lambda glance: glance.step_s)
        smallest = min(glances, key=lambda glance: glance.memory_bytes)
        refused += [smallest] if not smallest.fits else []
        untried = list(replica_methods)
        for glance in [glance for glance in glances if glance.fits][:LAYOUTS_TRIED]:
            fitting = [candidate for candidate in quick_estimates(question, glance.plan, untried) if candidate.fits]
            for candidate in fitting:
                method = candidate.plan.method
                needed = tokens_needed(question, method, replicas)
                steps = needed.tokens / question.batch_tokens
                rank = (
                    needed.unknown is not None,
                    time_with_failures_s(question, candidate.plan, candidate.step_s, steps),
                )
                if method.name not in best or rank < best[method.name][0]:
                    best[method.name] = rank, candidate.plan
            placed = {candidate.plan.method.name for candidate in fitting}
            if not (untried := [untried_method for untried_method in untried if untried_method.name not in placed]):
                break
    plans += [plan for _, plan in best.values()]
    refused.sort(key=lambda glance: glance.memory_bytes)
    too_large = [_too_large(question, *large[count]) for count in sorted(large) if count not in by_replicas]
    return plans + [glance.plan for glance in refused[:REFUSED_KEPT]], too_large[:REFUSED_KEPT] + _undivided(question)


def least_bytes(question: AdviceQuestion, layout: Layout, method: MethodBase) -> float:
    """Return the least memory of a worker without activations: ``16 N / w``, with all states sharded as far as can be.

    In a pipeline, which does not gather weights for each micro-batch, it is ``6 N / (t k e) + 12 N / w``.

    Args:
        question: question with the model.
        layout: layout of a replica of w workers.
        method: data parallelism shards over all replicas, so that w is P, if a replica has no copies.
    """
    alone = method.sends_in_backward and layout.sharers == 1
    nbytes = 16.0 * question.model.parameters / (question.workers if alone else layout.workers)
    if layout.pipeline == 1:
        return nbytes
    return nbytes * 12 / 16 + 6.0 * question.model.parameters / (layout.tensor * layout.pipeline * layout.expert)


def _too_large(question: AdviceQuestion, nbytes: float, layout: Layout) -> PlanRow:
    why = f"memory: {format_bytes(nbytes)} at least of {format_bytes(usable_bytes(question.hardware))}"
    replicas = layout.replicas(question.workers)
    return refused_row("any with replicas", f"{replicas} replicas of {layout.describe()}", why) | {
        "memory_bytes": nbytes
    }


def _parallel(question: AdviceQuestion, glances: Sequence[QuickEstimate]) -> list[TrainingPlan]:
    """Return the fastest data-parallel plan for each kind of traffic over the outermost level.

    The traffic is that of gradients, of a pipeline, or of finer parallelism; the plan of gradients also comes without
    overlap.
    """
    fitting = sorted((glance for glance in glances if glance.fits), key=lambda glance: glance.step_s)
    by_outermost: dict[str, TrainingPlan] = {}
    for glance in fitting:
        by_outermost.setdefault(outermost(question, glance.plan), glance.plan)
    return [
        *by_outermost.values(),
        *(replace(plan, overlap="none") for name, plan in by_outermost.items() if name == "gradients"),
    ]


def outermost(question: AdviceQuestion, plan: TrainingPlan) -> str:
    """Return the finest kind of a layout's parallelism that crosses the network's outermost level."""
    layout, inner_sizes = plan.layout, unit_sizes(question.network, question.workers)[:-1]
    inside = inner_sizes[-1] if inner_sizes else 1
    groups = {
        "tensor": layout.tensor_group,
        "context": layout.context_group,
        "experts": layout.expert_group,
        "a pipeline": layout.pipeline_group,
    }
    return next((name for name, group in groups.items() if group[-1] >= inside), "gradients")


def _undivided(question: AdviceQuestion) -> list[PlanRow]:
    """Return rows of layouts that do not divide evenly, the first for each reason."""
    by_reason: dict[str, PlanRow] = {}
    for layout, why in refused_layouts(question):
        by_reason.setdefault(why, refused_row("any method", layout.describe(), why))
    return list(by_reason.values())[:REFUSED_KEPT]
