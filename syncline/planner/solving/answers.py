"""An answer for each method: the value that meets a target, its bounds, the row there, and the reason for no value."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from syncline.costmodel import Network
from syncline.methods import MethodBase
from syncline.planner.solving.evaluations import Evaluation, Trials, evaluate_settings
from syncline.planner.solving.feasible_intervals import FeasibleSpans, feasible_spans, solved_value
from syncline.planner.solving.infeasibility import why_always, why_never
from syncline.planner.solving.question import OF_METHODS, InverseProblem
from syncline.planner.solving.variables import TriedSetting, has_variable
from syncline.specs import ProjectSpec

ALIKE = 0.01
"""Relative difference up to which two answers are a tie."""


class SolvedAnswer(NamedTuple):
    """The answer for one method in one setting.

    Attributes:
        record: fields of the answer, in addition to the row.
        row: row of the projection, at ``record["at"]``.
        upward: whether the answer's value and all above it meet the target, so that small values are the better
            answers; else the value and all below it do, and large values are better.
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
    by_bound = [feasible_spans(trials, bound) for bound in range(3)]
    predicted = by_bound[0]
    value, low, high, upward = solved_value(by_bound, variable.sense, variable.grid[0])
    at_value, why = value, None
    if at_value is None:
        why, at_value = _why(trials, predicted)
    (trial,) = trials.evaluate([at_value])
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
        "optimistic_holds": by_bound[1].holds,
        "pessimistic_holds": by_bound[2].holds,
        "shortest": _shortest(trials, predicted) if variable.name == "period" else None,
        "spans": [list(span) for span in predicted.spans],
        "now": variable.now,
        "now_holds": None if now is None or np.isnan(now.margins[0]) else bool(now.margins[0] >= 0),
        "decides": trial.decides.removesuffix("_s"),
        "why": why,
        "at": at_value,
    }
    return SolvedAnswer(record, trial.row, upward)


def _no_variable(question: InverseProblem, spec: ProjectSpec, network: Network, method: MethodBase) -> SolvedAnswer:
    """Return the answer for a method without the period or delay: whether it meets the target as it is."""
    (trial,) = evaluate_settings(
        [TriedSetting(spec, network, method)], question.targets, question.training, question.baseline
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
    met_trials: dict[float, Evaluation] = {
        value: trial for value, trial in trials.known.items() if trial.margins[0] >= 0
    }
    worst = min(met_trials, key=lambda value: float(met_trials[value].margins[0]))
    return why_always(trials.sought, met_trials[worst], trials.training, worst), worst


def _shortest(trials: Trials, predicted: FeasibleSpans) -> float | None:
    """Return the shortest period that meets the target, or None."""
    if not predicted.spans:
        return None
    first = predicted.spans[0].first
    return trials.sought.grid[0] if first is None else first


def ranked_answers(answers: list[SolvedAnswer]) -> list[SolvedAnswer]:
    """Return the answers, the best first, with ranks and ties: always met, by value, never met, unknown.

    Answers tie if their values are within a hundredth, or if their bounds suggest another order than the values do.
    """
    order = {"always": 0, "never": 2, "unknown": 3}

    def place(answer: SolvedAnswer) -> tuple[int, float]:
        value = answer.record["value"]
        return order.get(answer.record["holds"], 1), 0.0 if value is None else value if answer.upward else -value

    out = sorted(answers, key=place)
    for number, answer in enumerate(out, start=1):
        answer.record["rank"] = None if answer.record["holds"] in ("never", "unknown") else number
        answer.record["tie"] = bool(number > 1 and answer.record["rank"] and _is_tie(out[0], answer))
    return out


def _is_tie(best: SolvedAnswer, other: SolvedAnswer) -> bool:
    if best.record["value"] is None or other.record["value"] is None:
        return bool(best.record["holds"] == other.record["holds"])
    difference = abs(other.record["value"] - best.record["value"])
    if difference <= ALIKE * max(abs(best.record["value"]), abs(other.record["value"])):
        return True
    ends = [(best.record[end], other.record[end]) for end in ("low", "high")]
    return any(a is not None and b is not None and (b < a if best.upward else b > a) for a, b in ends)


def same_names(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows, each with the names of all rows."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in names} for row in rows]
