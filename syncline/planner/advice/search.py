"""The search over compositions: all layouts first, by steps without bounds, then all methods in the best layouts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from syncline.costmodel import Network
from syncline.costmodel.collectives.prices import TIME_SOURCES
from syncline.costmodel.layouts.layout import Layout, placements_of
from syncline.costmodel.layouts.memory import usable_bytes
from syncline.costmodel.numerics.arrays import FloatOrArray
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
from syncline.planner.projection.memory_plan import MemoryPlan
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.pricing import PriceCache
from syncline.units import format_bytes

LAYOUTS_TRIED = 3
"""Number of layouts to try per number of replicas, the fastest first; a method takes the first that it fits into."""

REFUSED_KEPT = 6
"""Limit on the reported plans that do not fit; they need the least memory for their number of replicas."""


@dataclass(frozen=True, eq=False)
class QuickEstimate:
    """The memory of a plan, and its step time, without bounds, which is computed when it is first asked for.

    Args:
        plan: the plan.
        prepared: projection of the plan's setting.
        index: index of the plan's method in the projection.
        network: network with the ranks where the plan puts them.
        cache: prices of collectives on this network.
    """

    plan: TrainingPlan
    prepared: ProjectionPlan
    index: int
    network: Network
    cache: PriceCache

    @property
    def memory_plan(self) -> MemoryPlan:
        """Return the plan's memory."""
        return self.prepared.memory_plans[self.index]

    @cached_property
    def fits(self) -> bool:
        """Return whether the plan fits into a worker's memory; True if the memory is unknown."""
        return bool(self.memory_plan.fits.all())

    @cached_property
    def memory_bytes(self) -> float:
        """Return the memory of a worker."""
        return float(np.max(self.memory_plan.memory.total_bytes))

    @property
    def recomputes(self) -> bool:
        """Return whether the backward pass recomputes layers."""
        return self.memory_plan.policy(0).most_recomputed > 0

    @cached_property
    def least_s(self) -> float:
        """Return a lower bound of the step: its seconds inside a replica, or of some calls; 0 if they are unknown."""
        network_s = self.prepared.least_network_s(self.index, self.network, self.cache)
        if math.isnan(network_s):
            return math.inf
        inside_s = self.prepared.replica_times(self.index, self.network, self.cache).step_s
        return max(_lower_bound_s(inside_s), _lower_bound_s(network_s))

    @cached_property
    def busy_s(self) -> float:
        """Return a closer bound of the step: all its seconds without the method's exchanges of rare steps."""
        return _lower_bound_s(self.prepared.schedule(self.index, self.network, self.cache).busy_s)

    @cached_property
    def step_s(self) -> float:
        """Return the seconds of a step; infinite if it has no closed form, or does not fit."""
        if not self.fits or math.isinf(self.least_s):
            return math.inf
        step = self.prepared.step(self.index, self.network, cache=self.cache)
        _, evaluators = self.prepared.evaluators(self.index, self.network, self.cache)
        step_s = float(np.ravel(step.step_time_s)[0])
        is_known = np.all(evaluators < len(TIME_SOURCES)) and not math.isnan(step_s)
        return step_s if is_known else math.inf


def _lower_bound_s(seconds: FloatOrArray) -> float:
    """Return seconds, less what rounding may add, as a lower bound of those of a step; 0 if they are unknown."""
    least_s = float(np.ravel(seconds)[0])
    return 0.0 if math.isnan(least_s) else least_s * (1 - ROUNDING)


ROUNDING = 1e-9
"""Relative difference, above that by rounding, from which a lower bound that is longer rules a plan out."""


