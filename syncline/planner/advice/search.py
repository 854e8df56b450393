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
from syncline.planner.projection.pricing import PriceCache
from syncline.units import format_bytes

LAYOUTS_TRIED = 3
"""Number of layouts to try per number of replicas, the fastest first; a method takes the first that it fits into."""

REFUSED_KEPT = 6
"""Limit on the reported plans that do not fit; they need the least memory for their number of replicas."""


class QuickEstimate(NamedTuple):
    """The step time and the memory of a plan, without bounds.

    Attributes:
        plan: the plan.
        step_s: seconds of a step; infinite if it has no closed form, or does not fit.
        fits: whether the plan fits into a worker's memory; True if the memory is unknown.
        memory_bytes: memory of a worker.
        recomputes: whether the backward pass recomputes layers.
    """

    plan: TrainingPlan
    step_s: float
    fits: bool
    memory_bytes: float
    recomputes: bool


def quick_estimates(question: AdviceQuestion, plan: TrainingPlan, methods: Sequence[MethodBase]) -> list[QuickEstimate]:
    """Return the step of each method in a plan's setting, without bounds; invalid methods are left out."""
    try:
        prepared = ProjectionPlan([specs_of(question, [plan], methods)])
    except SpecError:
        if len(methods) == 1:
            return []
        # Methods that refuse the number of replicas are priced one by one, all others at once; if there are none of
        # these or none of those, each method is priced alone.
        replicas = plan.layout.replicas(question.workers)
        serving = [method for method in methods if not _refuses(method, replicas)]
        refusing = [method for method in methods if not any(method is candidate for candidate in serving)]
        method_lists = [[method] for method in methods]
        if serving and refusing:
            method_lists = [serving, *([method] for method in refusing)]
        order = {id(method): index for index, method in enumerate(methods)}
        estimates = []
        for method_list in method_lists:
            estimates += quick_estimates(question, plan, method_list)
        return sorted(estimates, key=lambda estimate: order[id(estimate.plan.method)])
    estimates = []
    cache: PriceCache = {}
    network = plan.on(question.network, question.workers)
    for index, method in enumerate(methods):
        memory_plan = prepared.memory_plans[index]
        fits, seconds = bool(memory_plan.fits.all()), math.inf
        if fits:
            step = prepared.step(index, network, cache=cache)
            _, evaluators = prepared.evaluators(index, network, cache)
            if np.all(evaluators < len(TIME_SOURCES)):
                step_s = float(np.ravel(step.step_time_s)[0])
                seconds = math.inf if math.isnan(step_s) else step_s
        memory_bytes = float(np.max(memory_plan.memory.total_bytes))
        recomputes = memory_plan.policy(0).most_recomputed > 0
        estimates.append(QuickEstimate(replace(plan, method=method), seconds, fits, memory_bytes, recomputes))
    return estimates


def _refuses(method: MethodBase, replicas: int) -> bool:
    """Return whether a method refuses to serve so many replicas with one vector, and so probably with any tensors."""
    try:
        list(method.exchanges(1_000_000, replicas))
    except SpecError:
        return True
    return False


def fastest_estimates(question: AdviceQuestion, estimates: Sequence[QuickEstimate]) -> list[QuickEstimate]:
    """Return the estimates that fit, the fastest first.

    Of the first `LAYOUTS_TRIED`, those that recompute all layers give way to the same plan with as few recomputed
    layers as let a step fit, if that is faster.
    """
    fitting = sorted((estimate for estimate in estimates if estimate.fits), key=_step_s)
    for index, estimate in enumerate(fitting[:LAYOUTS_TRIED]):
        if estimate.recomputes:
            plan = replace(estimate.plan, recomputed_layers="fewest")
            fitting[index] = min([estimate, *quick_estimates(question, plan, [plan.method])], key=_step_s)
    return sorted(fitting, key=_step_s)


def _step_s(estimate: QuickEstimate) -> float:
    """Return the seconds of a plan's step, as a sort key."""
    return estimate.step_s


