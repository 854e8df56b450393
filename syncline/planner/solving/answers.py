"""Answers: the value that meets a target, its bounds, the row at this value, or the reason why there is no value."""

from __future__ import annotations

import math
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from syncline.costmodel import Network
from syncline.methods import MethodBase
from syncline.planner.projection.thresholds import at_bandwidth
from syncline.planner.projection.training_totals import WholeTraining
from syncline.planner.solving.evaluations import (
    BOUNDS,
    Evaluation,
    Trials,
    evaluate_settings,
    feasible_spans,
    solved_value,
)
from syncline.planner.solving.link_selection import link_place
from syncline.planner.solving.question import METHOD_VARIABLES, InverseProblem, OfferedLink
from syncline.planner.solving.targets import SolveTargets
from syncline.planner.solving.variables import ProjectionSetting, has_variable
from syncline.specs import ProjectSpec
from syncline.units import format_seconds


def quantity_text(name: str, value: float, training: WholeTraining) -> str:
    """Return the value of a target's quantity as text: ``43.1% of the peak``."""
    percent, currency = f"{100 * value:.3g}%", training.prices.currency if training.prices else ""
    texts: dict[str, str] = {
        "budget": f"{value:,.0f} {currency}".rstrip(),
        "utilisation": f"{percent} of the peak",
        "compute_utilisation": f"{percent} of a step computing",
        "exposed": f"{percent} of a step waiting",
        "speedup": f"{value:.3g} times the baseline",
        "loss_penalty": f"{100 * (value - 1):+.2g}% in loss",
        "memory": f"{value:.3g} times the memory of a worker",
    }
    return texts[name] if name in texts else format_seconds(value)


def _reached_text(evaluation: Evaluation, training: WholeTraining) -> str:
    """Return as text the predicted quantity of the target that is met by least, or missed by most."""
    target = evaluation.tightest_target
    quantity = evaluation.quantities[target].predicted
    return quantity_text(target, math.nan if quantity is None else quantity, training)


def reason_for_no_value(trials: Trials) -> tuple[str, float]:
    """Return the reason why no tried value meets the targets, and the value that misses them by least.

    If no margin is known, this value is the largest that was tried.
    """
    values = sorted(trials.evaluations)
    margins = [trials.evaluations[value].predicted_margin for value in values]
    if np.isnan(margins).all():
        return trials.evaluations[values[-1]].unknown_reason or "unknown", values[-1]
    nearest_value = values[int(np.nanargmax(margins))]
    nearest = trials.evaluations[nearest_value]
    reason = _computing_misses_target(nearest, trials.targets, trials.training)
    return reason or _nearest_misses_target(trials, nearest_value, nearest), nearest_value


def _nearest_misses_target(trials: Trials, value: float, evaluation: Evaluation) -> str:
    """Return the reason why even the nearest value misses a target that computing alone would meet."""
    variable, target = trials.variable, evaluation.tightest_target
    reached_text = _reached_text(evaluation, trials.training)
    if target == "memory":
        workers_text = f", at {variable.text(value)}" if variable.name == "workers" else ""
        return f"it takes {reached_text}{workers_text}; --layout divides a replica over workers"
    place = variable.place
    if place is None or target in ("speedup", "loss_penalty"):  # no single link is the cause
        return f"at best {reached_text}, at {variable.text(value)}"
    waiting_s = evaluation.row["exposed_communication_s"]
    waiting_text = "" if target == "exposed" else f", {format_seconds(waiting_s)} of a step waiting"
    if variable.name == "latency":  # the nearest value is 0
        return f"its bandwidth is too low even without latency: {reached_text}{waiting_text}"
    # Would the target be met with this bandwidth and no latency?
    link_without_latency = replace(at_bandwidth(place.link, value), latency_s=0.0)
    setting = variable.setting_at(value)._replace(network=place.with_link(link_without_latency))
    (without_latency,) = evaluate_settings([setting], trials.targets, trials.training, trials.baseline)
    is_latency_cause = without_latency.predicted_margin >= 0
    cause = "its latency is too long even with this bandwidth" if is_latency_cause else "the other links take too long"
    return f"{cause}: {reached_text} at {variable.text(value)}{waiting_text}"


