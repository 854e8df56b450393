"""The solver: for each setting the value of one variable that meets a target, and the assumptions of the answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from syncline.planner.advice.assumptions import advice_assumptions
from syncline.planner.assumptions import Assumption, projection_assumptions
from syncline.planner.solving.answers import answer_of, ranked_answers, same_names
from syncline.planner.solving.any_plan import as_advice_question, solved_by_any_plan
from syncline.planner.solving.network_choice import choose_network
from syncline.planner.solving.question import InverseProblem
from syncline.specs.study import Record


def solve_rows(question: InverseProblem) -> list[dict[str, Any]]:
    """Return a row per answer, the best first in each setting: the value, and the projection at this value.

    Raises:
        SpecError: there is nothing to vary.
    """
    if question.best:
        return solved_by_any_plan(question)
    if question.variable == "network":
        return choose_network(question)
    rows: list[dict[str, Any]] = []
    for spec in question.specs:
        for network in spec.networks:
            answers = [answer_of(question, spec, network, method) for method in question.methods(spec)]
            rows += [answer.flat() for answer in ranked_answers(answers)]
    return same_names(rows)


def solve_assumptions(rows: Sequence[Record], question: InverseProblem, origins: Mapping[str, str]) -> list[Assumption]:
    """Return the assumptions of the answers, without the value that the rows are solved for.

    Args:
        rows: rows of the answers.
        question: the question.
        origins: origins of the assumptions that options decide, see `option_origins`.
    """
    if question.best:
        spec = question.specs[0]
        return advice_assumptions(as_advice_question(question, spec, spec.networks[0], question.own_methods), origins)
    return projection_assumptions(question.specs, rows, origins)
