"""A fit of losses: its law, what it has seen, how far measured losses are from it, inside and beyond."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from syncline.costmodel.numerics.uncertainty import Uncertainty
from syncline.costmodel.scaling.laws import AdditiveLaw, PowerLaw


class SeenRange(NamedTuple):
    """What a fit has seen of a field: from the least to the most."""

    low: float
    high: float

    def beyond(self, value: float) -> float:
        """By which factor a value lies outside, below 1 where it is less; 1 inside.

        >>> [SeenRange(30.0, 100.0).beyond(value) for value in (300.0, 15.0, 50.0)]
        [3.0, 0.5, 1.0]
        """
        return value / min(max(value, self.low), self.high)

    def __str__(self) -> str:
        return f"{self.low:,.12g}" if self.low == self.high else f"{self.low:,.12g} to {self.high:,.12g}"


@dataclass(frozen=True)
class Drift:
    """What happens to a loss beyond what a fit has seen of a field, per e-fold of the field.

    Args:
        exponent: the loss is taken to go with this power of the factor beyond; 0 where the law itself says it.
        uncertainty: of the loss, per e-fold.
    """

    exponent: float
    uncertainty: Uncertainty


@dataclass(frozen=True)
class LossFit:
    """A fit of the loss of one or more methods.

    Args:
        name: of the fit.
        methods: by their names here.
        family: losses are comparable within one: of one paper, data set and tokeniser.
        law: the loss.
        seen: what it has seen, by field: ``parameters``, ``tokens``, ``tokens_per_parameter``, ``replicas``,
            ``period``, ``batch_over_best``.
        within: how far measured losses are from predicted ones inside of all that.
        beyond: the same outside, by field. Where a field is not there nobody knows, and there are no bounds.
        best_batch: the batch in tokens that the losses are the best of; None where batches were not looked for.
        data: what the loss is of.
        source: paper, table or equation, and how it was read.
        assumes: what holds for all losses of the fit.
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
    beyond: Mapping[str, Drift] = field(default_factory=dict)
    best_batch: PowerLaw | None = None

    @property
    def tokens_per_parameter(self) -> float | None:
        """D / N where the fit is along that line; None where it is a law of both."""
        return None if isinstance(self.law, AdditiveLaw) else 20.0


def times(uncertainty: Uncertainty, folds: float) -> tuple[float, float]:
    """Logarithms of the bounds after so many e-folds."""
    return float(np.log(uncertainty.low)) * folds, float(np.log(uncertainty.high)) * folds
