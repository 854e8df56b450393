"""Ties between plans: bounds of ratios of times, in which shared errors cancel.

Two plans run on the same machines and links, so the errors of computing and communication are the same factors in
both. A ratio of steps is bounded at these factors, each at its bounds, as in `syncline.planner.bounds`. Losses of
one method, period and number of replicas share their error, too; otherwise each ratio to data parallelism has its own
error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from syncline.planner.advice.plan_costs import PlanRow
from syncline.planner.advice.question import AdviceQuestion
from syncline.planner.bounds import combined_bounds, deviation
from syncline.planner.projection.bounds import communication_bounds, computing_bounds, step_time_variants
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
