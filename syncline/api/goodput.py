"""Costs of failures, computed without a training."""

from __future__ import annotations

from syncline.api.result import Result
from syncline.planner.goodput.question import goodput_question
from syncline.planner.goodput.rows import goodput_rows, notes
from syncline.planner.goodput.tables import goodput_tables
from syncline.questions.goodput import Goodput


def answer_goodput(question: Goodput) -> Result:
    """Return the goodput in each combination of a question's values."""
    resolved = goodput_question(question)
    rows = goodput_rows(resolved)
    remarks = notes(resolved, rows)
    saved_fields = {"failures": resolved.failures.model_dump(mode="json")}
    return Result(
        "goodput",
        {"rows": rows, "notes": remarks},
        tables=lambda: goodput_tables(rows, remarks),
        asked=lambda: saved_fields,
    )
