"""What decides, what would change the ranking and what nobody knows, in sentences made of the numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from syncline.costmodel import Network, Sites, TwoLevel
from syncline.costmodel.network.changed import scaled
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.experiments.advice.failing import failure_words
from syncline.experiments.advice.priced import PARTS, PlanRow
from syncline.experiments.advice.question import AdviceQuestion
from syncline.experiments.advice.thresholds import outermost_link, prepared, prepared_row
from syncline.experiments.projection.tables import SHARED_OUT
from syncline.units import format_bandwidth, format_bytes, format_seconds

FREE = 1e-9
"""Factor on a latency that counts as none."""

LARGER_BATCH = 4
"""By which a batch is multiplied, to say what that changes."""


def plan_words(row: PlanRow) -> str:
    """A plan in a few words: ``diloco every 100, 2 replicas of data 32``."""
    return f"{method_words(row)}, {layout_words(row)}"


def method_words(row: PlanRow) -> str:
    """The method, and how its gradients travel where that is all that it sends."""
    plan = row["plan"]
    if plan is None or not plan.method.sends_in_backward:
        return str(row["method"])
    beside = "overlapped" if row["overlap"] == "ddp" else "not overlapped"
    levels = ", level by level" if "hierarchical" in row["carried_by"] else ""
    return f"{row['method']}, {beside}{levels}"


def layout_words(row: PlanRow) -> str:
    """The replicas and what is inside them."""
    if row.get("replicas") is None:
        return str(row["layout"])
    again = ", recomputed" if row["activations"] == "recomputed" else ""
    if row["plan"].method.sends_in_backward and row["replicas"] == 1:
        return f"{row['layout']}{again}"
    if row["layout"] == "one worker":
        return f"{row['replicas']} workers{again}"
    return f"{row['replicas']} replicas of {row['layout']}{again}"


def level_words(network: Network) -> str:
    """What the outermost level's link is between."""
    if isinstance(network, MultiLevel) and len(network.levels) > 1:
        name = network.levels[-2].name
        return f"between {name}s" if name else "between units"
    if isinstance(network, Sites):
        return "between sites"
    return "between nodes" if isinstance(network, TwoLevel) else "between workers"


