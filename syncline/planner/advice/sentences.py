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
    prepare_plan,
    prepare_row,
    time_ratio_bounds,
    varied_step,
)
from syncline.planner.assumptions import SHARDING_TEXTS
from syncline.units import format_bandwidth, format_bytes, format_seconds

NEGLIGIBLE = 1e-9
"""Factor on a latency, or on the time of a byte, that makes it negligible."""

LARGER_BATCH = 4
"""Factor of the batch in the sentence on a larger batch."""


def plan_words(row: PlanRow) -> str:
    """Return a plan in a few words: ``diloco every 100, 2 replicas of data 32``."""
    return f"{method_words(row)}, {layout_words(row)}"


def method_words(row: PlanRow) -> str:
    """Return the name and the period of a plan's method; for data parallelism also how its gradients travel."""
    plan, name = row["plan"], str(row["method"])
    if plan is None:
        return name
    if plan.method.sends_in_backward:
        overlap = "overlapped" if row["overlap"] == "ddp" else "not overlapped"
        levels = ", level by level" if "hierarchical" in row["carried_by"] else ""
        return f"{name}, {overlap}{levels}"
    if " every " in name or row["period"] == 1:  # the name states the period, or there is none
        return name
    return f"{name} every {row['period']}"


def recomputed_layers(row: PlanRow) -> str | None:
    """Return the layers that a plan's backward pass recomputes: ``2 layers``, empty text for all, None for none."""
    state, _, layers = (row["activations"] or "").partition(": ")  # such as "recomputed", or "recomputed: 2 layers"
    return layers if state == "recomputed" else None


def layout_words(row: PlanRow) -> str:
    """Return a plan's number of replicas and their layout: ``2 replicas of data 32``."""
    if row.get("replicas") is None:
        return str(row["layout"])
    layers = recomputed_layers(row)
    recomputed = {None: "", "": ", recomputed"}.get(layers, f", {layers} recomputed")
    if row["plan"].method.sends_in_backward and row["replicas"] == 1:
        return f"{row['layout']}{recomputed}"
    if row["layout"] == "one worker":
        return f"{row['replicas']} workers{recomputed}"
    placed = "" if row["placement"] == GIVEN else f", {row['placement']}"
    return f"{row['replicas']} replicas of {row['layout']}{placed}{recomputed}"


def level_words(network: Network) -> str:
    """Return a phrase for the units that the links of a network's outermost level join: ``between sites``."""
    if isinstance(network, MultiLevel) and len(network.levels) > 1:
        *_, joined_units, _ = network.levels
        return f"between {joined_units.name}s" if joined_units.name else "between units"
    if isinstance(network, Sites):
        return "between sites"
    if isinstance(network, Matrix):
        return "between places"
    return "between nodes" if isinstance(network, TwoLevel) else "between workers"


def cause_sentences(
    question: AdviceQuestion, rows: Sequence[PlanRow], unranked: Sequence[PlanRow], infeasible: Sequence[PlanRow]
) -> list[str]:
    """Return sentences on the causes of the ranking: parts of a step, failures, latency, memory and tokens."""
    explained_rows = [*_first_and_data_parallel(rows), *unranked[:1]]  # the fastest of each list, and the baseline
    if not explained_rows:
        return []
    lines = []
    for row in explained_rows:
        parts = [
            f"{format_seconds(row[name])} {text}"
            for name, text in PARTS.items()
            if row[name] and row[name] / row["step_time_s"] >= 0.005  # half a percent
        ]
        lines.append(f"A step of {plan_words(row)} takes {format_seconds(row['step_time_s'])}: {', '.join(parts)}.")
    first = explained_rows[0]
    lines += failure_words(question, first)
    lines += _latency_words(question, first)
    lines.append(_memory_words(question, first, infeasible))
    if first["loss_unknown"] is None and first["loss_fit"] is not None and first["tokens_factor"] != 1:
        low, high = first["tokens_factor_low"], first["tokens_factor_high"]
        bounds = f"{low:.2g} or more" if high is None else f"{low:.2g} to {high:.2g}"
        factor = f"{first['tokens_factor']:.3g} times the tokens ({bounds}), by {first['tokens_source']}"
        lines.append(f"To the loss of data parallelism the first takes {factor}.")
    for row in fastest_by_loss([*rows, *unranked]):
        if row["below_computing"]:
            lines.append(f"{plan_words(row)} takes {format_seconds(row['time_s'])}, {row['below_computing']}.")
    return lines


