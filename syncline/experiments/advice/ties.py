"""Who can be told from whom: ratios of times, in which errors that both share drop out.

Two plans run on the same machines and links, so that computing and communication are off by the same factors in both:
a ratio of steps is bounded at these, each at its bounds, as `syncline.experiments.bounds` has it. Losses of one method,
period and number of replicas are off alike, too; of others each ratio to data parallelism is off by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from syncline.experiments.advice.priced import PlanRow
from syncline.experiments.advice.question import AdviceQuestion
from syncline.experiments.bounds import between
from syncline.experiments.projection.answers import method_covered
from syncline.experiments.projection.bounds import of_networks, of_settings, varied


class VariedStep(NamedTuple):
    """A plan's step, and what it is with computing and communication at their bounds, one at a time."""

    step_s: float
    at_bounds: tuple[float, ...]


def varied_step(question: AdviceQuestion, row: PlanRow) -> VariedStep:
    """A plan's step at the bounds of what it rests on."""
    prepared, number = row["prepared"]
    network = question.network
    computing, communicating = of_settings(prepared), of_networks(prepared, [network])
    known: dict[Any, Any] = {}
    step = prepared.step(number, network, known=known)
    told = varied(prepared, number, network, known, step, computing, communicating)
    return VariedStep(_one(step.step_time_s), tuple(map(_one, told)))


def _one(value: Any) -> float:
    return float(np.reshape(value, (-1,))[0])


def loss_key(row: PlanRow) -> tuple[Any, ...]:
    """What losses that are off alike share."""
    covered = method_covered(row["plan"].method)
    return (covered,) if covered == "ddp-adam" else (covered, row["period"], row["replicas"])


def different(rows: Sequence[PlanRow]) -> list[PlanRow]:
    """Rows without those that reach the same loss in the same way later; of data parallelism all.

    Args:
        rows: of one list, the first least.
    """
    known: set[tuple[Any, ...]] = set()
    kept = []
    for row in rows:
        key = loss_key(row)
        if row["plan"].method.sends_in_backward or key not in known:
            kept.append(row)
        known.add(key)
    return kept


def told_apart(question: AdviceQuestion, rows: Sequence[PlanRow], most: int | None = None) -> list[PlanRow]:
    """Rows with their times over the first's: ``over_first``, its bounds, and whether the two are ``tied``.

    Args:
        question: what is asked.
        rows: of one list, the first least.
        most: how many are compared; the others have no bounds, and are not tied.
    """
    out, base_step = [], None
    for place, row in enumerate(rows):
        told: dict[str, Any] = {"over_first": row["time_s"] / rows[0]["time_s"]}
        low = high = None
        compared = most is None or place < most
        if compared:
            step = varied_step(question, row)
            base_step = base_step or step
            low, high = over(rows[0], base_step, row, step)
        tied = compared and place > 0 and (low is None or low <= 1)
        out.append(row | told | {"over_first_low": low, "over_first_high": high, "tied": tied})
    return out


def over(base: PlanRow, base_step: VariedStep, row: PlanRow, step: VariedStep) -> tuple[float | None, float | None]:
    """Bounds of a plan's time over another's; None: nobody knows.

    Args:
        base: the other.
        base_step: its step.
        row: the plan.
        step: its step.
    """
    ratio = step.step_s / base_step.step_s
    each = [np.array(a / b) for a, b in zip(step.at_bounds, base_step.at_bounds, strict=True)]
    low, high = (float(one) for one in between(np.array(ratio), each))
    whole = row["time_s"] / base["time_s"]
    if row is base:
        return 1.0, 1.0
    if row["loss_unknown"] is not None or loss_key(row) == loss_key(base):
        return whole * low / ratio, whole * high / ratio

    def bound(step_ratio: float, mine: str, others: str, sign: int) -> float | None:
        ends = row[f"tokens_factor_{mine}"], base[f"tokens_factor_{others}"]
        if None in ends:
            return None
        off = [step_ratio / ratio, ends[0] / row["tokens_factor"], ends[1] / base["tokens_factor"]]
        return float(whole * np.exp(sign * np.linalg.norm(np.log(off))))

    return bound(low, "low", "high", -1), bound(high, "high", "low", 1)
