"""One power iteration to low-rank factors, with the averages over workers where Dion and PowerSGD put them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from syncline.comm import computed_once
from syncline.optim.orthogonal import orthonormal_columns

Average = Callable[[list[Tensor], str], list[Tensor]]
"""The mean over the workers of several tensors in one call, with the label that the ledger notes."""


def no_average(tensors: list[Tensor], label: str) -> list[Tensor]:
    """Return the tensors without an average: every worker keeps its own."""
    return tensors


def power_iteration(
    matrices: Sequence[Tensor], right: Sequence[Tensor], average: Average
) -> list[tuple[Tensor, Tensor]]:
    """Return factors ``(P, R)``, ``P R^T`` near the mean matrix: ``P = orth(mean(M Q))``, ``R = mean(M^T P)``.

    All matrices are in flight together: two calls, however many layers. Where every worker's M is zero P is zero too,
    and R with it, for which ``kept_where_zero`` has the old Q: the QR decomposition of nothing has unit vectors, along
    which only the first r rows would move.

    Args:
        matrices: M, each ``(R, m, n)``.
        right: Q, each ``(R, n, r)``.
        average: ``apart``, or an average over the workers.

    Returns:
        P with orthonormal columns ``(R, m, r)`` and R ``(R, n, r)`` per matrix.

    Source: PowerSGD (Vogels et al., 2019), Algorithm 1; Dion (Ahn et al., 2025), Algorithm 1.
    """
    factors = average([m @ q for m, q in zip(matrices, right, strict=True)], "P")
    factors = [computed_once(lambda p: torch.where(is_all_zero(p), 0.0, orthonormal_columns(p)), p) for p in factors]
    return list(zip(factors, average([m.mT @ p for m, p in zip(matrices, factors, strict=True)], "R"), strict=True))


def kept_where_zero(new: Tensor, old: Tensor) -> Tensor:
    """Return the new right factor ``(R, n, r)``; workers whose factor is all zero keep the old one."""
    return torch.where(is_all_zero(new), old, new)


def is_all_zero(x: Tensor) -> Tensor:
    """Return which matrices ``(..., m, n)`` are all zero, ``(..., 1, 1)``; NaN is not zero."""
    return (x.flatten(-2).abs().amax(-1) == 0)[..., None, None]