def search_plans(question: AdviceQuestion) -> tuple[list[TrainingPlan], list[PlanRow]]:
    """Return the plans to price with bounds, and rows of layouts that do not fit or do not divide evenly.

    The search first prices data parallelism and one method with replicas in every layout. For each number of replicas a
    method takes the fastest layout that it fits into. It then takes the number of replicas that is fastest to equal
    loss; plans of known loss precede others.
    """
    methods = question.methods or candidate_methods(question.periods)
    replica_methods = [method for method in methods if not method.sends_in_backward]
    layouts = _estimate_layouts(question, [method for method in methods if method.sends_in_backward], replica_methods)
    plans = _fastest_parallel(question, layouts.parallel)
    plans += _fastest_with_replicas(question, replica_methods, layouts.by_replicas)

    # Plans that do not fit: the one that needs the least memory, for data parallelism and for each number of replicas.
    unfit = sorted((estimate for estimate in layouts.parallel if not estimate.fits), key=_memory)[:1]
    for estimates in layouts.by_replicas.values():
        smallest = min(sorted(estimates, key=_step_s), key=_memory)
        if not smallest.fits:
            unfit.append(smallest)
    plans += [estimate.plan for estimate in sorted(unfit, key=_memory)[:REFUSED_KEPT]]

    memory_rows = []
    limit_bytes = usable_bytes(question.hardware)
    for replicas, (nbytes, layout) in sorted(layouts.too_large.items(), key=lambda item: item[0]):
        if replicas not in layouts.by_replicas:
            reason = f"memory: {format_bytes(nbytes)} at least of {format_bytes(limit_bytes)}"
            row = refused_row("any with replicas", f"{replicas} replicas of {layout.describe()}", reason)
            memory_rows.append(row | {"memory_bytes": nbytes})
    row_by_reason: dict[str, PlanRow] = {}
    for layout, reason in refused_layouts(question):
        row_by_reason.setdefault(reason, refused_row("any method", layout.describe(), reason))
    return plans, memory_rows[:REFUSED_KEPT] + list(row_by_reason.values())[:REFUSED_KEPT]


class LayoutEstimates(NamedTuple):
    """Estimates of one plan or a few in every layout.

    Attributes:
        parallel: estimates of data parallelism.
        by_replicas: by number of replicas, the estimates of one method with replicas.
        too_large: by number of replicas, the least memory in bytes of layouts that are too large, and its layout.
    """

    parallel: list[QuickEstimate]
    by_replicas: dict[int, list[QuickEstimate]]
    too_large: dict[int, tuple[float, Layout]]


def _estimate_layouts(
    question: AdviceQuestion, backward_methods: Sequence[MethodBase], replica_methods: Sequence[MethodBase]
) -> LayoutEstimates:
    """Estimate data parallelism and the first method with replicas in every layout that the question allows."""
    limit_bytes = usable_bytes(question.hardware)
    result = LayoutEstimates(parallel=[], by_replicas={}, too_large={})
    for layout in candidate_layouts(question):
        replicas = layout.replicas(question.workers)
        fitting = [method for method in backward_methods if least_bytes(question, layout, method) <= limit_bytes]
        if replicas > 1 and replica_methods:
            nbytes = least_bytes(question, layout, replica_methods[0])
            if nbytes <= limit_bytes:
                fitting.append(replica_methods[0])
            elif replicas not in result.too_large or nbytes < result.too_large[replicas][0]:
                result.too_large[replicas] = nbytes, layout
        if not fitting:
            continue
        for placement in placements_of(question.network, layout, question.workers):
            for estimate in quick_estimates(question, TrainingPlan(fitting[0], layout, placement=placement), fitting):
                if estimate.plan.method.sends_in_backward:
                    result.parallel.append(estimate)
                else:
                    result.by_replicas.setdefault(replicas, []).append(estimate)
    return result


