"""Orthonormalisation of matrices, batched over any leading dimensions."""

from __future__ import annotations

import torch
from torch import Tensor

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of Muon's quintic iteration (Jordan et al., 2024): steep at 0, and near 1 only to within about 0.3."""


def newton_schulz(x: Tensor, steps: int = 5, eps: float = 1e-7) -> Tensor:
    """Return an approximate polar factor: singular values go to about 1, singular vectors stay.

        X_0 = X / (||X||_F + eps);  X_{k+1} = a X_k + (b A + c A^2) X_k,  A = X_k X_k^T

    Args:
        x: ``(..., m, n)``; the smaller side is iterated on.
        steps: iterations; 5 bring singular values of at least 2e-3 of the norm into [0.68, 1.21].
        eps: keeps a zero matrix at zero.

    Source: K. Jordan et al., "Muon" (2024).
    """
    a, b, c = NEWTON_SCHULZ
    tall = x.shape[-2] > x.shape[-1]
    y = x.mT if tall else x
    y = y / (y.norm(dim=(-2, -1), keepdim=True) + eps)
    for _ in range(steps):
        gram = y @ y.mT
        y = a * y + (b * gram + c * gram @ gram) @ y
    return y.mT if tall else y


def orthonormal_columns(x: Tensor) -> Tensor:
    """Return Q of the reduced QR decomposition, ``(..., m, r)`` with ``Q^T Q = I``, computed at least in fp32.

    The diagonal of R is positive, which fixes the signs of the columns, so that all backends return the same Q up to
    rounding.
    """
    wide = x if x.dtype == torch.float64 else x.float()
    q, r = torch.linalg.qr(wide)
    sign = torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(wide.dtype)
    return (q * sign.unsqueeze(-2)).to(x.dtype)


def unit_columns(x: Tensor, eps: float) -> Tensor:
    """Divide each column by its norm plus ``eps``: ``(..., n, r)`` to the same."""
    return x / (x.norm(dim=-2, keepdim=True) + eps)
