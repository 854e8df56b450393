"""Tokens that a method needs for the loss of data parallelism, or for a target, with their uncertainty."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from syncline.costmodel.scaling.predict import PredictedLoss, TrainingAtScale, predicted_loss, tokens_for_loss
from syncline.costmodel.scaling.relative import token_factor
from syncline.errors import SpecError
from syncline.methods import MethodBase
from syncline.planner.advice.question import AdviceQuestion
from syncline.planner.projection.training_totals import loss_fit_method

DATA_PARALLEL = "ddp-adam"


@dataclass(frozen=True)
class TokensNeeded:
    """The number of tokens that a training needs to reach a loss.

    Attributes:
        factor: tokens divided by the tokens of data parallelism; 1 for the same training.
        factor_low: lower bound of the factor, exceeded in nine of ten cases; None if the loss ratio's error is unknown.
        factor_high: upper bound of the factor, not exceeded in nine of ten cases; None if it is unknown, or if no
            number of tokens is enough.
        base_low: lower bound of data parallelism's tokens, divided by their expected number; 1 if the question gives
            the tokens, or if no uncertainty is known.
        base_high: upper bound of data parallelism's tokens, divided by their expected number.
        loss: the loss that a fit predicts for these tokens; None: unknown.
        unknown: the reason why no fit gives the tokens, or None. With a reason, ``tokens`` are data parallelism's.
        ratio: loss divided by data parallelism's loss on the same tokens.
        beyond: fields outside the range that the fit has seen.
        source: the fit that gives the factor, and the measurements that limit the factor; empty for data parallelism.
    """

    tokens: float
    factor: float = 1.0
    factor_low: float | None = 1.0
    factor_high: float | None = 1.0
    base_low: float = 1.0
    base_high: float = 1.0
    loss: PredictedLoss | None = None
    unknown: str | None = None
    ratio: float | None = 1.0
    beyond: str = ""
    basis: str = ""
    source: str = ""

    def record(self) -> dict[str, Any]:
        """Return the tokens, their bounds and the predicted loss as fields of a plan's row."""
        loss, is_known = self.loss, self.unknown is None
        return {
            "tokens": self.tokens,
            "tokens_factor": self.factor if is_known else None,
            "tokens_factor_low": self.factor_low if is_known else None,
            "tokens_factor_high": self.factor_high if is_known else None,
            "loss": loss.loss if loss else None,
            "loss_low": loss.low if loss else None,
            "loss_high": loss.high if loss else None,
            "loss_ratio": self.ratio if is_known else None,
            "loss_fit": loss.fit.name if loss else None,
            "extrapolation": bool(self.beyond) if is_known else None,
            "beyond": self.beyond or None,
            "loss_basis": self.basis or None,
            "tokens_source": self.source or None,
            "loss_unknown": self.unknown,
        }


def tokens_needed(question: AdviceQuestion, method: MethodBase, replicas: int) -> TokensNeeded:
    """Return the number of tokens on which a method reaches the loss that the question sets.

    The question sets the loss by a target, or by the tokens of data parallelism.
    """
    key = loss_fit_method(method), replicas, dict(method).get("period", 1)
    if key not in question.needed_tokens:
        question.needed_tokens[key] = _tokens_needed(question, *key)
    needed: TokensNeeded = question.needed_tokens[key]
    return needed