NOT_PROPORTIONAL_TO_STEP = ("speedup", "exposed", "loss_penalty", "compute_utilisation", "memory")
"""Targets whose quantity is not proportional to the time of a step, or to its inverse."""


def _computing_misses_target(evaluation: Evaluation, targets: SolveTargets, training: WholeTraining) -> str | None:
    """Return in words what a step without waiting reaches if even this misses the tightest target, else None."""
    row, target = evaluation.row, evaluation.tightest_target
    step_s = row["step_time_s"]
    quantity, limit = evaluation.quantities[target].predicted, targets.specified[target]
    if not step_s or quantity is None or target in NOT_PROPORTIONAL_TO_STEP:
        return None
    compute_s = step_s - row["exposed_communication_s"]
    compute_share = compute_s / step_s
    is_utilisation = target == "utilisation"  # grows as a step gets shorter, and has to reach its limit
    compute_only = quantity / compute_share if is_utilisation else quantity * compute_share
    is_met = compute_only >= limit if is_utilisation else compute_only <= limit
    if is_met:
        return None
    step_text = "" if target == "step_time_s" else f", {format_seconds(compute_s)} a step"
    verb = {"utilisation": "comes to", "budget": "costs"}.get(target, "takes")
    return f"computing alone {verb} {quantity_text(target, compute_only, training)}{step_text}"


TIE_TOLERANCE = 0.01
"""Relative difference up to which two answers are a tie."""


class SolvedAnswer(NamedTuple):
    """The answer for a method on a network: the value of the variable, bounds, and the projected times.

    Attributes:
        record: fields of the answer, in addition to those of the row.
        row: row of the projection at the value ``record["at"]``.
        met_above: whether larger values also meet the target, so that a smaller answer is better; else smaller ones do.
    """

    record: dict[str, Any]
    row: dict[str, Any]
    met_above: bool

    def flat(self) -> dict[str, Any]:
        """Return the fields of the answer and of the row together."""
        return self.record | self.row


def answer_of(question: InverseProblem, spec: ProjectSpec, network: Network, method: MethodBase) -> SolvedAnswer:
    """Return the answer for a method on a network: the value of the question's variable that meets the targets."""
    if question.variable in METHOD_VARIABLES and not has_variable(method, question.variable):
        return _answer_without_variable(question, spec, network, method)
    variable = question.decision_variable(spec, network, method)
    trials = Trials(variable, question.targets, question.training, question.baseline)
    now_holds = None
    if variable.current_value is not None:
        (current,) = trials.evaluate([variable.current_value])
        now_holds = current.is_met
    spans_by_bound = [feasible_spans(trials, bound_index) for bound_index in range(len(BOUNDS))]
    predicted, optimistic, pessimistic = spans_by_bound
    lowest, *_ = variable.grid
    value, low, high, met_above = solved_value(spans_by_bound, variable.sense, lowest)
    row_value, reason = value, None  # the value whose projection gives the answer's other columns
    if value is None and predicted.holds == "always":  # the row is at the value nearest to missing the target
        met = {tried: trial for tried, trial in trials.evaluations.items() if trial.is_met}
        row_value = min(met, key=lambda tried: met[tried].predicted_margin)
        reason = f"met even at {variable.text(row_value)}: {_reached_text(met[row_value], question.training)}"
    elif value is None:
        reason, row_value = reason_for_no_value(trials)
    assert row_value is not None
    (trial,) = trials.evaluate([row_value])
    shortest = None  # the shortest period that meets the target
    if variable.name == "period" and predicted.spans:
        shortest = lowest if predicted.spans[0].first is None else predicted.spans[0].first
    answer_fields = {
        "sought": variable.name, "of": variable.owner, "level": variable.place.name if variable.place else None,
        "unit": variable.unit, "target": question.describe(),
        "holds": predicted.holds, "value": value, "low": low, "high": high,
        "optimistic_holds": optimistic.holds, "pessimistic_holds": pessimistic.holds,
        "shortest": shortest, "spans": [list(span) for span in predicted.spans],
        "now": variable.current_value, "now_holds": now_holds,
        "decides": trial.tightest_target.removesuffix("_s"), "why": reason, "at": row_value,
    }  # fmt: skip
    return SolvedAnswer(answer_fields, trial.row, met_above)