def _first_and_data_parallel(rows: Sequence[PlanRow]) -> list[PlanRow]:
    """Return the first row and, if another, the first row of data parallelism; an empty list without rows."""
    data_parallel = data_parallel_row(rows)
    return list(rows[:1]) if data_parallel is None or data_parallel is rows[0] else [rows[0], data_parallel]


def data_parallel_row(rows: Sequence[PlanRow]) -> PlanRow | None:
    """Return the first row whose plan sends gradients in every step, or None."""
    return next((row for row in rows if row["plan"].method.sends_in_backward), None)


def _latency_words(question: AdviceQuestion, row: PlanRow) -> list[str]:
    """Return a sentence on the shares of a plan's time that the outermost link's bandwidth and latency take."""
    outermost = outermost_links(question.network)
    link, links = outermost.link, outermost.links
    if not link.latency_s:
        return []
    plan = prepare_row(question, row)
    now_s = plan.time_s(question.network)
    no_latency_s = plan.time_s(scaled(question.network, latency=NEGLIGIBLE, selected=links))
    no_bytes_s = plan.time_s(scaled(question.network, bandwidth=1 / NEGLIGIBLE, selected=links))
    rate = format_bandwidth(float(link.bandwidth_bytes_per_s))
    latency = format_seconds(float(link.latency_s))
    return [
        f"Of the first's time the bandwidth {level_words(question.network)} is {_share_text(1 - no_bytes_s / now_s)}, "
        f"the latency {_share_text(1 - no_latency_s / now_s)} ({rate}, {latency} one way)."
    ]


def _share_text(share: float) -> str:
    """Return a share in percent, with a decimal below 10 %."""
    if share < 0.001:
        return "under 0.1%"
    return f"{share:.1%}" if share < 0.1 else f"{share:.0%}"


def _memory_words(question: AdviceQuestion, row: PlanRow, infeasible: Sequence[PlanRow]) -> str:
    """Return a sentence on the memory of a plan, and on that of the first infeasible plan that is too large."""
    limit_bytes = question.hardware.memory_bytes
    text = f"Memory of the first: {format_bytes(row['memory_bytes'])}"
    if limit_bytes:
        text += f" of {format_bytes(limit_bytes)}"
    savings = []
    if row["sharding"] != "none":
        savings.append(SHARDING_TEXTS[row["sharding"]])
    if row["micro_batches"] > 1:
        savings.append(f"steps of {row['micro_batches']} micro-batches")
    layers = recomputed_layers(row)
    if layers is not None:
        savings.append(f"activations of {layers} computed again" if layers else "layers' activations computed again")
    if savings:
        text += f" ({', '.join(savings)})"
    too_large = next((other for other in infeasible if other["infeasible"].startswith("memory")), None)
    if too_large is not None:
        prefix = "at least " if too_large["plan"] is None else ""  # only a lower bound is known without a plan
        text += f"; {plan_words(too_large)} would need {prefix}{format_bytes(too_large['memory_bytes'])}"
    return text + "."


def change_sentences(
    question: AdviceQuestion, rows: Sequence[PlanRow], thresholds: Sequence[dict[str, Any]]
) -> list[str]:
    """Return sentences on the values at which another plan becomes the first, and on the effect of a larger batch."""
    links = level_words(question.network)
    lines = [_threshold_words(threshold, rows, links) for threshold in thresholds]
    return [line for line in lines if line] + _batch_words(question, rows)


def _quantity_text(quantity: str, value: float) -> str:
    """Return a bandwidth, a latency or a number of workers with its unit, as text."""
    if quantity == "workers":
        return f"{value:,.0f} workers"
    return format_bandwidth(value) if quantity == "bandwidth" else format_seconds(value)


def _threshold_words(threshold: dict[str, Any], rows: Sequence[PlanRow], links: str) -> str:
    """Return the sentence on a value at which another plan becomes the first; empty if no other value was tried."""
    if threshold["at"] is None:
        return _no_change_words(threshold, links)
    quantity, is_above = threshold["what"], threshold["direction"] == "above"
    value, plan = _quantity_text(quantity, threshold["at"]), plan_words(rows[threshold["becomes"]])
    if quantity == "workers":
        return f"{'From' if is_above else 'At'} {value} the first is {plan}."
    if threshold["low"] is not None:
        low, high = _quantity_text(quantity, threshold["low"]), _quantity_text(quantity, threshold["high"])
        value += f" ({low} to {high})"
    if threshold["of"] == "data parallelism":
        return f"Data parallelism is the first above {value} {links}: {plan}."
    return f"{'Above' if is_above else 'Below'} {value} of {quantity} {links} the first is {plan}."


