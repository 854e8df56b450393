"""Prediction of a training's loss by a published fit, and the tokens, parameters or time for a target loss.

A prediction has bounds, and a mark if it extrapolates. A method's gain over data parallelism is at most that at the
measured end of its curve, see `syncline.costmodel.scaling.measured_end`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from syncline.costmodel.numerics.arrays import require
from syncline.costmodel.scaling import laws
from syncline.costmodel.scaling.measured_end import measured_end
from syncline.costmodel.scaling.published import TOKEN_LAWS, ddp_fit_of, fit_named, token_shifts
from syncline.errors import SpecError


@dataclass(frozen=True)
class TrainingAtScale:
    """The sizes of a training whose loss is predicted.

    Args:
        method: name of the method, for instance ``diloco``, with AdamW as the update rule.
        parameters: N, parameters of the model; positive.
        tokens: D, tokens of the whole training; None means the tokens per parameter of the fit.
        replicas: M, replicas of the method; data parallelism has one on any number of workers.
        period: H, steps between two exchanges; None means the period of the fit.
        batch_tokens: tokens of a step of all replicas; None means the best batch.
    """

    method: str
    parameters: float
    tokens: float | None = None
    replicas: float = 1.0
    period: float | None = None
    batch_tokens: float | None = None

    def __post_init__(self) -> None:
        for name in ("parameters", "tokens", "replicas", "period", "batch_tokens"):
            value = getattr(self, name)
            is_number = isinstance(value, Real) and not isinstance(value, bool)
            if value is not None and not (is_number and 0 < value < float("inf")):
                raise SpecError(name, value, "a positive number")

    def completed_by(self, fit: laws.LossFit) -> TrainingAtScale:
        """Return the training with the tokens and the period of a fit where they are None."""
        tokens, period = self.tokens, self.period
        if tokens is None:
            tokens = self.parameters * (fit.tokens_per_parameter or laws.TOKENS_RATIO)
        if period is None:
            # The shortest period of the fit's data; 1 for data parallelism, which averages in every step.
            period = fit.seen_ranges["period"].low if "period" in fit.seen_ranges else 1.0
        return replace(self, tokens=tokens, period=period)

    def range_variables(self, fit: laws.LossFit) -> dict[str, float]:
        """Return the values of this training's quantities that can have a range in a fit, by name."""
        assert self.tokens is not None and self.period is not None
        variables = {
            "parameters": float(self.parameters),
            "tokens": float(self.tokens),
            "tokens_per_parameter": self.tokens / self.parameters,
            "replicas": float(self.replicas),
            "period": float(self.period),
        }
        if fit.best_batch is not None and self.batch_tokens is not None:
            variables["batch_over_best"] = self.batch_tokens / fit.best_batch.value(variables)
        return variables


class FieldOutside(NamedTuple):
    """A quantity of a training whose value is outside the range of the data of a loss fit.

    Attributes:
        value: value of the quantity that ``field`` names.
        low: lower end of the range.
        high: upper end of the range.
        factor: the value over the nearer end of the range: below 1 if the value is too small, else above 1.
        basis: measurements of the loss outside the range; None if there are none.
    """

    field: str
    value: float
    low: float
    high: float
    factor: float
    basis: str | None


@dataclass(frozen=True)
class PredictedLoss:
    """The prediction of a training's loss by a published fit.

    Attributes:
        loss: predicted loss in nats per token.
        low: lower bound; nine of ten measured losses are between the bounds; None without bounds.
        high: upper bound; None without bounds.
        basis: measurements that support the bounds.
        training: the training; tokens and period are those of the fit where none were given.
        beyond: the training's quantities that are outside the range of the fit.
        gain_limit: measurements that limit the gain over data parallelism; None if the law's gain is less.
    """

    loss: float
    low: float | None
    high: float | None
    basis: str
    fit: laws.LossFit
    training: TrainingAtScale
    beyond: tuple[FieldOutside, ...]
    gain_limit: str | None = None

    @property
    def extrapolation(self) -> bool:
        """Return whether any quantity of the training is outside the range of the fit's data."""
        return bool(self.beyond)

    def row(self) -> dict[str, Any]:
        """Return the prediction as a table row of plain values."""
        training, best_batch_tokens = self.training, None
        if self.fit.best_batch is not None:
            best_batch_tokens = self.fit.best_batch.value(training.range_variables(self.fit))
        return {
            "method": training.method,
            "parameters": training.parameters,
            "tokens": training.tokens,
            "replicas": training.replicas if "replicas" in self.fit.seen_ranges else None,
            "period": training.period if "period" in self.fit.seen_ranges else None,
            "batch_tokens": training.batch_tokens,
            "best_batch_tokens": best_batch_tokens,
            "loss": self.loss,
            "loss_low": self.low,
            "loss_high": self.high,
            "extrapolation": self.extrapolation,
            "beyond": [field._asdict() for field in self.beyond],
            "basis": self.basis,
            "gain_limit": self.gain_limit,
            "fit": self.fit.name,
            "family": self.fit.family,
            "data": self.fit.data,
            "assumes": self.fit.assumes,
            "source": self.fit.source,
        }


