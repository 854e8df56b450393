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
from syncline.files import read_csv
from syncline.units import counted

Range = tuple[float, float]

RANGES = ("workers", "nbytes", "width")
"""Quantities with a range: numbers of workers, bytes of a collective, widths of a model."""

UNITS = {"workers": "workers", "nbytes": "bytes"}
"""Units of the quantities that have one."""


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
        """Return a sentence for each value of a quantity of `RANGES` that is outside of the measured range.

        A value of None is unknown and gives no sentence.

        >>> Scope(workers=(2, 64)).reasons_outside(workers=1024, width=512)
        ['1,024 workers where 2 to 64 were measured']
        """
        reasons = []
        for name, value in values.items():
            measured: Range | None = getattr(self, name)
            if measured is None or value is None:
                continue
            low, high = measured
            if not low <= value <= high:
                range_text = f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"
                if high == 0:  # for instance no bytes: only single workers were measured
                    range_text = "none"
                value_text = counted(round(value), UNITS[name]) if name in UNITS else f"a {name} of {value:,.0f}"
                reasons.append(f"{value_text} where {range_text} were measured")
        return reasons

    def columns(self) -> dict[str, str]:
        """Return the texts of the scope by column of a CSV table; `from_columns` reads them."""
        texts = {"families": "; ".join(self.families)}
        for name in RANGES:
            measured: Range | None = getattr(self, name)
            texts[name] = "" if measured is None else f"{measured[0]:.10g}..{measured[1]:.10g}"
        return texts

    @classmethod
    def from_columns(cls, row: Mapping[str, str]) -> Scope:
        """Return the scope that a row of a CSV table describes, see `columns`."""
        families = tuple(name for name in row["families"].split("; ") if name)
        ranges: dict[str, Any] = {name: tuple(map(float, row[name].split(".."))) for name in RANGES if row[name]}
        return cls(families, **ranges)

    @classmethod
    def of_values(cls, families: Iterable[str] = (), **values: Iterable[float]) -> Scope:
        """Return the scope of measurements from the values of each quantity in all of them."""
        measured = {name: list(quantity_values) for name, quantity_values in values.items()}
        ranges: dict[str, Any] = {name: (min(numbers), max(numbers)) for name, numbers in measured.items() if numbers}
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
        sources: number of sources of the residuals; 0 if they were measured on the predicted machines.
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
        """Return the uncertainty with further reasons why the answer is outside of the scope."""
        new_reasons = [reason for reason in dict.fromkeys(reasons) if reason not in self.reasons]
        return replace(self, reasons=(*self.reasons, *new_reasons)) if new_reasons else self


def uncertainty_of(errors: ArrayLike, basis: str = "", sources: Sequence[str] | None = None) -> Uncertainty:
    """Return the uncertainty of one more prediction, from the errors of n predictions, by the formulas of this module.

    Args:
        errors: ``predicted / measured - 1`` of at least two measurements, ``(n,)``.
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
    num_points = residuals.size
    if sources is not None and len(set(sources)) > 1:
        return _uncertainty_of_new_source(residuals, np.asarray(sources), basis)
    if num_points >= ROBUST_POINTS:
        median = np.median(residuals)
        # 1.4826 makes the median absolute deviation a standard deviation, for normal residuals.
        clip_distance = OUTLIER_DEVIATIONS * 1.4826 * np.median(np.abs(residuals - median))
        if clip_distance > 0:  # 0 if most residuals are equal
            residuals = np.clip(residuals, median - clip_distance, median + clip_distance)
    half_width = _student_factor(num_points) * residuals.std(ddof=1) * np.sqrt(1 + 1 / num_points)
    low, high = _factors(residuals.mean(), half_width)
    return Uncertainty(low, high, int(num_points), basis)


def _uncertainty_of_new_source(residuals: NDArray[np.float64], sources: NDArray[np.str_], basis: str) -> Uncertainty:
    """Return the uncertainty of a source that is not among those of the residuals; each source counts alike."""
    residuals_by_source = [residuals[sources == name] for name in sorted(set(sources.tolist()))]
    means = np.array([source_residuals.mean() for source_residuals in residuals_by_source])
    variance_within = np.mean([source_residuals.var() for source_residuals in residuals_by_source])
    num_sources = len(residuals_by_source)
    # The quantile for two sources is so large that the bounds say nothing; then the quantile counts rows.
    num_values = num_sources if num_sources > 2 else residuals.size
    deviation = np.sqrt(means.var(ddof=1) * (1 + 1 / num_sources) + variance_within)
    low, high = _factors(means.mean(), _student_factor(num_values) * deviation)
    return Uncertainty(low, high, int(residuals.size), basis, num_sources)


@cache
def _student_factor(num_values: int) -> float:
    """Return the quantile t of Student's distribution with which ``num_values`` values give an interval.

    t is ``sqrt(v) tan(a)`` for v degrees of freedom. Bisection finds the angle a of probability `COVERED`.
    """
    degrees, low, high = num_values - 1, 0.0, math.pi / 2
    while low < (angle := (low + high) / 2) < high:  # until no number is between them
        if _student_probability(degrees, angle) < COVERED:
            low = angle
        else:
            high = angle
    return math.sqrt(degrees) * math.tan(angle)


def _student_probability(degrees: int, angle: float) -> float:
    """Return the probability that ``|t| < sqrt(v) tan(angle)`` in Student's distribution with v ``degrees`` of freedom.

    Source: Abramowitz and Stegun, "Handbook of Mathematical Functions" (1964), 26.7.3 (odd v) and 26.7.4 (even v).
    """
    is_odd = degrees % 2
    term, series = math.cos(angle) if is_odd else 1.0, 0.0
    for number in range(is_odd, degrees - 1, 2):
        series += term
        term *= (number + 1) / (number + 2) * math.cos(angle) ** 2
    series *= math.sin(angle)
    return 2 / math.pi * (angle + series) if is_odd else series


def _factors(centre: float, half_width: float) -> tuple[float, float]:
    """Return the factors at the ends of an interval of logarithms, ``centre +- half_width``, widened to contain 0."""
    return float(np.exp(min(centre - half_width, 0.0))), float(np.exp(max(centre + half_width, 0.0)))


@cache
def uncertainties() -> Mapping[str, Uncertainty]:
    """Return the uncertainties of the package's measurements by basis."""
    table = {}
    for row in read_csv(FILE):
        low, high, points, sources = float(row["low"]), float(row["high"]), int(row["points"]), int(row["sources"])
        scope = Scope.from_columns(row)
        table[row["basis"]] = Uncertainty(low, high, points, row["basis"], sources=sources, scope=scope)
    return table


def known_uncertainty(bases: Sequence[str]) -> Uncertainty:
    """Return the uncertainty of the first of several bases that has measurements; raise ``KeyError`` without any."""
    for basis in bases:
        if basis in uncertainties():
            return uncertainties()[basis]
    raise KeyError(bases[-1])
