"""The search over compositions: all layouts first, by steps without bounds, then all methods in the best layouts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import NamedTuple

import numpy as np

from syncline.costmodel.collectives.prices import TIME_SOURCES
from syncline.costmodel.layouts.groups import workers_of_units
from syncline.costmodel.layouts.layout import Layout, placements_of
from syncline.costmodel.layouts.memory import usable_bytes
from syncline.errors import SpecError
from syncline.methods import MethodBase
from syncline.planner.advice.equal_loss import tokens_needed
from syncline.planner.advice.plan_costs import (
    PlanRow,
    indices_by_value,
    lower_bound_s,
    refused_row,
    time_with_failures_s,
)
from syncline.planner.advice.plans import (
    TrainingPlan,
    candidate_layouts,
    candidate_methods,
    refused_layouts,
    spec_of_setting,
)
from syncline.planner.advice.question import AdviceQuestion
from syncline.planner.projection.memory_plan import MemoryPlan
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.pricing import first_value
from syncline.units import format_bytes

LAYOUTS_TRIED = 3
"""Number of layouts to try per number of replicas, the fastest first; a method takes the first that it fits into."""

REFUSED_KEPT = 6
"""Limit on the reported plans that do not fit; they need the least memory for their number of replicas."""


class PlanSetting:
    """A plan's setting, with an estimate of each method in it; the estimates share prices."""

    def __init__(self, question: AdviceQuestion, plan: TrainingPlan, methods: Sequence[MethodBase]) -> None:
        self.question, self.plan, self.methods = question, plan, methods
        self.prepared = ProjectionPlan([spec_of_setting(question, plan, methods)], lazy=True)
        self.network = plan.on(question.network, question.workers)
        self.cache = question.price_cache(self.network)
        self.estimates = [QuickEstimate(self, index) for index in range(len(methods))]  # compute nothing yet


@dataclass(frozen=True, eq=False)
class QuickEstimate:
    """The memory of a plan, and its step time without bounds of uncertainty, each computed when first asked for.

    Args:
        setting: the plan's setting.
        index: index of the plan's method among those of the setting.
    """

    setting: PlanSetting
    index: int

    @property
    def plan(self) -> TrainingPlan:
        """Return the training plan whose time is estimated."""
        return replace(self.setting.plan, method=self.setting.methods[self.index])

    @property
    def memory_plan(self) -> MemoryPlan:
        """Return the plan's memory."""
        return self.setting.prepared.method_plans[self.index].memory_plan

    @cached_property
    def is_refused(self) -> bool:
        """Return whether the method refuses the plan's setting, for example its number of replicas."""
        try:
            _ = self.memory_plan
        except SpecError:
            return True
        return False

    @cached_property
    def fits(self) -> bool:
        """Return whether the plan fits into a worker's memory; True if the memory is unknown."""
        return not self.is_refused and bool(self.memory_plan.fits.all())

    @cached_property
    def memory_bytes(self) -> float:
        """Return the memory of a worker."""
        return float(np.max(self.memory_plan.memory.total_bytes))

    @property
    def recomputes(self) -> bool:
        """Return whether the backward pass recomputes layers."""
        return self.memory_plan.policy(0).most_recomputed > 0

    def lower_bounds_s(self) -> Iterator[float]:
        """Yield lower bounds of the seconds of a step, the cheapest to compute first; infinity for an unknown step.

        The bounds are the seconds inside a replica, the seconds of some calls, and the seconds without rare exchanges.
        """
        prepared, network, cache = self.setting.prepared, self.setting.network, self.setting.cache
        yield lower_bound_s(prepared.replica_times(self.index, network, cache).step_s)
        yield lower_bound_s(prepared.least_network_s(self.index, network, cache))
        yield lower_bound_s(prepared.least_busy_s(self.index, network, cache))

    @cached_property
    def step_s(self) -> float:
        """Return the seconds of a step; infinite if it has no closed form, or does not fit."""
        if not self.fits:
            return math.inf
        prepared, network, cache = self.setting.prepared, self.setting.network, self.setting.cache
        step = prepared.step(self.index, network, cache=cache)
        _, evaluator_codes = prepared.evaluators(self.index, network, cache)
        step_s = first_value(step.step_time_s)
        has_times = np.all(evaluator_codes < len(TIME_SOURCES))  # larger codes are reasons why a time is unknown
        return step_s if has_times and not math.isnan(step_s) else math.inf

    def bounds_then_s(self) -> Iterator[tuple[float, bool]]:
        """Yield lower bounds of a step's seconds with False, then the seconds themselves with True."""
        for bound_s in self.lower_bounds_s():
            yield bound_s, math.isinf(bound_s)  # an infinite bound is the value itself: the step is unknown
        yield self.step_s, True


