"""Advice on the plans that train a model on a cluster."""

from __future__ import annotations

from typing import Any

from syncline.api.result import Result
from syncline.planner.advice.advice import compute_advice
from syncline.planner.advice.question import advice_question
from syncline.questions.advise import Advise


def answer_advise(question: Advise) -> Result:
    """Return the plans of a question, ranked."""
    advice = compute_advice(advice_question(question))

    def tables() -> Any:
        from syncline.planner.advice.tables import advice_tables  # only here: JSON needs no rich

        return advice_tables(advice, question.every_plan)

    return Result("advise", advice.record(), tables=tables)
