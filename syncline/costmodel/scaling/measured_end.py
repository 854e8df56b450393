"""Measured ratios of losses, which limit the predicted gain of a method over data parallelism.

A power law of a method's loss over a power law of data parallelism's falls forever as models grow. The measured ratios
do not: DiLoCo with two replicas has 0.9987 at 2.4B, and 0.9982 and 0.9981 at 4B and 10B, where the laws say 0.9958 and
0.9929. The geometric mean of the ratios at the two largest measured sizes is the *end* of the curve: no predicted ratio
is below it. Settings that are more favourable than all measured ones (fewer replicas, a shorter period) gain no more
than the most favourable measured setting.

The errors of ratios at models larger than those of a fit grow with the square root of the distance in e-folds of
parameters. `replication.growth` estimates the power of the distance from 101 such errors as 0.46; a linear or a
constant error is hundreds of times less likely than the square root.
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
"""Number of the largest measured sizes that the end of a curve averages."""

LEAST_SIZES = 3
"""Smallest number of sizes to which `ratio_uncertainty_beyond` fits a law."""

CURVES = (("charles-2025", "diloco"), ("douillard-2025", "streaming-diloco"))
"""Family and method of the measured ratios, with several numbers of replicas at each size."""


class MeasuredRatio(NamedTuple):
    """A measured loss, and its ratio to that of data parallelism for the same model on the same tokens."""

    row: MeasuredLoss
    ratio: float


def measured_ratios(family: str, method: str, largest: float = np.inf) -> list[MeasuredRatio]:
    """Return the measured ratios of a method's losses in a family, of models of up to ``largest`` parameters."""
    rows = [row for row in measured_losses() if row.family == family and row.parameters <= largest]
    ddp_losses = {(row.parameters, row.tokens): row.loss for row in rows if row.method == "ddp-adam"}
    ratios = []
    for row in rows:
        ddp_loss = ddp_losses.get((row.parameters, row.tokens))
        if row.method == method and ddp_loss is not None:
            ratios.append(MeasuredRatio(row, row.loss / ddp_loss))
    return ratios


@dataclass(frozen=True)
class MeasuredEnd:
    """The end of a measured curve: the ratios of a method at the largest models, by number of replicas and period.

    Args:
        replicas: measured numbers of replicas, rising, ``(R,)``.
        periods: measured periods in steps, rising, ``(P,)``.
        logs: logarithms of the ratios, ``(R, P)``; a setting without measurement is interpolated over periods.
        basis: paper and tables of the ratios.
    """

    replicas: tuple[float, ...]
    periods: tuple[float, ...]
    logs: Floats
    basis: str

    def ratio(self, setting: Setting, exponents: Mapping[str, float]) -> float:
        """Return the ratio of losses at the largest measured models, below which no ratio is predicted.

        Between measured settings the logarithm of the ratio is interpolated over those of the settings. Above the
        largest setting the ratio grows by the law's exponents and never falls; below the smallest it is constant.

        Args:
            setting: number of ``replicas`` and ``period``.
            exponents: exponents of the ratio in ``replicas`` and ``period``.
        """
        log_growth = 0.0
        for name, measured in (("replicas", self.replicas), ("period", self.periods)):
            log_excess = float(np.log(max(setting[name] / measured[-1], 1.0)))
            log_growth += max(exponents.get(name, 0.0) * log_excess, 0.0)
        # np.interp is constant outside of the measured settings.
        log_period, log_replicas = np.log(setting["period"]), np.log(setting["replicas"])
        logs_at_period = [float(np.interp(log_period, np.log(self.periods), row)) for row in self.logs]
        return float(np.exp(np.interp(log_replicas, np.log(self.replicas), logs_at_period) + log_growth))


def end_of(ratios: Sequence[MeasuredRatio]) -> MeasuredEnd:
    """Return the mean ratios of one method at the largest models of a family, by numbers of replicas and periods.

    >>> end = end_of(measured_ratios("charles-2025", "diloco"))
    >>> [round(end.ratio({"replicas": m, "period": 30.0}, {}), 4) for m in (1.0, 2.0, 4.0, 8.0)]
    [0.9979, 0.9981, 1.0028, 1.0121]
    """
    replicas = sorted({measured.row.replicas for measured in ratios})
    periods = sorted({measured.row.period for measured in ratios})
    logs = np.full((len(replicas), len(periods)), np.nan)
    tables: set[str] = set()  # numbers of the paper's tables
    by_size = sorted(ratios, key=lambda measured: measured.row.parameters)
    for i, j in np.ndindex(logs.shape):
        setting = replicas[i], periods[j]
        ratios_by_size = [measured for measured in by_size if (measured.row.replicas, measured.row.period) == setting]
        if ratios_by_size:
            largest = ratios_by_size[-END_SIZES:]
            logs[i, j] = np.mean(np.log([measured.ratio for measured in largest]))
            tables |= {measured.row.place for measured in largest}

    log_periods = np.log(periods)
    for row in logs:  # interpolate missing settings over periods
        is_measured = ~np.isnan(row)
        row[~is_measured] = np.interp(log_periods[~is_measured], log_periods[is_measured], row[is_measured])
    family = ratios[0].row.family.partition("-")[0].title()
    basis = f"the two largest models ({family} et al., {' and '.join(sorted(tables))})"
    return MeasuredEnd(tuple(replicas), tuple(periods), logs, basis)