def fastest_estimates(estimates: Sequence[QuickEstimate], count: int = LAYOUTS_TRIED) -> Iterator[QuickEstimate]:
    """Yield the ``count`` fastest of the estimates that fit, the fastest first; at most `LAYOUTS_TRIED`.

    A plan that recomputes all layers may be faster if it recomputes only the fewest with which a step fits into
    memory. Those of the `LAYOUTS_TRIED` fastest plans are estimated in both ways, and the faster way counts.
    """
    fitting = [estimate for estimate in estimates if estimate.fits]
    indices = indices_by_value([estimate.bounds_then_s() for estimate in fitting])
    if not any(estimate.recomputes for estimate in fitting):
        yield from (fitting[index] for index in itertools.islice(indices, count))
        return
    fastest = [fitting[index] for index in itertools.islice(indices, LAYOUTS_TRIED)]
    for number, estimate in enumerate(fastest):
        if estimate.recomputes:
            setting, plan = estimate.setting, replace(estimate.setting.plan, recomputed_layers="fewest")
            with_fewest = PlanSetting(setting.question, plan, setting.methods)
            fastest[number] = min(estimate, with_fewest.estimates[estimate.index], key=attrgetter("step_s"))
    yield from sorted(fastest, key=attrgetter("step_s"))[:count]


def search_plans(question: AdviceQuestion) -> tuple[list[TrainingPlan], list[PlanRow]]:
    """Search for the fastest training plans, and return them with table rows of layouts that are impossible.

    The search first prices data parallelism and one method with replicas in every layout. For each number of replicas a
    method takes the fastest layout that it fits into. It then takes the number of replicas that is fastest to equal
    loss; plans of known loss precede others.
    """
    methods = question.methods or candidate_methods(question.periods)
    layouts = _estimate_layouts(question, methods)
    plans = _fastest_data_parallel(question, layouts.data_parallel)
    plans += _fastest_with_replicas(question, methods, layouts.by_replicas)

    # Of the plans that do not fit, keep the smallest of data parallelism and of each number of replicas.
    unfit_data_parallel = [estimate for estimate in layouts.data_parallel if not estimate.fits]
    unfit = sorted(unfit_data_parallel, key=attrgetter("memory_bytes"))[:1]
    for estimates in layouts.by_replicas.values():
        smallest = min(estimates, key=attrgetter("memory_bytes"))
        if not smallest.fits:
            unfit.append(smallest)
    plans += [estimate.plan for estimate in sorted(unfit, key=attrgetter("memory_bytes"))[:REFUSED_KEPT]]

    memory_rows = []
    limit_bytes = usable_bytes(question.hardware)
    for replicas, (nbytes, layout) in sorted(layouts.too_large.items()):
        if replicas not in layouts.by_replicas:
            reason = f"memory: {format_bytes(nbytes)} at least of {format_bytes(limit_bytes)}"
            row = refused_row("any with replicas", f"{replicas} replicas of {layout.describe()}", reason)
            memory_rows.append(row | {"memory_bytes": nbytes})
    row_by_reason: dict[str, PlanRow] = {}
    for layout, reason in refused_layouts(question):
        row_by_reason.setdefault(reason, refused_row("any method", layout.describe(), reason))
    return plans, memory_rows[:REFUSED_KEPT] + list(row_by_reason.values())[:REFUSED_KEPT]


class LayoutEstimates(NamedTuple):
    """Estimates of data parallelism and of one method with replicas, in every layout.

    Attributes:
        data_parallel: estimates of data parallelism.
        by_replicas: estimates of the method with replicas, by the number of replicas.
        too_large: least memory of that method in bytes, with its layout, by the number of replicas; only where the
            memory exceeds a worker's.
    """

    data_parallel: list[QuickEstimate]
    by_replicas: dict[int, list[QuickEstimate]]
    too_large: dict[int, tuple[float, Layout]]


