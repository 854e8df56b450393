"""``syncline loss``: what published fits say of a training that nobody can repeat here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from syncline.costmodel.scaling.inverse import parameters_for_loss, tokens_for_loss
from syncline.costmodel.scaling.predict import PredictedLoss, TrainingAtScale, predicted_loss
from syncline.costmodel.scaling.published import fits_of, loss_fits
from syncline.errors import SpecError

if TYPE_CHECKING:
    from rich.console import Group


def losses_at_scale(
    trained: Sequence[TrainingAtScale],
    fit: str | None = None,
    target_loss: float | None = None,
    extrapolate: bool = False,
    every_fit: bool = False,
) -> list[dict[str, Any]]:
    """A row per training, and per fit where every one is asked for.

    Args:
        trained: the trainings; without parameters in the question what a target takes is a model, else tokens.
        fit: by name; the first that covers a method unless given.
        target_loss: rows say the tokens that it takes.
        extrapolate: see `predicted_loss`.
        every_fit: whether each fit that covers a method answers; one that has not seen the like says so in its row.

    Raises:
        SpecError: see `predicted_loss`.
    """
    rows = []
    for one in trained:
        for name in [each.name for each in fits_of(one.method)] if every_fit else [fit]:
            try:
                rows.append(_row(one, name, target_loss, extrapolate))
            except SpecError as error:
                if not every_fit:
                    raise
                assert name is not None
                rows.append(_unknown(one, name, str(error)))
    return rows


def model_for_loss(
    method: str, target_loss: float, replicas: float, period: float | None, fit: str | None, extrapolate: bool
) -> dict[str, Any]:
    """A row with the model that a loss takes, on as many tokens per parameter as the fit has seen."""
    asked = TrainingAtScale(method, 1e9, replicas=replicas, period=period)
    reached = parameters_for_loss(target_loss, asked, fit, extrapolate)
    return _row_of(reached.at) | {"parameters_low": reached.low, "parameters_high": reached.high}


def _row(one: TrainingAtScale, fit: str | None, target_loss: float | None, extrapolate: bool) -> dict[str, Any]:
    if target_loss is None:
        return _row_of(predicted_loss(one, fit, extrapolate))
    reached = tokens_for_loss(target_loss, one, fit, extrapolate)
    return _row_of(reached.at) | {"tokens_low": reached.low, "tokens_high": reached.high}


def _row_of(told: PredictedLoss) -> dict[str, Any]:
    return told.row() | {"unknown": None}


def _unknown(one: TrainingAtScale, fit: str, why: str) -> dict[str, Any]:
    row = dict.fromkeys(_row_of(predicted_loss(TrainingAtScale("ddp-adam", 1e9))))
    of = loss_fits()[fit]
    return row | {
        "method": one.method,
        "parameters": one.parameters,
        "tokens": one.tokens,
        "replicas": one.replicas if "replicas" in of.seen else None,
        "period": one.period if "period" in of.seen else None,
        "fit": fit,
        "family": of.family,
        "data": of.data,
        "source": of.source,
        "unknown": why,
    }


def loss_tables(rows: Sequence[Mapping[str, Any]]) -> list[Group]:
    """One table, and below it what each loss rests on."""
    from syncline.experiments.columns import table, text_of

    def number(name: str) -> Any:
        return lambda row: "-" if row[name] is None else f"{row[name]:,.4g}"

    def bounds(row: Mapping[str, Any]) -> str:
        if row["loss_low"] is None:
            return "-" if row["loss"] is None else "nobody knows"
        return f"{row['loss_low']:.3f} to {row['loss_high']:.3f}"

    def large(name: str) -> Any:
        return lambda row: "-" if row[name] is None else f"{row[name] / 1e9:,.4g} B"

    def loss(row: Mapping[str, Any]) -> str:
        return "-" if row["loss"] is None else f"{row['loss']:.3f}{' ~' if row['extrapolation'] else ''}"

    columns = [
        text_of("method"), ("model", large("parameters")), ("tokens", large("tokens")),
        ("replicas", number("replicas")), ("period", number("period")),
        ("loss", loss), ("nine of ten", bounds), text_of("fit"),
    ]  # fmt: skip
    lines: dict[str, None] = {}
    for row in rows:
        if row["unknown"]:
            lines[f"{row['fit']}: unknown. {row['unknown']}."] = None
            continue
        for one in row["beyond"]:
            seen = f"{one['low']:,.4g}" + ("" if one["low"] == one["high"] else f" to {one['high']:,.4g}")
            lines[f"~ {row['fit']}: extrapolation: {one['field']} {one['value']:,.4g}, seen {seen}."] = None
        for name, what in (("tokens", "Tokens"), ("parameters", "Parameters")):
            if row.get(f"{name}_low") is not None or row.get(f"{name}_high") is not None:
                ends = [row[f"{name}_{end}"] for end in ("low", "high")]
                told = " to ".join("?" if end is None else f"{end:.3g}" for end in ends)
                lines[f"{what}, nine of ten: {told}."] = None
        lines[f"{row['fit']}: {row['basis']}. Of {row['data']}. {row['source']}."] = None
    return [table("Loss by published fits, in nats per token", columns, [dict(row) for row in rows], "\n".join(lines))]
