"""Losses of trainings that nobody can repeat here, by published fits."""

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
    """The loss of trainings, by published fits: with bounds, and marked where a fit has not seen the like.

    Args:
        method: or several.
        parameters: N, ``1.3e9`` or ``"1.3B"``, or several; without them what a target loss takes is a model.
        tokens: D, of the whole training; 20 per parameter unless given.
        replicas: M of the method, or several.
        period: H, or several; what the fit has seen unless given.
        batch_tokens: of a step of all replicas; the best unless given.
        fit: by name.
        target_loss: the tokens, or the model, that it takes.
        extrapolate: whether to answer beyond what the fits have seen.
        every_fit: whether each fit that covers a method answers.

    Raises:
        SpecError: what is wrong, where, and what would be accepted.

    >>> import syncline as sl
    >>> [(row["method"], round(row["loss"], 3)) for row in sl.loss(["ddp-adam", "diloco"], "1.3B", replicas=4).rows]
    [('ddp-adam', 2.454), ('diloco', 2.473)]
    """
    from syncline.costmodel.scaling.predict import TrainingAtScale
    from syncline.planner.losses_at_scale import loss_tables, losses_at_scale, model_for_loss

    methods, many, periods = listed(method), listed(replicas), [None] if period is None else listed(period)
    if parameters is None:
        if target_loss is None:
            raise SpecError("parameters", None, "how many the model has, or a target loss")
        told = [
            model_for_loss(one, target_loss, m, h, fit, extrapolate)
            for one in methods
            for m in (many if one != "ddp-adam" else many[:1])
            for h in (periods if one != "ddp-adam" else [None])
        ]
    else:
        asked = [
            TrainingAtScale(
                one,
                parse_count(size, "parameters"),
                None if tokens is None else parse_count(tokens, "tokens"),
                m,
                h,
                None if batch_tokens is None else parse_count(batch_tokens, "batch_tokens"),
            )
            for size in listed(parameters)
            for one in methods
            for m in (many if one != "ddp-adam" else many[:1])
            for h in (periods if one != "ddp-adam" else [None])
        ]
        told = losses_at_scale(asked, fit, target_loss, extrapolate, every_fit)
    return Result("loss", {"rows": told}, tables=lambda: loss_tables(told))