def quick_estimates(question: AdviceQuestion, plan: TrainingPlan, methods: Sequence[MethodBase]) -> list[QuickEstimate]:
    """Return an estimate of each method in a plan's setting; methods that it refuses are left out."""
    # Methods that refuse the number of replicas are projected one by one, all others at once; if there are none of
    # these, and one is refused for another reason, each method is projected alone.
    replicas = plan.layout.replicas(question.workers)
    serving = [method for method in methods if not _refuses(method, replicas)]
    if serving and len(serving) < len(methods):
        refusing = [method for method in methods if not any(method is candidate for candidate in serving)]
        return _estimates_in_parts(question, plan, methods, [serving, *([method] for method in refusing)])
    try:
        prepared = ProjectionPlan([specs_of(question, [plan], methods)])
    except SpecError:
        if len(methods) == 1:
            return []
        return _estimates_in_parts(question, plan, methods, [[method] for method in methods])
    network = plan.on(question.network, question.workers)
    cache = question.price_cache(network)
    return [
        QuickEstimate(replace(plan, method=method), prepared, index, network, cache)
        for index, method in enumerate(methods)
    ]


def _estimates_in_parts(
    question: AdviceQuestion, plan: TrainingPlan, methods: Sequence[MethodBase], parts: Sequence[Sequence[MethodBase]]
) -> list[QuickEstimate]:
    """Return the estimates of methods that are projected in parts, in the order of the methods."""
    order = {id(method): index for index, method in enumerate(methods)}
    estimates = []
    for part in parts:
        estimates += quick_estimates(question, plan, part)
    return sorted(estimates, key=lambda estimate: order[id(estimate.plan.method)])


@lru_cache(maxsize=4096)
def _refuses(method: MethodBase, replicas: int) -> bool:
    """Return whether a method cannot synchronise this number of replicas of a single vector."""
    try:
        list(method.exchanges(1_000_000, replicas))  # a generator raises its error only when it runs
    except SpecError:
        return True
    return False


def fastest_estimates(
    question: AdviceQuestion, estimates: Sequence[QuickEstimate], count: int = LAYOUTS_TRIED
) -> list[QuickEstimate]:
    """Return the ``count`` fastest of the estimates that fit, the fastest first.

    Of the first `LAYOUTS_TRIED`, those that recompute all layers give way to the same plan with as few recomputed
    layers as let a step fit, if that is faster.
    """
    fitting = [estimate for estimate in estimates if estimate.fits]
    tried = LAYOUTS_TRIED if any(estimate.recomputes for estimate in fitting) else count
    fastest = _fastest(fitting, tried)
    for index, estimate in enumerate(fastest):
        if estimate.recomputes:
            plan = replace(estimate.plan, recomputed_layers="fewest")
            fastest[index] = min([estimate, *quick_estimates(question, plan, [plan.method])], key=_step_s)
    return sorted(fastest, key=_step_s)[:count]


def _fastest(estimates: Sequence[QuickEstimate], count: int) -> list[QuickEstimate]:
    """Return the first ``count`` estimates by step time, without the steps of those that cannot be among them."""
    fastest: list[tuple[float, int]] = []  # seconds and index
    for index in sorted(range(len(estimates)), key=lambda index: estimates[index].least_s):
        # Later estimates have even higher lower bounds, so none of them can be among the fastest.
        if len(fastest) == count and estimates[index].least_s > fastest[-1][0]:
            break
        fastest = sorted([*fastest, (estimates[index].step_s, index)])[:count]
    return [estimates[index] for _, index in fastest]


def _step_s(estimate: QuickEstimate) -> float:
    """Return the seconds of a plan's step, as a sort key."""
    return estimate.step_s


