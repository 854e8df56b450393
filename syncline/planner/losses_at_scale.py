"""The command ``syncline loss``: losses by published fits, for trainings that are too large to repeat here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from syncline.columns import large_text
from syncline.costmodel.scaling.predict import (
    PredictedLoss,
    TrainingAtScale,
    parameters_for_loss,
    predicted_loss,
    tokens_for_loss,
)
from syncline.costmodel.scaling.published import fits_of, loss_fits
from syncline.errors import SpecError
from syncline.questions.clock import Loss
from syncline.questions.declare import listed
from syncline.units import parse_count

if TYPE_CHECKING:
    from rich.console import Group


def loss_rows(question: Loss) -> list[dict[str, Any]]:
    """Return a row for each training of a question; if it has no parameters, for the model that reaches a target loss.

    If the question asks for every fit, each fit of a method gives a row, with the reason if it cannot give the loss.

    Raises:
        SpecError: there is neither a number of parameters nor a loss; or see `predicted_loss`.
    """
    every_fit, fit = question.every_fit, question.fit
    if fit == "all":
        every_fit, fit = True, None
    replica_counts, periods = listed(question.replicas), listed(question.period) or [None]
    settings: list[tuple[str, Any, Any]] = []
    for method in listed(question.method):
        if method == "ddp-adam":  # its loss does not depend on replicas and periods
            settings.append((method, replica_counts[0], None))
        else:
            settings += [(method, replicas, period) for replicas in replica_counts for period in periods]
    target_loss, extrapolate = question.target_loss, question.extrapolate
    if question.parameters is None:
        if target_loss is None:
            raise SpecError("parameters", None, "a number of parameters, or a target loss")
        return [
            _model_row(method, target_loss, replicas=replicas, period=period, fit=fit, extrapolate=extrapolate)
            for method, replicas, period in settings
        ]
    tokens = None if question.tokens is None else parse_count(question.tokens, "tokens")
    batch = None if question.batch_tokens is None else parse_count(question.batch_tokens, "batch_tokens")
    trainings = [
        TrainingAtScale(
            method, parse_count(size, "parameters"), tokens, replicas=replicas, period=period, batch_tokens=batch
        )
        for size in listed(question.parameters)
        for method, replicas, period in settings
    ]
    if not every_fit:
        return [_row(training, fit, target_loss, extrapolate) for training in trainings]
    rows = []
    for training in trainings:
        for published_fit in fits_of(training.method):
            try:
                rows.append(_row(training, published_fit.name, target_loss, extrapolate))
            except SpecError as error:
                rows.append(_unknown_row(training, published_fit.name, str(error)))
    return rows


def _model_row(
    method: str, target_loss: float, replicas: float, period: float | None, fit: str | None, extrapolate: bool
) -> dict[str, Any]:
    """Return the row of the model that reaches a loss, with as many tokens per parameter as the fit has seen."""
    any_parameters = 1e9  # `parameters_for_loss` replaces the number
    training = TrainingAtScale(method, any_parameters, replicas=replicas, period=period)
    reached = parameters_for_loss(target_loss, training, fit, extrapolate)
    return _prediction_row(reached.prediction) | {"parameters_low": reached.low, "parameters_high": reached.high}


def _row(training: TrainingAtScale, fit: str | None, target_loss: float | None, extrapolate: bool) -> dict[str, Any]:
    """Return the row of a training's predicted loss, or of the tokens for a target loss."""
    if target_loss is None:
        return _prediction_row(predicted_loss(training, fit, extrapolate))
    reached = tokens_for_loss(target_loss, training, fit, extrapolate)
    return _prediction_row(reached.prediction) | {"tokens_low": reached.low, "tokens_high": reached.high}


def _prediction_row(predicted: PredictedLoss) -> dict[str, Any]:
    """Return the table row of a predicted loss; the reason for an unknown loss is None."""
    return predicted.row() | {"unknown": None}


def _unknown_row(training: TrainingAtScale, fit: str, reason: str) -> dict[str, Any]:
    """Return the row of a training whose loss a fit does not give, with the reason; its other fields are None."""
    any_row = _prediction_row(predicted_loss(TrainingAtScale("ddp-adam", parameters=1e9)))  # only its names are used
    published = loss_fits()[fit]
    return dict.fromkeys(any_row) | {
        "method": training.method,
        "parameters": training.parameters,
        "tokens": training.tokens,
        "replicas": training.replicas if "replicas" in published.seen_ranges else None,
        "period": training.period if "period" in published.seen_ranges else None,
        "fit": fit,
        "family": published.family,
        "data": published.data,
        "source": published.source,
        "unknown": reason,
    }


def loss_tables(rows: Sequence[Mapping[str, Any]]) -> list[Group]:
    """Return one table, and below it the published fit of each loss, its data and its source."""
    from syncline.planner.tables.table import range_text, table

    def between(row: Mapping[str, Any]) -> str:
        """Return the bounds of a loss as text, or that they are unknown."""
        return "nobody knows" if row["loss"] is not None and row["loss_low"] is None else range_text(row, "loss")

    lines: dict[str, None] = {}  # the keys are the lines below the table, each once
    for row in rows:
        if row["unknown"]:
            lines[f"{row['fit']}: unknown. {row['unknown']}."] = None
            continue
        for excess in row["beyond"]:
            seen = f"{excess['low']:,.4g}"
            if excess["low"] != excess["high"]:
                seen += f" to {excess['high']:,.4g}"
            value = f"{excess['field']} {excess['value']:,.4g}"
            lines[f"~ {row['fit']}: extrapolation: {value}, seen {seen}."] = None
        for name in ("tokens", "parameters"):
            low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
            if low is not None or high is not None:
                low_text, high_text = ("?" if bound is None else large_text(bound) for bound in (low, high))
                lines[f"{name.capitalize()}, nine of ten: {low_text} to {high_text}."] = None
        lines[f"{row['fit']}: {row['basis']}. Of {row['data']}. {row['source']}."] = None
    columns = "method parameters tokens replicas period loss between fit"
    title = "Loss by published fits, in nats per token"
    return [table(title, columns, [dict(row) for row in rows], note="\n".join(lines), values={"between": between})]
