"""Advice on the plans that train a model on a cluster."""

from __future__ import annotations

from functools import partial

from syncline.api.result import Result, later
from syncline.planner.advice.advice import compute_advice
from syncline.planner.advice.plans import first_spec
from syncline.planner.advice.question import advice_question
from syncline.planner.transfer import refuse_transfers, tables_after, transfers_of
from syncline.questions.advise import Advise


def answer_advise(question: Advise) -> Result:
    """Return the plans of a question, ranked."""
    asked = advice_question(question)
    found = transfers_of([first_spec(asked)])
    refuse_transfers(found, question.strict)
    advice = compute_advice(asked)
    tables = later("syncline.planner.advice.tables:advice_tables", advice, question.every_plan)
    told = {"transferred": [transfer.record() for transfer in found]} | advice.record()
    return Result("advise", told, tables=partial(tables_after, found, tables))
