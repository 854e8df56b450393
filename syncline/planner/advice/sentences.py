"""The causes of a ranking, the changes that would alter it, and unknown facts, in sentences made of the numbers.

The verdict of advice in three sentences: the plan to take, its saving with an interval, and what would change it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from syncline.costmodel import Network, Sites, TwoLevel
from syncline.costmodel.layouts.layout import GIVEN
from syncline.costmodel.network.link_groups import outermost_links
from syncline.costmodel.network.matrix import Matrix
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.network_links import scaled
from syncline.planner.advice.plan_costs import PARTS, PlanRow, failure_words
from syncline.planner.advice.question import AdviceQuestion
from syncline.planner.advice.ranking_changes import (
    fastest_by_loss,
    prepared,
    prepared_row,
    time_ratio_bounds,
    varied_step,
)
from syncline.planner.assumptions import SHARDING_TEXTS
from syncline.units import format_bandwidth, format_bytes, format_seconds

FREE = 1e-9
"""Factor on a latency that makes it negligible."""

LARGER_BATCH = 4
"""Factor of the batch in the sentence on a larger batch."""


def plan_words(row: PlanRow) -> str:
    """Return a plan in a few words: ``diloco every 100, 2 replicas of data 32``."""
    return f"{method_words(row)}, {layout_words(row)}"


def method_words(row: PlanRow) -> str:
    """Return the method, and the transport of its gradients if it sends nothing else."""
    plan = row["plan"]
    if plan is None or not plan.method.sends_in_backward:
        return str(row["method"])
    overlap = "overlapped" if row["overlap"] == "ddp" else "not overlapped"
    levels = ", level by level" if "hierarchical" in row["carried_by"] else ""
    return f"{row['method']}, {overlap}{levels}"


def layout_words(row: PlanRow) -> str:
    """Return the replicas and their layout."""
    if row.get("replicas") is None:
        return str(row["layout"])
    recomputed = ", recomputed" if row["activations"] == "recomputed" else ""
    if row["plan"].method.sends_in_backward and row["replicas"] == 1:
        return f"{row['layout']}{recomputed}"
    if row["layout"] == "one worker":
        return f"{row['replicas']} workers{recomputed}"
    placed = "" if row["placement"] == GIVEN else f", {row['placement']}"
    return f"{row['replicas']} replicas of {row['layout']}{placed}{recomputed}"


def level_words(network: Network) -> str:
    """Return the units that the outermost level's link joins."""
    if isinstance(network, MultiLevel) and len(network.levels) > 1:
        name = network.levels[-2].name
        return f"between {name}s" if name else "between units"
    if isinstance(network, Sites):
        return "between sites"
    if isinstance(network, Matrix):
        return "between places"
    return "between nodes" if isinstance(network, TwoLevel) else "between workers"


def decides(
    question: AdviceQuestion, rows: Sequence[PlanRow], others: Sequence[PlanRow], unable: Sequence[PlanRow]
) -> list[str]:
    """Return sentences on the parts of the first plans' times, against data parallelism's; latency, memory, tokens.

    Args:
        question: the question.
        rows: ranked rows, the fastest first.
        others: rows of unknown loss.
        unable: infeasible rows.
    """
    parallel = [row for row in rows if row["plan"].method.sends_in_backward][:1]
    shown = {id(row): row for row in (*rows[:1], *parallel, *others[:1])}
    lines = [_step_words(row) for row in shown.values()]
    first = next(iter(shown.values()), None)
    if first is None:
        return []
    lines += failure_words(question, first)
    lines += _latency_words(question, first)
    lines.append(_memory_words(question, first, unable))
    lines += _token_words(first)
    return lines + [
        f"{plan_words(row)} takes {format_seconds(row['time_s'])}, {row['below_computing']}."
        for row in fastest_by_loss([*rows, *others])
        if row["below_computing"]
    ]


def _step_words(row: PlanRow) -> str:
    parts = [
        f"{format_seconds(row[name])} {text}"
        for name, text in PARTS.items()
        if row[name] and row[name] / row["step_time_s"] >= 0.005
    ]
    return f"A step of {plan_words(row)} takes {format_seconds(row['step_time_s'])}: {', '.join(parts)}."


