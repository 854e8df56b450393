"""Advice on the plans that train a model on a cluster."""

from __future__ import annotations

from syncline.api.result import Result, later
from syncline.planner.advice.advice import compute_advice
from syncline.planner.advice.question import advice_question
from syncline.questions.advise import Advise


def answer_advise(question: Advise) -> Result:
    """Return the plans of a question, ranked."""
    advice = compute_advice(advice_question(question))
    tables = later("syncline.planner.advice.tables:advice_tables", advice, question.every_plan)
    return Result("advise", advice.record(), tables=tables)
