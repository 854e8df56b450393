"""Ranked plans of a training on a cluster."""

from __future__ import annotations

from syncline.api.result import Result, deferred
from syncline.planner.advice.advice import compute_advice
from syncline.planner.advice.plans import base_spec
from syncline.planner.advice.question import advice_question
from syncline.planner.transfer import refuse_transfers, transfers_of
from syncline.questions.projections import Advise


def answer_advise(question: Advise) -> Result:
    """Return the ranked plans that train a model on a cluster."""
    resolved = advice_question(question)
    transfers = transfers_of([base_spec(resolved)])  # parts that rest on measurements of other machines or sizes
    refuse_transfers(transfers, question.strict)
    advice = compute_advice(resolved)
    tables = deferred("syncline.planner.advice.tables:advice_tables", advice, question.every_plan)
    record = {"transferred": [transfer.record() for transfer in transfers]} | advice.record()
    return Result("advise", record, tables=tables, transfers=transfers)
