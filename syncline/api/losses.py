"""Predicted losses of trainings."""

from __future__ import annotations

from syncline.api.result import Result, deferred
from syncline.planner.losses_at_scale import loss_rows
from syncline.questions.clock import Loss


def answer_loss(question: Loss) -> Result:
    """Return the predicted loss of each training of the question, or the model that reaches the target loss."""
    rows = loss_rows(question)
    return Result("loss", {"rows": rows}, tables=deferred("syncline.planner.losses_at_scale:loss_tables", rows))