def search_plans(question: AdviceQuestion) -> tuple[list[TrainingPlan], list[PlanRow]]:
    """Search for the fastest training plans, and return them with table rows of layouts that are impossible.

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
        smallest = min(estimates, key=_memory)
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


class _RankedPlan(NamedTuple):
    """A method's plan with its rank among those of the same method: the lowest is best.

    Attributes:
        rank: whether the loss is unknown, the seconds to equal loss, and the place among equals.
        plan: the plan.
    """

    rank: tuple[bool, float, int]
    plan: TrainingPlan


def _fastest_with_replicas(
    question: AdviceQuestion, methods: Sequence[MethodBase], by_replicas: Mapping[int, Sequence[QuickEstimate]]
) -> list[TrainingPlan]:
    """Return each method's fastest plan to equal loss, in the order in which methods fit into layouts.

    Args:
        question: the question of advice.
        methods: methods with replicas.
        by_replicas: estimates of the first of them in all layouts, by the number of replicas.
    """
    best: dict[str, _RankedPlan] = {}
    first_place: dict[str, tuple[int, int]] = {}
    layouts = {replicas: fastest_estimates(question, estimates) for replicas, estimates in by_replicas.items()}
    place_of = {replicas: place for place, replicas in enumerate(layouts)}
    # Numbers of replicas that are fast come first, so that bounds rule out most plans of the others.
    for replicas in sorted(layouts, key=lambda replicas: layouts[replicas][0].step_s if layouts[replicas] else 0.0):
        unplaced, place = list(methods), place_of[replicas]
        for layout_estimate in layouts[replicas]:
            if not unplaced:
                break
            for estimate in quick_estimates(question, layout_estimate.plan, unplaced):
                if not estimate.fits:
                    continue
                method = estimate.plan.method
                unplaced = [candidate for candidate in unplaced if candidate.name != method.name]
                order = place, len(methods) - len(unplaced)
                first_place[method.name] = min(first_place.get(method.name, order), order)
                needed_tokens = tokens_needed(question, method, replicas)
                is_unknown, steps = needed_tokens.unknown is not None, needed_tokens.tokens / question.batch_tokens
                # A plan whose lower bound is already worse than the method's best needs no exact time.
                if method.name in best and (is_unknown, steps * estimate.busy_s, place) > best[method.name].rank:
                    continue
                time_s = time_with_failures_s(question, estimate.plan, estimate.step_s, steps)
                ranked = _RankedPlan((is_unknown, time_s, place), estimate.plan)
                best[method.name] = min(best.get(method.name, ranked), ranked, key=_rank)
    return [best[name].plan for name in sorted(best, key=lambda name: first_place[name])]


def _rank(ranked: _RankedPlan) -> tuple[bool, float, int]:
    """Return the rank of a plan, as a sort key."""
    return ranked.rank


def _memory(estimate: QuickEstimate) -> float:
    """Return the bytes of a worker's memory in a plan, as a sort key."""
    return estimate.memory_bytes


def least_bytes(question: AdviceQuestion, layout: Layout, method: MethodBase) -> float:
    """Return the least memory of a worker without activations: ``16 N / w``, with all states sharded as far as can be.

    In a pipeline, which does not gather weights for each micro-batch, it is ``6 N / (k max(t, f e)) + 12 N / w`` with
    k stages, t workers per matrix, and experts divided over f e workers.

    Args:
        question: question with the model of N parameters.
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
    """Return the fastest data-parallel plan for each kind of traffic between the largest units, such as sites.

    The traffic is that of gradients, of a pipeline, or of finer parallelism; the plan of gradients also comes without
    overlap.
    """
    estimates_by_traffic: dict[str, list[QuickEstimate]] = {}
    for estimate in estimates:
        if estimate.fits:
            estimates_by_traffic.setdefault(outermost(question, estimate.plan), []).append(estimate)
    place_of = {id(estimate): place for place, estimate in enumerate(estimates)}
    first_of = {name: _fastest(alike, count=1)[0] for name, alike in estimates_by_traffic.items()}
    names = sorted(first_of, key=lambda name: (first_of[name].step_s, place_of[id(first_of[name])]))
    plans = [fastest_estimates(question, estimates_by_traffic[name], count=1)[0].plan for name in names]
    if "gradients" in names:
        plans.append(replace(plans[names.index("gradients")], overlap="none"))
    return plans


def outermost(question: AdviceQuestion, plan: TrainingPlan) -> str:
    """Return the finest kind of parallelism whose groups communicate between the largest units of a network."""
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
