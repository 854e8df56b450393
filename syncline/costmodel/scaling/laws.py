"""Laws of losses, the losses that papers print, and fits: a law with its range of data and its errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from syncline.costmodel.numerics.uncertainty import Uncertainty
from syncline.errors import SpecError
from syncline.files import read_csv

Setting: TypeAlias = Mapping[str, float]
"""The quantities of a training by name: ``parameters``, ``tokens``, ``replicas``, ``period``."""


@dataclass(frozen=True)
class PowerLaw:
    """A product of powers of the quantities of a training: ``scale * product of quantity^exponent``.

    Args:
        scale: factor, in the unit of the fitted quantity.
        exponents: exponents by name of the quantity, see `Setting`.
    """

    scale: float
    exponents: Mapping[str, float] = field(default_factory=dict)

    def value(self, setting: Setting) -> float:
        """Return the value of the law for the quantities of a training."""
        powers = [setting[name] ** exponent for name, exponent in self.exponents.items()]
        return self.scale * float(np.prod(powers))


@dataclass(frozen=True)
class AdditiveLaw:
    """A law of N parameters and D tokens: ``floor + a N^-alpha + b D^-beta``.

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
        """Return the value of the law for the quantities of a training."""
        return self.floor + self.a * setting["parameters"] ** -self.alpha + self.b * setting["tokens"] ** -self.beta


def fitted_power_law(settings: Sequence[Setting], values: Sequence[float], names: Sequence[str]) -> PowerLaw:
    """Return the power law of a training's quantities that fits values with the least squared error of logarithms.

    >>> law = fitted_power_law([{"parameters": 1e8}, {"parameters": 1e9}], [3.0, 2.4], ["parameters"])
    >>> round(law.value({"parameters": 1e9}), 3)
    2.4
    """
    columns = [np.ones(len(settings)), *(np.log([setting[name] for setting in settings]) for name in names)]
    matrix = np.column_stack(columns)
    solution, _, rank, _ = np.linalg.lstsq(matrix, np.log(values), rcond=None)
    if rank < len(columns):
        raise SpecError("settings", len(settings), f"settings that distinguish {', '.join(names)}")
    return PowerLaw(float(np.exp(solution[0])), dict(zip(names, map(float, solution[1:]), strict=True)))


FILE = Path(__file__).with_name("losses.csv")
"""File of the losses that papers print."""


class MeasuredLoss(NamedTuple):
    """A loss that a paper prints.

    Attributes:
        family: name of a set of comparable losses: those of one paper and data set.
        place: table of the paper.
        method: name of the method in this package.
        parameters: parameters of the model; for Douillard et al. computed as ``12 L d^2 + 32000 d`` from the L layers
            of width d in their Table 2.
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
        """Return the quantities of the training by name."""
        return {name: getattr(self, name) for name in ("parameters", "tokens", "replicas", "period")}


@cache
def measured_losses() -> tuple[MeasuredLoss, ...]:
    """Return all losses that papers print, in the order of their tables in the package's file."""
    losses = []
    for row in read_csv(FILE):
        fields: dict[str, Any] = {name: row[name] for name in ("family", "place", "method", "used")}
        for name in ("parameters", "tokens", "replicas", "period", "loss"):
            fields[name] = float(row[name] or 1)  # empty replicas and periods are those of data parallelism
        losses.append(MeasuredLoss(**fields))
    return tuple(losses)


def printed_losses(family: str, method: str, used: str = "fit") -> list[MeasuredLoss]:
    """Return the losses of one family and method that are used for ``fit`` or for ``test``."""
    return [row for row in measured_losses() if (row.family, row.method, row.used) == (family, method, used)]


def power_law_of(losses: Sequence[MeasuredLoss], names: Sequence[str]) -> PowerLaw:
    """Return the power law that fits losses best, with an exponent of each named quantity."""
    return fitted_power_law([row.setting for row in losses], [row.loss for row in losses], names)


