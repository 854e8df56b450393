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
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from syncline.costmodel import Network
from syncline.costmodel.network.link_groups import outermost_links
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.network_links import scaled
from syncline.errors import SpecError
from syncline.planner.advice.equal_loss import tokens_needed
from syncline.planner.advice.plan_costs import PlanRow, time_with_failures_s
from syncline.planner.advice.plans import TrainingPlan
from syncline.planner.advice.question import AdviceQuestion
from syncline.planner.bounds import combined_bounds, deviation
from syncline.planner.projection.bounds import (
    communication_bounds,
    computing_bounds,
    step_time_variants,
    threshold_bounds,
)
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.training_totals import method_covered


class VariedStep(NamedTuple):
    """Seconds of a plan's step, as predicted, and with computing and communication at their bounds, one at a time."""

    step_s: float
    at_bounds: tuple[float, ...]


def varied_step(question: AdviceQuestion, row: PlanRow) -> VariedStep:
    """Return the step time of a row's plan, as predicted and at the bounds of computing and communication."""
    prepared, number = row["prepared"]
    network = row["plan"].on(question.network, question.workers)
    computing = computing_bounds(prepared)
    communicating = communication_bounds(prepared, [network])
    cache: dict[Any, Any] = {}
    step = prepared.step(number, network, cache=cache)
    varied_times = step_time_variants(prepared, number, network, cache, step, computing, communication=communicating)
    return VariedStep(
        float(np.ravel(step.step_time_s)[0]), tuple(float(np.ravel(time_s)[0]) for time_s in varied_times)
    )


def loss_key(row: PlanRow) -> tuple[Any, ...]:
    """Return the key that rows share if the errors of their losses are the same: method, period and replicas."""
    covered = method_covered(row["plan"].method)
    return (covered,) if covered == "ddp-adam" else (covered, row["period"], row["replicas"])


def fastest_by_loss(rows: Sequence[PlanRow]) -> list[PlanRow]:
    """Return the fastest row of each `loss_key`, and all rows of data parallelism; ``rows`` are the fastest first."""
    seen: set[tuple[Any, ...]] = set()
    distinct = []
    for row in rows:
        key = loss_key(row)
        if row["plan"].method.sends_in_backward or key not in seen:
            distinct.append(row)
        seen.add(key)
    return distinct


def compare_with_first(question: AdviceQuestion, rows: Sequence[PlanRow], limit: int | None = None) -> list[PlanRow]:
    """Return the rows with the fields ``over_first`` (the time over the first row's), its bounds, and ``tied``.

    Args:
        question: the question of advice.
        rows: rows of one list, the fastest first.
        limit: number of rows to compare; the others have no bounds, and are not tied.
    """
    compared_rows, base_step = [], None
    for index, row in enumerate(rows):
        ratio_fields: dict[str, Any] = {"over_first": row["time_s"] / rows[0]["time_s"]}
        low = high = None
        is_compared = limit is None or index < limit
        if is_compared:
            step = varied_step(question, row)
            base_step = base_step or step
            low, high = time_ratio_bounds(rows[0], base_step, row, step)
        tied = is_compared and index > 0 and (low is None or low <= 1)
        compared_rows.append(row | ratio_fields | {"over_first_low": low, "over_first_high": high, "tied": tied})
    return compared_rows


def time_ratio_bounds(
    base: PlanRow, base_step: VariedStep, row: PlanRow, step: VariedStep
) -> tuple[float | None, float | None]:
    """Return the lower and the upper bound of a plan's time over a base plan's; None for an unknown bound.

    Args:
        base: row of the base plan.
        base_step: step of the base plan.
        row: row of the plan.
        step: step of the plan.
    """
    if row is base:
        return 1.0, 1.0
    ratio = step.step_s / base_step.step_s
    varied = zip(step.at_bounds, base_step.at_bounds, strict=True)
    ratios = [np.array(step_s / base_step_s) for step_s, base_step_s in varied]
    low, high = (float(bound) for bound in combined_bounds(np.array(ratio), ratios))
    total_ratio = row["time_s"] / base["time_s"]
    if row["loss_unknown"] is not None or loss_key(row) == loss_key(base):
        return total_ratio * low / ratio, total_ratio * high / ratio

    def bound(step_ratio: float, end: str, other_end: str, sign: int) -> float | None:
        """Return a bound of the ratio of two times from the bounds of its step and token factors."""
        token_bound, base_bound = row[f"tokens_factor_{end}"], base[f"tokens_factor_{other_end}"]
        if token_bound is None or base_bound is None:
            return None
        token_ratios = token_bound / row["tokens_factor"], base_bound / base["tokens_factor"]
        factor = deviation(sign, step_ratio / ratio, *token_ratios)
        return None if factor is None else total_ratio * factor

    return bound(low, "low", "high", -1), bound(high, "high", "low", 1)


