"""The ratio of a method's loss to that of data parallelism, which is comparable across papers and has small errors.

Two fits of one paper have nearly the same relative error at each size, inside and outside their range, so that their
ratio is more accurate than either. At 4B and 10B the printed fits are 0.7% to 4.6% too low, and their ratio is off by
up to 1.3%; limited by the measured end of the curve (`measured_end`), a ratio from smaller models alone is off by at
most 0.21%. Bounds grow with the square root of the distance beyond the fit's sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from syncline.costmodel.numerics.uncertainty import Uncertainty, uncertainty_of
from syncline.costmodel.scaling.fits import Drift, LossFit, log_bounds
from syncline.costmodel.scaling.losses import power_law_of, printed_losses
from syncline.costmodel.scaling.measured_end import ratio_growth
from syncline.costmodel.scaling.predict import PredictedLoss, TrainingAtScale, predicted_loss
from syncline.costmodel.scaling.published import ddp_fit_of


@dataclass(frozen=True)
class RelativeLoss:
    """The ratio of a method's loss to that of data parallelism, with bounds.

    Attributes:
        ratio: the method's loss over data parallelism's, for the same model on the same tokens.
        low: lower bound; nine of ten measured ratios are between the bounds; None without bounds.
        high: upper bound; None without bounds.
        basis: measurements that support the bounds.
        prediction: prediction of the method's loss.
    """

    ratio: float
    low: float | None
    high: float | None
    basis: str
    prediction: PredictedLoss

    @property
    def extrapolation(self) -> bool:
        """Return whether any field of the training is outside the range of the fit."""
        return self.prediction.extrapolation


def relative_loss(training: TrainingAtScale, fit: str | None = None, extrapolate: bool = False) -> RelativeLoss:
    """Return the ratio of a loss to that of data parallelism by a fit of the same paper, each at its best batch.

    The arguments and errors are those of `predicted_loss`.

    >>> estimate = relative_loss(TrainingAtScale("diloco", 1.3e9, replicas=4))
    >>> f"{estimate.ratio:.3f}, {estimate.low:.3f} to {estimate.high:.3f}"
    '1.008, 1.002 to 1.014'
    """
    prediction = predicted_loss(training, fit, extrapolate)
    ddp_fit = ddp_fit_of(prediction.fit)
    if ddp_fit.name == prediction.fit.name:
        return RelativeLoss(1.0, 1.0, 1.0, "the same", prediction)
    tokens = prediction.training.tokens
    ddp = predicted_loss(TrainingAtScale("ddp-adam", training.parameters, tokens), ddp_fit.name, extrapolate)
    ratio = prediction.loss / ddp.loss
    within = ratio_within(prediction.fit.family, training.method)
    logs, bases, is_bounded = [log_bounds(within, 1.0)], [within.basis], True
    for outside in prediction.beyond:
        drift = _ratio_drift(prediction.fit, outside.field)
        if drift is None:
            bases.append(f"{outside.field}: nobody knows")
            is_bounded = False
            continue
        folds = abs(float(np.log(outside.factor)))
        logs.append(log_bounds(drift, np.sqrt(folds) if outside.field == "parameters" else folds))
        bases.append(f"{outside.field}: {drift.basis}")
    low_log, high_log = (float(np.hypot.reduce(side)) for side in zip(*logs, strict=True))
    low, high = float(ratio * np.exp(-low_log)), float(ratio * np.exp(high_log))
    if not is_bounded:
        return RelativeLoss(ratio, None, None, "; ".join(bases), prediction)
    return RelativeLoss(ratio, low, high, "; ".join(bases), prediction)


def _ratio_drift(fit: LossFit, field: str) -> Uncertainty | None:
    """Return the uncertainty of ratios outside the range of a field, per e-fold (for sizes, per root of an e-fold)."""
    if field == "parameters":
        return ratio_growth()
    if field == "tokens_per_parameter":
        return _tokens_drift()
    drift: Drift | None = fit.drifts.get(field)
    return None if drift is None else drift.uncertainty


@cache
def ratio_within(family: str, method: str) -> Uncertainty:
    """Return the uncertainty of ratios at sizes that neither fit has seen, by leaving out each size in turn."""
    losses, ddp = printed_losses(family, method), printed_losses(family, "ddp-adam")
    names = ["parameters", "replicas", "period"]
    names = [name for name in names if len({row.setting[name] for row in losses}) > 1]
    measured = {row.parameters: row.loss for row in ddp}
    errors = []
    for size, base_loss in measured.items():
        law = power_law_of([row for row in losses if row.parameters != size], names)
        base = power_law_of([row for row in ddp if row.parameters != size], ["parameters"])
        for row in losses:
            if row.parameters == size:
                predicted = law.value(row.setting) / base.value(row.setting)
                errors.append(predicted / (row.loss / base_loss) - 1)
    return uncertainty_of(errors, f"each size left out, {len(errors)} ratios to data parallelism")


@cache
def _tokens_drift() -> Uncertainty:
    """Return the uncertainty per e-fold of tokens above 20 per parameter, by Streaming DiLoCo with 2 and 4 replicas."""
    family = "douillard-2025-dolma"
    ddp = {row.tokens: row.loss for row in printed_losses(family, "ddp-adam", "test")}
    ratios: dict[float, dict[float, float]] = {}
    for row in printed_losses(family, "streaming-diloco", "test"):
        ratios.setdefault(row.replicas, {})[row.tokens] = row.loss / ddp[row.tokens]
    errors = []
    for by_tokens in ratios.values():
        first, *others = sorted(by_tokens)
        errors += [(by_tokens[first] / by_tokens[tokens]) ** (1 / np.log(tokens / first)) - 1 for tokens in others]
    return uncertainty_of(errors, f"{len(errors)} ratios of Streaming DiLoCo on Dolma (Table 7 of Douillard et al.)")
