"""Answers: the value that meets a target, its bounds, the row at this value, or the reason why there is no value."""

from __future__ import annotations

import math
from dataclasses import replace
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
from syncline.planner.solving.link_selection import place_of
from syncline.planner.solving.question import OF_METHODS, InverseProblem, OfferedLink
from syncline.planner.solving.targets import SolveTargets
from syncline.planner.solving.variables import DecisionVariable, ProjectionSetting, has_variable
from syncline.specs import ProjectSpec
from syncline.units import format_seconds


def quantity_text(name: str, value: float, training: WholeTraining) -> str:
    """Return the value of a target's quantity as text: ``43.1% of the peak``."""
    percent = f"{100 * value:.3g}%"
    texts: dict[str, str] = {
        "budget": f"{value:,.0f} {training.prices.currency if training.prices else ''}".rstrip(),
        "utilisation": f"{percent} of the peak",
        "compute_utilisation": f"{percent} of a step computing",
        "exposed": f"{percent} of a step waiting",
        "speedup": f"{value:.3g} times the baseline",
        "loss_penalty": f"{100 * (value - 1):+.2g}% in loss",
        "memory": f"{value:.3g} times the memory of a worker",
    }
    return texts[name] if name in texts else format_seconds(value)


def why_never(trials: Trials) -> tuple[str, float]:
    """Return the reason why no tried value meets a target, and the value that comes nearest."""
    targets, training = trials.targets, trials.training
    values = sorted(trials.known)
    evaluations = [trials.known[value] for value in values]
    if all(np.isnan(evaluation.margins[0]) for evaluation in evaluations):
        return evaluations[-1].unknown or "nobody knows", values[-1]
    nearest = int(np.nanargmax([evaluation.margins[0] for evaluation in evaluations]))
    value, best = values[nearest], evaluations[nearest]
    return _computing_alone(best, targets, training) or _why_not(trials, value, best), value


def _why_not(trials: Trials, value: float, best: Evaluation) -> str:
    """Return the reason why even the nearest value misses a target that computing alone would meet.

    Args:
        trials: trials of the variable.
        value: the nearest value.
        best: evaluation at this value.
    """
    variable = trials.variable
    reached = best.reached[best.decides].predicted
    assert reached is not None
    reached_text = quantity_text(best.decides, reached, trials.training)
    if best.decides == "memory":
        workers_text = f", at {variable.text(value)}" if variable.name == "workers" else ""
        return f"it takes {reached_text}{workers_text}; --layout shares a replica out"
    place = variable.place
    if place is None or best.decides in ("speedup", "loss_penalty"):
        return f"at best {reached_text}, at {variable.text(value)}"
    waits_s = best.row["exposed_communication_s"]
    waits = "" if best.decides == "exposed" else f", {format_seconds(waits_s)} of a step waiting"
    if variable.name != "bandwidth":
        return f"its bandwidth alone is too little: without any latency {reached_text}{waits}"
    setting = variable.at(value)
    no_latency = setting._replace(network=place.with_link(replace(at_bandwidth(place.link, value), latency_s=0.0)))
    (trial,) = evaluate_settings([no_latency], trials.targets, trials.training, trials.baseline)
    cause = "its latency alone is too much" if trial.margins[0] >= 0 else "the other links alone take too long"
    return f"{cause}: {reached_text} at {variable.text(value)}{waits}"


NOT_OF_TIME = ("speedup", "exposed", "loss_penalty", "compute_utilisation", "memory")
"""Targets whose quantity is not proportional to the time of a step."""


def _computing_alone(best: Evaluation, targets: SolveTargets, training: WholeTraining) -> str | None:
    """Return the quantity without any waiting for the network, as text, if even it misses the target; else None."""
    row, name = best.row, best.decides
    step_s, waits_s = row["step_time_s"], row["exposed_communication_s"]
    value, limit = best.reached[name].predicted, targets.specified[name]
    if not step_s or value is None or name in NOT_OF_TIME:
        return None
    compute_share = (step_s - waits_s) / step_s
    compute_only = value / compute_share if name == "utilisation" else value * compute_share
    if (compute_only >= limit) if name == "utilisation" else (compute_only <= limit):
        return None
    step_text = "" if name == "step_time_s" else f", {format_seconds(step_s - waits_s)} a step"
    verb = {"utilisation": "comes to", "budget": "costs"}.get(name, "takes")
    return f"computing alone {verb} {quantity_text(name, compute_only, training)}{step_text}"


