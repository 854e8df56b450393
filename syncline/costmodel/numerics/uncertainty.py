"""How far a measured time is from a predicted one: factors between which nine of ten are, by what it rests on.

A *basis* is a set of n comparable measurements, none of which the prediction at hand has seen. From their residuals
``r = log(measured / predicted)``, with mean c and standard deviation s, one more is expected in Student's interval

    c +- t(0.95, n - 1) s sqrt(1 + 1/n),

widened to 0 where it does not hold the prediction itself: predictions are not corrected by what they were held against.
From 9 residuals on, those beyond three deviations of the median (1.4826 times the median of absolute ones) count as if
they were there: a tenth of all may lie outside, and single outliers do not make all other intervals wide.

`uncertainties` are those of measurements that come with the package (`uncertainties.csv`, computed by
`syncline.measure.validation.residuals`).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from syncline.costmodel.numerics.arrays import require
from syncline.errors import SpecError

COVERED = 0.9
"""The part of all measurements that is expected between the bounds."""

ROBUST_POINTS = 9
"""So many residuals tell which of them are outliers."""

OUTLIER_DEVIATIONS = 3.0
"""Robust deviations from the median, beyond which a residual counts as if it were there."""

FILE = Path(__file__).with_name("uncertainties.csv")


@dataclass(frozen=True)
class Uncertainty:
    """Factors on a predicted time between which nine of ten measured ones are.

    Args:
        low: above 0, at most 1.
        high: at least 1.
        points: residuals that say so.
        basis: what they are of.

    Raises:
        SpecError: a factor out of range.
    """

    low: float
    high: float
    points: int = 0
    basis: str = ""

    def __post_init__(self) -> None:
        require(0 < self.low <= 1, "uncertainty.low", self.low, "a factor above 0, at most 1")
        require(1 <= self.high < np.inf, "uncertainty.high", self.high, "a factor, at least 1")

    @property
    def half_width(self) -> float:
        """Half of what lies between the bounds, as a part of the prediction."""
        return (self.high - self.low) / 2


def uncertainty_of(errors: ArrayLike, basis: str = "") -> Uncertainty:
    """What residuals say.

    Args:
        errors: ``predicted / measured - 1`` of at least two, ``(n,)``.
        basis: what they are of.

    Raises:
        SpecError: fewer than two, or a prediction that is not positive.

    >>> told = uncertainty_of([0.01, -0.01, 0.02, -0.02])
    >>> f"{told.low:.3f} to {told.high:.3f}"
    '0.953 to 1.049'
    """
    of = np.asarray(errors, dtype=np.float64)
    if of.size < 2:
        raise SpecError("residuals", int(of.size), "at least two")
    require(of > -1, "residuals", of, "above -1: predictions are positive")
    from scipy.special import stdtrit  # SciPy loads slowly

    residuals = -np.log1p(of)
    if of.size >= ROBUST_POINTS:
        median = np.median(residuals)
        reach = OUTLIER_DEVIATIONS * 1.4826 * np.median(np.abs(residuals - median))
        if reach > 0:
            residuals = np.clip(residuals, median - reach, median + reach)
    centre, deviation = residuals.mean(), residuals.std(ddof=1)
    reach = stdtrit(of.size - 1, (1 + COVERED) / 2) * deviation * np.sqrt(1 + 1 / of.size)
    low, high = np.exp(min(centre - reach, 0.0)), np.exp(max(centre + reach, 0.0))
    return Uncertainty(float(low), float(high), int(of.size), basis)


@cache
def uncertainties() -> Mapping[str, Uncertainty]:
    """Those of measurements that come with the package, by basis."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return {
            row["basis"]: Uncertainty(float(row["low"]), float(row["high"]), int(row["points"]), row["basis"])
            for row in csv.DictReader(file)
        }


def known_uncertainty(bases: Sequence[str]) -> Uncertainty:
    """The first of several bases, from the nearest on, of which there are measurements.

    Raises:
        KeyError: none of them is known.
    """
    known = uncertainties()
    return known[next((basis for basis in bases if basis in known), bases[-1])]
