"""The robustness of a ranking: plans that tie with the first, and values at which another plan becomes the first.

Two plans run on the same machines and links, so the errors of computing and communication are the same factors in
both. A ratio of steps is bounded at these factors, each at its bounds, as in `syncline.planner.bounds`. Losses of
one method, period and number of replicas share their error, too; otherwise each ratio to data parallelism has its own
error.

The values are the bandwidth or latency of the outermost link, and the number of workers. The search doubles or halves
the value until another plan is first, and finds the threshold by bisection. Plans, their layouts and the tokens to
equal loss stay fixed. The bounds are those of communication over computing
(`syncline.planner.projection.bounds.threshold_bounds`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from syncline.costmodel import Network
from syncline.costmodel.network.link_groups import outermost_links
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.network_links import scaled
from syncline.errors import SpecError
from syncline.planner.advice.equal_loss import DATA_PARALLEL, tokens_needed
from syncline.planner.advice.plan_costs import PlanRow, indices_by_value, lower_bound_s, time_with_failures_s
from syncline.planner.advice.plans import TrainingPlan
from syncline.planner.advice.question import AdviceQuestion
from syncline.planner.bounds import bound_ratio, combined_bounds
from syncline.planner.projection.bounds import (
    communication_bounds,
    computing_bounds,
    step_time_variants,
    threshold_bounds,
)
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.pricing import PriceCache, first_value
from syncline.planner.projection.training_totals import loss_fit_method


class VariedStep(NamedTuple):
    """Seconds of a plan's step, as predicted, and with computing and communication at their bounds, one at a time.

    Attributes:
        step_s: predicted seconds.
        at_bounds_s: seconds in the order of `syncline.planner.bounds.StepTimesAtBounds`.
    """

    step_s: float
    at_bounds_s: tuple[float, ...]


def varied_step(question: AdviceQuestion, row: PlanRow) -> VariedStep:
    """Return the step time of a plan as predicted, and with computing or communication at each of its bounds."""
    projection, method_index = row["prepared"]
    network = row["plan"].on(question.network, question.workers)
    cache = question.price_cache(network)
    step = projection.step(method_index, network, cache=cache)
    variants = step_time_variants(
        projection, method_index, network, cache, step, computing=computing_bounds(projection),
        communication=communication_bounds(projection, [network]),
    )  # fmt: skip
    at_bounds_s = tuple(first_value(step_s) for step_s in variants)
    return VariedStep(first_value(step.step_time_s), at_bounds_s)


def loss_key(row: PlanRow) -> tuple[Any, ...]:
    """Return a key that is equal for plans whose predicted losses have the same error: method, period and replicas."""
    fit_method = loss_fit_method(row["plan"].method)
    if fit_method == DATA_PARALLEL:
        return (fit_method,)
    return fit_method, row["period"], row["replicas"]


def fastest_by_loss(rows: Sequence[PlanRow]) -> list[PlanRow]:
    """Return all rows of data parallelism, and the fastest other plan for each loss; the rows are the fastest first."""
    seen: set[tuple[Any, ...]] = set()
    distinct = []
    for row in rows:
        key = loss_key(row)
        if row["plan"].method.sends_in_backward or key not in seen:
            distinct.append(row)
        seen.add(key)
    return distinct


def compare_with_first(question: AdviceQuestion, rows: Sequence[PlanRow], limit: int | None = None) -> list[PlanRow]:
    """Return the rows with the ratio of their time to the first row's, the ratio's bounds, and whether the two tie.

    Args:
        rows: rows of one list, the fastest first.
        limit: number of rows to compare; the others have no bounds, and are not tied.
    """
    if not rows:
        return []
    first_step = varied_step(question, rows[0])
    compared_rows = []
    for index, row in enumerate(rows):
        low = high = None
        is_compared = limit is None or index < limit
        if is_compared:
            step = first_step if index == 0 else varied_step(question, row)
            low, high = time_ratio_bounds(rows[0], first_step, row, step)
        tied = is_compared and index > 0 and (low is None or low <= 1)
        ratio = row["time_s"] / rows[0]["time_s"]
        compared_rows.append(row | {"over_first": ratio, "over_first_low": low, "over_first_high": high, "tied": tied})
    return compared_rows


def time_ratio_bounds(
    base: PlanRow, base_step: VariedStep, row: PlanRow, step: VariedStep
) -> tuple[float | None, float | None]:
    """Return the bounds of the ratio of one plan's training time to another plan's; None for an unknown bound."""
    if row is base:
        return 1.0, 1.0
    step_ratio = step.step_s / base_step.step_s
    both_at_bounds = zip(step.at_bounds_s, base_step.at_bounds_s, strict=True)
    ratios_at_bounds = [np.array(step_s / base_step_s) for step_s, base_step_s in both_at_bounds]
    low, high = (float(bound) for bound in combined_bounds(np.array(step_ratio), ratios_at_bounds))
    time_ratio = row["time_s"] / base["time_s"]
    # Tokens add no error if they are set, or if both plans share the error of their tokens.
    if row["loss_unknown"] is not None or loss_key(row) == loss_key(base):
        return time_ratio * low / step_ratio, time_ratio * high / step_ratio

    def bound(step_bound: float, end: str, base_end: str, sign: int) -> float | None:
        """Return a bound of the ratio of the times from a bound of the ratio of the steps and bounds of the tokens."""
        tokens_bound, base_tokens_bound = row[f"tokens_factor_{end}"], base[f"tokens_factor_{base_end}"]
        if tokens_bound is None or base_tokens_bound is None:
            return None
        tokens_ratio = tokens_bound / row["tokens_factor"]
        base_tokens_ratio = base_tokens_bound / base["tokens_factor"]
        factor = bound_ratio(sign, step_bound / step_ratio, tokens_ratio, base_tokens_ratio)
        return None if factor is None else time_ratio * factor

    # The ratio is lowest if the plan needs few tokens and the base plan many.
    return bound(low, "low", base_end="high", sign=-1), bound(high, "high", base_end="low", sign=1)


DOUBLINGS = {"bandwidth": (12, 5), "latency": (8, 8), "workers": (6, 4)}
"""Numbers of doublings and of halvings to try."""

BISECTIONS = 7
"""Number of bisections of a factor of two: to half a percent."""


class PreparedPlan(NamedTuple):
    """A plan that can be priced on any network, with the steps of its training.

    Attributes:
        question: the question, with the workers and the failures.
        method_index: index of the plan's method in the projection.
        sharding: states that are sharded, for the size of a checkpoint.
    """

    question: AdviceQuestion
    plan: TrainingPlan
    tokens: float
    projection: ProjectionPlan
    method_index: int = 0
    sharding: str = "none"

    def time_s(self, network: Network) -> float:
        """Return the seconds of the training on a network; infinity if they are unknown."""
        return self.placed_time_s(self.plan.on(network, self.question.workers))

    def placed_time_s(self, placed_network: Network, cache: PriceCache | None = None) -> float:
        """Return the seconds on a network on which the ranks have their places; ``cache`` gets its prices."""
        step = self.projection.step(self.method_index, placed_network, cache=cache)
        step_s, steps = first_value(step.step_time_s), self.tokens / self.question.batch_tokens
        seconds = time_with_failures_s(self.question, self.plan, step_s, steps, self.sharding)
        return math.inf if math.isnan(seconds) else seconds

    def bounds_then_s(self, placed_network: Network, cache: PriceCache) -> Iterator[tuple[float, bool]]:
        """Yield lower bounds of `placed_time_s` with False, then the seconds with True, for `indices_by_value`."""
        steps = self.tokens / self.question.batch_tokens
        inside_s = self.projection.replica_times(self.method_index, placed_network, cache).step_s
        yield steps * lower_bound_s(inside_s), False
        yield steps * lower_bound_s(self.projection.least_busy_s(self.method_index, placed_network, cache)), False
        yield self.placed_time_s(placed_network, cache), True


def fastest_plan(plans: Sequence[PreparedPlan], network: Network) -> int:
    """Return the index of the plan that is fastest on a network, the first of equally fast plans."""
    # Plans on one network share prices. The networks are kept, so that their ids stay unique.
    networks_and_caches: dict[int, tuple[Network, PriceCache]] = {}
    bounds_then_values = []
    for plan in plans:
        placed_network = plan.plan.on(network, plan.question.workers)
        _, cache = networks_and_caches.setdefault(id(placed_network), (placed_network, PriceCache()))
        bounds_then_values.append(plan.bounds_then_s(placed_network, cache))
    return next(indices_by_value(bounds_then_values))


def prepare_plan(question: AdviceQuestion, plan: TrainingPlan, tokens: float) -> PreparedPlan:
    """Return a plan that trains on ``tokens`` tokens with the question's workers, and can be priced on any network."""
    return PreparedPlan(question, plan, tokens, ProjectionPlan([plan.spec(question)]))


