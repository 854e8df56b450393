"""The verdict of advice in three sentences: the plan to take, its saving with an interval, and what would change it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syncline.planner.advice.plan_costs import PlanRow
from syncline.planner.advice.question import AdviceQuestion
from syncline.planner.advice.significance import time_ratio_bounds, varied_step
from syncline.planner.advice.words import plan_words
from syncline.units import format_seconds

NO_PLAN = "No plan is possible: the reasons are in the list of plans that cannot be (--all)."


def verdict(
    question: AdviceQuestion, ranked: Sequence[PlanRow], others: Sequence[PlanRow], change_lines: Sequence[str]
) -> list[str]:
    """Return three sentences: what to do, what it saves, and what would change it.

    Args:
        question: the question.
        ranked: rows of known loss, the fastest to the same loss first.
        others: rows of unknown loss, the fastest first.
        change_lines: sentences on the thresholds, the first plan's changes first.
    """
    first = next(iter(ranked), None) or next(iter(compared(question, others)), None)
    if first is None:
        return [NO_PLAN]
    change = next(iter(change_lines), "Nothing that was tried changes the first plan.")
    return [_to_do(first), _saving(question, first, ranked, others), change]


def compared(question: AdviceQuestion, rows: Sequence[PlanRow]) -> list[PlanRow]:
    """Return the fastest row of each kind of method, at the period of the comparison if the method has a period."""
    fastest: dict[Any, PlanRow] = {}
    for row in rows:
        if row["period"] in (1, question.compared_period):
            fields = dict(row["plan"].method)
            key = row["plan"].method.kind, getattr(fields.get("compressor"), "kind", None), fields.get("outer_momentum")
            fastest.setdefault(key, row)
    return list(fastest.values())


def _to_do(row: PlanRow) -> str:
    goal = "to the same loss" if row["loss_unknown"] is None else "for the tokens; nobody knows its loss"
    return (
        f"Train with {plan_words(row)}: {format_seconds(row['time_s'])}{_bounds(row['low_s'], row['high_s'])} {goal}."
    )


def _bounds(low_s: float | None, high_s: float | None) -> str:
    if low_s is None:
        return ""
    return f" ({format_seconds(low_s)} {'or more' if high_s is None else f'to {format_seconds(high_s)}'})"


def _saving(question: AdviceQuestion, first: PlanRow, ranked: Sequence[PlanRow], others: Sequence[PlanRow]) -> str:
    """Return the sentence on the time of the first plan against data parallelism, or of the fastest other plan."""
    parallel = next((row for row in [*ranked, *others] if row["plan"].method.sends_in_backward), None)
    if parallel is None:
        return "No plan of data parallelism is possible, so there is nothing to compare it with."
    if parallel is not first:
        saved = _saved(question, parallel, first)
        return f"It saves {saved} of the time of {plan_words(parallel)}, {format_seconds(parallel['time_s'])}."
    rivals = [row for row in ranked if not row["plan"].method.sends_in_backward]
    known = "No plan of known loss is faster"
    if rivals:
        rival = rivals[0]
        known = f"The fastest other plan of known loss, {plan_words(rival)}, takes {format_seconds(rival['time_s'])}"
    unknown = next(iter(compared(question, others)), None)
    if unknown is None or unknown["time_s"] >= first["time_s"]:
        return f"{known}."
    saved = _saved(question, first, unknown)
    return f"{known}. On as many tokens {plan_words(unknown)} would save {saved}, but nobody knows its loss."


def _saved(question: AdviceQuestion, slow: PlanRow, fast: PlanRow) -> str:
    """Return the share of a plan's time that another plan saves, with its interval."""
    low, high = time_ratio_bounds(slow, varied_step(question, slow), fast, varied_step(question, fast))
    share = 1 - fast["time_s"] / slow["time_s"]
    if low is None or high is None:
        return f"{share:.0%}"
    return f"{share:.0%} ({1 - high:.0%} to {1 - low:.0%})"
