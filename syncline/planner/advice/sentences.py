"""The causes of a ranking, its changes, unknown facts and the verdict, in sentences made of the numbers."""

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
    """Return the method's name and its period; for data parallelism also how its gradients travel."""
    plan, name = row["plan"], str(row["method"])
    if plan is None:
        return name
    if not plan.method.sends_in_backward:
        return name if " every " in name or row["period"] == 1 else f"{name} every {row['period']}"
    overlap = "overlapped" if row["overlap"] == "ddp" else "not overlapped"
    levels = ", level by level" if "hierarchical" in row["carried_by"] else ""
    return f"{row['method']}, {overlap}{levels}"


def is_recomputed(row: PlanRow) -> bool:
    """Return whether the backward pass of a plan recomputes layers."""
    return (row["activations"] or "").startswith("recomputed")


def recomputed_words(row: PlanRow) -> str:
    """Return the layers that the backward pass of a plan recomputes: ``2 layers recomputed``, or ``recomputed``."""
    _, _, layers = row["activations"].partition(": ")
    return f"{layers} recomputed".strip()


def layout_words(row: PlanRow) -> str:
    """Return a plan's number of replicas and their layout: ``2 replicas of data 32``."""
    if row.get("replicas") is None:
        return str(row["layout"])
    recomputed = f", {recomputed_words(row)}" if is_recomputed(row) else ""
    if row["plan"].method.sends_in_backward and row["replicas"] == 1:
        return f"{row['layout']}{recomputed}"
    if row["layout"] == "one worker":
        return f"{row['replicas']} workers{recomputed}"
    placed = "" if row["placement"] == GIVEN else f", {row['placement']}"
    return f"{row['replicas']} replicas of {row['layout']}{placed}{recomputed}"


def level_words(network: Network) -> str:
    """Return the units that the links of the outermost level join: ``between sites``."""
    if isinstance(network, MultiLevel) and len(network.levels) > 1:
        name = network.levels[-2].name
        return f"between {name}s" if name else "between units"
    if isinstance(network, Sites):
        return "between sites"
    if isinstance(network, Matrix):
        return "between places"
    return "between nodes" if isinstance(network, TwoLevel) else "between workers"


def decides(
    question: AdviceQuestion, rows: Sequence[PlanRow], unranked: Sequence[PlanRow], infeasible: Sequence[PlanRow]
) -> list[str]:
    """Return sentences on the causes of the ranking: parts of a step, failures, latency, memory and tokens.

    Args:
        question: the question of advice.
        rows: rows of known loss, the fastest first.
        unranked: rows of unknown loss, the fastest first.
        infeasible: rows of infeasible plans.
    """
    parallel = [row for row in rows if row["plan"].method.sends_in_backward][:1]
    explained = list({id(row): row for row in (*rows[:1], *parallel, *unranked[:1])}.values())
    if not explained:
        return []
    lines = []
    for row in explained:
        parts = [
            f"{format_seconds(row[name])} {text}"
            for name, text in PARTS.items()
            if row[name] and row[name] / row["step_time_s"] >= 0.005
        ]
        lines.append(f"A step of {plan_words(row)} takes {format_seconds(row['step_time_s'])}: {', '.join(parts)}.")
    first = explained[0]
    lines += failure_words(question, first)
    lines += _latency_words(question, first)
    lines.append(_memory_words(question, first, infeasible))
    if first["loss_unknown"] is None and first["loss_fit"] is not None and first["tokens_factor"] != 1:
        low, high = first["tokens_factor_low"], first["tokens_factor_high"]
        bounds = f"{low:.2g} or more" if high is None else f"{low:.2g} to {high:.2g}"
        factor = f"{first['tokens_factor']:.3g} times the tokens ({bounds}), by {first['tokens_source']}"
        lines.append(f"To the loss of data parallelism the first takes {factor}.")
    return lines + [
        f"{plan_words(row)} takes {format_seconds(row['time_s'])}, {row['below_computing']}."
        for row in fastest_by_loss([*rows, *unranked])
        if row["below_computing"]
    ]


def _latency_words(question: AdviceQuestion, row: PlanRow) -> list[str]:
    """Return a sentence on the shares of a plan's time that the outermost link's bandwidth and latency take."""
    link, links = outermost_links(question.network)[1:]
    if not link.latency_s:
        return []
    prepared_plan = prepared_row(question, row)
    now_s = prepared_plan.time_s(question.network)
    no_latency_s = prepared_plan.time_s(scaled(question.network, latency=FREE, selected=links))
    no_bytes_s = prepared_plan.time_s(scaled(question.network, bandwidth=1 / FREE, selected=links))
    rate = format_bandwidth(float(link.bandwidth_bytes_per_s))
    latency = format_seconds(float(link.latency_s))
    return [
        f"Of the first's time the bandwidth {level_words(question.network)} is {_share_text(1 - no_bytes_s / now_s)}, "
        f"the latency {_share_text(1 - no_latency_s / now_s)} ({rate}, {latency} one way)."
    ]