def _tokens_needed(question: AdviceQuestion, fit_method: str, replicas: int, period: int) -> TokensNeeded:
    """Return the number of tokens as `tokens_needed` does, but not from the cache; fits know the method by a name."""
    try:
        if DATA_PARALLEL not in question.needed_tokens:
            question.needed_tokens[DATA_PARALLEL] = _data_parallel_tokens(question)
        base: TokensNeeded = question.needed_tokens[DATA_PARALLEL]
    except SpecError as error:
        return TokensNeeded(question.tokens, unknown=_missing_fit_reason(error, DATA_PARALLEL))
    if fit_method == DATA_PARALLEL:
        return base
    if question.model.experts > 1:
        return TokensNeeded(base.tokens, unknown=NO_EXPERTS)
    training = TrainingAtScale(
        fit_method, float(question.model.parameters), base.tokens, replicas=float(replicas),
        period=float(period), batch_tokens=float(question.batch_tokens),
    )  # fmt: skip
    try:
        needed_factor = token_factor(training, question.extrapolate)
    except SpecError as error:
        return TokensNeeded(base.tokens, unknown=_missing_fit_reason(error, fit_method))
    if needed_factor is None or needed_factor.relative.low is None:  # a ratio of losses without bounds says nothing
        reason = NO_TOKENS if needed_factor is None else _no_bounds_reason(needed_factor.relative.prediction)
        return TokensNeeded(base.tokens, unknown=reason)
    loss_ratio, tokens = needed_factor.relative, base.tokens * needed_factor.factor
    return replace(
        base, tokens=tokens, factor=needed_factor.factor, factor_low=needed_factor.low,
        factor_high=needed_factor.high, loss=predicted_loss(replace(training, tokens=tokens), extrapolate=True),
        ratio=loss_ratio.ratio, beyond=_beyond_text(loss_ratio.prediction), basis=needed_factor.basis,
        source=needed_factor.source,
    )  # fmt: skip


def _beyond_text(prediction: PredictedLoss) -> str:
    """Return the properties of a training outside a loss fit's range, as text: ``replicas 2x`` is twice the range."""
    return ", ".join(f"{excess.field} {excess.factor:.3g}x" for excess in prediction.beyond)


def _no_bounds_reason(prediction: PredictedLoss) -> str:
    """Return the reason why a predicted loss has no bounds: fields so far outside a fit that its error is unknown."""
    fields = [
        f"{excess.field} {excess.value:,.4g}, seen to {excess.high:,.4g}"
        for excess in prediction.beyond
        if excess.basis is None  # no measurement supports a prediction there
    ]
    return f"the error of the fit of {prediction.training.method} is unknown beyond: {'; '.join(fields)}"


def _missing_fit_reason(error: SpecError, fit_method: str) -> str:
    """Return the reason why no fit gives a loss, in words."""
    if error.path == "method":
        return NO_FIT
    value = f"{error.value:.4g}" if isinstance(error.value, float) else error.value
    seen_range, _, _ = error.expected.partition(", which")  # the range without ", which the fit has seen", for example
    return f"beyond the fit of {fit_method}: {error.path} {value}; it covers {seen_range}"


THE_SAME = "the same training, whatever its layout"
"""Basis of the bounds of data parallelism's tokens."""

NO_TOKENS = "by laws of tokens no number of tokens makes up for it"
NO_FIT = "no published fit for this method"
NO_EXPERTS = "the fits of methods are for models without experts"
"""Reasons why the tokens of a loss are unknown."""


def _data_parallel_tokens(question: AdviceQuestion) -> TokensNeeded:
    """Return the tokens of data parallelism, given or to a target loss, and the predicted loss if known."""
    if question.model.experts > 1:
        if question.target_loss is None:
            return TokensNeeded(question.tokens, basis=THE_SAME)
        raise SpecError("method", question.model.name, NO_EXPERTS)
    training = TrainingAtScale(
        DATA_PARALLEL, float(question.model.parameters), question.tokens, batch_tokens=float(question.batch_tokens)
    )
    if question.target_loss is None:
        try:
            prediction = predicted_loss(training, extrapolate=question.extrapolate)
        except SpecError:
            return TokensNeeded(question.tokens, basis=THE_SAME)
        return TokensNeeded(question.tokens, loss=prediction, beyond=_beyond_text(prediction), basis=prediction.basis)
    reached = tokens_for_loss(question.target_loss, training, extrapolate=question.extrapolate)
    return TokensNeeded(
        reached.value,
        base_low=reached.low / reached.value if reached.low else 1.0,  # 1: no uncertainty is known
        base_high=reached.high / reached.value if reached.high else 1.0,
        loss=reached.prediction,
        beyond=_beyond_text(reached.prediction),
        basis=reached.prediction.basis,
    )
