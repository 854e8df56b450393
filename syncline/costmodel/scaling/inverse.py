"""The inverse of loss prediction: the tokens or the parameters for a target loss, and the time to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from syncline.costmodel.scaling.predict import PredictedLoss, TrainingAtScale, predicted_loss
from syncline.errors import SpecError

LEAST, MOST = 1e6, 1e18
"""Bounds of the search for tokens and for parameters."""


@dataclass(frozen=True)
class LossReached:
    """The tokens or parameters at which a training reaches a target loss, with bounds.

    Attributes:
        value: tokens, or parameters.
        low: value at which the lower bound of the loss reaches the target; None without bounds, or outside the search.
        high: value at which the upper bound of the loss reaches the target; None without bounds, or outside the search.
        prediction: prediction of the loss at ``value``.
    """

    value: float
    low: float | None
    high: float | None
    prediction: PredictedLoss


def tokens_for_loss(
    target_loss: float, training: TrainingAtScale, fit: str | None = None, extrapolate: bool = False
) -> LossReached:
    """Return the tokens after which a model of this size reaches a loss.

    Args:
        target_loss: target in nats per token.
        training: the training; its tokens are ignored.
        fit: see `predicted_loss`.
        extrapolate: see `predicted_loss`. For a fit at 20 tokens per parameter, any other ratio is an extrapolation.

    Raises:
        SpecError: a loss that no number of tokens reaches, or an error of `predicted_loss` at the result.

    >>> reached = tokens_for_loss(2.6, TrainingAtScale("ddp-adam", 1e9), "chinchilla")
    >>> f"{reached.value:.3g} tokens"
    '1.24e+10 tokens'
    """
    return _loss_reached(target_loss, lambda tokens: replace(training, tokens=tokens), fit, extrapolate, "tokens")


def parameters_for_loss(
    target_loss: float, training: TrainingAtScale, fit: str | None = None, extrapolate: bool = False
) -> LossReached:
    """Return the parameters of a model that reaches a loss, at the fit's tokens per parameter.

    A law of parameters and tokens uses 20 tokens per parameter. The parameters and tokens of the training are ignored;
    arguments and errors are those of `tokens_for_loss`.

    >>> reached = parameters_for_loss(2.4, TrainingAtScale("diloco", 1e9, replicas=2))
    >>> f"{reached.value:.3g} parameters on {reached.prediction.training.tokens:.3g} tokens"
    '1.62e+09 parameters on 3.24e+10 tokens'
    """

    def training_at(parameters: float) -> TrainingAtScale:
        return replace(training, parameters=parameters, tokens=None)

    return _loss_reached(target_loss, training_at, fit, extrapolate, "parameters")


def _loss_reached(
    target: float, training_at: Callable[[float], TrainingAtScale], fit: str | None, extrapolate: bool, quantity: str
) -> LossReached:
    """Return the value of a quantity, tokens or parameters, at which a training reaches the target loss."""

    def loss_or_bound(name: str) -> Callable[[float], float | None]:
        return lambda value: getattr(predicted_loss(training_at(value), fit, extrapolate=True), name)

    value = _crossing(target, loss_or_bound("loss"))
    if value is None:
        least, largest = (predicted_loss(training_at(end), fit, extrapolate=True).loss for end in (MOST, LEAST))
        expected = f"a loss between {least:.4g} and {largest:.4g}, which {quantity} decide"
        raise SpecError("target_loss", target, expected)
    prediction = predicted_loss(training_at(value), fit, extrapolate)
    low, high = (_crossing(target, loss_or_bound(name)) for name in ("low", "high"))
    return LossReached(value, low, high, prediction)


def _crossing(target: float, loss: Callable[[float], float | None]) -> float | None:
    """Return the argument from `LEAST` to `MOST` at which a falling loss equals the target, or None, by bisection."""
    low, high = np.log(LEAST), np.log(MOST)
    first, last = loss(LEAST), loss(MOST)
    if first is None or last is None or not last <= target <= first:
        return None
    for _ in range(64):
        middle = (low + high) / 2
        middle_loss = loss(float(np.exp(middle)))
        assert middle_loss is not None
        low, high = (middle, high) if middle_loss > target else (low, middle)
    return float(np.exp(high))


def time_to_loss_s(
    reached: LossReached, tokens_per_s: float, low: float = 1.0, high: float = 1.0
) -> tuple[float, float | None, float | None]:
    """Return the seconds to a loss, ``tokens / rate``, with their lower and upper bounds.

    Args:
        reached: tokens at which the training reaches the loss.
        tokens_per_s: rate of all workers together; positive.
        low: lower factor on the time, above 0, at most 1; nine of ten times are between ``low`` and ``high``.
        high: upper factor on the time, at least 1.

    Raises:
        SpecError: a rate that is not positive.

    The squares of the errors' logarithms add up, because their causes are independent.
    """
    if not 0 < tokens_per_s < float("inf"):
        raise SpecError("tokens_per_s", tokens_per_s, "a positive number")
    seconds = reached.value / tokens_per_s

    def bound(tokens: float | None, factor: float, sign: int) -> float | None:
        """Return the seconds at bounds of the tokens and of the time, combined in quadrature."""
        if tokens is None:
            return None
        return seconds * float(np.exp(sign * np.hypot(np.log(tokens / reached.value), np.log(factor))))

    return seconds, bound(reached.low, low, -1), bound(reached.high, high, 1)
