"""Functional forms of losses: a power law, and a floor plus a term for parameters and a term for tokens.

Losses that papers print, each with its setting, to fit laws and to test them.

A fit of losses: its law, its range of data, and its errors inside and outside that range.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from syncline.costmodel.numerics.uncertainty import Uncertainty
from syncline.errors import SpecError

Setting: TypeAlias = Mapping[str, float]
"""Numbers by field: ``parameters``, ``tokens``, ``replicas``, ``period``."""


@dataclass(frozen=True)
class PowerLaw:
    """A product of powers: ``scale * product of value^exponent``.

    Args:
        scale: A, in the unit of the fitted quantity.
        exponents: exponents by field.
    """

    scale: float
    exponents: Mapping[str, float] = field(default_factory=dict)

    def value(self, setting: Setting) -> float:
        """Return the value of the law in a setting."""
        powers = [setting[name] ** exponent for name, exponent in self.exponents.items()]
        return self.scale * float(np.prod(powers))


@dataclass(frozen=True)
class AdditiveLaw:
    """A floor and two terms: ``floor + a N^-alpha + b D^-beta``, of N parameters and D tokens.

    Args:
        floor: E, the limit of the loss for infinite N and D.
        a: coefficient of the parameters' term.
        alpha: exponent of the parameters' term; positive.
        b: coefficient of the tokens' term.
        beta: exponent of the tokens' term; positive.

    Source: J. Hoffmann et al., "Training Compute-Optimal Large Language Models" (2022), equation 2.
    """

    floor: float
    a: float
    alpha: float
    b: float
    beta: float

    def value(self, setting: Setting) -> float:
        """Return the value of the law in a setting."""
        return self.floor + self.a * setting["parameters"] ** -self.alpha + self.b * setting["tokens"] ** -self.beta


def fitted_power_law(settings: Sequence[Setting], values: Sequence[float], names: Sequence[str]) -> PowerLaw:
    """Return the power law with the least squared error of logarithms.

    Args:
        settings: setting of each value.
        values: values to fit; positive.
        names: fields with an exponent.

    Raises:
        SpecError: fewer values than unknowns, or fields that do not vary independently.

    >>> law = fitted_power_law([{"parameters": 1e8}, {"parameters": 1e9}], [3.0, 2.4], ["parameters"])
    >>> round(law.value({"parameters": 1e9}), 3)
    2.4
    """
    columns = [np.ones(len(settings)), *(np.log([setting[name] for setting in settings]) for name in names)]
    matrix = np.column_stack(columns)
    solution, _, rank, _ = np.linalg.lstsq(matrix, np.log(values), rcond=None)
    if rank < len(columns):
        raise SpecError("settings", len(settings), f"settings that tell {', '.join(names)} apart")
    return PowerLaw(float(np.exp(solution[0])), dict(zip(names, map(float, solution[1:]), strict=True)))


FILE = Path(__file__).with_name("losses.csv")


class MeasuredLoss(NamedTuple):
    """A loss that a paper prints.

    Attributes:
        family: name of a set of comparable losses: those of one paper and data set.
        place: table of the paper.
        method: name of the method in this package.
        parameters: parameters of the model; for Douillard et al. counted from the L layers of width d in their Table 2,
            ``12 L d^2 + 32000 d``.
        tokens: tokens of the training.
        replicas: replicas of the method; 1 for data parallelism.
        period: steps between two exchanges; 1 for data parallelism.
        loss: evaluation loss in nats per token.
        used: ``fit``, or ``test`` for a loss that no fit uses.
    """

    family: str
    place: str
    method: str
    parameters: float
    tokens: float
    replicas: float
    period: float
    loss: float
    used: str

    @property
    def setting(self) -> Setting:
        """Return parameters, tokens, replicas and period by field."""
        return {name: getattr(self, name) for name in ("parameters", "tokens", "replicas", "period")}


@cache
def measured_losses() -> tuple[MeasuredLoss, ...]:
    """Return all losses in the order of the tables."""

    def value(name: str, text: str) -> float | str:
        return text if name in ("family", "place", "method", "used") else float(text or 1)

    with FILE.open(encoding="utf-8", newline="") as file:
        rows = [{name: value(name, row[name]) for name in MeasuredLoss._fields} for row in csv.DictReader(file)]
    return tuple(MeasuredLoss(**row) for row in rows)  # type: ignore[arg-type]


def printed_losses(family: str, method: str, used: str = "fit") -> list[MeasuredLoss]:
    """Return the losses of one family and method that are used for fits, or for tests."""
    return [row for row in measured_losses() if (row.family, row.method, row.used) == (family, method, used)]


def power_law_of(losses: Sequence[MeasuredLoss], names: Sequence[str]) -> PowerLaw:
    """Return the power law that fits losses best, with exponents of the named fields."""
    return fitted_power_law([row.setting for row in losses], [row.loss for row in losses], names)


def left_out_errors(losses: Sequence[MeasuredLoss], names: Sequence[str], left_out: str) -> list[float]:
    """Return the errors ``predicted / measured - 1`` of power laws under cross-validation by a field.

    For each value of the field, the function fits a law without the losses at that value and predicts those losses.

    Args:
        losses: losses of a fit.
        names: fields with an exponent.
        left_out: field whose values are left out in turn.
    """
    errors = []
    for value in sorted({row.setting[left_out] for row in losses}):
        law = power_law_of([row for row in losses if row.setting[left_out] != value], names)
        errors += [law.value(row.setting) / row.loss - 1 for row in losses if row.setting[left_out] == value]
    return errors


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