def _estimate_layouts(question: AdviceQuestion, methods: Sequence[MethodBase]) -> LayoutEstimates:
    """Estimate data parallelism and the first method with replicas in every layout that the question allows."""
    limit_bytes = usable_bytes(question.hardware)
    result = LayoutEstimates(data_parallel=[], by_replicas={}, too_large={})
    # Data parallelism sends gradients in the backward pass; methods with replicas do not.
    parallel_indices = [index for index, method in enumerate(methods) if method.sends_in_backward]
    first_with_replicas = [index for index, method in enumerate(methods) if not method.sends_in_backward][:1]
    for layout in candidate_layouts(question):
        replicas = layout.replicas(question.workers)
        fitting = []
        # A method with replicas needs at least two.
        for index in parallel_indices + first_with_replicas if replicas > 1 else parallel_indices:
            nbytes = least_bytes(question, layout, methods[index])
            if nbytes <= limit_bytes:
                fitting.append(index)
            elif index in first_with_replicas:
                smallest = result.too_large.get(replicas, (math.inf, layout))
                result.too_large[replicas] = min(smallest, (nbytes, layout), key=itemgetter(0))
        if not fitting:
            continue
        for placement in placements_of(question.network, layout, question.workers):
            try:  # `methods[0]` only fills the plan: the setting estimates each method
                setting = PlanSetting(question, TrainingPlan(methods[0], layout, placement=placement), methods)
            except SpecError:  # the model refuses the layout
                continue
            estimates = [setting.estimates[index] for index in fitting]
            for estimate in estimates:
                if estimate.is_refused:
                    continue
                if estimate.index in parallel_indices:
                    result.data_parallel.append(estimate)
                else:
                    result.by_replicas.setdefault(replicas, []).append(estimate)
    return result


class _ReplicaLayouts:
    """The layouts with one number of replicas in which one method is the fastest, and estimates of all methods in them.

    Args:
        estimates: estimates of one method in all layouts.
    """

    def __init__(self, question: AdviceQuestion, replicas: int, estimates: Sequence[QuickEstimate]) -> None:
        self.question, self.replicas, self.estimates = question, replicas, estimates
        self._further_layouts = fastest_estimates(estimates)
        self._layouts: list[QuickEstimate] = []

    def layouts(self) -> Iterator[QuickEstimate]:
        """Yield the fastest of ``estimates``, the fastest first; those of earlier calls are kept."""
        yield from self._layouts
        for layout in self._further_layouts:
            self._layouts.append(layout)
            yield layout

    def first_fitting(self, method_index: int) -> tuple[int, QuickEstimate] | None:
        """Return the index of the fastest layout that a method fits into, and its estimate there; None: no layout."""
        for index, layout in enumerate(self.layouts()):
            estimate = layout.setting.estimates[method_index]
            if estimate.fits:
                return index, estimate
            if estimate.is_refused:
                fitting_layouts = [other for other in self.estimates if other.fits]
                if all(other.setting.estimates[method_index].is_refused for other in fitting_layouts):
                    break  # no layout accepts the method
        return None

    def bounds_then_rank(self, method: MethodBase, method_index: int) -> Iterator[tuple[tuple[bool, float], bool]]:
        """Yield lower bounds of a method's rank with False, then the rank with True, for this number of replicas.

        The rank has two items: whether the loss is unknown, and the seconds to equal loss. The lowest rank is best. A
        method that fits into no layout has no rank, only a bound.
        """
        needed = tokens_needed(self.question, method, self.replicas)
        is_unknown, steps = needed.unknown is not None, needed.tokens / self.question.batch_tokens
        yield (is_unknown, 0.0), False
        fitting = self.first_fitting(method_index)
        if fitting is None:
            return
        _, estimate = fitting
        for step_or_bound_s, is_step in estimate.bounds_then_s():
            seconds = steps * step_or_bound_s
            if is_step:
                seconds = time_with_failures_s(self.question, estimate.plan, step_or_bound_s, steps)
            yield (is_unknown, seconds), is_step


