"""Losses that papers print, with the setting of each: what fits are made of, and what they are held against."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from syncline.costmodel.scaling.laws import Setting, fitted_power_law

FILE = Path(__file__).with_name("losses.csv")


class MeasuredLoss(NamedTuple):
    """A loss that a paper prints.

    Attributes:
        family: which losses are comparable: of one paper and data set.
        place: the table.
        method: by its name here.
        parameters: N; of Douillard et al. counted from the shapes of their Table 2, ``12 L d^2 + 32000 d``.
        tokens: D.
        replicas: M; 1 of data parallelism.
        period: H, steps; 1 of data parallelism.
        loss: of the evaluation, in nats per token.
        used: ``fit``, or ``test`` where the fits have not seen it.
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
        """Its numbers by the names of fields."""
        return {name: getattr(self, name) for name in ("parameters", "tokens", "replicas", "period")}


@cache
def measured_losses() -> tuple[MeasuredLoss, ...]:
    """All of them, in the order of the tables."""

    def number(row: dict[str, str], name: str) -> float:
        return float(row[name] or 1)

    with FILE.open(encoding="utf-8", newline="") as file:
        return tuple(
            MeasuredLoss(
                row["family"],
                row["place"],
                row["method"],
                number(row, "parameters"),
                number(row, "tokens"),
                number(row, "replicas"),
                number(row, "period"),
                number(row, "loss"),
                row["used"],
            )
            for row in csv.DictReader(file)
        )


def printed_losses(family: str, method: str, used: str = "fit") -> list[MeasuredLoss]:
    """Those of one paper and method."""
    return [one for one in measured_losses() if (one.family, one.method, one.used) == (family, method, used)]


def left_out_errors(losses: Sequence[MeasuredLoss], names: Sequence[str], left_out: str) -> list[float]:
    """Errors ``predicted / measured - 1`` of power laws that have not seen what they predict.

    Each value of a field is left out in turn, with all losses that have it.

    Args:
        losses: of a fit.
        names: the fields that it is a law of.
        left_out: the field.
    """
    errors = []
    for value in sorted({one.setting[left_out] for one in losses}):
        seen = [one for one in losses if one.setting[left_out] != value]
        law = fitted_power_law([one.setting for one in seen], [one.loss for one in seen], names)
        errors += [law.of(one.setting) / one.loss - 1 for one in losses if one.setting[left_out] == value]
    return errors
