"""An answer for each method: the value that meets a target, its bounds, the row at this value, or why there is none."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from syncline.costmodel import Network
from syncline.methods import MethodBase
from syncline.planner.solving.evaluations import Evaluation, Trials, evaluate_settings
from syncline.planner.solving.feasible_intervals import BOUNDS, FeasibleSpans, feasible_spans, solved_value
from syncline.planner.solving.infeasibility import why_always, why_never
from syncline.planner.solving.question import OF_METHODS, InverseProblem
from syncline.planner.solving.variables import ProjectionSetting, has_variable
from syncline.specs import ProjectSpec

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