def _fastest_with_replicas(
    question: AdviceQuestion, methods: Sequence[MethodBase], by_replicas: dict[int, list[QuickEstimate]]
) -> list[TrainingPlan]:
    """Return each method's plan with the number of replicas that is fastest to equal loss.

    For each number of replicas a method takes the fastest layout of another method that it fits into, too.
    """
    best: dict[str, tuple[tuple[bool, float], TrainingPlan]] = {}
    for replicas, estimates in by_replicas.items():
        unplaced = list(methods)
        for layout_estimate in fastest_estimates(question, estimates)[:LAYOUTS_TRIED]:
            if not unplaced:
                break
            for estimate in quick_estimates(question, layout_estimate.plan, unplaced):
                if not estimate.fits:
                    continue
                method = estimate.plan.method
                needed_tokens = tokens_needed(question, method, replicas)
                steps = needed_tokens.tokens / question.batch_tokens
                time_s = time_with_failures_s(question, estimate.plan, estimate.step_s, steps)
                rank = needed_tokens.unknown is not None, time_s  # plans of known loss precede others
                if method.name not in best or rank < best[method.name][0]:
                    best[method.name] = rank, estimate.plan
                unplaced = [candidate for candidate in unplaced if candidate.name != method.name]
    return [plan for _, plan in best.values()]


def _memory(estimate: QuickEstimate) -> float:
    """Return the bytes of a worker's memory in a plan, as a sort key."""
    return estimate.memory_bytes


def least_bytes(question: AdviceQuestion, layout: Layout, method: MethodBase) -> float:
    """Return the least memory of a worker without activations: ``16 N / w``, with all states sharded as far as can be.

    In a pipeline, which does not gather weights for each micro-batch, it is ``6 N / (k max(t, f e)) + 12 N / w``.

    Args:
        question: question with the model.
        layout: layout of a replica of w workers.
        method: data parallelism shards over all replicas, so that w is P, if a replica has no copies.
    """
    has_no_replica = method.sends_in_backward and layout.sharers == 1
    nbytes = 16.0 * question.model.parameters / (question.workers if has_no_replica else layout.workers)
    if layout.pipeline == 1:
        return nbytes
    parts = layout.pipeline * max(layout.tensor, layout.expert_ways * layout.expert)
    return nbytes * 12 / 16 + 6.0 * question.model.parameters / parts


def _fastest_parallel(question: AdviceQuestion, estimates: Sequence[QuickEstimate]) -> list[TrainingPlan]:
    """Return the fastest data-parallel plan for each kind of traffic over the outermost level.

    The traffic is that of gradients, of a pipeline, or of finer parallelism; the plan of gradients also comes without
    overlap.
    """
    estimates_by_traffic: dict[str, list[QuickEstimate]] = {}
    for estimate in sorted(estimates, key=_step_s):
        if estimate.fits:
            estimates_by_traffic.setdefault(outermost(question, estimate.plan), []).append(estimate)
    plan_by_traffic = {
        traffic: fastest_estimates(question, estimates)[0].plan for traffic, estimates in estimates_by_traffic.items()
    }
    plans = list(plan_by_traffic.values())
    if "gradients" in plan_by_traffic:
        plans.append(replace(plan_by_traffic["gradients"], overlap="none"))
    return plans


def outermost(question: AdviceQuestion, plan: TrainingPlan) -> str:
    """Return the finest kind of a plan's parallelism whose groups extend over several units of the outermost level."""
    layout = plan.layout
    inner_sizes = unit_sizes(question.network, question.workers)[:-1]
    unit_size = inner_sizes[-1] if inner_sizes else 1
    groups = {
        "tensor": layout.tensor_group,
        "context": layout.context_group,
        "experts": layout.expert_group,
        "a pipeline": layout.pipeline_group,
    }
    for name, group in groups.items():
        if group[-1] >= unit_size:  # the last rank is in another unit than the first, which is rank 0
            return name
    return "gradients"
