"""An answer for each method: the value that meets a target, its bounds, the row at this value, or why there is none.

Reasons in words why a target is always or never met.

The cheapest of several links that could replace one: the cost of each, and whether it meets a target.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import (
    Any,
    NamedTuple,
)

import numpy as np

from syncline.costmodel import Network
from syncline.methods import MethodBase
from syncline.planner.projection.thresholds import at_bandwidth
from syncline.planner.projection.training_totals import WholeTraining
from syncline.planner.solving.evaluations import (
    BOUNDS,
    Evaluation,
    FeasibleSpans,
    Trials,
    evaluate_settings,
    feasible_spans,
    solved_value,
)
from syncline.planner.solving.link_selection import place_of
from syncline.planner.solving.question import (
    OF_METHODS,
    InverseProblem,
    OfferedLink,
)
from syncline.planner.solving.targets import SolveTargets
from syncline.planner.solving.variables import DecisionVariable, ProjectionSetting, has_variable
from syncline.specs import ProjectSpec
from syncline.units import format_seconds


def share_text(share: float) -> str:
    """Return a share for people: ``43.1%``."""
    return f"{100 * share:.3g}%"


def quantity_text(name: str, value: float, training: WholeTraining) -> str:
    """Return the value of a target's quantity, for people."""
    if name == "budget":
        return f"{value:,.0f} {training.prices.currency if training.prices else ''}".rstrip()
    texts: dict[str, Callable[[float], str]] = {
        "deadline_s": format_seconds,
        "step_time_s": format_seconds,
        "utilisation": lambda v: f"{share_text(v)} of the peak",
        "compute_utilisation": lambda v: f"{share_text(v)} of a step computing",
        "exposed": lambda v: f"{share_text(v)} of a step waiting",
        "speedup": lambda v: f"{v:.3g} times the baseline",
        "loss_penalty": lambda v: f"{100 * (v - 1):+.2g}% in loss",
        "memory": lambda v: f"{v:.3g} times the memory of a worker",
    }
    return texts[name](value)


def why_never(trials: Trials) -> tuple[str, float]:
    """Return the reason why no value meets a target, and the value that comes nearest."""
    targets, training = trials.targets, trials.training
    values = sorted(trials.known)
    evaluations = [trials.known[value] for value in values]
    if all(np.isnan(evaluation.margins[0]) for evaluation in evaluations):
        return evaluations[-1].unknown or "nobody knows", values[-1]
    nearest = int(np.nanargmax([evaluation.margins[0] for evaluation in evaluations]))
    value, best = values[nearest], evaluations[nearest]
    reason = _computing_alone(best, targets, training)
    if reason:
        return reason, value
    reached = best.reached[best.decides].predicted
    assert reached is not None
    reached_text = quantity_text(best.decides, reached, training)
    return _why_not(trials, value, best, reached_text), value


def _why_not(trials: Trials, value: float, best: Evaluation, reached_text: str) -> str:
    """Return the reason why even the nearest value misses a target that computing alone would meet."""
    variable = trials.variable
    if best.decides == "memory":
        workers_text = f", at {variable.text(value)}" if variable.name == "workers" else ""
        return f"it takes {reached_text}{workers_text}; --layout shares a replica out"
    if variable.place is None or best.decides in ("speedup", "loss_penalty"):
        return f"at best {reached_text}, at {variable.text(value)}"
    waits_s = best.row["exposed_communication_s"]
    waits = "" if best.decides == "exposed" else f", {format_seconds(waits_s)} of a step waiting"
    if variable.name == "bandwidth":
        return f"{_limiting_part(trials, value)}: {reached_text} at {variable.text(value)}{waits}"
    return f"its bandwidth alone is too little: without any latency {reached_text}{waits}"


def _limiting_part(trials: Trials, value: float) -> str:
    """Return whether this link's latency or the other links make a step wait at the highest bandwidth."""
    setting, place = trials.variable.at(value), trials.variable.place
    assert place is not None
    network = place.with_link(replace(at_bandwidth(place.link, value), latency_s=0.0))
    (trial,) = evaluate_settings([setting._replace(network=network)], trials.targets, trials.training, trials.baseline)
    return "its latency alone is too much" if trial.margins[0] >= 0 else "the other links alone take too long"


NOT_OF_TIME = ("speedup", "exposed", "loss_penalty", "compute_utilisation", "memory")
"""Targets that do not follow from a step without waiting."""