DOUBLINGS = {"bandwidth": (12, 5), "latency": (8, 8), "workers": (6, 4)}
"""Numbers of doublings and of halvings to try."""

BISECTIONS = 7
"""Number of bisections of a factor of two: to half a percent."""

Timed = Callable[[float], list[float]]


class PreparedPlan(NamedTuple):
    """A plan that can be priced on any network, with the steps of its training.

    Attributes:
        plan: projection with the plan.
        duration_s: function from the seconds of a step to those of the training, which failures may lengthen.
        place: function from a network to the same network with the ranks where the plan puts them.
        number: index of the plan's method in the projection.
    """

    plan: ProjectionPlan
    duration_s: Callable[[float], float]
    place: Callable[[Network], Network]
    number: int = 0

    def time_s(self, network: Network) -> float:
        """Return the seconds of the training with the plan's placement on a network; infinity if they are unknown."""
        step = self.plan.step(self.number, self.place(network), cache={})
        seconds = self.duration_s(float(np.ravel(step.step_time_s)[0]))
        return math.inf if math.isnan(seconds) else seconds


def prepared(question: AdviceQuestion, plan: TrainingPlan, tokens: float) -> PreparedPlan:
    """Return a plan that trains on ``tokens`` tokens with the question's workers, and can be priced on any network."""
    steps = tokens / question.batch_tokens
    return PreparedPlan(
        ProjectionPlan([plan.spec(question)]),
        lambda step_s: time_with_failures_s(question, plan, step_s, steps),
        lambda network: plan.on(network, question.workers),
    )


def prepared_row(question: AdviceQuestion, row: PlanRow) -> PreparedPlan:
    """Return the plan of a row, which can be priced on any network."""
    projection, number = row["prepared"]
    plan = row["plan"]
    steps = row["tokens"] / question.batch_tokens
    sharding = row["sharding"]
    return PreparedPlan(
        projection,
        lambda step_s: time_with_failures_s(question, plan, step_s, steps, sharding),
        place=lambda network: plan.on(network, question.workers),
        number=number,
    )


def first_changes(question: AdviceQuestion, rows: Sequence[PlanRow]) -> list[dict[str, Any]]:
    """Return the values at which another plan becomes the first: a record for each quantity and direction.

    The fields of a record are ``what`` (``bandwidth``, ``latency`` or ``workers``), ``of`` (``any`` plan, or ``data
    parallelism``, becomes the first), ``now`` (the present value), ``direction`` (``above`` or ``below``), ``at`` (the
    value; None if the first plan does not change up to ``looked_to``), the bounds ``low`` and ``high`` of ``at``, and
    ``becomes`` (the index of the row that is first beyond ``at``).

    Args:
        question: the question of advice.
        rows: rows of one list, the fastest first.
    """
    if len(rows) < 2:
        return []
    outermost = outermost_links(question.network)
    plans = [prepared_row(question, row) for row in rows]

    def times_s(**factors: float) -> list[float]:
        """Return the seconds of each plan with factors on the outermost links' bandwidth or latency."""
        network = scaled(question.network, selected=outermost.links, **factors)
        return [prepared_plan.time_s(network) for prepared_plan in plans]

    first_setting, first_network = np.zeros((2, 1), dtype=np.int64)
    computing = computing_bounds(plans[0].plan)
    communication = communication_bounds(plans[0].plan, [question.network])
    ends = threshold_bounds(computing, communication, first_setting, first_network)
    bounds = float(ends[0][0, 0]), float(ends[1][0, 0])
    results = []
    bandwidth = float(outermost.link.bandwidth_bytes_per_s)
    latency = float(outermost.link.latency_s)
    for quantity, now, timed in (
        ("bandwidth", bandwidth, lambda factor: times_s(bandwidth=factor)),
        ("latency", latency, lambda factor: times_s(latency=factor)),
    ):
        if not now > 0:
            continue
        for is_increase in (True, False):
            change = _find_change(timed, DOUBLINGS[quantity][0 if is_increase else 1], is_increase)
            results.append(_threshold_record(quantity, now, is_increase, change, bounds))
    parallel = {index for index, row in enumerate(rows) if row["plan"].method.sends_in_backward}
    if parallel and 0 not in parallel:
        unranked = set(range(len(rows))) - parallel
        change = _find_change(
            lambda factor: times_s(bandwidth=factor), DOUBLINGS["bandwidth"][0], up=True, before=unranked
        )
        results.append(
            _threshold_record("bandwidth", bandwidth, is_increase=True, change=change, bounds=bounds)
            | {"of": "data parallelism"}
        )
    return results + [_with_workers(question, rows, is_increase) for is_increase in (True, False)]


class LeaderChange(NamedTuple):
    """The change after which another plan of a ranking is the first.

    Attributes:
        factor: factor on the present value at which the first plan changes; None: it does not change.
        becomes: index of the plan that is first then.
        looked_to: factor up to which the search went.
    """

    factor: float | None
    becomes: int | None
    looked_to: float


