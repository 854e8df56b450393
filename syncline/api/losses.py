"""Losses of large trainings that cannot be repeated here, predicted by published fits."""

from __future__ import annotations

from syncline.api.result import Result, later
from syncline.costmodel.scaling.predict import TrainingAtScale
from syncline.errors import SpecError
from syncline.planner.losses_at_scale import losses_at_scale, model_for_loss
from syncline.questions.declare import listed
from syncline.questions.loss import Loss
from syncline.units import parse_count


def answer_loss(question: Loss) -> Result:
    """Return the loss of each training of a question, or the model that reaches a loss."""
    fit, every_fit = (None, True) if question.fit == "all" else (question.fit, question.every_fit)
    replicas, periods = listed(question.replicas), listed(question.period) or [None]
    settings = [
        (method, m, h)
        for method in listed(question.method)
        for m in (replicas if method != "ddp-adam" else replicas[:1])
        for h in (periods if method != "ddp-adam" else [None])
    ]
    if question.parameters is None:
        if question.target_loss is None:
            raise SpecError("parameters", None, "how many the model has, or a target loss")
        loss, extrapolate = question.target_loss, question.extrapolate
        rows = [model_for_loss(method, loss, m, h, fit, extrapolate) for method, m, h in settings]
    else:
        tokens = None if question.tokens is None else parse_count(question.tokens, "tokens")
        batch = None if question.batch_tokens is None else parse_count(question.batch_tokens, "batch_tokens")
        trainings = [
            TrainingAtScale(method, parse_count(size, "parameters"), tokens, m, h, batch)
            for size in listed(question.parameters)
            for method, m, h in settings
        ]
        rows = losses_at_scale(trainings, fit, question.target_loss, question.extrapolate, every_fit)
    return Result("loss", {"rows": rows}, tables=later("syncline.planner.losses_at_scale:loss_tables", rows))
