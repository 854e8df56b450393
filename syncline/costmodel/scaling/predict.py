"""The loss that a published fit says of a training: with bounds, and marked where the fit has not seen its like."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from syncline.costmodel.scaling.fits import Drift, LossFit, SeenRange, times
from syncline.costmodel.scaling.laws import AdditiveLaw
from syncline.costmodel.scaling.published import TOKEN_LAWS, fit_named
from syncline.errors import SpecError


@dataclass(frozen=True)
class TrainingAtScale:
    """A training whose loss is asked for.

    Args:
        method: by its name, as ``diloco``; rules are AdamW.
        parameters: N, of the model; positive.
        tokens: D, of the whole training; as many per parameter as the fit has seen unless given.
        replicas: M, of the method; data parallelism has one whatever its workers.
        period: H, steps between two exchanges; as the fit has it unless given.
        batch_tokens: of a step of all replicas; the best unless given.

    Raises:
        SpecError: a number that is not positive.
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

    def by(self, fit: LossFit) -> TrainingAtScale:
        """With what the fit has where nothing is given."""
        tokens, period = self.tokens, self.period
        if tokens is None:
            tokens = self.parameters * (fit.tokens_per_parameter or 20.0)
        if period is None:
            period = fit.seen["period"].low if "period" in fit.seen else 1.0
        return replace(self, tokens=tokens, period=period)

    def fields(self, fit: LossFit) -> dict[str, float]:
        """What the fit's ranges are of, once nothing is missing."""
        assert self.tokens is not None and self.period is not None
        fields = {
            "parameters": float(self.parameters),
            "tokens": float(self.tokens),
            "tokens_per_parameter": self.tokens / self.parameters,
            "replicas": float(self.replicas),
            "period": float(self.period),
        }
        if fit.best_batch is not None and self.batch_tokens is not None:
            fields["batch_over_best"] = self.batch_tokens / fit.best_batch.of(fields)
        return fields


class Beyond(NamedTuple):
    """A field that a fit has not seen such a value of."""

    field: str
    value: float
    low: float
    high: float
    factor: float
    basis: str | None


@dataclass(frozen=True)
class PredictedLoss:
    """What a fit says.

    Attributes:
        loss: predicted, in nats per token.
        low: nine of ten measured losses are above; None where nobody knows.
        high: likewise, below.
        basis: what the bounds rest on.
        fit: which.
        trained: of what, with nothing missing.
        beyond: the fields that it has not seen such values of, and by which factor.
    """

    loss: float
    low: float | None
    high: float | None
    basis: str
    fit: LossFit
    trained: TrainingAtScale
    beyond: tuple[Beyond, ...]

    @property
    def extrapolation(self) -> bool:
        """Whether the fit has not seen the like."""
        return bool(self.beyond)

    def row(self) -> dict[str, Any]:
        """The same as plain values."""
        trained = self.trained
        return {
            "method": trained.method,
            "parameters": trained.parameters,
            "tokens": trained.tokens,
            "replicas": trained.replicas if "replicas" in self.fit.seen else None,
            "period": trained.period if "period" in self.fit.seen else None,
            "batch_tokens": trained.batch_tokens,
            "best_batch_tokens": self.fit.best_batch and self.fit.best_batch.of(trained.fields(self.fit)),
            "loss": self.loss,
            "loss_low": self.low,
            "loss_high": self.high,
            "extrapolation": self.extrapolation,
            "beyond": [one._asdict() for one in self.beyond],
            "basis": self.basis,
            "fit": self.fit.name,
            "family": self.fit.family,
            "data": self.fit.data,
            "assumes": self.fit.assumes,
            "source": self.fit.source,
        }


def predicted_loss(trained: TrainingAtScale, fit: str | None = None, extrapolate: bool = False) -> PredictedLoss:
    """The loss of a training, by a published fit.

    Args:
        trained: the training.
        fit: by name; the first that covers the method unless given.
        extrapolate: whether to answer beyond what the fit has seen, marked as such.

    Raises:
        SpecError: no fit covers the method, or the fit has not seen such a training.

    >>> answer = predicted_loss(TrainingAtScale("diloco", 1.3e9, replicas=4))
    >>> round(answer.loss, 3), round(answer.low, 2), round(answer.high, 2), answer.extrapolation
    (2.473, 2.44, 2.51, False)
    """
    chosen = fit_named(fit, trained.method)
    whole = trained.by(chosen)
    fields = whole.fields(chosen)
    outside = list(_outside(chosen, fields))
    if outside and not extrapolate:
        name, value, span = outside[0]
        expected = f"{span}, which fit {chosen.name!r} has seen; beyond is extrapolation, which 'extrapolate' asks for"
        raise SpecError(name, float(f"{value:.12g}"), expected)
    loss = chosen.law.of(fields)
    lows, highs, bases, beyond = [np.log(chosen.within.low)], [np.log(chosen.within.high)], [chosen.within.basis], []
    for name, value, span in outside:
        shift, low, high, basis = _drift(chosen, fields, name, span)
        loss *= float(np.exp(shift))
        beyond.append(Beyond(name, value, span.low, span.high, span.beyond(value), basis))
        if basis is None:
            bases.append(f"{name}: nobody knows")
        else:
            bases.append(f"{name}: {basis}")
            lows.append(low)
            highs.append(high)
    bounded = all(one.basis is not None for one in beyond)
    low, high = (loss * float(np.exp(sign * np.hypot.reduce(of))) for sign, of in ((-1, lows), (1, highs)))
    return PredictedLoss(
        loss, low if bounded else None, high if bounded else None, "; ".join(bases), chosen, whole, tuple(beyond)
    )


TOLERANCE = 1e-6
"""Relative; what is entered as 20 tokens per parameter is 20."""


def _outside(fit: LossFit, fields: dict[str, float]) -> Iterable[tuple[str, float, SeenRange]]:
    for name, span in fit.seen.items():
        if name in fields and abs(span.beyond(fields[name]) - 1) > TOLERANCE:
            yield name, fields[name], span


def _drift(
    fit: LossFit, fields: dict[str, float], name: str, span: SeenRange
) -> tuple[float, float, float, str | None]:
    """By what the loss moves (a logarithm) and its bounds with it, and on what that rests; None if on nothing."""
    factor = span.beyond(fields[name])
    if name == "tokens_per_parameter" or isinstance(fit.law, AdditiveLaw):
        return _as_laws_say(fit, fields, name, factor)
    drift: Drift | None = fit.beyond.get(name)
    if drift is None:
        return 0.0, 0.0, 0.0, None
    folds = float(np.log(factor))
    low, high = times(drift.uncertainty, abs(folds))
    return drift.exponent * folds, low, high, drift.uncertainty.basis


def _as_laws_say(
    fit: LossFit, fields: dict[str, float], name: str, factor: float
) -> tuple[float, float, float, str | None]:
    """What laws of parameters and tokens say of the step from the edge of what was seen; bounded by their spread."""
    field = "tokens" if name == "tokens_per_parameter" else name
    edge = fields | {field: fields[field] / factor}
    logs = [float(np.log(law.of(fields) / law.of(edge))) for law in TOKEN_LAWS.values()]
    basis = f"spread of {len(logs)} laws of parameters and tokens ({', '.join(TOKEN_LAWS)})"
    if isinstance(fit.law, AdditiveLaw):  # which says the step itself
        own = float(np.log(fit.law.of(fields) / fit.law.of(edge)))
        return 0.0, min(*logs, own) - own, max(*logs, own) - own, basis
    middle = float(np.mean(logs))
    return middle, min(logs) - middle, max(logs) - middle, basis