def _no_change_words(threshold: dict[str, Any], links: str) -> str:
    """Return the sentence on a quantity that does not change the first plan; empty if no other value was tried.

    For the arguments, see `_threshold_words`.
    """
    quantity, is_above = threshold["what"], threshold["direction"] == "above"
    limit = _quantity_text(quantity, threshold["looked_to"])
    if threshold["of"] == "data parallelism":
        return f"Data parallelism is not the first with any bandwidth {links} up to {limit}."
    if threshold["looked_to"] == threshold["now"]:
        return ""
    limit = f"{'up' if is_above else 'down'} to {limit}"
    if quantity == "workers":
        return f"{'More' if is_above else 'Fewer'} workers, {limit}, do not change the first."
    return f"{'More' if is_above else 'Less'} {quantity} {links}, {limit}, does not change the first."


def _batch_words(question: AdviceQuestion, rows: Sequence[PlanRow]) -> list[str]:
    """Return a sentence on the times with a larger batch: the same tokens take fewer steps, and so fewer exchanges."""
    larger = replace(question, batch_tokens=LARGER_BATCH * question.batch_tokens)
    texts = []
    for row in _first_and_data_parallel(rows):
        seconds = prepare_plan(larger, row["plan"], row["tokens"]).time_s(question.network)
        if np.isfinite(seconds):
            times = f"{format_seconds(seconds)} in place of {format_seconds(row['time_s'])}"
            texts.append(f"{plan_words(row)} takes {times}")
    if not texts:
        return []
    return [
        f"With {LARGER_BATCH} times the batch, on as many tokens, {'; '.join(texts)}. The effect of such a batch on "
        "the loss is not predicted."
    ]


def unknown_sentences(question: AdviceQuestion, rows: Sequence[PlanRow], unranked: Sequence[PlanRow]) -> list[str]:
    """Return sentences on the facts that the advice does not know."""
    lines = []
    for reason, count in Counter(row["loss_unknown"] for row in unranked).most_common(MOST_REASONS):
        is_beyond_fit = "beyond the fit" in reason  # --extrapolate allows this
        hint = " (--extrapolate answers beyond)" if is_beyond_fit and not question.extrapolate else ""
        lines.append(f"The loss of {count} plan{'s' if count > 1 else ''}: {reason}{hint}.")
    for fit, fields in _fields_beyond_fits(rows).items():
        lines.append(f"Whether fit {fit} holds outside its range: {', '.join(fields)}.")
    saving = [
        row["method"] for row in rows if row["tokens_factor"] and row["tokens_factor"] < 1 and row["extrapolation"]
    ]
    if saving:
        lines.append(f"Whether {saving[0]} takes fewer tokens than data parallelism at this size: smaller models did.")
    if rows or unranked:
        first = (rows or unranked)[0]
        lines.append(f"Times are as certain as their basis: {first['basis']}.")
    if question.prices is None:
        lines.append("Money, as no prices are given (--prices).")
    uncounted = "Evaluation" if question.failures is not None else "Failures and restarts, evaluation"
    lines.append(f"{uncounted}, storage, and other traffic on the links: none of it is counted.")
    return lines


def _fields_beyond_fits(rows: Sequence[PlanRow]) -> dict[str, list[str]]:
    """Return, by loss fit, the fields outside the fit's range, each with its most extreme factor: ``replicas 2x``."""
    factors_by_fit: dict[str, dict[str, float]] = {}
    for row in rows:
        if not row["beyond"]:
            continue
        factors = factors_by_fit.setdefault(row["loss_fit"], {})
        for text in row["beyond"].split(", "):  # such as "replicas 2x, parameters 0.5x"
            name, _, factor_text = text.partition(" ")
            factor = float(factor_text.removesuffix("x"))
            furthest = factors.setdefault(name, factor)
            if abs(np.log(factor)) > abs(np.log(furthest)):
                factors[name] = factor
    return {
        fit: [f"{name.replace('_', ' ')} {factor:.3g}x" for name, factor in factors.items()]
        for fit, factors in factors_by_fit.items()
    }


