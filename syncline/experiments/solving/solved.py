"""An answer for each method: the value that meets a target, its bounds, the row there, and why there is none."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from syncline.costmodel import Network
from syncline.experiments.solving.question import Inverse
from syncline.experiments.solving.reasons import why_always, why_never
from syncline.experiments.solving.sought import TriedSetting
from syncline.experiments.solving.spans import Met, found_value, met
from syncline.experiments.solving.tried import Trials, Tried, tried
from syncline.methods import MethodBase
from syncline.specs import ProjectSpec

ALIKE = 0.01
"""By which part two answers may differ and be a tie."""


class SolvedAnswer(NamedTuple):
    """Of one method in one setting.

    Attributes:
        record: what is told of it, beside the row.
        row: of the projection, at ``record["at"]``.
        upward: whether values from the one that is told on meet the target, of which small ones are the better
            answers; else those up to it, and large ones are.
    """

    record: dict[str, Any]
    row: dict[str, Any]
    upward: bool

    def flat(self) -> dict[str, Any]:
        """Both together."""
        return self.record | self.row


def solved(question: Inverse) -> list[dict[str, Any]]:
    """A row per answer, the best first in each setting: what is sought, where it holds, and the projection there.

    Raises:
        SpecError: nothing that can be varied.
    """
    if question.best:
        from syncline.experiments.solving.any_plan import solved_by_any_plan  # only here: it loads the search

        return solved_by_any_plan(question)
    if question.variable == "network":
        from syncline.experiments.solving.between_networks import between_networks

        return between_networks(question)
    rows: list[dict[str, Any]] = []
    for spec in question.specs:
        for network in spec.networks:
            answers = [answer_of(question, spec, network, method) for method in question.methods(spec)]
            rows += [one.flat() for one in ranked_answers(answers)]
    return same_names(rows)


def answer_of(question: Inverse, spec: ProjectSpec, network: Network, method: MethodBase) -> SolvedAnswer:
    """What meets the target of a question, for one method in one setting."""
    sought = question.sought(spec, network, method) if _has(question, method) else None
    if sought is None:
        return _no_period(question, spec, network, method)
    trials = Trials(sought, question.targets, question.training, question.baseline)
    now = None if sought.now is None else trials.at([sought.now])[0]
    by_bound = [met(trials, bound) for bound in range(3)]
    predicted = by_bound[0]
    value, low, high, upward = found_value(by_bound, sought.sense, sought.grid[0])
    at, why = value, None
    if at is None:
        why, at = _why(trials, predicted)
    (here,) = trials.at([at])
    record: dict[str, Any] = {
        "sought": sought.name,
        "of": sought.of,
        "level": sought.place.name if sought.place else None,
        "unit": sought.unit,
        "target": question.describe(),
        "holds": predicted.holds,
        "value": value,
        "low": low,
        "high": high,
        "optimistic_holds": by_bound[1].holds,
        "pessimistic_holds": by_bound[2].holds,
        "shortest": _shortest(trials, predicted) if sought.name == "period" else None,
        "spans": [list(one) for one in predicted.spans],
        "now": sought.now,
        "now_holds": None if now is None or np.isnan(now.margins[0]) else bool(now.margins[0] >= 0),
        "decides": here.decides.removesuffix("_s"),
        "why": why,
        "at": at,
    }
    return SolvedAnswer(record, here.row, upward)


def _has(question: Inverse, method: MethodBase) -> bool:
    return question.variable != "period" or "period" in type(method).model_fields


def _no_period(question: Inverse, spec: ProjectSpec, network: Network, method: MethodBase) -> SolvedAnswer:
    """Of a method without a period: whether it meets the target as it is."""
    (here,) = tried([TriedSetting(spec, network, method)], question.targets, question.training, question.baseline)
    unknown = bool(np.isnan(here.margins[0]))
    met_now = None if unknown else bool(here.margins[0] >= 0)
    record: dict[str, Any] = {
        "sought": "period", "of": method.name, "level": None, "unit": "steps",
        "target": question.describe(),
        "holds": "unknown" if unknown else "always" if met_now else "never", "value": None, "low": None, "high": None,
        "optimistic_holds": None, "pessimistic_holds": None, "shortest": None, "spans": [], "now": None,
        "now_holds": met_now, "decides": here.decides.removesuffix("_s"),
        "why": here.unknown or "it has no period to be another", "at": None,
    }  # fmt: skip
    return SolvedAnswer(record, here.row, True)


def _why(trials: Trials, predicted: Met) -> tuple[str, float]:
    """Why there is no value, and where the row is taken."""
    if predicted.holds != "always":
        return why_never(trials)
    known: dict[float, Tried] = {value: one for value, one in trials.known.items() if one.margins[0] >= 0}
    worst = min(known, key=lambda value: float(known[value].margins[0]))
    return why_always(trials.sought, known[worst], trials.training, worst), worst


def _shortest(trials: Trials, predicted: Met) -> float | None:
    """Of periods the shortest that meets the target."""
    if not predicted.spans:
        return None
    first = predicted.spans[0].first
    return trials.sought.grid[0] if first is None else first


def ranked_answers(answers: list[SolvedAnswer]) -> list[SolvedAnswer]:
    """The best first: those that are always met, by their values, never, unknown; with their rank and ties told.

    A tie has values within a hundredth, or bounds that say another order than the values do.
    """
    order = {"always": 0, "never": 2, "unknown": 3}

    def place(one: SolvedAnswer) -> tuple[int, float]:
        value = one.record["value"]
        return order.get(one.record["holds"], 1), 0.0 if value is None else value if one.upward else -value

    out = sorted(answers, key=place)
    for number, one in enumerate(out, start=1):
        one.record["rank"] = None if one.record["holds"] in ("never", "unknown") else number
        one.record["tie"] = bool(number > 1 and one.record["rank"] and _is_tie(out[0], one))
    return out


def _is_tie(best: SolvedAnswer, other: SolvedAnswer) -> bool:
    if best.record["value"] is None or other.record["value"] is None:
        return bool(best.record["holds"] == other.record["holds"])
    apart = abs(other.record["value"] - best.record["value"])
    if apart <= ALIKE * max(abs(best.record["value"]), abs(other.record["value"])):
        return True
    ends = [(best.record[end], other.record[end]) for end in ("low", "high")]
    return any(a is not None and b is not None and (b < a if best.upward else b > a) for a, b in ends)


def same_names(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of which each has all names that some have."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in names} for row in rows]
