"""Losses of large trainings that cannot be repeated here, predicted by published fits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from syncline.api.arguments import checked
from syncline.api.result import Result
from syncline.api.spec_arguments import listed
from syncline.errors import SpecError
from syncline.units import parse_count


@checked
def loss(
    method: str | Iterable[str] = ("ddp-adam", "diloco"),
    parameters: Any = None,
    *,
    tokens: str | float | None = None,
    replicas: float | Iterable[float] = 2,
    period: float | Iterable[float] | None = None,
    batch_tokens: str | float | None = None,
    fit: str | None = None,
    target_loss: float | None = None,
    extrapolate: bool = False,
    every_fit: bool = False,
) -> Result:
    """Predict the loss of trainings by published fits, with bounds; losses outside a fit's range are marked.

    Args:
        method: a method, or several.
        parameters: N, the number of parameters, ``1.3e9`` or ``"1.3B"``, or several; without it, the function returns
            the model that reaches ``target_loss``.
        tokens: D, the number of tokens of the training; 20 per parameter by default.
        replicas: M, the number of replicas, or several.
        period: H, the number of steps between synchronisations, or several; by default the fit's.
        batch_tokens: tokens of all replicas in a step; the best batch by default.
        fit: name of the fit to use.
        target_loss: a loss to reach; the answer has the tokens, or the model, that it takes.
        extrapolate: predict losses also outside the range of the fits.
        every_fit: return a row for every fit that covers a method.

    Returns:
        The result with a row per training.

    Raises:
        SpecError: an argument is wrong; the message says which one, and which values are accepted.

    >>> import syncline as sl
    >>> [(row["method"], round(row["loss"], 3)) for row in sl.loss(["ddp-adam", "diloco"], "1.3B", replicas=4).rows]
    [('ddp-adam', 2.454), ('diloco', 2.473)]
    """
    from syncline.costmodel.scaling.predict import TrainingAtScale
    from syncline.planner.losses_at_scale import loss_tables, losses_at_scale, model_for_loss

    methods, replica_counts, periods = listed(method), listed(replicas), [None] if period is None else listed(period)
    if parameters is None:
        if target_loss is None:
            raise SpecError("parameters", None, "how many the model has, or a target loss")
        rows = [
            model_for_loss(name, target_loss, m, h, fit, extrapolate)
            for name in methods
            for m in (replica_counts if name != "ddp-adam" else replica_counts[:1])
            for h in (periods if name != "ddp-adam" else [None])
        ]
    else:
        trainings = [
            TrainingAtScale(
                name,
                parse_count(size, "parameters"),
                None if tokens is None else parse_count(tokens, "tokens"),
                m,
                h,
                None if batch_tokens is None else parse_count(batch_tokens, "batch_tokens"),
            )
            for size in listed(parameters)
            for name in methods
            for m in (replica_counts if name != "ddp-adam" else replica_counts[:1])
            for h in (periods if name != "ddp-adam" else [None])
        ]
        rows = losses_at_scale(trainings, fit, target_loss, extrapolate, every_fit)
    return Result("loss", {"rows": rows}, tables=lambda: loss_tables(rows))
