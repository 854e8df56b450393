"""The assumptions of the answers of ``syncline solve``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from syncline.planner.advice.assumptions import advice_assumptions
from syncline.planner.assumptions import Assumption, projection_assumptions
from syncline.planner.solving.any_plan import as_advice_question
from syncline.planner.solving.question import InverseProblem
from syncline.specs import ProjectSpec
from syncline.specs.study import Record


def solve_assumptions(rows: Sequence[Record], question: InverseProblem, origins: Mapping[str, str]) -> list[Assumption]:
    """Return the assumptions of the answers; the sought value stands for itself in the rows.

    Args:
        rows: rows of the answers.
        question: the question.
        origins: origins of the assumptions that options decide, see `option_origins`.
    """
    if question.best:
        spec: ProjectSpec = question.specs[0]
        return advice_assumptions(as_advice_question(question, spec, spec.networks[0], question.own_methods), origins)
    return projection_assumptions(question.specs, rows, origins)