MOST_REASONS = 4
"""Limit on the reported reasons for unknown losses."""


NO_PLAN = "No plan is possible: the list of impossible plans has the reasons (--all)."


def verdict(
    question: AdviceQuestion, ranked: Sequence[PlanRow], unranked: Sequence[PlanRow], change_lines: Sequence[str]
) -> list[str]:
    """Return three sentences: the plan to take, the time that it saves with an interval, and what would change it.

    Args:
        ranked: rows of known loss, the fastest to the same loss first.
        unranked: rows of unknown loss, the fastest first.
        change_lines: sentences on the thresholds, the first plan's changes first.
    """
    candidates = ranked or fastest_of_each_kind(question, unranked)
    if not candidates:
        return [NO_PLAN]
    first = candidates[0]
    goal = "to the same loss" if first["loss_unknown"] is None else "for the tokens; its loss is unknown"
    low_s, high_s = first["low_s"], first["high_s"]
    bounds = ""
    if low_s is not None:
        bounds = f" ({format_seconds(low_s)} {'or more' if high_s is None else f'to {format_seconds(high_s)}'})"
    plan = f"Train with {plan_words(first)}: {format_seconds(first['time_s'])}{bounds} {goal}."
    change = change_lines[0] if change_lines else "Nothing that was tried changes the first plan."
    return [plan, _saving_sentence(question, first, ranked, unranked), change]


def fastest_of_each_kind(question: AdviceQuestion, rows: Sequence[PlanRow]) -> list[PlanRow]:
    """Return the fastest row of each kind of method, or of each method and period if the question names the methods.

    If kinds are tried at several periods, only rows at the first period are compared, and rows without a period.
    """
    fastest: dict[Any, PlanRow] = {}
    for row in rows:
        if question.methods:
            fastest.setdefault((row["method"], row["period"]), row)
        elif question.compared_period is None or row["period"] in (1, question.compared_period):  # 1: without a period
            method_fields = dict(row["plan"].method)
            compressor_kind = getattr(method_fields.get("compressor"), "kind", None)
            # Averaging is DiLoCo without outer momentum.
            key = row["plan"].method.kind, compressor_kind, method_fields.get("outer_momentum")
            fastest.setdefault(key, row)
    return list(fastest.values())


def period_words(question: AdviceQuestion) -> str:
    """Return a phrase for the periods at which plans of unknown loss are compared."""
    period = question.compared_period
    return "each method at its own period" if period is None else f"methods with a period at {period} steps"


def _saving_sentence(
    question: AdviceQuestion, first: PlanRow, ranked: Sequence[PlanRow], unranked: Sequence[PlanRow]
) -> str:
    """Return the sentence that compares the first plan with data parallelism, or data parallelism with another plan."""
    baseline = data_parallel_row([*ranked, *unranked])
    if baseline is None:
        return "No plan of data parallelism is possible, so there is nothing to compare it with."
    if baseline is not first:
        saving = _saving_text(question, baseline, first)
        return f"It saves {saving} of the time of {plan_words(baseline)}, {format_seconds(baseline['time_s'])}."
    text = "No plan of known loss is faster."
    rivals = [row for row in ranked if not row["plan"].method.sends_in_backward]
    if rivals:
        time = format_seconds(rivals[0]["time_s"])
        text = f"The fastest other plan of known loss, {plan_words(rivals[0])}, takes {time}."
    others = fastest_of_each_kind(question, unranked)
    if others and others[0]["time_s"] < first["time_s"]:
        saving = _saving_text(question, first, others[0])
        text += f" On as many tokens {plan_words(others[0])} would save {saving}, but its loss is unknown."
    return text


def _saving_text(question: AdviceQuestion, slow: PlanRow, fast: PlanRow) -> str:
    """Return the share of a slow plan's time that a fast plan saves, with its interval, as text."""
    low, high = time_ratio_bounds(slow, varied_step(question, slow), row=fast, step=varied_step(question, fast))
    share = 1 - fast["time_s"] / slow["time_s"]
    if low is None or high is None:
        return f"{share:.0%}"
    return f"{share:.0%} ({1 - high:.0%} to {1 - low:.0%})"
