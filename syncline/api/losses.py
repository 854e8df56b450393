"""Losses of large trainings that cannot be repeated here, predicted by published fits."""

from __future__ import annotations

from syncline.api.result import Result, later
from syncline.planner.losses_at_scale import loss_rows
from syncline.questions.loss import Loss


def answer_loss(question: Loss) -> Result:
    """Return the loss of each training of a question, or the model that reaches a loss."""
    rows = loss_rows(question)
    return Result("loss", {"rows": rows}, tables=later("syncline.planner.losses_at_scale:loss_tables", rows))