def prepare_row(question: AdviceQuestion, row: PlanRow) -> PreparedPlan:
    """Return the plan of a row, which can be priced on any network."""
    projection, method_index = row["prepared"]
    return PreparedPlan(question, row["plan"], row["tokens"], projection, method_index, row["sharding"])


def first_changes(question: AdviceQuestion, rows: Sequence[PlanRow]) -> list[dict[str, Any]]:
    """Find the bandwidth, latency and number of workers at which another plan becomes the fastest.

    The fields of a record are ``what`` (``bandwidth``, ``latency`` or ``workers``), ``of`` (``any`` plan, or ``data
    parallelism``, becomes the first), ``now`` (the present value), ``direction`` (``above`` or ``below``), ``at`` (the
    value; None if the first plan does not change up to ``looked_to``), the bounds ``low`` and ``high`` of ``at``, and
    ``becomes`` (the index of the row that is first beyond ``at``).

    Args:
        rows: rows of one list, the fastest first.
    """
    if len(rows) < 2:
        return []
    outermost = outermost_links(question.network)
    plans = [prepare_row(question, row) for row in rows]

    def fastest_at(factor: float, quantity: str) -> int:
        factors: dict[str, Any] = {quantity: factor}
        return fastest_plan(plans, scaled(question.network, selected=outermost.links, **factors))

    only_index = np.zeros(1, dtype=np.int64)  # there is one setting and one network
    computing = computing_bounds(plans[0].projection)
    communication = communication_bounds(plans[0].projection, [question.network])
    low, high = threshold_bounds(computing, communication, settings=only_index, networks=only_index)
    bounds = first_value(low), first_value(high)
    records = []
    bandwidth = float(outermost.link.bandwidth_bytes_per_s)
    for quantity, present_value in (("bandwidth", bandwidth), ("latency", float(outermost.link.latency_s))):
        if not present_value > 0:  # no factor changes a latency of 0
            continue
        for is_increase, num_factors in zip((True, False), DOUBLINGS[quantity], strict=True):
            change = _find_change(partial(fastest_at, quantity=quantity), num_factors, is_increase)
            records.append(_threshold_record(quantity, present_value, is_increase, change=change, bounds=bounds))
    # With how much bandwidth would data parallelism be the first?
    other_indices = {index for index, row in enumerate(rows) if not row["plan"].method.sends_in_backward}
    if 0 in other_indices and len(other_indices) < len(rows):  # data parallelism is among the rows, but not the first
        doublings, _ = DOUBLINGS["bandwidth"]
        at_bandwidth = partial(fastest_at, quantity="bandwidth")
        change = _find_change(at_bandwidth, doublings, is_increase=True, allowed=other_indices)
        record = _threshold_record("bandwidth", bandwidth, is_increase=True, change=change, bounds=bounds)
        records.append(record | {"of": "data parallelism"})
    return records + [_worker_change_record(question, rows, is_increase) for is_increase in (True, False)]