def _fastest_with_replicas(
    question: AdviceQuestion, methods: Sequence[MethodBase], by_replicas: Mapping[int, Sequence[QuickEstimate]]
) -> list[TrainingPlan]:
    """Return for each method with replicas the plan that reaches equal loss fastest.

    Args:
        by_replicas: estimates of the first method with replicas in all layouts, by the number of replicas.
    """
    choices = [_ReplicaLayouts(question, replicas, estimates) for replicas, estimates in by_replicas.items()]
    plan_by_order: dict[tuple[int, int, int], TrainingPlan] = {}
    for method_index, method in enumerate(methods):
        if method.sends_in_backward:
            continue
        best = next(indices_by_value([choice.bounds_then_rank(method, method_index) for choice in choices]), None)
        if best is None:  # the method fits into no layout
            continue
        fitting = choices[best].first_fitting(method_index)
        assert fitting is not None
        _, best_estimate = fitting
        # Sort the plans by the first number of replicas and the first layout into which the method fits.
        for choice_index, choice in enumerate(choices):
            fitting = choice.first_fitting(method_index)
            if fitting is not None:
                layout_index, _ = fitting
                plan_by_order[choice_index, layout_index, method_index] = best_estimate.plan
                break
    return [plan for _, plan in sorted(plan_by_order.items(), key=itemgetter(0))]


def least_bytes(question: AdviceQuestion, layout: Layout, method: MethodBase) -> float:
    """Return the least memory of a worker without activations, in bytes.

    Fully sharded states of N parameters need ``16 N / w`` bytes on w workers: 12 of the optimizer, 4 of the gradient. A
    pipeline shards only the optimizer's states: it needs ``6 N / (k max(t, e)) + 12 N / w`` with 16-bit weights, k
    stages, t workers per matrix, and e workers that divide the experts.

    Args:
        question: question with the model of N parameters.
        layout: layout of a replica of w workers.
        method: the method; for data parallelism that can shard over all workers, w is the number of all workers.
    """
    shards_over_all = method.sends_in_backward and layout.gradient_workers == 1
    nbytes = 16.0 * question.model.parameters / (question.workers if shards_over_all else layout.workers)
    if layout.pipeline == 1:
        return nbytes
    parts = layout.pipeline * max(layout.tensor, layout.expert_tensor_workers * layout.expert)
    return nbytes * 12 / 16 + 6.0 * question.model.parameters / parts


def _fastest_data_parallel(question: AdviceQuestion, estimates: Sequence[QuickEstimate]) -> list[TrainingPlan]:
    """Return the fastest data-parallel plan for each kind of traffic between the largest units, such as sites.

    The kinds are gradients, a pipeline and finer parallelism. For gradients, return the plan also without overlap.
    """
    estimates_by_traffic: dict[str, list[QuickEstimate]] = {}
    for estimate in estimates:
        if estimate.fits:
            estimates_by_traffic.setdefault(finest_traffic_between_units(question, estimate.plan), []).append(estimate)
    fastest = {}  # these estimates recompute all layers, where a step does not fit otherwise
    for name, alike in estimates_by_traffic.items():
        fastest_index = next(indices_by_value([estimate.bounds_then_s() for estimate in alike]))
        fastest[name] = alike[fastest_index]
    names = sorted(fastest, key=lambda name: (fastest[name].step_s, estimates.index(fastest[name])))
    plans = [next(fastest_estimates(estimates_by_traffic[name], count=1)).plan for name in names]
    if "gradients" in names:
        plans.append(replace(plans[names.index("gradients")], overlap="none"))
    return plans


def finest_traffic_between_units(question: AdviceQuestion, plan: TrainingPlan) -> str:
    """Return the first kind of traffic, from tensor parallelism to gradients, that leaves a network's largest units."""
    layout = plan.layout
    # The outermost level has one unit, of all workers; the level below it has the largest units.
    *_, unit_workers, _ = 1, *(workers_of_units(question.network, question.workers) or (question.workers,))
    groups = {  # the finest first
        "tensor": layout.tensor_group,
        "context": layout.context_group,
        "experts": layout.expert_group,
        "a pipeline": layout.pipeline_group,
    }
    for name, group in groups.items():
        if group[-1] >= unit_workers:  # the group begins at rank 0 and reaches beyond the first unit
            return name
    return "gradients"
