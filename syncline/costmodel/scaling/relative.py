"""A method's loss over that of data parallelism, and the tokens that it needs for an equal loss.

Two fits of one paper have nearly the same relative error at each size, inside and outside their range, so that their
ratio is more accurate than either. At 4B and 10B the printed fits are 0.7% to 4.6% too low, and their ratio is off by
up to 1.3%; limited by the measured end of the curve (`measured_end`), a ratio from smaller models alone is off by at
most 0.21%. Bounds grow with the square root of the distance beyond the fit's sizes.

The *token factor* is the tokens of a method over those of data parallelism for the same loss, see `law_factors`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np

from syncline.costmodel.numerics.uncertainty import Uncertainty, uncertainty_of
from syncline.costmodel.scaling.laws import (
    Bounds,
    Drift,
    LossFit,
    joint_bounds,
    log_bounds,
    log_ratio,
    power_law_of,
    printed_losses,
)
from syncline.costmodel.scaling.measured_end import ratio_uncertainty_beyond, varied_quantities
from syncline.costmodel.scaling.predict import (
    LossReached,
    PredictedLoss,
    TrainingAtScale,
    predicted_loss,
    tokens_for_loss,
)
from syncline.costmodel.scaling.published import TOKEN_LAWS, ddp_fit_of, token_shifts
from syncline.errors import SpecError


@dataclass(frozen=True)
class RelativeLoss:
    """The ratio of a method's loss to that of data parallelism, with bounds.

    Attributes:
        ratio: the method's loss over data parallelism's, for the same model on the same tokens.
        low: lower bound; nine of ten measured ratios are between the bounds; None without bounds.
        high: upper bound; None without bounds.
        basis: measurements that support the bounds.
    """

    ratio: float
    low: float | None
    high: float | None
    basis: str
    prediction: PredictedLoss

    @property
    def extrapolation(self) -> bool:
        """Return whether any quantity of the training is outside the range of the fit."""
        return self.prediction.extrapolation


def relative_loss(training: TrainingAtScale, fit: str | None = None, extrapolate: bool = False) -> RelativeLoss:
    """Return the ratio of a training's loss to that of data parallelism, by fits of the same paper.

    Data parallelism has its best batch. The arguments and errors are those of `predicted_loss`.

    >>> estimate = relative_loss(TrainingAtScale("diloco", 1.3e9, replicas=4))
    >>> f"{estimate.ratio:.3f}, {estimate.low:.3f} to {estimate.high:.3f}"
    '1.008, 1.002 to 1.014'
    """
    prediction = predicted_loss(training, fit, extrapolate)
    ddp_fit = ddp_fit_of(prediction.fit)
    if ddp_fit.name == prediction.fit.name:
        return RelativeLoss(ratio=1.0, low=1.0, high=1.0, basis="the same", prediction=prediction)
    tokens = prediction.training.tokens
    ddp = predicted_loss(TrainingAtScale("ddp-adam", training.parameters, tokens), ddp_fit.name, extrapolate)
    ratio = prediction.loss / ddp.loss
    within = ratio_uncertainty(prediction.fit.family, training.method)
    error_logs: list[Bounds] = [log_bounds(within, 1.0)]
    bases = [within.basis]
    for outside in prediction.beyond:
        per_e_fold = _uncertainty_per_e_fold(prediction.fit, outside.field)
        e_folds = abs(float(np.log(outside.factor)))
        distance = np.sqrt(e_folds) if outside.field == "parameters" else e_folds  # see `_uncertainty_per_e_fold`
        error_logs.append((None, None) if per_e_fold is None else log_bounds(per_e_fold, distance))
        bases.append(f"{outside.field}: {'unknown' if per_e_fold is None else per_e_fold.basis}")
    return RelativeLoss(ratio, *joint_bounds(ratio, error_logs), basis="; ".join(bases), prediction=prediction)


def _uncertainty_per_e_fold(fit: LossFit, field: str) -> Uncertainty | None:
    """Return the uncertainty of ratios one e-fold outside the range of a quantity, or None if it was not measured.

    The uncertainty grows linearly with the e-folds, but with their square root if the quantity is ``parameters``.
    """
    if field == "parameters":
        return ratio_uncertainty_beyond()
    if field == "tokens_per_parameter":
        return _tokens_drift()
    drift: Drift | None = fit.drifts.get(field)
    return None if drift is None else drift.uncertainty


@cache
def ratio_uncertainty(family: str, method: str) -> Uncertainty:
    """Return the uncertainty of ratios at a new model size, by a cross-validation that leaves out each size in turn."""
    losses, ddp_losses = printed_losses(family, method), printed_losses(family, "ddp-adam")
    varied = varied_quantities(losses)
    errors = []
    ddp_loss_by_size = {row.parameters: row.loss for row in ddp_losses}
    for size, ddp_loss in ddp_loss_by_size.items():
        law = power_law_of([row for row in losses if row.parameters != size], varied)
        ddp_law = power_law_of([row for row in ddp_losses if row.parameters != size], ["parameters"])
        for row in losses:
            if row.parameters == size:
                predicted_ratio = law.value(row.setting) / ddp_law.value(row.setting)
                errors.append(predicted_ratio / (row.loss / ddp_loss) - 1)
    return uncertainty_of(errors, f"each size left out, {len(errors)} ratios to data parallelism")


@cache
def _tokens_drift() -> Uncertainty:
    """Return the uncertainty of loss ratios per e-fold of tokens, measured for Streaming DiLoCo.

    The least number of tokens in these measurements is 20 per parameter, that of the fits.
    """
    family = "douillard-2025-dolma"
    ddp_losses = {row.tokens: row.loss for row in printed_losses(family, "ddp-adam", "test")}
    ratios_by_replicas: dict[float, dict[float, float]] = {}  # by replicas, then by tokens
    for row in printed_losses(family, "streaming-diloco", "test"):
        ratios_by_replicas.setdefault(row.replicas, {})[row.tokens] = row.loss / ddp_losses[row.tokens]
    errors = []
    for ratios in ratios_by_replicas.values():
        least_tokens, *larger_tokens = sorted(ratios)
        for tokens in larger_tokens:
            e_folds = np.log(tokens / least_tokens)
            # The ratio at the least number of tokens is the prediction.
            errors.append((ratios[least_tokens] / ratios[tokens]) ** (1 / e_folds) - 1)
    return uncertainty_of(errors, f"{len(errors)} ratios of Streaming DiLoCo on Dolma (Table 7 of Douillard et al.)")


HALVINGS = 40
"""Number of steps of a bisection between the token factors of the laws, which differ by a few tenths at most."""


class LawFactors(NamedTuple):
    """Factors of tokens that make up for a larger loss: by the mean of `TOKEN_LAWS`, and by the extreme ones."""

    mean: float
    least: float
    largest: float


def law_factors(ratio: float, parameters: float, tokens: float) -> LawFactors | None:
    """Return the factors of tokens that make up for a larger loss, or None if by some law no tokens are enough.

    With D tokens of data parallelism, a method with r times its loss needs D' tokens such that the mean over the laws
    L of ``log(L(N, D') / L(N, D))`` is ``-log r``. The laws are `TOKEN_LAWS`. Each law alone also gives a D'; the
    extremes are the smallest and the largest of these.

    Args:
        ratio: r, the larger loss over that of data parallelism.
        parameters: N, parameters of the model.
        tokens: D, tokens of data parallelism.

    >>> tuple(round(factor, 3) for factor in law_factors(1.01, 1e9, 20e9))
    (1.223, 1.208, 1.241)
    """
    if ratio == 1:
        return LawFactors(mean=1.0, least=1.0, largest=1.0)
    factors = []
    for law in TOKEN_LAWS.values():
        target_loss = law.value({"parameters": parameters, "tokens": tokens}) / ratio
        tokens_term = target_loss - law.floor - law.a * parameters**-law.alpha  # b D'^-beta
        if tokens_term <= 0:  # the parameters alone keep the loss above the target
            return None
        factors.append((tokens_term / law.b) ** (-1 / law.beta) / tokens)
    low, high = np.log(min(factors)), np.log(max(factors))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        mean_shift = float(np.mean(token_shifts(parameters, tokens * np.exp(middle), tokens)))
        if mean_shift > -np.log(ratio):  # the loss is not yet small enough
            low = middle
        else:
            high = middle
    return LawFactors(float(np.exp((low + high) / 2)), min(factors), max(factors))


@dataclass(frozen=True)
class TokenFactor:
    """The tokens of a method over those of data parallelism for the same loss, with bounds.

    Attributes:
        factor: tokens divided by those of data parallelism.
        low: lower bound, exceeded in nine of ten cases; None if the error of the ratio of losses is unknown.
        high: upper bound, not exceeded in nine of ten cases; None if it is unknown, or if no tokens are enough.
        relative: ratio of the losses on the same tokens, with its fit.
    """

    factor: float
    low: float | None
    high: float | None
    relative: RelativeLoss
    basis: str

    @property
    def source(self) -> str:
        """Return a text that names the fit, and the measurements that limit the gain."""
        prediction = self.relative.prediction
        text = f"fit {prediction.fit.name}{' beyond what it has seen' if prediction.extrapolation else ''}"
        return f"{text}; {prediction.gain_limit}" if prediction.gain_limit else text


def token_factor(training: TrainingAtScale, extrapolate: bool = False) -> TokenFactor | None:
    """Return the token factor of a training, or None if by some law no number of tokens makes up for its loss.

    The tokens of ``training`` are those of data parallelism; arguments and errors are those of `predicted_loss`.

    >>> estimate = token_factor(TrainingAtScale("diloco", 10e9, 200e9, replicas=2), extrapolate=True)
    >>> f"{estimate.factor:.2f}, {estimate.low:.2f} to {estimate.high:.2f}"
    '0.94, 0.64 to 1.17'
    """
    relative = relative_loss(training, extrapolate=extrapolate)
    parameters = relative.prediction.training.parameters
    tokens = relative.prediction.training.tokens
    assert tokens is not None
    factors = law_factors(relative.ratio, parameters, tokens)
    if factors is None:
        return None
    factor = factors.mean

    def log_at(ratio: float | None) -> float | None:
        """Return the logarithm of the token factor at a bound of the ratio of losses, over the estimated factor."""
        factors_at_bound = None if ratio is None else law_factors(ratio, parameters, tokens)
        return None if factors_at_bound is None else log_ratio(factors_at_bound.mean, factor)

    basis = f"ratio of losses: {relative.basis}; tokens: spread of {len(TOKEN_LAWS)} laws of parameters and tokens"
    law_logs = log_ratio(factors.least, factor), log_ratio(factors.largest, factor)
    low, high = joint_bounds(factor, [(log_at(relative.low), log_at(relative.high)), law_logs])
    return TokenFactor(factor, low, high, relative, basis)


def tokens_for_equal_loss(
    target_loss: float, training: TrainingAtScale, extrapolate: bool = False
) -> tuple[LossReached, TokenFactor]:
    """Return a method's tokens to a target loss, and its token factor.

    The tokens are those of data parallelism times the factor, so that methods with fits of different papers are
    comparable.

    Args:
        target_loss: target in nats per token.
        training: the training; its tokens are ignored.
        extrapolate: see `predicted_loss`.
    """
    ddp_training = replace(training, method="ddp-adam", replicas=1.0, period=None)
    ddp = tokens_for_loss(target_loss, ddp_training, fit=None, extrapolate=extrapolate)
    token_ratio = token_factor(replace(training, tokens=ddp.value), extrapolate)
    if token_ratio is None:
        raise SpecError("target_loss", target_loss, f"a loss that {training.method} reaches by laws of tokens")
    value = ddp.value * token_ratio.factor
    ddp_logs = log_ratio(ddp.low, ddp.value), log_ratio(ddp.high, ddp.value)
    factor_logs = log_ratio(token_ratio.low, token_ratio.factor), log_ratio(token_ratio.high, token_ratio.factor)
    prediction = predicted_loss(replace(training, tokens=value), extrapolate=True)
    return LossReached(value, *joint_bounds(value, [ddp_logs, factor_logs]), prediction), token_ratio