def left_out_errors(losses: Sequence[MeasuredLoss], names: Sequence[str], left_out: str) -> list[float]:
    """Return the errors ``predicted / measured - 1`` of power laws in a cross-validation.

    For each value of one quantity, the function fits a law without the losses at that value and predicts those losses.

    Args:
        names: names of the quantities that get an exponent.
        left_out: name of the quantity whose values are left out in turn.
    """
    errors = []
    for value in sorted({row.setting[left_out] for row in losses}):
        law = power_law_of([row for row in losses if row.setting[left_out] != value], names)
        errors += [law.value(row.setting) / row.loss - 1 for row in losses if row.setting[left_out] == value]
    return errors


class SeenRange(NamedTuple):
    """The smallest and the largest value of one quantity, such as parameters, in the data of a fit."""

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
    """The error of a fit's loss outside its range of one quantity, per e-fold of the quantity.

    Args:
        exponent: the loss is multiplied by ``(value / edge of the range)^exponent``; 0 for no correction.
    """

    uncertainty: Uncertainty
    exponent: float = 0.0


TOKENS_RATIO = 20.0
"""Tokens per parameter of the power laws."""


@dataclass(frozen=True)
class LossFit:
    """A fit of the loss of one or more methods.

    Args:
        methods: methods whose losses the fit predicts, by their names in this package.
        family: name of a set of comparable losses: those of one paper, data set and tokeniser.
        seen_ranges: range of the fit's data by quantity: ``parameters``, ``tokens``, ``tokens_per_parameter``,
            ``replicas``, ``period``, and ``batch_over_best``, the batch over the best one.
        within: uncertainty of predictions inside all these ranges.
        drifts: error of the loss outside the range, by quantity; without one a prediction outside has no bounds.
        best_batch: law of the batch in tokens with the lowest loss; None if the paper did not tune batches.
        data: data set and definition of the loss.
        source: paper, with its table or equation, and the way in which the numbers were read.
        assumes: training setup that all losses of the fit share.
    """

    name: str
    methods: tuple[str, ...]
    family: str
    law: PowerLaw | AdditiveLaw
    seen_ranges: Mapping[str, SeenRange]
    within: Uncertainty
    data: str
    source: str
    assumes: str
    drifts: Mapping[str, Drift] = field(default_factory=dict)
    best_batch: PowerLaw | None = None

    @property
    def tokens_per_parameter(self) -> float | None:
        """Return the fixed ratio of tokens to parameters of a fit's data, or None if the law has both as variables."""
        return None if isinstance(self.law, AdditiveLaw) else TOKENS_RATIO


Bounds = tuple[float | None, float | None]
"""A lower and an upper bound, or their logarithms; None if a bound is unknown."""


def log_bounds(uncertainty: Uncertainty, e_folds: float) -> tuple[float, float]:
    """Return the logarithms of the lower and the upper error factor at a distance, from an uncertainty per e-fold."""
    return float(np.log(uncertainty.low)) * e_folds, float(np.log(uncertainty.high)) * e_folds


def log_ratio(bound: float | None, value: float) -> float | None:
    """Return the logarithm of a bound over the bounded value; None without a bound."""
    return None if bound is None else float(np.log(bound / value))


def joint_bounds(value: float, error_logs: Sequence[Bounds]) -> Bounds:
    """Return the lower and the upper bound of a value with several independent errors; None without a bound.

    Args:
        error_logs: logarithms of the lower and the upper factor of each error, which add in quadrature. If one is None,
            because nobody measured this error, the value has no such bound.
    """
    bounds: list[float | None] = []
    for sign, logs in zip((-1, 1), zip(*error_logs, strict=True), strict=True):  # lower, then upper
        measured_logs = [log for log in logs if log is not None]
        bounds.append(
            value * float(np.exp(sign * np.hypot.reduce(measured_logs))) if len(measured_logs) == len(logs) else None
        )
    low, high = bounds
    return low, high