def _computing_alone(best: Evaluation, targets: SolveTargets, training: WholeTraining) -> str | None:
    """Return the quantity without any waiting for the network, as text, if even it misses the target; else None."""
    row, name = best.row, best.decides
    step_s, waits_s = row["step_time_s"], row["exposed_communication_s"]
    value, limit = best.reached[name].predicted, targets.specified[name]
    if not step_s or value is None or name in NOT_OF_TIME:
        return None
    compute_share = (step_s - waits_s) / step_s
    alone = value / compute_share if name == "utilisation" else value * compute_share
    if (alone >= limit) if name == "utilisation" else (alone <= limit):
        return None
    step_text = "" if name == "step_time_s" else f", {format_seconds(step_s - waits_s)} a step"
    texts = {
        "utilisation": f"computing alone comes to {quantity_text(name, alone, training)}{step_text}",
        "budget": f"computing alone costs {quantity_text(name, alone, training)}{step_text}",
    }
    return texts.get(name, f"computing alone takes {quantity_text(name, alone, training)}{step_text}")


def why_always(variable: DecisionVariable, nearest: Evaluation, training: WholeTraining, value: float) -> str:
    """Return the reason why every value meets a target: the quantity at ``value``, the nearest to missing it."""
    reached: Any = nearest.reached[nearest.decides].predicted
    return f"met even at {variable.text(value)}: {quantity_text(nearest.decides, reached, training)}"


TIE_TOLERANCE = 0.01
"""Relative difference up to which two answers are a tie."""