def _answer_without_variable(
    question: InverseProblem, spec: ProjectSpec, network: Network, method: MethodBase
) -> SolvedAnswer:
    """Return the answer for a method that has no period or delay: whether the method meets the target as it is."""
    setting = ProjectionSetting(spec, network, method)
    (trial,) = evaluate_settings([setting], question.targets, question.training, question.baseline)
    answer_fields: dict[str, Any] = {
        "sought": question.variable, "of": method.name, "level": None, "unit": "steps",
        "target": question.describe(),
        "holds": {None: "unknown", True: "always", False: "never"}[trial.is_met], "value": None, "low": None,
        "high": None, "optimistic_holds": None, "pessimistic_holds": None, "shortest": None, "spans": [], "now": None,
        "now_holds": trial.is_met, "decides": trial.tightest_target.removesuffix("_s"),
        "why": trial.unknown_reason or f"it has no {question.variable}", "at": None,
    }  # fmt: skip
    return SolvedAnswer(answer_fields, trial.row, met_above=True)  # either would do: there is no value to sort by


def ranked_answers(answers: list[SolvedAnswer]) -> list[SolvedAnswer]:
    """Return the answers, the best first, with ranks and ties: always met, by value, never met, unknown.

    Answers tie if their values are within a hundredth, or if their bounds suggest another order than the values do.
    """
    groups = {"always": 0, "never": 2, "unknown": 3}  # 1: answers with a value

    def sort_key(answer: SolvedAnswer) -> tuple[int, float]:
        group, value = groups.get(answer.record["holds"], 1), answer.record["value"]
        if value is None:
            return group, 0.0
        return group, value if answer.met_above else -value

    sorted_answers = sorted(answers, key=sort_key)
    for rank, answer in enumerate(sorted_answers, start=1):
        answer.record["rank"] = None if answer.record["holds"] in ("never", "unknown") else rank
        answer.record["tie"] = bool(rank > 1 and answer.record["rank"] and _is_tie(sorted_answers[0], answer))
    return sorted_answers


def _is_tie(best: SolvedAnswer, other: SolvedAnswer) -> bool:
    """Return whether two values are within `TIE_TOLERANCE`, or their bounds suggest another order than the values."""
    if best.record["value"] is None or other.record["value"] is None:
        return bool(best.record["holds"] == other.record["holds"])
    difference = abs(other.record["value"] - best.record["value"])
    if difference <= TIE_TOLERANCE * max(abs(best.record["value"]), abs(other.record["value"])):
        return True
    # If all values above meet the target, the best value is the smallest; bounds in the opposite order make a tie.
    smaller, larger = (best, other) if best.met_above else (other, best)
    for end in ("low", "high"):
        bounds = smaller.record[end], larger.record[end]
        if None not in bounds and bounds[1] < bounds[0]:
            return True
    return False


MONTH_S = 365.25 / 12 * 86400.0
"""Seconds of a mean month."""


