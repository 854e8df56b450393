"""Tokens that a method needs for the loss of data parallelism, or for a target, with their uncertainty.

A fit gives the ratio r of a method's loss to data parallelism's, on as many tokens each. Laws of parameters and tokens
give the additional tokens: ``E + a N^-alpha + b D'^-beta = (E + a N^-alpha + b D^-beta) / r``, solved for D' with each
of `syncline.costmodel.scaling.published.TOKEN_LAWS`. The factor D' / D is their geometric mean; its bounds combine
those of r with the spread of the laws.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from syncline.costmodel.scaling.inverse import tokens_for_loss
from syncline.costmodel.scaling.predict import PredictedLoss, TrainingAtScale, predicted_loss
from syncline.costmodel.scaling.published import TOKEN_LAWS
from syncline.costmodel.scaling.relative import RelativeLoss, relative_loss
from syncline.errors import SpecError
from syncline.methods import MethodBase
from syncline.planner.advice.question import AdviceQuestion
from syncline.planner.projection.training_totals import method_covered

DATA_PARALLEL = "ddp-adam"


@dataclass(frozen=True)
class TokensNeeded:
    """The number of tokens that a training needs to reach a loss.

    Attributes:
        tokens: tokens of the training.
        factor: tokens divided by the tokens of data parallelism; 1 for the same training.
        factor_low: lower bound of the factor, exceeded in nine of ten cases, by the uncertainty of the loss ratio;
            None if unknown.
        factor_high: upper bound of the factor, not exceeded in nine of ten cases; None if it is unknown, or if no
            number of tokens is enough.
        base_low: lower bound of data parallelism's tokens, as a factor of the expected number, if they follow from a
            target loss; 1 if they are given.
        base_high: upper bound of data parallelism's tokens, as a factor of the expected number.
        loss: the loss that a fit predicts for these tokens; None: unknown.
        unknown: the reason why no fit gives the tokens, if so; then ``tokens`` are those of data parallelism.
        ratio: loss over that of data parallelism, on as many tokens.
        beyond: fields outside the range that the fit has seen.
        basis: basis of the bounds.
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

    def record(self) -> dict[str, Any]:
        """Return the fields of a row."""
        loss = self.loss
        return {
            "tokens": self.tokens,
            "tokens_factor": None if self.unknown else self.factor,
            "tokens_factor_low": None if self.unknown else self.factor_low,
            "tokens_factor_high": None if self.unknown else self.factor_high,
            "loss": loss and loss.loss,
            "loss_low": loss and loss.low,
            "loss_high": loss and loss.high,
            "loss_ratio": None if self.unknown else self.ratio,
            "loss_fit": loss and loss.fit.name,
            "extrapolation": bool(self.beyond) if self.unknown is None else None,
            "beyond": self.beyond or None,
            "loss_basis": self.basis or None,
            "loss_unknown": self.unknown,
        }


def more_tokens(ratio: float, parameters: float, tokens: float) -> tuple[float, float, float] | None:
    """Return the factor of tokens that makes up for an r times larger loss: the mean, least and largest of the laws.

    None if by some law no number of tokens is enough.

    >>> tuple(round(one, 3) for one in more_tokens(1.01, 1e9, 20e9))
    (1.223, 1.208, 1.241)
    """
    factors = []
    for law in TOKEN_LAWS.values():
        setting = {"parameters": parameters, "tokens": tokens}
        rest = law.value(setting) / ratio - law.floor - law.a * parameters**-law.alpha
        if rest <= 0:
            return None
        factors.append((rest / law.b) ** (-1 / law.beta) / tokens)
    return float(np.exp(np.mean(np.log(factors)))), min(factors), max(factors)


def tokens_needed(question: AdviceQuestion, method: MethodBase, replicas: int) -> TokensNeeded:
    """Return the tokens that a method needs for the question's loss.

    Args:
        question: the question, whose target or data-parallel tokens set the loss.
        method: the method.
        replicas: M, the number of replicas.
    """
    covered = method_covered(method)
    try:
        base = _base(question)
    except SpecError as error:
        return TokensNeeded(question.tokens, unknown=_missing_fit_reason(error, DATA_PARALLEL))
    if covered == DATA_PARALLEL:
        return base
    if question.model.experts > 1:
        return TokensNeeded(base.tokens, unknown=NO_EXPERTS)
    trained = TrainingAtScale(
        covered,
        float(question.model.parameters),
        base.tokens,
        float(replicas),
        float(dict(method).get("period", 1)),
        float(question.batch_tokens),
    )
    try:
        relative = relative_loss(trained, extrapolate=question.extrapolate)
    except SpecError as error:
        return TokensNeeded(base.tokens, unknown=_missing_fit_reason(error, covered))
    return (
        TokensNeeded(base.tokens, unknown=_unbounded(relative.of))
        if relative.low is None
        else _made_up(base, trained, relative)
    )