def predicted_loss(training: TrainingAtScale, fit: str | None = None, extrapolate: bool = False) -> PredictedLoss:
    """Return the loss of a training, predicted by a published fit.

    Args:
        fit: name of the fit; None means the first fit that covers the method.
        extrapolate: whether to predict outside the range of the fit; the prediction then says so.

    >>> answer = predicted_loss(TrainingAtScale("diloco", 1.3e9, replicas=4))
    >>> round(answer.loss, 3), round(answer.low, 2), round(answer.high, 2), answer.extrapolation
    (2.473, 2.44, 2.51, False)
    """
    used_fit = fit_named(fit, training.method)
    complete = training.completed_by(used_fit)
    variables = complete.range_variables(used_fit)
    # The prediction by the law, its corrections outside the law's data, and the logarithms of all error factors.
    loss, bases = used_fit.law.value(variables), [used_fit.within.basis]
    error_logs: list[laws.Bounds] = [laws.log_bounds(used_fit.within, 1.0)]
    if used_fit.tokens_per_parameter is not None:  # the laws of tokens convert the loss to other numbers of tokens
        reference_tokens = used_fit.tokens_per_parameter * variables["parameters"]
        shifts = token_shifts(variables["parameters"], variables["tokens"], reference_tokens)
        loss *= float(np.exp(shifts.mean()))
        error_logs.append((shifts.min() - shifts.mean(), shifts.max() - shifts.mean()))
    beyond = []
    for name, seen_range in used_fit.seen_ranges.items():
        factor = seen_range.factor_outside(variables[name]) if name in variables else 1.0
        if abs(factor - 1) <= RANGE_TOLERANCE:
            continue
        if not extrapolate:
            covers = f"which fit {used_fit.name!r} covers; 'extrapolate' permits values beyond it"
            if name == "batch_over_best" and complete.batch_tokens is not None:
                best = f"times the best batch ({complete.batch_tokens / variables[name]:,.0f} tokens)"
                raise SpecError("batch_tokens", complete.batch_tokens, f"{seen_range} {best}, {covers}")
            expected = f"{seen_range}, {covers}"
            raise SpecError(name, float(f"{variables[name]:.12g}"), expected)  # without errors of rounding
        correction_log, correction_error_logs, basis = _correction(used_fit, variables, name, factor)
        loss *= float(np.exp(correction_log))
        error_logs.append(correction_error_logs)
        beyond.append(FieldOutside(name, variables[name], seen_range.low, seen_range.high, factor, basis))
        bases.append(f"{name}: {basis or 'unknown'}")

    # The loss over data parallelism's is at least that at the largest measured models.
    gain_limit = None
    end = None if training.method == "ddp-adam" else measured_end(used_fit.family, training.method)
    if end is not None:
        ddp_training = TrainingAtScale("ddp-adam", complete.parameters, complete.tokens)
        ddp_loss = predicted_loss(ddp_training, ddp_fit_of(used_fit).name, extrapolate=True).loss
        assert isinstance(used_fit.law, laws.PowerLaw)
        exponents = dict(used_fit.law.exponents)
        for name, drift in used_fit.drifts.items():  # corrections are powers, like the law
            exponents[name] = exponents.get(name, 0.0) + drift.exponent
        least_loss = ddp_loss * end.ratio(variables, exponents)
        if least_loss > loss:
            loss = least_loss
            gain_limit = f"gain over data parallelism at most that of {end.basis}"
            bases.append(gain_limit)
    bounds = laws.joint_bounds(loss, error_logs)
    return PredictedLoss(loss, *bounds, "; ".join(bases), used_fit, complete, tuple(beyond), gain_limit)


RANGE_TOLERANCE = 1e-6
"""Relative tolerance of a range, so that rounding does not move 20 tokens per parameter outside."""

TOKENS_BASIS = f"spread of {len(TOKEN_LAWS)} laws of parameters and tokens ({', '.join(TOKEN_LAWS)})"
"""Basis of bounds of losses on other numbers of tokens than a fit's."""


def _correction(
    fit: laws.LossFit, variables: Mapping[str, float], name: str, factor: float
) -> tuple[float, laws.Bounds, str | None]:
    """Return the correction of a law's loss for a quantity ``name`` that is ``factor`` outside the range of the fit.

    Returns:
        The logarithm of the correction, the logarithms of its lower and upper error factor, and the measurements that
        support these (None if there are none).
    """
    if name == "tokens_per_parameter":  # `predicted_loss` has applied the laws of tokens
        return 0.0, (0.0, 0.0), TOKENS_BASIS
    if isinstance(fit.law, laws.AdditiveLaw):  # the other laws of tokens change by other factors beyond the range
        edge = {**variables, name: variables[name] / factor}
        log_change = float(np.log(fit.law.value(variables) / fit.law.value(edge)))
        log_changes = [float(np.log(law.value(variables) / law.value(edge))) for law in TOKEN_LAWS.values()]
        lowest, highest = min(log_change, *log_changes), max(log_change, *log_changes)
        return 0.0, (lowest - log_change, highest - log_change), TOKENS_BASIS
    drift: laws.Drift | None = fit.drifts.get(name)
    if drift is None:
        return 0.0, (None, None), None
    e_folds = float(np.log(factor))
    return drift.exponent * e_folds, laws.log_bounds(drift.uncertainty, abs(e_folds)), drift.uncertainty.basis


