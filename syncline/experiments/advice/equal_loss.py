"""Tokens that take a method to the loss that data parallelism reaches, or to a target, and how sure that is.

A fit says the ratio r of a method's loss to data parallelism's, on as many tokens each. More tokens make up for it as
laws of parameters and tokens say: ``E + a N^-alpha + b D'^-beta = (E + a N^-alpha + b D^-beta) / r``, solved for D' of
each of `syncline.costmodel.scaling.published.TOKEN_LAWS`; the factor D' / D is their geometric mean, its bounds those
of r and the spread of the laws.
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
from syncline.experiments.advice.question import AdviceQuestion
from syncline.experiments.projection.answers import method_covered
from syncline.methods import MethodBase

DATA_PARALLEL = "ddp-adam"


@dataclass(frozen=True)
class TokensNeeded:
    """What a loss takes.

    Attributes:
        tokens: all of the training's.
        factor: over those of data parallelism; 1 where it is the same training.
        factor_low: nine of ten are above, as far as the ratio of losses is unsure; None: nobody knows.
        factor_high: likewise, below; None: nobody knows, or no number of tokens makes up for it.
        base_low: factor on the tokens of data parallelism, which a target decides; 1 where tokens are given.
        base_high: likewise.
        loss: that a fit predicts there; None: nobody knows.
        unknown: why no fit says it; then ``tokens`` are those of data parallelism.
        ratio: of the loss to data parallelism's, on as many tokens.
        beyond: what the fit has not seen the like of.
        basis: what the bounds rest on.
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
        """The fields of a row."""
        at = self.loss
        return {
            "tokens": self.tokens,
            "tokens_factor": None if self.unknown else self.factor,
            "tokens_factor_low": None if self.unknown else self.factor_low,
            "tokens_factor_high": None if self.unknown else self.factor_high,
            "loss": at and at.loss,
            "loss_low": at and at.low,
            "loss_high": at and at.high,
            "loss_ratio": None if self.unknown else self.ratio,
            "loss_fit": at and at.fit.name,
            "extrapolation": bool(self.beyond) if self.unknown is None else None,
            "beyond": self.beyond or None,
            "loss_basis": self.basis or None,
            "loss_unknown": self.unknown,
        }


def more_tokens(ratio: float, parameters: float, tokens: float) -> tuple[float, float, float] | None:
    """By which factor more tokens make up for a loss that is r times as large: the laws' mean, least and most.

    None where a law says that no number of tokens does.

    >>> tuple(round(one, 3) for one in more_tokens(1.01, 1e9, 20e9))
    (1.223, 1.208, 1.241)
    """
    factors = []
    for law in TOKEN_LAWS.values():
        setting = {"parameters": parameters, "tokens": tokens}
        rest = law.of(setting) / ratio - law.floor - law.a * parameters**-law.alpha
        if rest <= 0:
            return None
        factors.append((rest / law.b) ** (-1 / law.beta) / tokens)
    return float(np.exp(np.mean(np.log(factors)))), min(factors), max(factors)


def tokens_needed(question: AdviceQuestion, method: MethodBase, replicas: int) -> TokensNeeded:
    """What takes a method to the loss that is asked for.

    Args:
        question: whose target, or tokens of data parallelism, say which.
        method: it.
        replicas: M.
    """
    covered = method_covered(method)
    try:
        base = _base(question)
    except SpecError as error:
        return TokensNeeded(question.tokens, unknown=_said(error, DATA_PARALLEL))
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
        told = relative_loss(trained, extrapolate=question.extrapolate)
    except SpecError as error:
        return TokensNeeded(base.tokens, unknown=_said(error, covered))
    return TokensNeeded(base.tokens, unknown=_unbounded(told.of)) if told.low is None else _made_up(base, trained, told)


def _made_up(base: TokensNeeded, trained: TrainingAtScale, told: RelativeLoss) -> TokensNeeded:
    """The tokens that make up for a ratio of losses whose bounds are known."""
    n, d = trained.parameters, base.tokens
    made_up = more_tokens(told.ratio, n, d)
    if made_up is None:
        return TokensNeeded(d, unknown="by laws of tokens no number of them makes up for it")
    factor, least, most = made_up
    low, high = (_bound(end, n, d, factor, edge) for end, edge in ((told.low, least), (told.high, most)))
    at = predicted_loss(replace(trained, tokens=d * factor), extrapolate=True)
    beyond = ", ".join(f"{one.field} {one.factor:.3g}x" for one in told.of.beyond)
    basis = f"ratio of losses: {told.basis}; tokens: spread of {len(TOKEN_LAWS)} laws of parameters and tokens"
    return TokensNeeded(
        d * factor, factor, low, high, base.base_low, base.base_high, at, None, told.ratio, beyond, basis
    )


def _unbounded(at: PredictedLoss) -> str:
    """Why nobody can say how far off a loss is."""
    fields = [f"{one.field} {one.value:,.4g}, seen to {one.high:,.4g}" for one in at.beyond if one.basis is None]
    return f"nobody has measured how far off the fit of {at.trained.method} is beyond: {'; '.join(fields)}"


def _said(error: SpecError, covered: str) -> str:
    """Why no fit says a loss, in words."""
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
    """The factor at a bound of the ratio, and the laws' spread beside it: logarithms add up by their squares."""
    if ratio is None:
        return None
    there = more_tokens(ratio, parameters, tokens)
    if there is None:
        return None
    off = np.hypot(np.log(there[0] / factor), np.log(edge / factor))
    return float(factor * np.exp(np.copysign(off, _side(edge, factor))))


def _side(edge: float, factor: float) -> float:
    """Which side of the factor a bound is on: below for the least of the laws, above for the most."""
    return 1.0 if edge >= factor else -1.0


def _base(question: AdviceQuestion) -> TokensNeeded:
    """Data parallelism's: its tokens are given, and its loss is told where a fit covers it; or a target decides them.

    Raises:
        SpecError: a target that no fit says the tokens of.
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
            at = predicted_loss(trained, extrapolate=question.extrapolate)
        except SpecError:
            return TokensNeeded(question.tokens, basis=THE_SAME)
        beyond = ", ".join(f"{one.field} {one.factor:.3g}x" for one in at.beyond)
        return TokensNeeded(question.tokens, loss=at, beyond=beyond, basis=at.basis)
    reached = tokens_for_loss(question.target_loss, trained, extrapolate=question.extrapolate)
    beyond = ", ".join(f"{one.field} {one.factor:.3g}x" for one in reached.at.beyond)
    low, high = (None if one is None else one / reached.value for one in (reached.low, reached.high))
    return TokensNeeded(
        reached.value,
        base_low=low or 1.0,
        base_high=high or 1.0,
        loss=reached.at,
        beyond=beyond,
        basis=reached.at.basis,
    )