def why_always(variable: DecisionVariable, nearest: Evaluation, training: WholeTraining, value: float) -> str:
    """Return the reason why every value meets a target: the quantity at ``value``, the nearest to missing it."""
    reached: Any = nearest.reached[nearest.decides].predicted
    return f"met even at {variable.text(value)}: {quantity_text(nearest.decides, reached, training)}"


TIE_TOLERANCE = 0.01
"""Relative difference up to which two answers are a tie."""


class SolvedAnswer(NamedTuple):
    """The answer for a method on a network: the value of the variable, bounds, and the projected times.

    Attributes:
        record: fields of the answer, in addition to those of the row.
        row: row of the projection at the value ``record["at"]``.
        upward: whether the answer's value and all larger values meet the target, so that small values are better
            answers; else the value and all smaller values meet it, and large values are better.
    """

    record: dict[str, Any]
    row: dict[str, Any]
    upward: bool

    def flat(self) -> dict[str, Any]:
        """Return the fields of the answer and of the row together."""
        return self.record | self.row


def answer_of(question: InverseProblem, spec: ProjectSpec, network: Network, method: MethodBase) -> SolvedAnswer:
    """Return the answer for a method on a network: the value of the question's variable that meets the targets."""
    if question.variable in OF_METHODS and not has_variable(method, question.variable):
        return _answer_without_variable(question, spec, network, method)
    variable = question.decision_variable(spec, network, method)
    trials = Trials(variable, question.targets, question.training, question.baseline)
    now = None if variable.now is None else trials.evaluate([variable.now])[0]
    spans_by_bound = [feasible_spans(trials, bound) for bound in range(len(BOUNDS))]
    predicted, optimistic, pessimistic = spans_by_bound
    value, low, high, upward = solved_value(spans_by_bound, variable.sense, variable.grid[0])
    row_value, why = value, None
    if row_value is None and predicted.holds == "always":
        met = {tried: trial for tried, trial in trials.known.items() if trial.margins[0] >= 0}
        row_value = min(met, key=lambda tried: float(met[tried].margins[0]))
        why = why_always(variable, met[row_value], question.training, row_value)
    elif row_value is None:
        why, row_value = why_never(trials)
    (trial,) = trials.evaluate([row_value])
    shortest = None
    if variable.name == "period" and predicted.spans:
        first = predicted.spans[0].first
        shortest = variable.grid[0] if first is None else first
    answer_fields = {
        "sought": variable.name,
        "of": variable.of,
        "level": variable.place.name if variable.place else None,
        "unit": variable.unit,
        "target": question.describe(),
        "holds": predicted.holds,
        "value": value,
        "low": low,
        "high": high,
        "optimistic_holds": optimistic.holds,
        "pessimistic_holds": pessimistic.holds,
        "shortest": shortest,
        "spans": [list(span) for span in predicted.spans],
        "now": variable.now,
        "now_holds": None if now is None else now.is_met,
        "decides": trial.decides.removesuffix("_s"),
        "why": why,
        "at": row_value,
    }
    return SolvedAnswer(answer_fields, trial.row, upward)


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
        "now_holds": trial.is_met, "decides": trial.decides.removesuffix("_s"),
        "why": trial.unknown or f"it has no {question.variable} to be another", "at": None,
    }  # fmt: skip
    return SolvedAnswer(answer_fields, trial.row, upward=True)


def ranked_answers(answers: list[SolvedAnswer]) -> list[SolvedAnswer]:
    """Return the answers, the best first, with ranks and ties: always met, by value, never met, unknown.

    Answers tie if their values are within a hundredth, or if their bounds suggest another order than the values do.
    """
    order = {"always": 0, "never": 2, "unknown": 3}

    def sort_key(answer: SolvedAnswer) -> tuple[int, float]:
        value = answer.record["value"]
        return order.get(answer.record["holds"], 1), 0.0 if value is None else value if answer.upward else -value

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
    for end in ("low", "high"):
        first, second = (best, other) if best.upward else (other, best)
        low, high = first.record[end], second.record[end]
        if low is not None and high is not None and high < low:
            return True
    return False