LEAST_SEARCHED, MOST_SEARCHED = 1e6, 1e18
"""Bounds of the search for tokens and for parameters."""


@dataclass(frozen=True)
class LossReached:
    """The tokens or parameters at which a training reaches a target loss, with bounds.

    Attributes:
        value: tokens, or parameters.
        low: value at which the lower bound of the loss reaches the target; None without bounds, or if no value from
            `LEAST_SEARCHED` to `MOST_SEARCHED` does.
        high: value at which the upper bound of the loss reaches the target; None in the same cases.
    """

    value: float
    low: float | None
    high: float | None
    prediction: PredictedLoss


def tokens_for_loss(
    target_loss: float, training: TrainingAtScale, fit: str | None = None, extrapolate: bool = False
) -> LossReached:
    """Return the tokens on which a model of ``training.parameters`` parameters reaches a target loss.

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

    A law of parameters and tokens uses 20 tokens per parameter. The parameters and tokens of ``training`` are ignored;
    the other arguments and the errors are those of `tokens_for_loss`.

    >>> reached = parameters_for_loss(2.4, TrainingAtScale("diloco", 1e9, replicas=2))
    >>> f"{reached.value:.3g} parameters on {reached.prediction.training.tokens:.3g} tokens"
    '1.62e+09 parameters on 3.24e+10 tokens'
    """
    return _loss_reached(
        target_loss, lambda size: replace(training, parameters=size, tokens=None), fit, extrapolate, "parameters"
    )


def _loss_reached(
    target: float, training_at: Callable[[float], TrainingAtScale], fit: str | None, extrapolate: bool, quantity: str
) -> LossReached:
    """Return the value of a quantity, ``tokens`` or ``parameters``, at which a training reaches the target loss.

    ``training_at`` returns the training with a value of the quantity.
    """

    def prediction_at(amount: float) -> PredictedLoss:
        return predicted_loss(training_at(amount), fit, extrapolate=True)

    value = _argument_of_loss(target, lambda amount: prediction_at(amount).loss)
    if value is None:
        least_loss, largest_loss = prediction_at(MOST_SEARCHED).loss, prediction_at(LEAST_SEARCHED).loss
        expected = f"a loss between {least_loss:.4g} and {largest_loss:.4g}, which {quantity} decide"
        raise SpecError("target_loss", target, expected)
    # The search extrapolates in any case; here a result outside the range of the fit is refused unless `extrapolate`.
    prediction = predicted_loss(training_at(value), fit, extrapolate)
    # The lower bound of a falling loss reaches the target at fewer tokens or parameters than the loss itself.
    low = _argument_of_loss(target, lambda amount: prediction_at(amount).low)
    high = _argument_of_loss(target, lambda amount: prediction_at(amount).high)
    return LossReached(value, low, high, prediction)


def _argument_of_loss(target: float, loss: Callable[[float], float | None]) -> float | None:
    """Return the argument from `LEAST_SEARCHED` to `MOST_SEARCHED` at which a falling loss equals the target.

    None if no argument gives the target, or if the loss is None at an end.
    """
    first, last = loss(LEAST_SEARCHED), loss(MOST_SEARCHED)
    if first is None or last is None or not last <= target <= first:
        return None
    low, high = np.log(LEAST_SEARCHED), np.log(MOST_SEARCHED)  # bisected in logarithms, as they are 12 decades apart
    for _ in range(64):  # more halvings than a float has bits
        middle = (low + high) / 2
        middle_loss = loss(float(np.exp(middle)))
        assert middle_loss is not None
        if middle_loss > target:
            low = middle
        else:
            high = middle
    return float(np.exp(high))


def time_to_loss_s(
    reached: LossReached, tokens_per_s: float, low: float = 1.0, high: float = 1.0
) -> tuple[float, float | None, float | None]:
    """Return the seconds in which a training reaches a loss, ``tokens / rate``, with their lower and upper bound.

    The errors of tokens and of the time are independent, see `joint_bounds`.

    Args:
        tokens_per_s: rate of all workers together; positive.
        low: lower bound of a step's time, divided by the predicted time; above 0, at most 1.
        high: upper bound of a step's time, divided by the predicted time; at least 1.
    """
    require(0 < tokens_per_s < float("inf"), "tokens_per_s", tokens_per_s, "a positive number")
    seconds = reached.value / tokens_per_s
    token_logs = laws.log_ratio(reached.low, reached.value), laws.log_ratio(reached.high, reached.value)
    return seconds, *laws.joint_bounds(seconds, [token_logs, (float(np.log(low)), float(np.log(high)))])
