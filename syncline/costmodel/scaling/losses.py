"""Losses that papers print, each with its setting, to fit laws and to test them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from syncline.costmodel.scaling.laws import PowerLaw, Setting, fitted_power_law

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