def _made_up(base: TokensNeeded, trained: TrainingAtScale, relative: RelativeLoss) -> TokensNeeded:
    """Return the tokens that make up for a ratio of losses with known bounds."""
    n, d = trained.parameters, base.tokens
    made_up = more_tokens(relative.ratio, n, d)
    if made_up is None:
        return TokensNeeded(d, unknown="by laws of tokens no number of them makes up for it")
    factor, lowest, highest = made_up
    low, high = (_bound(end, n, d, factor, edge) for end, edge in ((relative.low, lowest), (relative.high, highest)))
    prediction = predicted_loss(replace(trained, tokens=d * factor), extrapolate=True)
    beyond = ", ".join(f"{excess.field} {excess.factor:.3g}x" for excess in relative.of.beyond)
    basis = f"ratio of losses: {relative.basis}; tokens: spread of {len(TOKEN_LAWS)} laws of parameters and tokens"
    return TokensNeeded(
        d * factor, factor, low, high, base.base_low, base.base_high, prediction, None, relative.ratio, beyond, basis
    )


def _unbounded(prediction: PredictedLoss) -> str:
    """Return the reason why the error of a loss is unknown."""
    fields = [
        f"{excess.field} {excess.value:,.4g}, seen to {excess.high:,.4g}"
        for excess in prediction.beyond
        if excess.basis is None
    ]
    return f"nobody has measured how far off the fit of {prediction.trained.method} is beyond: {'; '.join(fields)}"


def _missing_fit_reason(error: SpecError, covered: str) -> str:
    """Return the reason why no fit gives a loss, in words."""
    if error.path == "method":
        return NO_FIT
    value = f"{error.value:.4g}" if isinstance(error.value, float) else error.value
    return (
        f"beyond the fit of {covered}: {error.path} {value}, where it has seen {error.expected.partition(', which')[0]}"
    )


THE_SAME = "the same training, whatever its layout"

NO_FIT = "no published fit of such a method"

NO_EXPERTS = "fits of methods are of models without experts"


def _bound(ratio: float | None, parameters: float, tokens: float, factor: float, edge: float) -> float | None:
    """Return the factor at a bound of the ratio, with the laws' spread added: their logarithms add in quadrature."""
    if ratio is None:
        return None
    bound_factors = more_tokens(ratio, parameters, tokens)
    if bound_factors is None:
        return None
    deviation = np.hypot(np.log(bound_factors[0] / factor), np.log(edge / factor))
    return float(factor * np.exp(np.copysign(deviation, _side(edge, factor))))


def _side(edge: float, factor: float) -> float:
    """Return the sign of a bound: below the factor for the least of the laws, above it for the largest."""
    return 1.0 if edge >= factor else -1.0


def _base(question: AdviceQuestion) -> TokensNeeded:
    """Return the tokens of data parallelism, from the question or from a target loss, with the loss if a fit covers it.

    Raises:
        SpecError: no fit gives the tokens of the target.
    """
    if question.model.experts > 1:
        if question.target_loss is None:
            return TokensNeeded(question.tokens, basis=THE_SAME)
        raise SpecError("method", question.model.name, NO_EXPERTS)
    trained = TrainingAtScale(
        DATA_PARALLEL, float(question.model.parameters), question.tokens, batch_tokens=float(question.batch_tokens)
    )
    if question.target_loss is None:
        try:
            prediction = predicted_loss(trained, extrapolate=question.extrapolate)
        except SpecError:
            return TokensNeeded(question.tokens, basis=THE_SAME)
        beyond = ", ".join(f"{excess.field} {excess.factor:.3g}x" for excess in prediction.beyond)
        return TokensNeeded(question.tokens, loss=prediction, beyond=beyond, basis=prediction.basis)
    reached = tokens_for_loss(question.target_loss, trained, extrapolate=question.extrapolate)
    beyond = ", ".join(f"{excess.field} {excess.factor:.3g}x" for excess in reached.at.beyond)
    low, high = (None if bound is None else bound / reached.value for bound in (reached.low, reached.high))
    return TokensNeeded(
        reached.value,
        base_low=low or 1.0,
        base_high=high or 1.0,
        loss=reached.at,
        beyond=beyond,
        basis=reached.at.basis,
    )