def decides(
    question: AdviceQuestion, rows: Sequence[PlanRow], others: Sequence[PlanRow], unable: Sequence[PlanRow]
) -> list[str]:
    """What the first plans' time goes to, against data parallelism's; latency, memory, tokens.

    Args:
        question: what is asked.
        rows: ranked, the first least.
        others: whose loss nobody knows.
        unable: rows that cannot be.
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
    return lines


def _step_words(row: PlanRow) -> str:
    parts = [
        f"{format_seconds(row[name])} {told}"
        for name, told in PARTS.items()
        if row[name] and row[name] / row["step_time_s"] >= 0.005
    ]
    return f"A step of {plan_words(row)} takes {format_seconds(row['step_time_s'])}: {', '.join(parts)}."


def _latency_words(question: AdviceQuestion, row: PlanRow) -> list[str]:
    """How much of what is waited for is latency, and how much bytes over the outermost link."""
    link = outermost_link(question.network)
    if not link.latency_s:
        return []
    one = prepared_row(question, row)
    now = one.time_s(question.network)
    without = one.time_s(scaled(question.network, latency=FREE, only=link))
    wide = one.time_s(scaled(question.network, bandwidth=1 / FREE, only=link))
    where = level_words(question.network)
    rate, late = format_bandwidth(float(link.bandwidth_bytes_per_s)), format_seconds(float(link.latency_s))
    return [
        f"Of the first's time the bandwidth {where} is {_share(1 - wide / now)}, the latency "
        f"{_share(1 - without / now)} ({rate}, {late} one way)."
    ]


def _share(of: float) -> str:
    return "under 0.1%" if of < 0.001 else f"{of:.1%}" if of < 0.1 else f"{of:.0%}"


def _memory_words(question: AdviceQuestion, row: PlanRow, unable: Sequence[PlanRow]) -> str:
    room = question.hardware.memory_bytes
    told = f"Memory of the first: {format_bytes(row['memory_bytes'])}" + (f" of {format_bytes(room)}" if room else "")
    parts = [SHARED_OUT[row["sharding"]]] if row["sharding"] != "none" else []
    parts += [f"steps of {row['micro_batches']} micro-batches"] if row["micro_batches"] > 1 else []
    parts += ["layers' activations computed again"] if row["activations"] == "recomputed" else []
    told += f" ({', '.join(parts)})" if parts else ""
    large = [one for one in unable if one["infeasible"].startswith("memory")]
    if large:
        least = "at least " if large[0]["plan"] is None else ""
        told += f"; {plan_words(large[0])} would need {least}{format_bytes(large[0]['memory_bytes'])}"
    return told + "."


def _token_words(row: PlanRow) -> list[str]:
    if row["loss_unknown"] is not None or row["loss_fit"] is None or row["tokens_factor"] == 1:
        return []
    low, high = row["tokens_factor_low"], row["tokens_factor_high"]
    bounds = f"{low:.2g} or more" if high is None else f"{low:.2g} to {high:.2g}"
    told = f"To the loss of data parallelism the first takes {row['tokens_factor']:.3g} times the tokens ({bounds})"
    return [f"{told}, by fit {row['loss_fit']}{' beyond what it has seen' if row['extrapolation'] else ''}."]


def changes(question: AdviceQuestion, rows: Sequence[PlanRow], thresholds: Sequence[dict[str, Any]]) -> list[str]:
    """Where another plan becomes the first, and what a larger batch does.

    Args:
        question: what is asked.
        rows: of one list, the first least.
        thresholds: of `first_changes`.
    """
    where = level_words(question.network)
    lines = [_threshold_words(one, rows, where) for one in thresholds]
    return [line for line in lines if line] + _batch_words(question, rows)


SHOWN = {
    "bandwidth": format_bandwidth,
    "latency": format_seconds,
    "workers": lambda count: f"{count:,.0f} workers",
}


def _threshold_words(one: dict[str, Any], rows: Sequence[PlanRow], where: str) -> str:
    shown, what, up = SHOWN[one["what"]], one["what"], one["direction"] == "above"
    if one["of"] == "data parallelism":
        return _parallel_words(one, rows, where)
    if one["at"] is None and one["looked_to"] == one["now"]:
        return ""
    if one["at"] is None:
        which = {"workers": ("More", "Fewer")}.get(what, ("More", "Less"))[0 if up else 1]
        of = "workers" if what == "workers" else f"{what} {where}"
        does = "do" if what == "workers" else "does"
        return f"{which} {of}, {'up' if up else 'down'} to {shown(one['looked_to'])}, {does} not change the first."
    bounds = "" if one["low"] is None else f" ({shown(one['low'])} to {shown(one['high'])})"
    begins = ("From" if up else "At") if what == "workers" else "Above" if up else "Below"
    of = "" if what == "workers" else f" of {what} {where}"
    return f"{begins} {shown(one['at'])}{bounds}{of} the first is {plan_words(rows[one['becomes']])}."


def _parallel_words(one: dict[str, Any], rows: Sequence[PlanRow], where: str) -> str:
    shown = SHOWN[one["what"]]
    if one["at"] is None:
        return f"Data parallelism is not the first with any bandwidth {where} up to {shown(one['looked_to'])}."
    bounds = f" ({shown(one['low'])} to {shown(one['high'])})"
    return (
        f"Data parallelism is the first above {shown(one['at'])}{bounds} {where}: {plan_words(rows[one['becomes']])}."
    )


def _batch_words(question: AdviceQuestion, rows: Sequence[PlanRow]) -> list[str]:
    """With a larger batch, on as many tokens: fewer exchanges."""
    parallel = next((row for row in rows if row["plan"].method.sends_in_backward), None)
    shown = [rows[0], *([parallel] if parallel is not None and parallel is not rows[0] else [])] if rows else []
    larger = replace(question, batch_tokens=LARGER_BATCH * question.batch_tokens)
    told = []
    for row in shown:
        one = prepared(larger, row["plan"], row["tokens"])
        seconds = one.time_s(question.network)
        if np.isfinite(seconds):
            told.append(
                f"{plan_words(row)} takes {format_seconds(seconds)} in place of {format_seconds(row['time_s'])}"
            )
    if not told:
        return []
    return [
        f"With {LARGER_BATCH} times the batch, on as many tokens, {'; '.join(told)}. What such a batch does to the "
        "loss is another question."
    ]


def unknown(question: AdviceQuestion, rows: Sequence[PlanRow], others: Sequence[PlanRow]) -> list[str]:
    """What the advice does not know.

    Args:
        question: what is asked.
        rows: ranked.
        others: whose loss nobody knows.
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
        lines.append(f"Whether {fewer[0]} takes fewer tokens than data parallelism: fits say so, nobody has tried.")
    first = next(iter([*rows, *others]), None)
    if first is not None:
        lines.append(f"Times are as sure as what they rest on: {first['basis']}.")
    if question.prices is None:
        lines.append("Money, as no prices are given (--prices).")
    counted = "" if question.failures is not None else "Failures and restarts, "
    others_too = f"{counted}evaluation, storage, and what else the links carry: none of it is counted."
    lines.append(f"{others_too[0].upper()}{others_too[1:]}")
    return lines


def _beyond(rows: Sequence[PlanRow]) -> dict[str, list[str]]:
    """By fit, the fields that are beyond what it has seen, and by how much at most."""
    most: dict[str, dict[str, float]] = {}
    for row in rows:
        for one in (row["beyond"] or "").split(", "):
            name, _, factor = one.partition(" ")
            if factor:
                of = most.setdefault(row["loss_fit"], {})
                own = float(factor.removesuffix("x"))
                of[name] = max(of.get(name, own), own, key=lambda each: abs(np.log(each)))
    return {fit: [f"{_spaced(name)} {factor:.3g}x" for name, factor in of.items()] for fit, of in most.items()}


def _spaced(name: str) -> str:
    return name.replace("_", " ")


MOST_REASONS = 4
"""Of a kind that are told."""
