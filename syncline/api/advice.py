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
    resolved = advice_question(question)
    transfers = transfers_of([first_spec(resolved)])
    refuse_transfers(transfers, question.strict)
    advice = compute_advice(resolved)
    tables = later("syncline.planner.advice.tables:advice_tables", advice, question.every_plan)
    record = {"transferred": [transfer.record() for transfer in transfers]} | advice.record()
    return Result("advise", record, tables=partial(tables_after, transfers, tables))