@cache
def measured_end(family: str, method: str) -> MeasuredEnd | None:
    """Return the end of the curve of a family and method by all measurements, or None without measurements."""
    ratios = measured_ratios(family, method)
    return end_of(ratios) if ratios else None


@dataclass(frozen=True)
class RatioCurve:
    """The ratio of a method's loss to data parallelism's by two laws, but at least the ratio of the measured end.

    Args:
        end: measured end of the curve; None for no limit.
    """

    law: PowerLaw
    base: PowerLaw
    end: MeasuredEnd | None

    def ratio(self, setting: Setting) -> float:
        """Return the ratio of a method's loss to data parallelism's by the laws, at least the measured end's."""
        ratio = self.law.value(setting) / self.base.value(setting)
        return ratio if self.end is None else max(ratio, self.end.ratio(setting, self.law.exponents))


def fitted_curve(family: str, method: str, largest: float, capped: bool = True) -> RatioCurve:
    """Return the curve of a method's loss over data parallelism's, fitted to the measurements of models up to a size.

    Args:
        largest: largest number of parameters of the measured models.
        capped: whether the ratios at the largest of these models limit the gain.
    """
    ratios = measured_ratios(family, method, largest)
    losses = [measured.row for measured in ratios]
    ddp_losses = [row for row in measured_losses() if (row.family, row.method) == (family, "ddp-adam")]
    return RatioCurve(
        law=power_law_of(losses, varied_quantities(losses)),
        base=power_law_of([row for row in ddp_losses if row.parameters <= largest], ["parameters"]),
        end=end_of(ratios) if capped else None,
    )


def varied_quantities(losses: Sequence[MeasuredLoss]) -> list[str]:
    """Return the names of the quantities that differ among losses; a law can have exponents of these."""
    names = ("parameters", "replicas", "period")
    return [name for name in names if len({row.setting[name] for row in losses}) > 1]


class ExtrapolationError(NamedTuple):
    """The error of a predicted ratio at a model larger than those of the fit.

    Attributes:
        error: logarithm of the predicted over the measured ratio.
        e_folds: logarithm of the model's parameters over those of the largest model of the fit.
    """

    error: float
    e_folds: float


def extrapolation_errors(largest: float = np.inf, capped: bool = True) -> list[ExtrapolationError]:
    """Return the errors of ratios that are predicted for larger models than those of a fit.

    Each measured size in turn is the largest of a fit, whose curve predicts all larger sizes. ``capped``: see
    `fitted_curve`.
    """
    errors = []
    for family, method in CURVES:
        ratios = measured_ratios(family, method, largest)
        sizes = sorted({measured.row.parameters for measured in ratios})
        # A fit needs `LEAST_SIZES` sizes, and a larger size to predict.
        for fitted_size in sizes[LEAST_SIZES - 1 : -1]:
            curve = fitted_curve(family, method, largest=fitted_size, capped=capped)
            for row, ratio in ratios:
                if row.parameters > fitted_size:
                    error = float(np.log(curve.ratio(row.setting) / ratio))
                    errors.append(ExtrapolationError(error, e_folds=float(np.log(row.parameters / fitted_size))))
    return errors


@cache
def ratio_uncertainty_beyond(largest: float = np.inf, capped: bool = True) -> Uncertainty:
    """Return the uncertainty of ratios one e-fold of parameters beyond the largest model of a fit.

    It grows with the square root of the e-folds. The arguments are those of `extrapolation_errors`.

    >>> beyond = ratio_uncertainty_beyond()
    >>> f"{beyond.low:.3f} to {beyond.high:.3f}, {beyond.points} ratios"
    '0.992 to 1.001, 101 ratios'
    """
    errors = extrapolation_errors(largest, capped)
    # The errors are logarithms; `uncertainty_of` takes ``predicted / measured - 1``.
    errors_per_root = [np.expm1(log_error / np.sqrt(e_folds)) for log_error, e_folds in errors]
    basis = f"{len(errors)} ratios beyond fits to smaller models, by the root of the distance"
    return uncertainty_of(errors_per_root, basis)
