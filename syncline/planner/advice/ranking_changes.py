"""Ties between plans: bounds of ratios of times, in which shared errors cancel.

Two plans run on the same machines and links, so the errors of computing and communication are the same factors in
both. A ratio of steps is bounded at these factors, each at its bounds, as in `syncline.planner.bounds`. Losses of
one method, period and number of replicas share their error, too; otherwise each ratio to data parallelism has its own
error.

Values at which the first plan of a ranking changes: bandwidth or latency of the outermost link, number of workers.

The search doubles or halves the value until another plan is first, and finds the threshold by bisection. Plans, their
layouts and the tokens to equal loss stay fixed. The bounds are those of communication over computing, because a factor
on the one is the same factor on the bandwidth at which two steps are equal
(`syncline.planner.projection.bounds.threshold_bounds`).
"""

from __future__ import annotations

import math
from collections.abc import (
    Callable,
    Collection,
    Sequence,
)
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
from syncline.planner.projection.bounds import communication_bounds, computing_bounds, step_time_variants
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.training_totals import method_covered


class VariedStep(NamedTuple):
    """A plan's step, and its values with computing and communication at their bounds, one at a time."""

    step_s: float
    at_bounds: tuple[float, ...]


def varied_step(question: AdviceQuestion, row: PlanRow) -> VariedStep:
    """Return a plan's step with its values at the bounds of computing and communication."""
    prepared, number = row["prepared"]
    network = row["plan"].on(question.network, question.workers)
    computing, communicating = computing_bounds(prepared), communication_bounds(prepared, [network])
    cache: dict[Any, Any] = {}
    step = prepared.step(number, network, cache=cache)
    varied_times = step_time_variants(prepared, number, network, cache, step, computing, communicating)
    return VariedStep(_scalar(step.step_time_s), tuple(map(_scalar, varied_times)))


def _scalar(value: Any) -> float:
    return float(np.reshape(value, (-1,))[0])


def loss_key(row: PlanRow) -> tuple[Any, ...]:
    """Return the key that losses with a shared error have in common."""
    covered = method_covered(row["plan"].method)
    return (covered,) if covered == "ddp-adam" else (covered, row["period"], row["replicas"])


def fastest_by_loss(rows: Sequence[PlanRow]) -> list[PlanRow]:
    """Return the rows without slower ones that reach the same loss in the same way; data parallelism keeps all rows.

    Args:
        rows: rows of one list, the fastest first.
    """
    seen: set[tuple[Any, ...]] = set()
    distinct = []
    for row in rows:
        key = loss_key(row)
        if row["plan"].method.sends_in_backward or key not in seen:
            distinct.append(row)
        seen.add(key)
    return distinct


def compare_with_first(question: AdviceQuestion, rows: Sequence[PlanRow], limit: int | None = None) -> list[PlanRow]:
    """Return the rows with their times over the first's: ``over_first``, its bounds, and whether the two are ``tied``.

    Args:
        question: the question.
        rows: rows of one list, the fastest first.
        limit: number of rows to compare; the others have no bounds, and are not tied.
    """
    out, base_step = [], None
    for place, row in enumerate(rows):
        ratio_fields: dict[str, Any] = {"over_first": row["time_s"] / rows[0]["time_s"]}
        low = high = None
        compared = limit is None or place < limit
        if compared:
            step = varied_step(question, row)
            base_step = base_step or step
            low, high = time_ratio_bounds(rows[0], base_step, row, step)
        tied = compared and place > 0 and (low is None or low <= 1)
        out.append(row | ratio_fields | {"over_first_low": low, "over_first_high": high, "tied": tied})
    return out