def _latency_words(question: AdviceQuestion, row: PlanRow) -> list[str]:
    """Return a sentence on the shares of latency and bandwidth of the outermost link in the first plan's time."""
    link, links = outermost_links(question.network)[1:]
    if not link.latency_s:
        return []
    prepared_plan = prepared_row(question, row)
    now_s = prepared_plan.time_s(question.network)
    no_latency_s = prepared_plan.time_s(scaled(question.network, latency=FREE, selected=links))
    no_bytes_s = prepared_plan.time_s(scaled(question.network, bandwidth=1 / FREE, selected=links))
    where = level_words(question.network)
    rate, latency = format_bandwidth(float(link.bandwidth_bytes_per_s)), format_seconds(float(link.latency_s))
    return [
        f"Of the first's time the bandwidth {where} is {_share(1 - no_bytes_s / now_s)}, the latency "
        f"{_share(1 - no_latency_s / now_s)} ({rate}, {latency} one way)."
    ]


def _share(share: float) -> str:
    return "under 0.1%" if share < 0.001 else f"{share:.1%}" if share < 0.1 else f"{share:.0%}"


def _memory_words(question: AdviceQuestion, row: PlanRow, unable: Sequence[PlanRow]) -> str:
    room = question.hardware.memory_bytes
    text = f"Memory of the first: {format_bytes(row['memory_bytes'])}" + (f" of {format_bytes(room)}" if room else "")
    parts = [SHARDING_TEXTS[row["sharding"]]] if row["sharding"] != "none" else []
    parts += [f"steps of {row['micro_batches']} micro-batches"] if row["micro_batches"] > 1 else []
    parts += ["layers' activations computed again"] if row["activations"] == "recomputed" else []
    text += f" ({', '.join(parts)})" if parts else ""
    large = [unable_row for unable_row in unable if unable_row["infeasible"].startswith("memory")]
    if large:
        prefix = "at least " if large[0]["plan"] is None else ""
        text += f"; {plan_words(large[0])} would need {prefix}{format_bytes(large[0]['memory_bytes'])}"
    return text + "."


def _token_words(row: PlanRow) -> list[str]:
    if row["loss_unknown"] is not None or row["loss_fit"] is None or row["tokens_factor"] == 1:
        return []
    low, high = row["tokens_factor_low"], row["tokens_factor_high"]
    bounds = f"{low:.2g} or more" if high is None else f"{low:.2g} to {high:.2g}"
    text = f"To the loss of data parallelism the first takes {row['tokens_factor']:.3g} times the tokens ({bounds})"
    return [f"{text}, by {row['tokens_source']}."]


def changes(question: AdviceQuestion, rows: Sequence[PlanRow], thresholds: Sequence[dict[str, Any]]) -> list[str]:
    """Return sentences on the values at which another plan becomes the first, and on the effect of a larger batch.

    Args:
        question: the question.
        rows: rows of one list, the fastest first.
        thresholds: thresholds of `first_changes`.
    """
    where = level_words(question.network)
    lines = [_threshold_words(threshold, rows, where) for threshold in thresholds]
    return [line for line in lines if line] + _batch_words(question, rows)


SHOWN = {
    "bandwidth": format_bandwidth,
    "latency": format_seconds,
    "workers": lambda count: f"{count:,.0f} workers",
}


def _threshold_words(change: dict[str, Any], rows: Sequence[PlanRow], where: str) -> str:
    shown, quantity, up = SHOWN[change["what"]], change["what"], change["direction"] == "above"
    if change["of"] == "data parallelism":
        return _parallel_words(change, rows, where)
    if change["at"] is None and change["looked_to"] == change["now"]:
        return ""
    if change["at"] is None:
        which = {"workers": ("More", "Fewer")}.get(quantity, ("More", "Less"))[0 if up else 1]
        subject = "workers" if quantity == "workers" else f"{quantity} {where}"
        does = "do" if quantity == "workers" else "does"
        return (
            f"{which} {subject}, {'up' if up else 'down'} to {shown(change['looked_to'])}, {does} not change the first."
        )
    bounds = "" if change["low"] is None else f" ({shown(change['low'])} to {shown(change['high'])})"
    begins = ("From" if up else "At") if quantity == "workers" else "Above" if up else "Below"
    subject = "" if quantity == "workers" else f" of {quantity} {where}"
    return f"{begins} {shown(change['at'])}{bounds}{subject} the first is {plan_words(rows[change['becomes']])}."


