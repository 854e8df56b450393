"""The loss of a method over that of data parallelism: what of a fit can be told across papers, and is surest.

Two fits of one paper are off by nearly the same factor, from size to size and beyond, so that their ratio is two to
three times closer than either: of 4B and 10B the printed fits say 0.7% to 4.6% too little, the ratio 1.3% at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from syncline.costmodel.numerics.uncertainty import Uncertainty, uncertainty_of
from syncline.costmodel.scaling.fits import Drift, LossFit, times
from syncline.costmodel.scaling.laws import PowerLaw, fitted_power_law
from syncline.costmodel.scaling.losses import MeasuredLoss, printed_losses
from syncline.costmodel.scaling.predict import PredictedLoss, TrainingAtScale, predicted_loss
from syncline.costmodel.scaling.published import CHARLES_DDP, CHARLES_DILOCO, CHARLES_SIZES, loss_fits


@dataclass(frozen=True)
class RelativeLoss:
    """A ratio of losses.

    Attributes:
        ratio: the method's loss over data parallelism's, of the same model on the same tokens.
        low: nine of ten measured ratios are above; None where nobody knows.
        high: likewise, below.
        basis: what the bounds rest on.
        of: the method's loss.
    """

    ratio: float
    low: float | None
    high: float | None
    basis: str
    of: PredictedLoss

    @property
    def extrapolation(self) -> bool:
        """Whether the fit has not seen the like."""
        return self.of.extrapolation


def ddp_fit_of(fit: LossFit) -> LossFit:
    """The fit of data parallelism in the same paper."""
    return next(one for one in loss_fits().values() if one.family == fit.family and "ddp-adam" in one.methods)


def relative_loss(trained: TrainingAtScale, fit: str | None = None, extrapolate: bool = False) -> RelativeLoss:
    """The loss over that of data parallelism by the fit of the same paper, each at its best batch.

    Args:
        trained: the training.
        fit: see `predicted_loss`.
        extrapolate: likewise.

    Raises:
        SpecError: as `predicted_loss`.

    >>> told = relative_loss(TrainingAtScale("diloco", 1.3e9, replicas=4))
    >>> f"{told.ratio:.3f}, {told.low:.3f} to {told.high:.3f}"
    '1.008, 1.002 to 1.014'
    """
    one = predicted_loss(trained, fit, extrapolate)
    base = ddp_fit_of(one.fit)
    if base.name == one.fit.name:
        return RelativeLoss(1.0, 1.0, 1.0, "the same", one)
    tokens = one.trained.tokens
    ddp = predicted_loss(TrainingAtScale("ddp-adam", trained.parameters, tokens), base.name, extrapolate)
    ratio = one.loss / ddp.loss
    within = _within(one.fit.family, trained.method)
    logs, bases, known = [times(within, 1.0)], [within.basis], True
    for beyond in one.beyond:
        drift = _drift(one.fit, beyond.field)
        if drift is None:
            bases.append(f"{beyond.field}: nobody knows")
            known = False
            continue
        logs.append(times(drift, abs(float(np.log(beyond.factor)))))
        bases.append(f"{beyond.field}: {drift.basis}")
    low, high = (float(np.hypot.reduce(side)) for side in zip(*logs, strict=True))
    bounds = float(ratio * np.exp(-low)), float(ratio * np.exp(high))
    return RelativeLoss(ratio, bounds[0] if known else None, bounds[1] if known else None, "; ".join(bases), one)


def _drift(fit: LossFit, field: str) -> Uncertainty | None:
    if field == "parameters":
        return _larger()
    if field == "tokens_per_parameter":
        return _more_tokens()
    drift: Drift | None = fit.beyond.get(field)
    return None if drift is None else drift.uncertainty


@cache
def _within(family: str, method: str) -> Uncertainty:
    """Of ratios of sizes that neither fit has seen."""
    losses, ddp = printed_losses(family, method), printed_losses(family, "ddp-adam")
    names = ["parameters", "replicas", "period"]
    names = [name for name in names if len({one.setting[name] for one in losses}) > 1]
    measured = {one.parameters: one.loss for one in ddp}
    errors = []
    for size, base_loss in measured.items():
        law = _without(losses, size, names)
        base = _without(ddp, size, ["parameters"])
        for one in losses:
            if one.parameters == size:
                said = law.of(one.setting) / base.of(one.setting)
                errors.append(said / (one.loss / base_loss) - 1)
    return uncertainty_of(errors, f"each size left out, {len(errors)} ratios to data parallelism")


def _without(losses: Sequence[MeasuredLoss], size: float, names: Sequence[str]) -> PowerLaw:
    seen = [one for one in losses if one.parameters != size]
    return fitted_power_law([one.setting for one in seen], [one.loss for one in seen], names)


@cache
def _larger() -> Uncertainty:
    """Per e-fold beyond 2.4B."""
    measured = {one.parameters: one.loss for one in printed_losses("charles-2025", "ddp-adam", "test")}
    errors = []
    for one in printed_losses("charles-2025", "diloco", "test"):
        said = CHARLES_DILOCO.of(one.setting) / CHARLES_DDP.of(one.setting)
        fold = float(np.log(CHARLES_SIZES.beyond(one.parameters)))
        errors.append((said / (one.loss / measured[one.parameters])) ** (1 / fold) - 1)
    return uncertainty_of(errors, f"{len(errors)} ratios at 4B and 10B (Table 5 of Charles et al.)")


@cache
def _more_tokens() -> Uncertainty:
    """Per e-fold of tokens, from 20 per parameter on: what Streaming DiLoCo's ratios do, of 2 and 4 replicas."""
    family = "douillard-2025-dolma"
    ddp = {one.tokens: one.loss for one in printed_losses(family, "ddp-adam", "test")}
    ratios: dict[float, dict[float, float]] = {}
    for one in printed_losses(family, "streaming-diloco", "test"):
        ratios.setdefault(one.replicas, {})[one.tokens] = one.loss / ddp[one.tokens]
    errors = []
    for by_tokens in ratios.values():
        first, *others = sorted(by_tokens)
        errors += [(by_tokens[first] / by_tokens[one]) ** (1 / np.log(one / first)) - 1 for one in others]
    return uncertainty_of(errors, f"{len(errors)} ratios of Streaming DiLoCo on Dolma (Table 7 of Douillard et al.)")
