"""The other way round: how many tokens, or how large a model, a loss takes; and how long that lasts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from syncline.costmodel.scaling.predict import PredictedLoss, TrainingAtScale, predicted_loss
from syncline.errors import SpecError

LEAST, MOST = 1e6, 1e18
"""Tokens, and parameters, that are looked between."""


@dataclass(frozen=True)
class LossReached:
    """What a loss takes.

    Attributes:
        value: tokens, or parameters.
        low: where the lower bound of the loss reaches it already; None where nobody knows, or below what is looked at.
        high: where the upper bound has reached it; None likewise, or where it never does.
        at: the loss there.
    """

    value: float
    low: float | None
    high: float | None
    at: PredictedLoss


def tokens_for_loss(
    target_loss: float, trained: TrainingAtScale, fit: str | None = None, extrapolate: bool = False
) -> LossReached:
    """The tokens that a model of this size takes to a loss.

    Args:
        target_loss: in nats per token.
        trained: the training; its tokens do not count.
        fit: see `predicted_loss`.
        extrapolate: likewise. Of a fit along 20 tokens per parameter every other number of tokens is.

    Raises:
        SpecError: a loss that no number of tokens reaches, or as `predicted_loss` where they are found.

    >>> reached = tokens_for_loss(2.6, TrainingAtScale("ddp-adam", 1e9), "chinchilla")
    >>> f"{reached.value:.3g} tokens"
    '1.24e+10 tokens'
    """
    return _reached(target_loss, lambda tokens: replace(trained, tokens=tokens), fit, extrapolate, "tokens")


def parameters_for_loss(
    target_loss: float, trained: TrainingAtScale, fit: str | None = None, extrapolate: bool = False
) -> LossReached:
    """The model that a loss takes, trained on as many tokens per parameter as the fit has seen (20 of a law of both).

    Args:
        target_loss: in nats per token.
        trained: the training; its parameters and tokens do not count.
        fit: see `predicted_loss`.
        extrapolate: likewise.

    Raises:
        SpecError: as `tokens_for_loss`.

    >>> reached = parameters_for_loss(2.4, TrainingAtScale("diloco", 1e9, replicas=2))
    >>> f"{reached.value:.3g} parameters on {reached.at.trained.tokens:.3g} tokens"
    '1.62e+09 parameters on 3.24e+10 tokens'
    """
    return _reached(
        target_loss,
        lambda parameters: replace(trained, parameters=parameters, tokens=None),
        fit,
        extrapolate,
        "parameters",
    )


def _reached(
    target: float, of: Callable[[float], TrainingAtScale], fit: str | None, extrapolate: bool, what: str
) -> LossReached:
    def side(name: str) -> Callable[[float], float | None]:
        return lambda value: getattr(predicted_loss(of(value), fit, extrapolate=True), name)

    value = _crossing(target, side("loss"))
    if value is None:
        ends = [predicted_loss(of(end), fit, extrapolate=True).loss for end in (MOST, LEAST)]
        raise SpecError("target_loss", target, f"a loss between {ends[0]:.4g} and {ends[1]:.4g}, which {what} decide")
    at = predicted_loss(of(value), fit, extrapolate)
    return LossReached(value, _crossing(target, side("low")), _crossing(target, side("high")), at)


def _crossing(target: float, loss: Callable[[float], float | None]) -> float | None:
    """Where a falling loss is the target, by bisection of the logarithm; None if it is nowhere."""
    low, high = np.log(LEAST), np.log(MOST)
    first, last = loss(LEAST), loss(MOST)
    if first is None or last is None or not last <= target <= first:
        return None
    for _ in range(64):
        middle = (low + high) / 2
        here = loss(float(np.exp(middle)))
        assert here is not None
        low, high = (middle, high) if here > target else (low, middle)
    return float(np.exp(high))


def time_to_loss_s(
    reached: LossReached, tokens_per_s: float, low: float = 1.0, high: float = 1.0
) -> tuple[float, float | None, float | None]:
    """How long it takes: ``tokens / rate``, and its bounds.

    Args:
        reached: tokens.
        tokens_per_s: of all workers together; positive.
        low: factor on the time between which and ``high`` nine of ten times are; above 0, at most 1.
        high: at least 1.

    Raises:
        SpecError: a rate that is not positive.

    Logarithms of what is off add up by their squares, as of independent causes.
    """
    if not 0 < tokens_per_s < float("inf"):
        raise SpecError("tokens_per_s", tokens_per_s, "a positive number")
    seconds = reached.value / tokens_per_s

    def bound(tokens: float | None, factor: float, sign: int) -> float | None:
        if tokens is None:
            return None
        return seconds * float(np.exp(sign * np.hypot(np.log(tokens / reached.value), np.log(factor))))

    return seconds, bound(reached.low, low, -1), bound(reached.high, high, 1)
