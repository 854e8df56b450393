"""The measured end of a curve of loss ratios, which limits the gain of a method over data parallelism.

A power law of a method's loss over a power law of data parallelism's falls forever as models grow. The measured ratios
do not: DiLoCo with two replicas has 0.9987 at 2.4B, and 0.9982 and 0.9981 at 4B and 10B, where the laws say 0.9958 and
0.9929. The geometric mean of the ratios at the two largest measured sizes is the *end* of the curve: no predicted ratio
is below it. Settings that are more favourable than all measured ones (fewer replicas, a shorter period) gain no more
than the most favourable measured setting.

The errors of ratios beyond a fit grow with the square root of the distance in e-folds. `grown_errors` measures them: it
fits the losses up to each size in turn and predicts all larger sizes. `growth_exponent` is the power of the distance
under which these 101 errors are most likely as normal ones of one scale: 0.46, and a linear or a constant error is
hundreds of times less likely than the square root.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from syncline.costmodel.network.paths import Floats
from syncline.costmodel.numerics.uncertainty import Uncertainty, uncertainty_of
from syncline.costmodel.scaling.laws import MeasuredLoss, PowerLaw, Setting, measured_losses, power_law_of

END_SIZES = 2
"""Number of the largest measured sizes whose mean is the end of a curve."""

LEAST_SIZES = 3
"""Smallest number of sizes to which `ratio_growth` fits a law."""

CURVES = (("charles-2025", "diloco"), ("douillard-2025", "streaming-diloco"))
"""Family and method of the curves of ratios, with several numbers of replicas at each size."""

VARIED = ("parameters", "replicas", "period")
"""Fields that laws of methods may have exponents of."""


class MeasuredRatio(NamedTuple):
    """A measured loss, divided by that of data parallelism on as many tokens."""

    row: MeasuredLoss
    ratio: float


def measured_ratios(family: str, method: str, largest: float = np.inf) -> list[MeasuredRatio]:
    """Return the measured ratios of a family and method at sizes up to ``largest``, those of fits and of tests."""
    rows = [row for row in measured_losses() if row.family == family and row.parameters <= largest]
    base = {(row.parameters, row.tokens): row.loss for row in rows if row.method == "ddp-adam"}
    return [
        MeasuredRatio(row, row.loss / base[row.parameters, row.tokens])
        for row in rows
        if row.method == method and (row.parameters, row.tokens) in base
    ]


@dataclass(frozen=True)
class MeasuredEnd:
    """The end of the curve of a method's ratios by number of replicas and period.

    Args:
        replicas: measured numbers of replicas, rising, ``(R,)``.
        periods: measured periods in steps, rising, ``(P,)``.
        logs: logarithms of the ratios, ``(R, P)``; missing settings are filled from the period beside them.
        basis: paper and tables of the ratios.
    """

    replicas: tuple[float, ...]
    periods: tuple[float, ...]
    logs: Floats
    basis: str

    def ratio(self, setting: Setting, exponents: Mapping[str, float]) -> float:
        """Return the smallest ratio that measurements support.

        Between measured settings the logarithm is interpolated linearly in those of replicas and period. Above them the
        ratio grows by the law's exponents; below them it stays.

        Args:
            setting: number of replicas and period.
            exponents: exponents of the ratio in ``replicas`` and ``period``.
        """
        clipped_log, growth = {}, 0.0
        for name, grid in (("replicas", self.replicas), ("period", self.periods)):
            clipped_log[name] = float(np.log(min(max(setting[name], grid[0]), grid[-1])))
            log_excess = float(np.log(max(setting[name] / grid[-1], 1.0)))
            growth += max(exponents.get(name, 0.0) * log_excess, 0.0)
        by_replicas = [float(np.interp(clipped_log["period"], np.log(self.periods), row)) for row in self.logs]
        return float(np.exp(np.interp(clipped_log["replicas"], np.log(self.replicas), by_replicas) + growth))


def end_of(ratios: Sequence[MeasuredRatio]) -> MeasuredEnd:
    """Return the end of the curve of measured ratios of one family and method.

    >>> end = end_of(measured_ratios("charles-2025", "diloco"))
    >>> [round(end.ratio({"replicas": m, "period": 30.0}, {}), 4) for m in (1.0, 2.0, 4.0, 8.0)]
    [0.9979, 0.9981, 1.0028, 1.0121]
    """
    replicas = sorted({measured.row.replicas for measured in ratios})
    periods = sorted({measured.row.period for measured in ratios})
    logs = np.full((len(replicas), len(periods)), np.nan)
    tables: set[str] = set()
    by_size = sorted(ratios, key=lambda measured: measured.row.parameters)
    for i, j in np.ndindex(logs.shape):
        setting = replicas[i], periods[j]
        largest = [measured for measured in by_size if (measured.row.replicas, measured.row.period) == setting]
        largest = largest[-END_SIZES:]
        if largest:
            logs[i, j] = np.mean(np.log([measured.ratio for measured in largest]))
            tables |= {measured.row.place for measured in largest}
    log_periods = np.log(periods)
    for row in logs:
        is_measured = ~np.isnan(row)
        row[~is_measured] = np.interp(log_periods[~is_measured], log_periods[is_measured], row[is_measured])
    family = ratios[0].row.family.partition("-")[0].title()
    return MeasuredEnd(
        tuple(replicas),
        tuple(periods),
        logs,
        f"the two largest models ({family} et al., {' and '.join(sorted(tables))})",
    )


@cache
def measured_end(family: str, method: str) -> MeasuredEnd | None:
    """Return the end of the curve of a family and method from all measurements, or None without any."""
    ratios = measured_ratios(family, method)
    return end_of(ratios) if ratios else None


@dataclass(frozen=True)
class RatioCurve:
    """Ratios of a method's loss to data parallelism's, by two laws and the measured end.

    Args:
        law: law of the method's loss.
        base: law of data parallelism's loss.
        end: end of the curve; None leaves the laws alone.
    """

    law: PowerLaw
    base: PowerLaw
    end: MeasuredEnd | None

    def ratio(self, setting: Setting) -> float:
        """Return the ratio of the laws, at least that at the measured end."""
        ratio = self.law.value(setting) / self.base.value(setting)
        return ratio if self.end is None else max(ratio, self.end.ratio(setting, self.law.exponents))


def fitted_curve(family: str, method: str, largest: float, capped: bool = True) -> RatioCurve:
    """Return the curve that is fitted to the measurements up to a size.

    Args:
        family: family of the losses.
        method: name of the method.
        largest: largest number of parameters.
        capped: whether the measured end limits the gain.
    """
    ratios = measured_ratios(family, method, largest)
    losses = [measured.row for measured in ratios]
    names = [name for name in VARIED if len({row.setting[name] for row in losses}) > 1]
    base = [row for row in measured_losses() if (row.family, row.method) == (family, "ddp-adam")]
    return RatioCurve(
        power_law_of(losses, names),
        power_law_of([row for row in base if row.parameters <= largest], ["parameters"]),
        end_of(ratios) if capped else None,
    )


class GrownError(NamedTuple):
    """The error of a ratio beyond the sizes of a fit.

    Attributes:
        error: logarithm of the predicted over the measured ratio.
        folds: distance from the largest size of the fit, in e-folds.
    """

    error: float
    folds: float


def grown_errors(largest: float = np.inf, capped: bool = True) -> list[GrownError]:
    """Return the errors of ratios beyond fits to the sizes up to each size in turn, at all larger measured sizes.

    Sizes above ``largest`` are not used. ``capped`` tells whether the measured end limits the predicted gain.
    """
    errors = []
    for family, method in CURVES:
        ratios = measured_ratios(family, method, largest)
        sizes = sorted({measured.row.parameters for measured in ratios})
        for size in sizes[LEAST_SIZES - 1 : -1]:
            curve = fitted_curve(family, method, size, capped)
            errors += [
                GrownError(float(np.log(curve.ratio(row.setting) / ratio)), float(np.log(row.parameters / size)))
                for row, ratio in ratios
                if row.parameters > size
            ]
    return errors


def growth_exponent(errors: Sequence[GrownError]) -> tuple[float, dict[float, float]]:
    """Return the most likely power p of the distance d by which errors grow, and how much less likely others are.

    Errors are normal, of mean 0 and deviation ``c d^p``. The second result has the differences of log likelihoods from
    the most likely power, for the powers 0, 0.5 and 1.

    Args:
        errors: errors with their distances.

    >>> power, differences = growth_exponent(grown_errors())
    >>> f"{power:.2f}", {p: round(difference, 1) for p, difference in differences.items()}
    ('0.46', {0.0: 5.9, 0.5: 0.0, 1.0: 8.6})
    """
    values, folds = (np.array(column) for column in zip(*errors, strict=True))

    def negative_log_likelihood(power: float) -> float:
        return float(len(values) * np.log(np.mean((values / folds**power) ** 2)) / 2 + power * np.log(folds).sum())

    powers = np.linspace(0.0, 1.5, 151)
    values_of_powers = [negative_log_likelihood(power) for power in powers]
    best = int(np.argmin(values_of_powers))
    least = values_of_powers[best]
    return float(powers[best]), {power: negative_log_likelihood(power) - least for power in (0.0, 0.5, 1.0)}


@cache
def ratio_growth(largest: float = np.inf, capped: bool = True) -> Uncertainty:
    """Return the uncertainty of ratios per square root of an e-fold of parameters beyond a fit, from `grown_errors`.

    >>> growth = ratio_growth()
    >>> f"{growth.low:.3f} to {growth.high:.3f}, {growth.points} ratios"
    '0.992 to 1.001, 101 ratios'
    """
    errors = grown_errors(largest, capped)
    scaled = [np.expm1(grown.error / np.sqrt(grown.folds)) for grown in errors]
    return uncertainty_of(scaled, f"{len(errors)} ratios beyond fits to smaller models, by the root of the distance")
