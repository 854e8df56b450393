"""Muon: the polar factor of a matrix's Nesterov momentum."""

from __future__ import annotations

from typing import Literal

from syncline.optim.base import UpdateRule
from syncline.optim.matrices import MatrixSplit, Orthogonalised
from syncline.optim.rules import MomentumRule, adam


def muon(
    momentum: float = 0.95,
    *,
    nesterov: bool = True,
    steps: int = 5,
    adjust_lr: Literal["original", "match_rms_adamw", "spectral", "none"] = "original",
    other_rule: UpdateRule | None = None,
) -> MatrixSplit:
    """Return Muon for matrices, and Adam (or ``other_rule``) for everything else.

        u <- mu u + (1 - mu) g
        d  = scale(m, n) polar((1 - mu) g + mu u)          (without Nesterov: polar(u))

    Here g is a matrix's gradient, u its momentum, and d the direction of the update. ``polar`` is the polar factor: the
    matrix with the same singular vectors and all singular values 1. ``scale`` is a factor that depends on the matrix's
    numbers m of rows and n of columns.

    Args:
        momentum: mu, decay rate of the momentum.
        nesterov: whether the gradient is mixed into the momentum before the orthogonalisation.
        steps: number of Newton-Schulz iterations.
        adjust_lr: factor that depends on a matrix's shape, see ``shape_scale``.
        other_rule: rule of the parameters that are not matrices.

    Source: K. Jordan et al., "Muon" (2024); ``torch.optim.Muon``, which iterates in bfloat16.
    """
    weight = momentum if nesterov else 1.0
    rule = MomentumRule((momentum,), (weight,), Orthogonalised(steps=steps, adjust_lr=adjust_lr), nesterov=nesterov)
    return MatrixSplit(rule, other_rule or adam())
