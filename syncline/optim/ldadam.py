"""LDAdam: Adam in a low-dimensional subspace that moves in every step, with error feedback of what it leaves out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from syncline.costmodel import dion_rank, matrix_sides
from syncline.errors import SpecError
from syncline.optim.base import Hyperparameters, UpdateRule
from syncline.optim.dion import random_columns
from syncline.optim.matrices import MatrixSplit, as_matrix, is_all_zero, orthonormal_columns
from syncline.optim.rotation import exact_basis
from syncline.optim.rules import adam
from syncline.optim.scalings import SECOND_MOMENT, check_unit, momentum_names

(MOMENTUM,) = momentum_names(1)
PROJECTION = "projection"
ERROR = "projection_error"


@dataclass(frozen=True)
class LowRankAdam(UpdateRule):
    """Adam's moments of ``P^T G`` for a projection P that one power iteration per step moves.

        A = G + E,   B = rho P m^ + (1 - rho) A,   P' = orth(B B^T P),   C = P'^T P
        m~ = C m,    v~ = (1 - beta2^t) |(C o C)(v^ - m^^2) + (C m^)^2|
        m <- beta1 m~ + (1 - beta1) P'^T A,   v <- beta2 v~ + (1 - beta2) (P'^T A)^2,   d = P' m^ / (sqrt(v^) + eps)
        E <- A - P' P'^T A + beta1 / (1 - beta1) (P m_old - P' m~)

    Hats are corrected for their start at zero. A matrix with more rows than columns is worked on transposed, so that P
    has the length of the smaller side. The first P has singular vectors of the first step's gradient. Of a gradient of
    zero every orthonormal basis has singular vectors: until a gradient comes, P is random, the same on all workers, so
    that the power iteration reaches any subspace from there.

    Args:
        rank_fraction: rank of the projection as a share of ``min(m, n)``, in (0, 1].
        rho: share of the momentum in the power iteration, in [0, 1).
        beta1: decay rate of the momentum, in [0, 1).
        beta2: decay rate of the second moment, in [0, 1).
        eps: number added to the root of the second moment.
        error_feedback: whether E is kept and added to the next gradient.

    Raises:
        SpecError: a value out of range.

    Source: T. Robert, M. Safaryan, I.-V. Modoranu, D. Alistarh, "LDAdam: Adaptive Optimization from Low-Dimensional
    Gradient Statistics" (2025), Algorithms 1 and 2; defaults of its public code.
    """

    rank_fraction: float = 0.25
    rho: float = 0.908
    beta1: float = 0.908
    beta2: float = 0.99
    eps: float = 1e-8
    error_feedback: bool = True
    states: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.rank_fraction <= 1:
            raise SpecError("rank_fraction", self.rank_fraction, "a number in (0, 1]")
        for name in ("rho", "beta1", "beta2"):
            check_unit(name, getattr(self, name))

    def hyperparameters(self) -> dict[str, Any]:
        """Return ``betas``, ``beta2``, ``eps``, ``rho``."""
        return {"betas": (self.beta1,), "beta2": self.beta2, "eps": self.eps, "rho": self.rho}

    def init(self, x: Tensor, number: int) -> dict[str, Tensor]:
        """Return the initial state of R stacked matrices with sides ``m <= n``.

        The projection ``(R, m, r)`` of rank r is random, with orthonormal columns. Both moments ``(R, r, n)`` are zero,
        and so is the error E ``(R, m, n)`` where error feedback is on.
        """
        m, n = sorted(matrix_sides(x.shape[1:]))
        rank = dion_rank(m, n, self.rank_fraction)
        shapes = {MOMENTUM: (rank, n), SECOND_MOMENT: (rank, n)}
        if self.error_feedback:
            shapes[ERROR] = (m, n)
        projection = orthonormal_columns(random_columns(x, m, rank, "ldadam", number))
        return {PROJECTION: projection, **{name: x.new_zeros(len(x), *shape) for name, shape in shapes.items()}}

    @override
    def direction(self, g: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        a = wide(as_matrix(g))
        if self.error_feedback:
            a = a + state[ERROR]
        (beta1,), beta2, old = h["betas"], h["beta2"], state[PROJECTION].clone()
        new = state[PROJECTION].copy_(self._moved(a, state, h, t))
        low = new.mT @ a
        if self.error_feedback:
            state[ERROR].copy_(a).sub_(new @ low)
        self._carry(state, new.mT @ old, h, t, lost=old @ state[MOMENTUM])
        m = state[MOMENTUM].lerp_(low, 1 - beta1)
        v = state[SECOND_MOMENT].mul_(beta2).addcmul_(low, low, value=1 - beta2)
        scaled = m / ((v / (1 - beta2 ** (t + 1))).sqrt_().add_(h["eps"])) * (1 / (1 - beta1 ** (t + 1)))
        d = new @ scaled
        rows, columns = as_matrix(g).shape[-2:]
        return (d if rows <= columns else d.mT).reshape(g.shape)

    def _moved(self, a: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        """Return the next projection: in the first step singular vectors, then one power iteration from the last one.

        Where nothing has come yet, the projection stays. As in ``power_basis``, a shift of a few rounding errors leaves
        columns along which B has nothing where they are.
        """
        old = state[PROJECTION]
        if t == 0:
            return torch.where(is_all_zero(a), old, exact_basis(a @ a.mT)[..., : old.shape[-1]])
        momentum = old @ state[MOMENTUM] * (1 / (1 - h["betas"][0] ** t))
        b = torch.lerp(a, momentum, h["rho"])
        shift = 8 * torch.finfo(b.dtype).eps * b.square().sum((-2, -1), keepdim=True)
        columns = b @ (b.mT @ old) + shift * old
        return torch.where(is_all_zero(columns), old, orthonormal_columns(columns))

    def _carry(self, state: dict[str, Tensor], change: Tensor, h: Hyperparameters, t: int, lost: Tensor) -> None:
        """Transform the moments from the old projection to the new one, and add the difference to the error."""
        m, v = state[MOMENTUM], state[SECOND_MOMENT]
        (beta1,), beta2 = h["betas"], h["beta2"]
        if t:
            hat, root = 1 / (1 - beta1**t), 1 - beta2**t
            mean = change @ m * hat
            variance = change.square() @ (v / root - (m * hat).square())
            v.copy_((variance + mean.square()).abs_() * root)
            m.copy_(change @ m)
        if self.error_feedback:
            state[ERROR].add_(lost - state[PROJECTION] @ m, alpha=beta1 / (1 - beta1))


def wide(x: Tensor) -> Tensor:
    """Return a view of ``(..., m, n)`` with at most as many rows as columns."""
    return x if x.shape[-2] <= x.shape[-1] else x.mT


def ldadam(
    rank_fraction: float = 0.25,
    *,
    rho: float = 0.908,
    beta1: float = 0.908,
    beta2: float = 0.99,
    eps: float = 1e-8,
    error_feedback: bool = True,
    layers: tuple[str, ...] = (),
) -> MatrixSplit:
    """Return LDAdam for matrices, and Adam with the same rates for everything else; see ``LowRankAdam``.

    ``layers`` are patterns of names: only matrices with such a name are projected; without any, all are.
    """
    rule = LowRankAdam(rank_fraction, rho, beta1, beta2, eps, error_feedback)
    return MatrixSplit(rule, adam(beta1, beta2, eps), layers)
