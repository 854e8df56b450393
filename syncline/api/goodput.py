"""Goodput of machines that fail."""

from __future__ import annotations

from syncline.api.result import Result, deferred
from syncline.planner.goodput.question import failure_parts, goodput_notes, goodput_question, goodput_rows
from syncline.planner.transfer import refuse_transfers, transfers
from syncline.questions.clock import Goodput


def answer_goodput(question: Goodput) -> Result:
    """Return the goodput for each combination of the question's workers, recoveries and intervals."""
    resolved = goodput_question(question)
    transferred = transfers(failure_parts(resolved.failures))  # rates that rest on failures of other machines
    refuse_transfers(transferred, question.strict)
    rows = goodput_rows(resolved)
    remarks = goodput_notes(resolved, rows)
    record = {"transferred": [transfer.record() for transfer in transferred], "rows": rows, "notes": remarks}
    tables = deferred("syncline.planner.goodput.question:goodput_tables", rows, remarks)
    failures = resolved.failures.model_dump(mode="json")
    return Result("goodput", record, tables=tables, transfers=transferred, question=lambda: {"failures": failures})
