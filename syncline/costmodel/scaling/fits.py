"""A fit of losses: its law, its range of data, and its errors inside and outside that range."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from syncline.costmodel.numerics.uncertainty import Uncertainty
from syncline.costmodel.scaling.laws import AdditiveLaw, PowerLaw


class SeenRange(NamedTuple):
    """The range of a field in the data of a fit."""

    low: float
    high: float

    def factor_outside(self, value: float) -> float:
        """Return the factor by which a value is outside the range: above 1, below 1 if it is too small, 1 inside.

        >>> [SeenRange(30.0, 100.0).factor_outside(value) for value in (300.0, 15.0, 50.0)]
        [3.0, 0.5, 1.0]
        """
        return value / min(max(value, self.low), self.high)

    def __str__(self) -> str:
        return f"{self.low:,.12g}" if self.low == self.high else f"{self.low:,.12g} to {self.high:,.12g}"


@dataclass(frozen=True)
class Drift:
    """The drift of a loss outside a fit's range of a field, per e-fold of the field.

    Args:
        exponent: power of the factor outside the range by which the loss is corrected; 0 if the law alone predicts it.
        uncertainty: uncertainty of the loss per e-fold.
    """

    exponent: float
    uncertainty: Uncertainty


@dataclass(frozen=True)
class LossFit:
    """A fit of the loss of one or more methods.

    Args:
        name: name of the fit.
        methods: names of the methods in this package.
        family: name of a set of comparable losses: those of one paper, data set and tokeniser.
        law: law of the loss.
        seen: range of the fit's data by field: ``parameters``, ``tokens``, ``tokens_per_parameter``, ``replicas``,
            ``period``, ``batch_over_best``.
        within: uncertainty of predictions inside all these ranges.
        drifts: drift of the loss outside the range, by field. Outside the range of a field without a drift, a
            prediction has no bounds.
        best_batch: law of the batch in tokens with the lowest loss; None if the paper did not tune batches.
        data: data set and definition of the loss.
        source: paper, with its table or equation, and the way in which the numbers were read.
        assumes: training setup that all losses of the fit share.
    """

    name: str
    methods: tuple[str, ...]
    family: str
    law: PowerLaw | AdditiveLaw
    seen: Mapping[str, SeenRange]
    within: Uncertainty
    data: str
    source: str
    assumes: str
    drifts: Mapping[str, Drift] = field(default_factory=dict)
    best_batch: PowerLaw | None = None

    @property
    def tokens_per_parameter(self) -> float | None:
        """Return the tokens per parameter of a fit at a fixed ratio, or None for a law of parameters and tokens."""
        return None if isinstance(self.law, AdditiveLaw) else 20.0


def log_bounds(uncertainty: Uncertainty, folds: float) -> tuple[float, float]:
    """Return the logarithms of the lower and the upper factor after ``folds`` e-folds, by an uncertainty per e-fold."""
    return float(np.log(uncertainty.low)) * folds, float(np.log(uncertainty.high)) * folds