def network_rows(question: InverseProblem, spec: ProjectSpec, network: Network) -> list[dict[str, Any]]:
    """Return a row per method with its cheapest offered link, the cheapest first.

    Methods for which every link has a known cost come first, by money; the others follow, by bandwidth.
    """
    keys_and_rows = [_cheapest_link_row(question, spec, network, method) for method in question.methods(spec)]
    keys_and_rows.sort(key=itemgetter(0))
    first_key, _ = keys_and_rows[0]
    for rank, (key, row) in enumerate(keys_and_rows, start=1):
        row["rank"] = rank if row["value"] is not None else None
        row["tie"] = bool(rank > 1 and row["rank"] and key == first_key)
    return [row for _, row in keys_and_rows]


def _cheapest_link_row(
    question: InverseProblem, spec: ProjectSpec, network: Network, method: MethodBase
) -> tuple[tuple[bool, bool, float], dict[str, Any]]:
    """Return a key to sort methods by, and the row of the cheapest offered link on which a method meets the targets.

    If no link meets the targets, the row is that of the link that misses them by least. The key has whether no link
    meets the targets, whether any cost is unknown, and the cost of the cheapest link, or else its bandwidth.
    """
    place, offers = link_place(network, question.level), list(question.among)
    settings = [ProjectionSetting(spec, place.with_link(offer.link), method) for offer in offers]
    settings.append(ProjectionSetting(spec, network, method))  # the present link comes last
    *trials, current = evaluate_settings(settings, question.targets, question.training, question.baseline)
    costs = [_cost_with_network(offer, trial) for offer, trial in zip(offers, trials, strict=True)]
    by_money = all(cost is not None for cost in costs)
    bandwidths = [float(offer.link.bandwidth_bytes_per_s) for offer in offers]
    keys: list[Any] = costs if by_money else bandwidths
    cheapest_first = sorted(range(len(offers)), key=lambda index: (keys[index], bandwidths[index], index))
    # The offers that meet the targets at each bound of the step time, the cheapest first.
    met, met_optimistic, met_pessimistic = (
        [index for index in cheapest_first if trials[index].margins[bound_index] >= 0]
        for bound_index in range(len(BOUNDS))
    )
    names = [offer.link.name for offer in offers]
    nearest = max(cheapest_first, key=lambda index: np.nan_to_num(trials[index].predicted_margin, nan=-math.inf))
    best = met[0] if met else nearest
    trial, reason = trials[best], None
    holds = "always" if len(met) == len(offers) else "in parts"
    if not met:
        holds = "unknown" if all(other.is_met is None for other in trials) else "never"
        reason = trial.unknown_reason or f"at best {_reached_text(trial, question.training)}"
        if holds == "never":
            reason += f", by {names[best]}"
    value, low, high = (names[indices[0]] if indices else None for indices in (met, met_optimistic, met_pessimistic))
    row = {
        "sought": "network", "of": place.describe(), "level": place.name, "unit": "", "target": question.describe(),
        "holds": holds, "value": value, "low": low, "high": high,
        "optimistic_holds": "from" if met_optimistic else "never",
        "pessimistic_holds": "from" if met_pessimistic else "never",
        "shortest": None, "spans": [[names[index], names[index]] for index in met],
        "now": place.link.name, "now_holds": current.is_met,
        "decides": trial.tightest_target.removesuffix("_s"), "why": reason, "at": names[best],
        "by": "money" if by_money else "bandwidth", "money": costs[best], "network_month": offers[best].month_price,
        **trial.row,
    }  # fmt: skip
    return (not met, not by_money, keys[best] if met else 0.0), row


def _cost_with_network(offer: OfferedLink, trial: Evaluation) -> float | None:
    """Return the cost of the training by the price list, plus the price of the offered network during the training.

    Without a whole training, the cost of an offer with a price is that of a month. An unknown cost is None.
    """
    row = trial.row
    if offer.month_price is None:
        return row.get("cost")
    if "training_s" not in row and "cost" not in row:
        return offer.month_price
    cost, training_s = row.get("cost", 0.0), row.get("training_s")  # without a price list only the network costs
    return None if cost is None or training_s is None else float(cost + offer.month_price * training_s / MONTH_S)