def same_names(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows, each with the fields of all rows; None where a row has no such field."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in names} for row in rows]


MONTH_S = 365.25 / 12 * 86400.0
"""Seconds of a mean month."""


def choose_network(question: InverseProblem) -> list[dict[str, Any]]:
    """Return a row per method, the cheapest network first: by money if it is known for all, else by bandwidth."""
    rows: list[dict[str, Any]] = []
    for spec in question.specs:
        for network in spec.networks:
            answers = [_cheapest_link(question, spec, network, method) for method in question.methods(spec)]
            answers.sort(key=lambda answer: answer[0])
            for number, (cost, row) in enumerate(answers, start=1):
                row["rank"] = number if row["value"] is not None else None
                row["tie"] = bool(number > 1 and row["rank"] and cost == answers[0][0])
            rows += [row for _, row in answers]
    return rows


def _cheapest_link(
    question: InverseProblem, spec: ProjectSpec, network: Network, method: MethodBase
) -> tuple[tuple[bool, float], dict[str, Any]]:
    """Return a sort key and the row for one method.

    The row is that of the projection with the cheapest link that meets the target, or else with the nearest link. The
    key has whether no link meets the target, and the cost or the bandwidth of the cheapest.
    """
    place, links = place_of(network, question.level), list(question.among)
    settings = [ProjectionSetting(spec, place.with_link(offer.link), method) for offer in links]
    settings.append(ProjectionSetting(spec, network, method))
    *trials, current = evaluate_settings(settings, question.targets, question.training, question.baseline)
    costs = [_cost(offer, trial) for offer, trial in zip(links, trials, strict=True)]
    by_money = all(cost is not None for cost in costs)
    bandwidths = [float(offer.link.bandwidth_bytes_per_s) for offer in links]
    keys: list[Any] = costs if by_money else bandwidths
    order = sorted(range(len(links)), key=lambda index: (keys[index], bandwidths[index], index))
    met_by_bound = [[index for index in order if trials[index].margins[bound] >= 0] for bound in range(len(BOUNDS))]
    met = met_by_bound[0]
    names = [offer.link.name for offer in links]
    value, low, high = (names[indices[0]] if indices else None for indices in met_by_bound)
    if met:
        nearest = met[0]
        holds = "always" if len(met) == len(links) else "in parts"
        why = None
    else:
        nearest = max(order, key=lambda index: np.nan_to_num(trials[index].margins[0], nan=-math.inf))
        holds = "unknown" if all(trial.is_met is None for trial in trials) else "never"
        reached = trials[nearest].reached[trials[nearest].decides].predicted
        reached_text = quantity_text(trials[nearest].decides, reached or math.nan, question.training)
        why = trials[nearest].unknown or f"at best {reached_text}"
        why += "" if holds == "unknown" else f", by {names[nearest]}"
    row = {
        "sought": "network",
        "of": place.describe(),
        "level": place.name,
        "unit": "",
        "target": question.describe(),
        "holds": holds,
        "value": value,
        "low": low,
        "high": high,
        "optimistic_holds": "from" if met_by_bound[1] else "never",
        "pessimistic_holds": "from" if met_by_bound[2] else "never",
        "shortest": None,
        "spans": [[names[index], names[index]] for index in met],
        "now": place.link.name,
        "now_holds": current.is_met,
        "decides": trials[nearest].decides.removesuffix("_s"),
        "why": why,
        "at": names[nearest],
        "by": "money" if by_money else "bandwidth",
        "money": costs[nearest],
        "network_month": links[nearest].month,
        **trials[nearest].row,
    }
    return (not met, keys[nearest] if met else 0.0), row


def _cost(offered: OfferedLink, trial: Evaluation) -> float | None:
    """Return the cost of the training by the price list, plus the cost of the network for the training's duration."""
    row = trial.row
    cost, seconds = row.get("cost"), row.get("training_s")
    if offered.month is None:
        return cost
    if seconds is None:
        return offered.month if "training_s" not in row and "cost" not in row else None
    if "cost" in row and cost is None:
        return None
    return float((cost or 0.0) + offered.month * seconds / MONTH_S)
