"""Factors on a predicted time between which nine of ten measured times are, computed from measurements.

A *basis* is a set of n comparable measurements that the prediction does not use. Their residuals
``r = log(measured / predicted)`` have mean c and standard deviation s. One more residual is expected in Student's
interval (t is the quantile of Student's distribution)

    c +- t(0.95, n - 1) s sqrt(1 + 1/n).

If the interval does not contain 0, it is widened to 0, because measurements of a basis do not correct predictions. With
9 or more residuals, those further than three robust deviations from the median are clipped to that distance. (A robust
deviation is 1.4826 times the median of the absolute deviations.) A tenth of all residuals may be outside the interval,
and single outliers must not widen the interval of all others.

Measurements of one *source* (a publication, a machine, a cluster) err alike, so that many rows of one source say little
about another source. With K sources of means m_k, whose residuals vary around them by the mean variance v, one more
residual *of a source that is not among them* is expected in

    mean(m) +- t(0.95, K - 1) sqrt(var(m) (1 + 1/K) + v).

Each source counts alike, however many rows it has. With two sources, whose difference says too little about a third,
the rows take the place of the sources in t.

`uncertainties` returns the uncertainties of the package's measurements (`uncertainties.csv`, which
``python -m tests.measure.validation.uncertainties`` in the repository computes). Each has a *scope*: what was measured.
An answer outside of it is *transferred*, and `Uncertainty.reasons` say why.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syncline.costmodel.numerics.arrays import require
from syncline.errors import SpecError

Range = tuple[float, float]

RANGES = ("workers", "nbytes", "width")
"""Quantities with a range: numbers of workers, bytes of a collective, widths of a model."""

UNITS = {"workers": "{:,.0f} workers", "nbytes": "{:,.0f} bytes", "width": "a width of {:,.0f}"}
"""Formats of a quantity with its unit."""


@dataclass(frozen=True)
class Scope:
    """The machines, sizes and scales that the measurements of a basis cover.

    Args:
        families: machine families that were measured; empty: any.
        workers: smallest and largest number of workers; None: any.
        nbytes: smallest and largest number of bytes of a collective; None: any.
        width: smallest and largest width of a model; None: any.
    """

    families: tuple[str, ...] = ()
    workers: Range | None = None
    nbytes: Range | None = None
    width: Range | None = None

    def __post_init__(self) -> None:
        for name in RANGES:
            value = getattr(self, name)
            if value is not None and not (len(value) == 2 and 0 <= value[0] <= value[1]):
                raise SpecError(f"bounds.{name}", value, "two numbers in order, at least 0")

    def reasons_outside(self, **values: float | None) -> list[str]:
        """Return a reason for each quantity of `RANGES` that is outside of the measured range; None: not known.

        >>> Scope(workers=(2, 64)).reasons_outside(workers=1024, width=512)
        ['1,024 workers where 2 to 64 were measured']
        """
        reasons = []
        for name, value in values.items():
            measured: Range | None = getattr(self, name)
            if measured is not None and value is not None and not measured[0] <= value <= measured[1]:
                low, high = (f"{bound:,.0f}" for bound in measured)
                range_text = f"{low} to {high}" if low != high else low
                if high == "0":
                    range_text = "none"
                reasons.append(f"{UNITS[name].format(value)} where {range_text} were measured")
        return reasons

    def columns(self) -> dict[str, str]:
        """Return the texts of the scope by column of a table; `from_columns` reads them."""
        ranges = {name: getattr(self, name) for name in RANGES}
        texts = {name: "" if value is None else f"{value[0]:.10g}..{value[1]:.10g}" for name, value in ranges.items()}
        return {"families": "; ".join(self.families)} | texts

    @classmethod
    def from_columns(cls, row: Mapping[str, str]) -> Scope:
        """Return the scope that a row of a table describes."""
        families = tuple(name for name in row["families"].split("; ") if name)
        ranges: dict[str, Any] = {name: tuple(map(float, row[name].split(".."))) for name in RANGES if row[name]}
        return cls(families, **ranges)

    @classmethod
    def of_values(cls, families: Iterable[str] = (), **values: Iterable[float]) -> Scope:
        """Return the scope of measurements from all values of each quantity."""
        columns = {name: list(column) for name, column in values.items()}
        ranges: dict[str, Any] = {name: (min(column), max(column)) for name, column in columns.items() if column}
        return cls(tuple(sorted(set(families))), **ranges)


ANYTHING = Scope()
"""The scope of a basis whose measurements do not limit it."""


COVERED = 0.9
"""Fraction of measurements that is expected between the bounds."""

ROBUST_POINTS = 9
"""Smallest number of residuals for which outliers are clipped."""

OUTLIER_DEVIATIONS = 3.0
"""Distance from the median, in robust deviations, at which residuals are clipped."""

FILE = Path(__file__).with_name("uncertainties.csv")


@dataclass(frozen=True)
class Uncertainty:
    """Factors on a predicted time between which nine of ten measured times are.

    Args:
        low: lower factor, above 0, at most 1.
        high: upper factor, at least 1.
        points: number of residuals that support the factors.
        basis: name of the set of measurements.
        sources: number of sources of the residuals; 0 if they are of what is predicted.
        scope: what was measured.
        reasons: why the answer is outside of the scope; empty if it is inside.
    """

    low: float
    high: float
    points: int = 0
    basis: str = ""
    sources: int = 0
    scope: Scope = ANYTHING
    reasons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require(0 < self.low <= 1, "uncertainty.low", self.low, "a factor above 0, at most 1")
        require(1 <= self.high < np.inf, "uncertainty.high", self.high, "a factor, at least 1")

    @property
    def half_width(self) -> float:
        """Return half of the distance between the bounds, as a fraction of the prediction."""
        return (self.high - self.low) / 2

    def outside(self, reasons: Sequence[str]) -> Uncertainty:
        """Return the uncertainty of an answer that is outside of the scope for more reasons."""
        return replace(self, reasons=tuple(dict.fromkeys((*self.reasons, *reasons)))) if reasons else self


def uncertainty_of(errors: ArrayLike, basis: str = "", sources: Sequence[str] | None = None) -> Uncertainty:
    """Return the uncertainty of one more prediction, from the errors of n predictions, by the formulas of this module.

    Args:
        errors: ``predicted / measured - 1`` of at least two measurements, ``(n,)``.
        basis: name of the set of measurements.
        sources: source of each measurement, ``(n,)``; the uncertainty is then that of a source that is not among them.

    >>> estimate = uncertainty_of([0.01, -0.01, 0.02, -0.02])
    >>> f"{estimate.low:.3f} to {estimate.high:.3f}"
    '0.953 to 1.049'
    """
    relative_errors = np.asarray(errors, dtype=np.float64)
    if relative_errors.size < 2:
        raise SpecError("residuals", int(relative_errors.size), "at least two")
    require(relative_errors > -1, "residuals", relative_errors, "above -1: predictions are positive")
    residuals = -np.log1p(relative_errors)
    if sources is not None and len(set(sources)) > 1:
        return _of_another_source(residuals, np.asarray(sources), basis)
    if relative_errors.size >= ROBUST_POINTS:
        median = np.median(residuals)
        reach = OUTLIER_DEVIATIONS * 1.4826 * np.median(np.abs(residuals - median))
        if reach > 0:
            residuals = np.clip(residuals, median - reach, median + reach)
    centre, deviation = residuals.mean(), residuals.std(ddof=1)
    reach = _student(relative_errors.size) * deviation * np.sqrt(1 + 1 / relative_errors.size)
    return Uncertainty(*_around(centre, reach), int(relative_errors.size), basis)


def _of_another_source(residuals: NDArray[np.float64], sources: NDArray[np.str_], basis: str) -> Uncertainty:
    """Return the uncertainty of a source that is not among those of the residuals; each source counts alike."""
    by_source = [residuals[sources == name] for name in sorted(set(sources.tolist()))]
    means = np.array([group.mean() for group in by_source])
    within = np.mean([group.var() for group in by_source])
    count = len(by_source)
    degrees = count if count > 2 else residuals.size
    reach = _student(degrees) * np.sqrt(means.var(ddof=1) * (1 + 1 / count) + within)
    return Uncertainty(*_around(means.mean(), reach), int(residuals.size), basis, count)


@cache
def _student(count: int) -> float:
    """Return the factor of Student's interval around the mean of so many values, for one more value.

    It is ``sqrt(v) tan(a)`` for v degrees of freedom and the angle a whose `_student_share` is `COVERED`.
    """
    degrees, low, high = count - 1, 0.0, math.pi / 2
    while low < (angle := (low + high) / 2) < high:
        low, high = (angle, high) if _student_share(degrees, angle) < COVERED else (low, angle)
    return math.sqrt(degrees) * math.tan(angle)


def _student_share(degrees: int, angle: float) -> float:
    """Return the probability that ``|t| < sqrt(v) tan(angle)`` in Student's distribution with v degrees of freedom.

    Source: Abramowitz and Stegun, "Handbook of Mathematical Functions" (1964), 26.7.3 and 26.7.4.
    """
    odd = degrees % 2
    term, total = math.cos(angle) if odd else 1.0, 0.0
    for number in range(odd, degrees - 1, 2):
        total += term
        term *= (number + 1) / (number + 2) * math.cos(angle) ** 2
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total


def _around(centre: float, reach: float) -> tuple[float, float]:
    """Return the factors at the ends of an interval of logarithms, ``centre +- reach``, widened to contain 0."""
    return float(np.exp(min(centre - reach, 0.0))), float(np.exp(max(centre + reach, 0.0)))


@cache
def uncertainties() -> Mapping[str, Uncertainty]:
    """Return the uncertainties of the package's measurements by basis."""
    table = {}
    with FILE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            low, high, points, sources = float(row["low"]), float(row["high"]), int(row["points"]), int(row["sources"])
            table[row["basis"]] = Uncertainty(
                low, high, points, basis=row["basis"], sources=sources, scope=Scope.from_columns(row)
            )
    return table


def known_uncertainty(bases: Sequence[str]) -> Uncertainty:
    """Return the uncertainty of the first of several bases that has measurements."""
    table = uncertainties()
    return table[next((basis for basis in bases if basis in table), bases[-1])]
