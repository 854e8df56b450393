"""LDAdam: Adam in a low-dimensional subspace of each matrix, which changes in every step, with error feedback."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from syncline.costmodel import dion_rank, matrix_sides
from syncline.errors import SpecError
from syncline.optim.base import Hyperparameters, UpdateRule
from syncline.optim.matrices import MatrixSplit, as_matrix, is_all_zero, orthonormal_columns, random_columns
from syncline.optim.rotation import exact_basis
from syncline.optim.rules import adam
from syncline.optim.scalings import SECOND_MOMENT, check_unit, momentum_names

(MOMENTUM,) = momentum_names(1)
PROJECTION = "projection"
ERROR = "projection_error"


@dataclass(frozen=True)
class LowRankAdam(UpdateRule):
    """LDAdam: Adam with moments m, v of the projected gradient ``P^T G``; a power iteration per step updates P to P'.

        A = G + E,   B = rho P m^ + (1 - rho) A,   P' = orth(B B^T P),   C = P'^T P
        m~ = C m,    v~ = (1 - beta2^t) |(C o C)(v^ - m^^2) + (C m^)^2|
        m <- beta1 m~ + (1 - beta1) P'^T A,   v <- beta2 v~ + (1 - beta2) (P'^T A)^2,   d = P' m^ / (sqrt(v^) + eps)
        E <- A - P' P'^T A + beta1 / (1 - beta1) (P m_old - P' m~)

    G is the gradient, E the error and d the direction of a step. Hats denote bias correction, o elementwise products.
    A matrix with more rows than columns is transposed. The columns of the first P are singular vectors of the first
    gradient. If that gradient is zero, P is random and equal on all workers.

    Args:
        rank_fraction: rank of the projection as a share of ``min(m, n)``, in (0, 1].
        rho: share of the momentum in the power iteration, in [0, 1).
        error_feedback: whether E is kept and added to the next gradient.

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
        """Return by name the values of ``betas``, ``beta2``, ``eps`` and ``rho``."""
        return {"betas": (self.beta1,), "beta2": self.beta2, "eps": self.eps, "rho": self.rho}

    def init(self, x: Tensor, param_index: int) -> dict[str, Tensor]:
        """Return the initial states of matrices with sides ``m <= n``, by name.

        The projection ``(R, m, r)`` of rank r is random, with orthonormal columns. Both moments ``(R, r, n)`` are zero,
        and so is the error ``(R, m, n)``, which exists only with error feedback.
        """
        m, n = sorted(matrix_sides(x.shape[1:]))
        rank = dion_rank(m, n, self.rank_fraction)
        states = {PROJECTION: orthonormal_columns(random_columns(x, m, rank, "ldadam", param_index))}
        for name in (MOMENTUM, SECOND_MOMENT):
            states[name] = x.new_zeros(len(x), rank, n)
        if self.error_feedback:
            states[ERROR] = x.new_zeros(len(x), m, n)
        return states

    @override
    def direction(self, g: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        m, v = state[MOMENTUM], state[SECOND_MOMENT]
        (beta1,), beta2 = h["betas"], h["beta2"]
        matrix = as_matrix(g)
        is_tall = matrix.shape[-2] > matrix.shape[-1]
        a = matrix.mT if is_tall else matrix
        if self.error_feedback:
            a = a + state[ERROR]

        # Move the projection and the moments to the subspace of this step.
        old_projection = state[PROJECTION].clone()
        projection = state[PROJECTION].copy_(self._next_projection(a, state, h, t))
        projected = projection.mT @ a
        old_momentum = old_projection @ m  # (R, m, n)
        if t:
            # v estimates mean^2 + variance: express both in the new basis, as if coordinates were independent.
            change_of_basis = projection.mT @ old_projection
            m_correction, v_correction = 1 / (1 - beta1**t), 1 - beta2**t
            mean = change_of_basis @ m * m_correction
            variance = change_of_basis.square() @ (v / v_correction - (m * m_correction).square())
            v.copy_((variance + mean.square()).abs_() * v_correction)
            m.copy_(change_of_basis @ m)
        if self.error_feedback:
            lost_momentum = old_momentum - projection @ m
            state[ERROR].copy_(a).sub_(projection @ projected).add_(lost_momentum, alpha=beta1 / (1 - beta1))

        # Take Adam's step in the subspace.
        m.lerp_(projected, 1 - beta1)
        v.mul_(beta2).addcmul_(projected, projected, value=1 - beta2)
        root = (v / (1 - beta2 ** (t + 1))).sqrt_().add_(h["eps"])
        d = projection @ (m / root * (1 / (1 - beta1 ** (t + 1))))
        if is_tall:
            d = d.mT
        return d.reshape(g.shape)

    def _next_projection(self, a: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        """Return the projection ``(R, m, r)`` of step ``t`` for the gradient with error ``a (R, m, n)``.

        In the first step its columns are singular vectors of ``a``; later it is one power iteration from the last
        projection P. It stays while all gradients are zero. As in ``power_basis``, a shift of a few rounding errors
        keeps columns that the iteration would map to zero.
        """
        old = state[PROJECTION]
        if t == 0:
            singular_vectors = exact_basis(a @ a.mT)[..., : old.shape[-1]]
            return torch.where(is_all_zero(a), old, singular_vectors)
        corrected_momentum = old @ state[MOMENTUM] * (1 / (1 - h["betas"][0] ** t))
        b = torch.lerp(a, corrected_momentum, h["rho"])
        shift = 8 * torch.finfo(b.dtype).eps * b.square().sum((-2, -1), keepdim=True)
        columns = b @ (b.mT @ old) + shift * old
        return torch.where(is_all_zero(columns), old, orthonormal_columns(columns))


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
    """Return LDAdam (``LowRankAdam``) for matrices, and Adam with the same rates for other parameters.

    ``layers`` are patterns of parameter names; only matching matrices are projected. By default, all matrices are.
    """
    rule = LowRankAdam(rank_fraction, rho, beta1, beta2, eps, error_feedback)
    return MatrixSplit(rule, adam(beta1, beta2, eps), layers)