class LeaderChange(NamedTuple):
    """The change of a quantity after which another plan is the fastest.

    Attributes:
        factor: factor on the present value at which the first plan changes; None: it does not change.
        becomes: index of the new first plan.
        looked_to: factor up to which the search went.
    """

    factor: float | None
    becomes: int | None
    looked_to: float


def _find_change(
    fastest_at: Callable[[float], int], doublings: int, is_increase: bool, allowed: Collection[int] = (0,)
) -> LeaderChange:
    """Find the factor on a quantity at which the fastest plan is no longer one of the allowed plans.

    The search doubles or halves the quantity, and then bisects the last factor of two.

    Args:
        fastest_at: function from a factor on the quantity to the index of the fastest plan.
        doublings: number of doublings or halvings to try.
        is_increase: whether to double the quantity; else halve it.
        allowed: indices of the plans that may be the fastest without a change.
    """
    unchanged_at = 1.0
    for exponent in range(1, doublings + 1):
        changed_at = looked_to = 2.0**exponent if is_increase else 0.5**exponent
        fastest = fastest_at(changed_at)
        if fastest not in allowed:
            for _ in range(BISECTIONS):
                middle = math.sqrt(unchanged_at * changed_at)
                if fastest_at(middle) in allowed:
                    unchanged_at = middle
                else:
                    changed_at = middle
            return LeaderChange(math.sqrt(unchanged_at * changed_at), becomes=fastest, looked_to=looked_to)
        unchanged_at = changed_at
    return LeaderChange(None, becomes=None, looked_to=unchanged_at)