def _find_change(timed: Timed, doublings: int, up: bool, before: Collection[int] = (0,)) -> LeaderChange:
    """Return the least change of a value after which the first plan is none of ``before``.

    Args:
        timed: function from a factor on the value to the seconds of each plan.
        doublings: number of doublings or halvings to try.
        up: whether to double the value; else halve it.
        before: indices of plans that may stay first.
    """
    step, last = 2.0 if up else 0.5, 1.0
    for number in range(1, doublings + 1):
        factor = step**number
        first = int(np.argmin(timed(factor)))
        if first not in before:
            unchanged_at, changed_at = last, factor
            for _ in range(BISECTIONS):
                factor_between = math.sqrt(unchanged_at * changed_at)
                is_inside = int(np.argmin(timed(factor_between))) in before
                unchanged_at, changed_at = (factor_between, changed_at) if is_inside else (unchanged_at, factor_between)
            return LeaderChange(math.sqrt(unchanged_at * changed_at), first, factor)
        last = factor
    return LeaderChange(None, None, last)


def _threshold_record(
    quantity: str, now: float, is_increase: bool, change: LeaderChange, bounds: tuple[float, float]
) -> dict[str, Any]:
    """Return the record of a threshold, see `first_changes`.

    Args:
        quantity: ``bandwidth``, ``latency`` or ``workers``.
        now: present value.
        is_increase: whether the change is above the present value.
        change: the change of the first plan.
        bounds: lower and upper factor of communication relative to computing.
    """
    value = None if change.factor is None else now * change.factor
    # The time of a link grows with its latency but falls with its bandwidth, so the bounds swap and invert.
    low, high = bounds if quantity == "bandwidth" else (1 / bounds[1], 1 / bounds[0])
    has_bounds = value is not None and quantity != "workers"
    return {
        "what": quantity,
        "of": "any",
        "now": now,
        "direction": "above" if is_increase else "below",
        "at": value,
        "low": value * low if value is not None and has_bounds else None,
        "high": value * high if value is not None and has_bounds else None,
        "becomes": change.becomes,
        "looked_to": now * change.looked_to,
    }


def _with_workers(question: AdviceQuestion, rows: Sequence[PlanRow], up: bool) -> dict[str, Any]:
    """Return the record of the change with more or fewer workers in each unit of the outermost level, in one batch."""
    step = 2.0 if up else 0.5
    change, last = LeaderChange(None, None, looked_to=1.0), 1.0
    for number in range(1, DOUBLINGS["workers"][0 if up else 1] + 1):
        factor = step**number
        times = _times_with(question, rows, factor)
        if times is None or math.isinf(min(times)):
            break
        first = int(np.argmin(times))
        last = factor
        if first != 0:
            change = LeaderChange(factor, first, factor)
            break
    return _threshold_record("workers", question.workers, up, change=change._replace(looked_to=last), bounds=(1.0, 1.0))


def _times_with(question: AdviceQuestion, rows: Sequence[PlanRow], factor: float) -> list[float] | None:
    """Return the seconds of each plan with ``factor`` times the workers; None if the batch or network has no room."""
    count = question.workers * factor
    network = _grown(question.network, factor)
    if count != int(count) or network is None:
        return None
    try:
        network.among(int(count))
        changed_question = question.on(network, int(count))
    except SpecError:
        return None
    if changed_question.tokens_per_worker < changed_question.sequence:  # less than a sequence per worker
        return None
    return [_time_with(changed_question, row, factor) for row in rows]


def _time_with(question: AdviceQuestion, row: PlanRow, factor: float) -> float:
    """Return the seconds of a row's plan on ``factor`` times the workers of ``question``; infinite if it cannot run."""
    plan: TrainingPlan = row["plan"]
    layout = plan.layout
    if layout.workers > 1:  # the number of replicas stays, each has more workers
        data = layout.data * factor
        if data != int(data):
            return math.inf
        try:
            layout = replace(layout, data=int(data))
        except SpecError:
            return math.inf
    plan = replace(plan, layout=layout)
    try:
        tokens = tokens_needed(question, plan.method, layout.replicas(question.workers)).tokens
        prepared_plan = prepared(question, plan, tokens)
        fits = bool(prepared_plan.plan.memory_plans[0].fits.all())
        return prepared_plan.time_s(question.network) if fits else math.inf
    except SpecError:
        return math.inf


def _grown(network: Network, factor: float) -> Network | None:
    """Return the network with ``factor`` times the inner units in each outermost unit, or None if that is not whole."""
    if not isinstance(network, MultiLevel) or len(network.levels) < 2:
        return network
    inner = network.levels[-2]
    if inner.units is None:
        return network
    units = inner.units * factor
    if units != int(units) or units < 1:
        return None
    return replace(network, levels=(*network.levels[:-2], replace(inner, units=int(units)), network.levels[-1]))
