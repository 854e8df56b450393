"""The solver: for each setting the value of one variable that meets a target."""

from __future__ import annotations

from typing import Any

from syncline.planner.solving.answers import answer_of, ranked_answers, same_names
from syncline.planner.solving.question import InverseProblem


def solve_rows(question: InverseProblem) -> list[dict[str, Any]]:
    """Return a row per answer, the best first in each setting: the value, where it holds, and the projection there.

    Raises:
        SpecError: there is nothing to vary.
    """
    if question.best:
        from syncline.planner.solving.any_plan import solved_by_any_plan  # only here: it loads the search

        return solved_by_any_plan(question)
    if question.variable == "network":
        from syncline.planner.solving.network_choice import choose_network

        return choose_network(question)
    rows: list[dict[str, Any]] = []
    for spec in question.specs:
        for network in spec.networks:
            answers = [answer_of(question, spec, network, method) for method in question.methods(spec)]
            rows += [answer.flat() for answer in ranked_answers(answers)]
    return same_names(rows)