def _share_text(share: float) -> str:
    """Return a share in percent, with a decimal below 10 %."""
    return "under 0.1%" if share < 0.001 else f"{share:.1%}" if share < 0.1 else f"{share:.0%}"


def _memory_words(question: AdviceQuestion, row: PlanRow, infeasible: Sequence[PlanRow]) -> str:
    """Return a sentence on the memory of a plan, and on the memory of an infeasible plan that does not fit."""
    limit_bytes = question.hardware.memory_bytes
    text = f"Memory of the first: {format_bytes(row['memory_bytes'])}"
    text += f" of {format_bytes(limit_bytes)}" if limit_bytes else ""
    parts = [SHARDING_TEXTS[row["sharding"]]] if row["sharding"] != "none" else []
    parts += [f"steps of {row['micro_batches']} micro-batches"] if row["micro_batches"] > 1 else []
    _, _, layers = (row["activations"] or "").partition(": ")
    activations = f"activations of {layers}" if layers else "layers' activations"
    parts += [f"{activations} computed again"] if is_recomputed(row) else []
    text += f" ({', '.join(parts)})" if parts else ""
    too_large = next(
        (infeasible_row for infeasible_row in infeasible if infeasible_row["infeasible"].startswith("memory")), None
    )
    if too_large is not None:
        prefix = "at least " if too_large["plan"] is None else ""
        text += f"; {plan_words(too_large)} would need {prefix}{format_bytes(too_large['memory_bytes'])}"
    return text + "."


def changes(question: AdviceQuestion, rows: Sequence[PlanRow], thresholds: Sequence[dict[str, Any]]) -> list[str]:
    """Return sentences on the values at which another plan becomes the first, and on the effect of a larger batch.

    Args:
        question: the question of advice.
        rows: rows of one list, the fastest first.
        thresholds: records of `first_changes`.
    """
    where = level_words(question.network)
    lines = [_threshold_words(threshold, rows, where) for threshold in thresholds]
    return [line for line in lines if line] + _batch_words(question, rows)


TEXTS = {
    "bandwidth": format_bandwidth,
    "latency": format_seconds,
    "workers": lambda count: f"{count:,.0f} workers",
}
"""Text of the values of thresholds, by quantity."""


def _threshold_words(change: dict[str, Any], rows: Sequence[PlanRow], where: str) -> str:
    """Return the sentence on a threshold; empty if no other value was tried.

    Args:
        change: record of `first_changes`.
        rows: rows that the record refers to.
        where: units that the outermost links join, in words.
    """
    quantity, is_above = change["what"], change["direction"] == "above"
    text = TEXTS[quantity]
    of_workers = quantity == "workers"
    bounds = "" if change["low"] is None else f" ({text(change['low'])} to {text(change['high'])})"
    if change["of"] == "data parallelism":
        if change["at"] is None:
            return f"Data parallelism is not the first with any bandwidth {where} up to {text(change['looked_to'])}."
        plan = plan_words(rows[change["becomes"]])
        return f"Data parallelism is the first above {text(change['at'])}{bounds} {where}: {plan}."
    if change["at"] is None:
        if change["looked_to"] == change["now"]:
            return ""
        more, less = ("More", "Fewer") if of_workers else ("More", "Less")
        subject = "workers" if of_workers else f"{quantity} {where}"
        limit = f"{'up' if is_above else 'down'} to {text(change['looked_to'])}"
        return (
            f"{more if is_above else less} {subject}, {limit}, {'do' if of_workers else 'does'} not change the first."
        )
    begins = ("From" if is_above else "At") if of_workers else "Above" if is_above else "Below"
    subject = "" if of_workers else f" of {quantity} {where}"
    return f"{begins} {text(change['at'])}{bounds}{subject} the first is {plan_words(rows[change['becomes']])}."


def _batch_words(question: AdviceQuestion, rows: Sequence[PlanRow]) -> list[str]:
    """Return a sentence on the times with a larger batch on as many tokens, which has fewer exchanges."""
    parallel = next((row for row in rows if row["plan"].method.sends_in_backward), None)
    compared_rows = [*rows[:1], *([parallel] if parallel is not None and parallel is not rows[0] else [])]
    larger = replace(question, batch_tokens=LARGER_BATCH * question.batch_tokens)
    texts = []
    for row in compared_rows:
        seconds = prepared(larger, row["plan"], row["tokens"]).time_s(question.network)
        if np.isfinite(seconds):
            times = f"{format_seconds(seconds)} in place of {format_seconds(row['time_s'])}"
            texts.append(f"{plan_words(row)} takes {times}")
    if not texts:
        return []
    return [
        f"With {LARGER_BATCH} times the batch, on as many tokens, {'; '.join(texts)}. What such a batch does to the "
        "loss is another question."
    ]