class SolvedAnswer(NamedTuple):
    """The answer for one method in one setting.

    Attributes:
        record: fields of the answer, in addition to the row.
        row: row of the projection, at ``record["at"]``.
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
    """Return the answer for one method in one setting."""
    if question.variable in OF_METHODS and not has_variable(method, question.variable):
        return _no_variable(question, spec, network, method)
    variable = question.decision_variable(spec, network, method)
    trials = Trials(variable, question.targets, question.training, question.baseline)
    now = None if variable.now is None else trials.evaluate([variable.now])[0]
    spans_by_bound = [feasible_spans(trials, bound) for bound in range(len(BOUNDS))]
    predicted, optimistic, pessimistic = spans_by_bound
    value, low, high, upward = solved_value(spans_by_bound, variable.sense, variable.grid[0])
    row_value, why = value, None
    if row_value is None:
        why, row_value = _why(trials, predicted)
    (trial,) = trials.evaluate([row_value])
    record: dict[str, Any] = {
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
        "shortest": _shortest(trials, predicted) if variable.name == "period" else None,
        "spans": [list(span) for span in predicted.spans],
        "now": variable.now,
        "now_holds": None if now is None or np.isnan(now.margins[0]) else bool(now.margins[0] >= 0),
        "decides": trial.decides.removesuffix("_s"),
        "why": why,
        "at": row_value,
    }
    return SolvedAnswer(record, trial.row, upward)


def _no_variable(question: InverseProblem, spec: ProjectSpec, network: Network, method: MethodBase) -> SolvedAnswer:
    """Return the answer for a method that has no period or delay: whether the method meets the target as it is."""
    (trial,) = evaluate_settings(
        [ProjectionSetting(spec, network, method)], question.targets, question.training, question.baseline
    )
    unknown = bool(np.isnan(trial.margins[0]))
    met_now = None if unknown else bool(trial.margins[0] >= 0)
    record: dict[str, Any] = {
        "sought": question.variable, "of": method.name, "level": None, "unit": "steps",
        "target": question.describe(),
        "holds": "unknown" if unknown else "always" if met_now else "never", "value": None, "low": None, "high": None,
        "optimistic_holds": None, "pessimistic_holds": None, "shortest": None, "spans": [], "now": None,
        "now_holds": met_now, "decides": trial.decides.removesuffix("_s"),
        "why": trial.unknown or f"it has no {question.variable} to be another", "at": None,
    }  # fmt: skip
    return SolvedAnswer(record, trial.row, True)


def _why(trials: Trials, predicted: FeasibleSpans) -> tuple[str, float]:
    """Return the reason why there is no value, and the value of the row to show."""
    if predicted.holds != "always":
        return why_never(trials)
    feasible: dict[float, Evaluation] = {value: trial for value, trial in trials.known.items() if trial.margins[0] >= 0}
    worst = min(feasible, key=lambda value: float(feasible[value].margins[0]))
    return why_always(trials.variable, feasible[worst], trials.training, worst), worst


def _shortest(trials: Trials, predicted: FeasibleSpans) -> float | None:
    """Return the shortest period that meets the target, or None."""
    if not predicted.spans:
        return None
    first = predicted.spans[0].first
    return trials.variable.grid[0] if first is None else first


def ranked_answers(answers: list[SolvedAnswer]) -> list[SolvedAnswer]:
    """Return the answers, the best first, with ranks and ties: always met, by value, never met, unknown.

    Answers tie if their values are within a hundredth, or if their bounds suggest another order than the values do.
    """
    order = {"always": 0, "never": 2, "unknown": 3}

    def sort_key(answer: SolvedAnswer) -> tuple[int, float]:
        value = answer.record["value"]
        return order.get(answer.record["holds"], 1), 0.0 if value is None else value if answer.upward else -value

    ranked = sorted(answers, key=sort_key)
    for rank, answer in enumerate(ranked, start=1):
        answer.record["rank"] = None if answer.record["holds"] in ("never", "unknown") else rank
        answer.record["tie"] = bool(rank > 1 and answer.record["rank"] and _is_tie(ranked[0], answer))
    return ranked


def _is_tie(best: SolvedAnswer, other: SolvedAnswer) -> bool:
    """Return whether two values are within a hundredth, or their bounds suggest another order than the values."""
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
            answers = [_answer(question, spec, network, method) for method in question.methods(spec)]
            answers.sort(key=lambda answer: answer["_order"])
            for number, answer in enumerate(answers, start=1):
                answer["rank"] = number if answer["value"] is not None else None
                answer["tie"] = bool(number > 1 and answer["rank"] and answer["_order"] == answers[0]["_order"])
            rows += [{name: value for name, value in answer.items() if name != "_order"} for answer in answers]
    return rows


def _answer(question: InverseProblem, spec: ProjectSpec, network: Network, method: MethodBase) -> dict[str, Any]:
    """Return the row for one method: the cheapest link that meets the target, or the nearest, and the row with it."""
    place = place_of(network, question.level)
    settings = [ProjectionSetting(spec, place.with_link(offer.link), method) for offer in question.among]
    present = ProjectionSetting(spec, network, method)
    *trials, current = evaluate_settings([*settings, present], question.targets, question.training, question.baseline)
    offered = list(question.among)
    costs = [_cost(offer, trial) for offer, trial in zip(offered, trials, strict=True)]
    by_money = all(cost is not None for cost in costs)
    bandwidths = [float(offer.link.bandwidth_bytes_per_s) for offer in offered]
    order = sorted(range(len(offered)), key=lambda i: (costs[i] if by_money else bandwidths[i], bandwidths[i], i))
    met_by_bound = [[i for i in order if trials[i].margins[bound] >= 0] for bound in range(len(BOUNDS))]
    cheapest = [indices[0] if indices else None for indices in met_by_bound]
    unknown = all(np.isnan(trial.margins[0]) for trial in trials)
    best = cheapest[0]
    nearest = best if best is not None else max(order, key=lambda i: np.nan_to_num(trials[i].margins[0], nan=-math.inf))
    names = [offer.link.name for offer in offered]
    if best is None:
        holds = "unknown" if unknown else "never"
    else:
        holds = "always" if len(met_by_bound[0]) == len(names) else "in parts"
    nearest_trial = trials[nearest]
    reached = nearest_trial.reached[nearest_trial.decides].predicted
    why = None
    if best is None:
        reached_text = quantity_text(nearest_trial.decides, reached or math.nan, question.training)
        why = nearest_trial.unknown or f"at best {reached_text}"
        why += "" if unknown else f", by {names[nearest]}"
    low, value, high = (None if i is None else names[i] for i in (cheapest[1], cheapest[0], cheapest[2]))
    return {
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
        "spans": [[names[i], names[i]] for i in met_by_bound[0]],
        "now": place.link.name,
        "now_holds": None if np.isnan(current.margins[0]) else bool(current.margins[0] >= 0),
        "decides": nearest_trial.decides.removesuffix("_s"),
        "why": why,
        "at": names[nearest],
        "by": "money" if by_money else "bandwidth",
        "money": costs[nearest],
        "network_month": offered[nearest].month,
        **nearest_trial.row,
        "_order": (best is None, (costs[best] if by_money else bandwidths[best]) if best is not None else 0.0),
    }


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
