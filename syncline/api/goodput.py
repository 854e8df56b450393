"""Costs of failures, computed without a training."""

from __future__ import annotations

from functools import partial

from syncline.api.result import Result, later
from syncline.planner.goodput.question import goodput_question
from syncline.planner.goodput.rows import goodput_rows, notes
from syncline.planner.transfer import failure_parts, refuse_transfers, tables_after, transfers
from syncline.questions.goodput import Goodput


def answer_goodput(question: Goodput) -> Result:
    """Return the goodput in each combination of a question's values."""
    resolved = goodput_question(question)
    parts = transfers(failure_parts(resolved.failures))
    refuse_transfers(parts, question.strict)
    rows = goodput_rows(resolved)
    transferred = [transfer.record() for transfer in parts]
    answer = {"transferred": transferred, "rows": rows, "notes": notes(resolved, rows)}
    tables = later("syncline.planner.goodput.tables:goodput_tables", rows, answer["notes"])
    failures = resolved.failures.model_dump(mode="json")
    return Result("goodput", answer, tables=partial(tables_after, parts, tables), asked=lambda: {"failures": failures})