def unknown(question: AdviceQuestion, rows: Sequence[PlanRow], others: Sequence[PlanRow]) -> list[str]:
    """Return sentences on the facts that the advice does not know.

    Args:
        question: the question of advice.
        rows: rows of known loss, the fastest first.
        others: rows of unknown loss, the fastest first.
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
    factors_of_fit: dict[str, dict[str, float]] = {}
    for row in rows:
        for text in (row["beyond"] or "").split(", "):  # such as "replicas 2x, parameters 0.5x"
            name, _, factor_text = text.partition(" ")
            if factor_text:
                factors = factors_of_fit.setdefault(row["loss_fit"], {})
                factor = float(factor_text.removesuffix("x"))
                factors[name] = max(factors.get(name, factor), factor, key=lambda value: abs(np.log(value)))
    return {
        fit: [f"{name.replace('_', ' ')} {factor:.3g}x" for name, factor in factors.items()]
        for fit, factors in factors_of_fit.items()
    }


MOST_REASONS = 4
"""Limit on the reported reasons for unknown losses."""


NO_PLAN = "No plan is possible: the reasons are in the list of plans that cannot be (--all)."


def verdict(
    question: AdviceQuestion, ranked: Sequence[PlanRow], unranked: Sequence[PlanRow], change_lines: Sequence[str]
) -> list[str]:
    """Return three sentences: the plan to take, its saving with an interval, and what would change it.

    Args:
        question: the question of advice.
        ranked: rows of known loss, the fastest to the same loss first.
        unranked: rows of unknown loss, the fastest first.
        change_lines: sentences on the thresholds, the first plan's changes first.
    """
    first = next(iter(ranked), None) or next(iter(compared(question, unranked)), None)
    if first is None:
        return [NO_PLAN]
    goal = "to the same loss" if first["loss_unknown"] is None else "for the tokens; nobody knows its loss"
    low_s, high_s = first["low_s"], first["high_s"]
    bounds = ""
    if low_s is not None:
        bounds = f" ({format_seconds(low_s)} {'or more' if high_s is None else f'to {format_seconds(high_s)}'})"
    plan = f"Train with {plan_words(first)}: {format_seconds(first['time_s'])}{bounds} {goal}."
    change = next(iter(change_lines), "Nothing that was tried changes the first plan.")
    return [plan, _saving(question, first, ranked, others=unranked), change]


def compared(question: AdviceQuestion, rows: Sequence[PlanRow]) -> list[PlanRow]:
    """Return the fastest row of each kind of method, at the period of the comparison if the method has a period.

    Of methods that the question names, each has a row, at its own period.
    """
    fastest: dict[Any, PlanRow] = {}
    for row in rows:
        if question.methods:
            fastest.setdefault((row["method"], row["period"]), row)
        elif question.compared_period is None or row["period"] in (1, question.compared_period):
            parameters = dict(row["plan"].method)
            key = (
                row["plan"].method.kind,
                getattr(parameters.get("compressor"), "kind", None),
                parameters.get("outer_momentum"),
            )
            fastest.setdefault(key, row)
    return list(fastest.values())


def period_words(question: AdviceQuestion) -> str:
    """Return the periods of the plans that are compared, in words."""
    period = question.compared_period
    return "each method at its own period" if period is None else f"methods with a period at {period} steps"


def _saving(question: AdviceQuestion, first: PlanRow, ranked: Sequence[PlanRow], others: Sequence[PlanRow]) -> str:
    """Return the sentence on the time of the first plan against data parallelism, or of the fastest other plan."""
    parallel = next((row for row in [*ranked, *others] if row["plan"].method.sends_in_backward), None)
    if parallel is None:
        return "No plan of data parallelism is possible, so there is nothing to compare it with."
    if parallel is not first:
        saving = _saved(question, parallel, first)
        return f"It saves {saving} of the time of {plan_words(parallel)}, {format_seconds(parallel['time_s'])}."
    rivals = [row for row in ranked if not row["plan"].method.sends_in_backward]
    rival_words = "No plan of known loss is faster"
    if rivals:
        rival = rivals[0]
        rival_words = (
            f"The fastest other plan of known loss, {plan_words(rival)}, takes {format_seconds(rival['time_s'])}"
        )
    unknown = next(iter(compared(question, others)), None)
    if unknown is None or unknown["time_s"] >= first["time_s"]:
        return f"{rival_words}."
    saving = _saved(question, first, unknown)
    return f"{rival_words}. On as many tokens {plan_words(unknown)} would save {saving}, but nobody knows its loss."


def _saved(question: AdviceQuestion, slow: PlanRow, fast: PlanRow) -> str:
    """Return the share of a slow plan's time that a fast plan saves, with its interval, as text."""
    low, high = time_ratio_bounds(slow, varied_step(question, slow), row=fast, step=varied_step(question, fast))
    share = 1 - fast["time_s"] / slow["time_s"]
    if low is None or high is None:
        return f"{share:.0%}"
    return f"{share:.0%} ({1 - high:.0%} to {1 - low:.0%})"
