"""MT-DAO's rule: several momenta of different time scales, mixed with the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from syncline.errors import SpecError
from syncline.optim.base import UpdateRule
from syncline.optim.matrices import MatrixSplit, Orthogonalised
from syncline.optim.rules import MomentumRule
from syncline.optim.scalings import AdamScaling, AdoptScaling, Scaling, Unscaled

Base = Literal["adam", "adopt", "sgdm", "muon"]


def multi_momentum_rule(
    base: Base,
    betas: Sequence[float],
    omegas: Sequence[float],
    *,
    beta2: float | None = None,
    eps: float | None = None,
    bias_correction: bool = True,
    **switch: Any,
) -> UpdateRule:
    """Return N momenta with Adam's, ADOPT's or no scaling; the default of a rate is that of the base.

    ADOPT and SGDM have no bias correction in Algorithms 2 and 3; the switch acts on Adam alone. With Muon a matrix's
    mixture of momenta is orthogonalised, and everything else is Adam's. ``switch``:
    ``switch_step`` and ``warmup_beta`` of ``MomentumRule``.
    """
    if base not in ("adam", "adopt", "sgdm", "muon"):
        raise SpecError("base", base, "'adam', 'adopt', 'sgdm' or 'muon'")
    overrides: dict[str, Any] = {name: v for name, v in (("beta2", beta2), ("eps", eps)) if v is not None}
    scaling: Scaling = Unscaled()
    if base in ("adam", "muon"):
        scaling = AdamScaling(**overrides, bias_correction=bias_correction)
    elif base == "adopt":
        scaling = AdoptScaling(**overrides)
    corrected = bias_correction and base in ("adam", "muon")
    rule = MomentumRule(tuple(betas), tuple(omegas), scaling, bias_correction=corrected, **switch)
    if base != "muon":
        return rule
    return MatrixSplit(MomentumRule(tuple(betas), tuple(omegas), Orthogonalised(), **switch), rule)