def _parallel_words(change: dict[str, Any], rows: Sequence[PlanRow], where: str) -> str:
    shown = SHOWN[change["what"]]
    if change["at"] is None:
        return f"Data parallelism is not the first with any bandwidth {where} up to {shown(change['looked_to'])}."
    bounds = f" ({shown(change['low'])} to {shown(change['high'])})"
    return (
        f"Data parallelism is the first above {shown(change['at'])}{bounds} {where}: "
        f"{plan_words(rows[change['becomes']])}."
    )


def _batch_words(question: AdviceQuestion, rows: Sequence[PlanRow]) -> list[str]:
    """Return a sentence on the times with a larger batch on as many tokens, which has fewer exchanges."""
    parallel = next((row for row in rows if row["plan"].method.sends_in_backward), None)
    shown = [rows[0], *([parallel] if parallel is not None and parallel is not rows[0] else [])] if rows else []
    larger = replace(question, batch_tokens=LARGER_BATCH * question.batch_tokens)
    texts = []
    for row in shown:
        prepared_plan = prepared(larger, row["plan"], row["tokens"])
        seconds = prepared_plan.time_s(question.network)
        if np.isfinite(seconds):
            texts.append(
                f"{plan_words(row)} takes {format_seconds(seconds)} in place of {format_seconds(row['time_s'])}"
            )
    if not texts:
        return []
    return [
        f"With {LARGER_BATCH} times the batch, on as many tokens, {'; '.join(texts)}. What such a batch does to the "
        "loss is another question."
    ]


def unknown(question: AdviceQuestion, rows: Sequence[PlanRow], others: Sequence[PlanRow]) -> list[str]:
    """Return sentences on the facts that the advice does not know.

    Args:
        question: the question.
        rows: ranked rows.
        others: rows of unknown loss.
    """
    lines = []
    for why, count in Counter(row["loss_unknown"] for row in others).most_common(MOST_REASONS):
        hint = "" if question.extrapolate or "beyond the fit" not in why else " (--extrapolate answers beyond)"
        lines.append(f"The loss of {count} plan{'s' if count > 1 else ''}: {why}{hint}.")
    lines += [
        f"Whether fit {fit} holds where it has not seen the like: {', '.join(fields)}."
        for fit, fields in _beyond(rows).items()
    ]
    fewer = [row["method"] for row in rows if (row["tokens_factor"] or 1) < 1 and row["extrapolation"]]
    if fewer:
        lines.append(f"Whether {fewer[0]} takes fewer tokens than data parallelism at this size: smaller models did.")
    first = next(iter([*rows, *others]), None)
    if first is not None:
        lines.append(f"Times are as sure as what they rest on: {first['basis']}.")
    if question.prices is None:
        lines.append("Money, as no prices are given (--prices).")
    failures_text = "" if question.failures is not None else "Failures and restarts, "
    others_too = f"{failures_text}evaluation, storage, and what else the links carry: none of it is counted."
    lines.append(f"{others_too[0].upper()}{others_too[1:]}")
    return lines


def _beyond(rows: Sequence[PlanRow]) -> dict[str, list[str]]:
    """Return the fields outside each fit's range of measurements, with their largest factors, by fit."""
    largest: dict[str, dict[str, float]] = {}
    for row in rows:
        for text in (row["beyond"] or "").split(", "):
            name, _, factor = text.partition(" ")
            if factor:
                factors = largest.setdefault(row["loss_fit"], {})
                ratio = float(factor.removesuffix("x"))
                factors[name] = max(factors.get(name, ratio), ratio, key=lambda value: abs(np.log(value)))
    return {
        fit: [f"{_spaced(name)} {factor:.3g}x" for name, factor in factors.items()] for fit, factors in largest.items()
    }


def _spaced(name: str) -> str:
    return name.replace("_", " ")


MOST_REASONS = 4
"""Limit on the reported reasons for unknown losses."""


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