def time_ratio_bounds(
    base: PlanRow, base_step: VariedStep, row: PlanRow, step: VariedStep
) -> tuple[float | None, float | None]:
    """Return the bounds of a plan's time over another's, or None for an unknown bound.

    Args:
        base: row of the other plan.
        base_step: step of the other plan.
        row: row of the plan.
        step: step of the plan.
    """
    ratio = step.step_s / base_step.step_s
    ratios = [np.array(a / b) for a, b in zip(step.at_bounds, base_step.at_bounds, strict=True)]
    low, high = (float(edge) for edge in combined_bounds(np.array(ratio), ratios))
    total_ratio = row["time_s"] / base["time_s"]
    if row is base:
        return 1.0, 1.0
    if row["loss_unknown"] is not None or loss_key(row) == loss_key(base):
        return total_ratio * low / ratio, total_ratio * high / ratio

    def bound(step_ratio: float, end: str, other_end: str, sign: int) -> float | None:
        ends = row[f"tokens_factor_{end}"], base[f"tokens_factor_{other_end}"]
        if None in ends:
            return None
        tokens = ends[0] / row["tokens_factor"], ends[1] / base["tokens_factor"]
        factor = deviation(sign, step_ratio / ratio, *tokens)
        return None if factor is None else total_ratio * factor

    return bound(low, "low", "high", -1), bound(high, "high", "low", 1)


DOUBLINGS = {"bandwidth": (12, 5), "latency": (8, 8), "workers": (6, 4)}
"""Numbers of doublings and of halvings to try."""

BISECTIONS = 7
"""Number of bisections of a factor of two: to half a percent."""

Timed = Callable[[float], list[float]]


class PreparedPlan(NamedTuple):
    """A plan that can be priced on any network, its steps to equal loss, and their duration under failures."""

    plan: ProjectionPlan
    steps: float
    lasting: Callable[[float], float]
    place: Callable[[Network], Network]
    number: int = 0

    def time_s(self, network: Network) -> float:
        """Return the seconds of the training with the plan's placement on a network; infinity if they are unknown."""
        step = self.plan.step(self.number, self.place(network), cache={})
        seconds = self.lasting(float(np.reshape(step.step_time_s, (-1,))[0]))
        return math.inf if math.isnan(seconds) else seconds


def prepared(question: AdviceQuestion, plan: TrainingPlan, tokens: float) -> PreparedPlan:
    """Return a plan that can be priced on any network with the question's workers.

    Args:
        question: the question.
        plan: the plan.
        tokens: number of tokens that the plan trains on.
    """
    steps = tokens / question.batch_tokens
    return PreparedPlan(
        ProjectionPlan([plan.spec(question)]),
        steps,
        lambda step_s: time_with_failures_s(question, plan, step_s, steps),
        lambda network: plan.on(network, question.workers),
    )


def prepared_row(question: AdviceQuestion, row: PlanRow) -> PreparedPlan:
    """Return the plan of a row, as `prepared` does."""
    plan, number = row["prepared"]
    steps, sharding = row["tokens"] / question.batch_tokens, row["sharding"]
    return PreparedPlan(
        plan,
        steps,
        lambda step_s: time_with_failures_s(question, row["plan"], step_s, steps, sharding),
        lambda network: row["plan"].on(network, question.workers),
        number,
    )


def first_changes(question: AdviceQuestion, rows: Sequence[PlanRow]) -> list[dict[str, Any]]:
    """Return the values at which another plan becomes the first: a row for each quantity and direction.

    Fields: ``what``, ``of`` (``any``, or ``data parallelism`` as the one that becomes it), ``now``, ``direction``
    (``above``, ``below``), ``at`` (none: nowhere up to ``looked_to``), its bounds ``low`` and ``high``, ``becomes``
    (the index of the row that is first beyond).

    Args:
        question: the question.
        rows: rows of one list, the fastest first.
    """
    if len(rows) < 2:
        return []
    outermost = outermost_links(question.network)
    plans = [prepared_row(question, row) for row in rows]

    def on(**factors: float) -> list[float]:
        network = scaled(question.network, selected=outermost.links, **factors)
        return [prepared_plan.time_s(network) for prepared_plan in plans]

    bounds = _relative_cost_bounds(question, plans[0].plan)
    results = []
    bandwidth, latency = float(outermost.link.bandwidth_bytes_per_s), float(outermost.link.latency_s)
    for quantity, now, timed in (
        ("bandwidth", bandwidth, lambda factor: on(bandwidth=factor)),
        ("latency", latency, lambda factor: on(latency=factor)),
    ):
        if not now > 0:
            continue
        for up in (True, False):
            change = _find_change(timed, DOUBLINGS[quantity][0 if up else 1], up)
            results.append(_threshold_row(quantity, now, up, change, bounds))
    parallel = {place for place, row in enumerate(rows) if row["plan"].method.sends_in_backward}
    if parallel and 0 not in parallel:
        others = set(range(len(rows))) - parallel
        change = _find_change(lambda factor: on(bandwidth=factor), DOUBLINGS["bandwidth"][0], True, others)
        results.append(_threshold_row("bandwidth", bandwidth, True, change, bounds) | {"of": "data parallelism"})
    return results + [_with_workers(question, rows, up) for up in (True, False)]