def _threshold_record(
    quantity: str, now: float, is_increase: bool, change: LeaderChange, bounds: tuple[float, float]
) -> dict[str, Any]:
    """Return the record of a threshold, see `first_changes`.

    Args:
        quantity: ``bandwidth``, ``latency`` or ``workers``.
        is_increase: whether the threshold is above the present value.
        bounds: lower and upper factor by which communication may differ from its prediction relative to computing.
    """
    value = low = high = None
    if change.factor is not None:
        value = now * change.factor
        low_factor, high_factor = bounds
        if quantity == "bandwidth":
            low, high = value * low_factor, value * high_factor
        elif quantity == "latency":  # time grows with latency but falls with bandwidth, so the bounds swap and invert
            low, high = value * (1 / high_factor), value * (1 / low_factor)
        # A number of workers has no bounds.
    return {
        "what": quantity,
        "of": "any",
        "now": now,
        "direction": "above" if is_increase else "below",
        "at": value,
        "low": low,
        "high": high,
        "becomes": change.becomes,
        "looked_to": now * change.looked_to,
    }


def _worker_change_record(question: AdviceQuestion, rows: Sequence[PlanRow], is_increase: bool) -> dict[str, Any]:
    """Find the number of workers at which another plan becomes the fastest, with the same batch and number of sites."""
    change = LeaderChange(None, becomes=None, looked_to=1.0)
    doublings, halvings = DOUBLINGS["workers"]
    for exponent in range(1, (doublings if is_increase else halvings) + 1):
        factor = 2.0**exponent if is_increase else 0.5**exponent
        times_s = _times_with_workers(question, rows, factor)
        if times_s is None or math.isinf(min(times_s)):  # no plan can have this number of workers
            break
        change = change._replace(looked_to=factor)
        fastest = int(np.argmin(times_s))
        if fastest != 0:
            change = LeaderChange(factor, becomes=fastest, looked_to=factor)
            break
    return _threshold_record("workers", question.workers, is_increase, change=change, bounds=(1.0, 1.0))


def _times_with_workers(question: AdviceQuestion, rows: Sequence[PlanRow], factor: float) -> list[float] | None:
    """Return each plan's seconds with ``factor`` times the workers; None if the batch or network cannot be divided."""
    workers = question.workers * factor
    network = _grow_network(question.network, factor)
    if workers != int(workers) or network is None:
        return None
    try:
        network.among(int(workers))  # raises an error if the network cannot join so many workers
        changed_question = question.on(network, int(workers))
    except SpecError:
        return None
    if changed_question.tokens_per_worker < changed_question.model.sequence:  # less than a sequence per worker
        return None
    return [_time_with_workers(changed_question, row, factor) for row in rows]


def _time_with_workers(question: AdviceQuestion, row: PlanRow, factor: float) -> float:
    """Return the seconds of a row's plan on the question's workers; infinite if the plan cannot run on them.

    Args:
        question: the question, with another number of workers than the row.
        factor: ratio of the two numbers of workers.
    """
    plan: TrainingPlan = row["plan"]
    try:
        if plan.layout.workers > 1:  # the number of replicas stays, and each has ``factor`` times the workers
            data = plan.layout.data * factor
            if data != int(data):
                return math.inf
            plan = replace(plan, layout=replace(plan.layout, data=int(data)))
        tokens = tokens_needed(question, plan.method, plan.layout.replicas(question.workers)).tokens
        prepared_plan = prepare_plan(question, plan, tokens)
        if not prepared_plan.projection.method_plans[0].memory_plan.fits.all():
            return math.inf
        return prepared_plan.time_s(question.network)
    except SpecError:
        return math.inf


def _grow_network(network: Network, factor: float) -> Network | None:
    """Multiply the nodes of each site of a network by a factor; return None if the result is no whole number.

    A network without sites, or with sites of any size, is unchanged.
    """
    if not isinstance(network, MultiLevel) or len(network.levels) < 2:
        return network
    *levels, inside_sites, between_sites = network.levels
    if inside_sites.units is None:
        return network
    nodes = inside_sites.units * factor
    if nodes != int(nodes) or nodes < 1:
        return None
    return replace(network, levels=(*levels, replace(inside_sites, units=int(nodes)), between_sites))