def _relative_cost_bounds(question: AdviceQuestion, plan: ProjectionPlan) -> tuple[float, float]:
    """Return the least and largest factor of communication relative to computing."""
    k, c = computing_bounds(plan), communication_bounds(plan, [question.network])
    low = np.exp(-np.hypot(np.log(c.low[0]), np.log(k.high[0])))
    return float(low), float(np.exp(np.hypot(np.log(c.high[0]), np.log(k.low[0]))))


class LeaderChange(NamedTuple):
    """The change of the first plan, at a factor of the current value; None: no change up to ``looked_to``."""

    factor: float | None
    becomes: int | None
    looked_to: float


def _find_change(timed: Timed, doublings: int, up: bool, before: Collection[int] = (0,)) -> LeaderChange:
    """Return the factor at which the first plan is none of ``before``."""
    step = 2.0 if up else 0.5
    last = 1.0
    for number in range(1, doublings + 1):
        factor = step**number
        times = timed(factor)
        first = int(np.argmin(times))
        if first not in before:
            return LeaderChange(_between(timed, last, factor, before), first, factor)
        last = factor
    return LeaderChange(None, None, last)


def _between(timed: Timed, inside: float, outside: float, before: Collection[int]) -> float:
    for _ in range(BISECTIONS):
        middle = math.sqrt(inside * outside)
        if int(np.argmin(timed(middle))) in before:
            inside = middle
        else:
            outside = middle
    return math.sqrt(inside * outside)


def _threshold_row(
    quantity: str, now: float, up: bool, change: LeaderChange, bounds: tuple[float, float]
) -> dict[str, Any]:
    value = None if change.factor is None else now * change.factor
    # The time of a link grows with its latency but falls with its bandwidth, so the bounds swap and invert.
    low, high = bounds if quantity == "bandwidth" else (1 / bounds[1], 1 / bounds[0])
    bounded = value is not None and quantity != "workers"
    return {
        "what": quantity,
        "of": "any",
        "now": now,
        "direction": "above" if up else "below",
        "at": value,
        "low": value * low if value is not None and bounded else None,
        "high": value * high if value is not None and bounded else None,
        "becomes": change.becomes,
        "looked_to": now * change.looked_to,
    }


def _with_workers(question: AdviceQuestion, rows: Sequence[PlanRow], up: bool) -> dict[str, Any]:
    """Return the change with more or fewer workers inside each unit of the outermost level, and the same batch."""
    step = 2.0 if up else 0.5
    change, last = LeaderChange(None, None, 1.0), 1.0
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
    return _threshold_row("workers", question.workers, up, change._replace(looked_to=last), (1.0, 1.0))


def _times_with(question: AdviceQuestion, rows: Sequence[PlanRow], factor: float) -> list[float] | None:
    """Return the times with ``factor`` times the workers, or None if the batch or the network has no room for them."""
    count = question.workers * factor
    network = _grown(question.network, factor)
    if count != int(count) or network is None:
        return None
    try:
        network.among(int(count))
        changed = question.on(network, int(count))
    except SpecError:
        return None
    if changed.tokens_per_worker < changed.sequence:  # less than a sequence per worker
        return None
    return [_time_with(changed, row, factor) for row in rows]


def _time_with(question: AdviceQuestion, row: PlanRow, factor: float) -> float:
    """Return the seconds of a row's plan on ``factor`` times the workers of ``question``; infinite if it cannot run."""
    plan: TrainingPlan = row["plan"]
    layout = plan.layout
    if layout.workers > 1:  # the number of replicas stays, each has more workers
        data = layout.data * factor
        if data != int(data) or int(data) % layout.expert:
            return math.inf
        layout = replace(layout, data=int(data))
    plan = replace(plan, layout=layout)
    try:
        tokens = tokens_needed(question, plan.method, layout.replicas(question.workers)).tokens
        prepared_plan = prepared(question, plan, tokens)
        fits = bool(prepared_plan.plan.held[0].fits.all())
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
