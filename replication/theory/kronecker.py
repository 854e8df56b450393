"""Basis Rotation's theorem on (1,1)-norms: the effect of rotating a matrix parameter from its sides.

A parameter W of m by n entries has the Hessian H of ``vec(W)``, columns end to end, so mn by mn, and taken to be the
second moment of the gradient G: ``H = E[vec(G) vec(G)^T]``. With the eigenvectors U of ``E[G G^T]`` and V of
``E[G^T G]`` the theorem says, of ``H = A kron B``, ::

    |H_UV|  <=  |H_U|  <=  |H|,        H_U = (I kron U)^T H (I kron U),    H_UV = (V kron U)^T H (V kron U)

and that the first is the least of all rotations. The theorem does not cover other Hessians.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from replication.theory.hessian import least_norm_11, norm_11

SLACK = 1e-9
"""Relative tolerance, as a share of the larger norm: smaller differences are rounding."""


class SideNorms(NamedTuple):
    """(1,1)-norms ``(...)`` of a Hessian: unrotated, rotated from one side, rotated from both, and the least one."""

    plain: Tensor
    unilateral: Tensor
    bilateral: Tensor
    least: Tensor

    def violations(self) -> tuple[Tensor, Tensor]:
        """Return the masks ``(...)`` of the cases in which ``H_UV <= H_U`` fails and in which ``H_U <= H`` fails."""
        return (
            self.bilateral > self.unilateral * (1 + SLACK),
            self.unilateral > self.plain * (1 + SLACK),
        )


def side_moments(hessian: Tensor, m: int, n: int) -> tuple[Tensor, Tensor]:
    """Return ``E[G G^T]`` ``(..., m, m)`` and ``E[G^T G]`` ``(..., n, n)``, partial traces of the Hessian."""
    blocks = hessian.unflatten(-1, (n, m)).unflatten(-3, (n, m))  # (..., n, m, n, m)
    return blocks.diagonal(dim1=-4, dim2=-2).sum(-1), blocks.diagonal(dim1=-3, dim2=-1).sum(-1)


def side_norms(hessian: Tensor, m: int, n: int, u: Tensor | None = None, v: Tensor | None = None) -> SideNorms:
    """Return the norms under the rotations that the second moments give, or under ``u`` and ``v``.

    Args:
        hessian: the Hessian of vec(W), ``(..., mn, mn)``, symmetric.
        m: rows of W.
        n: columns of W.
        u: another U, ``(..., m, m)``.
        v: another V, ``(..., n, n)``.
    """
    row_moment, column_moment = side_moments(hessian, m, n)
    u = torch.linalg.eigh(row_moment).eigenvectors if u is None else u
    v = torch.linalg.eigh(column_moment).eigenvectors if v is None else v
    blocks = hessian.unflatten(-1, (n, m)).unflatten(-3, (n, m))
    row_rotated = torch.einsum("...aibj,...ik,...jl->...akbl", blocks, u, u)
    both_rotated = torch.einsum("...akbl,...ac,...bd->...ckdl", row_rotated, v, v)

    def norm(x: Tensor) -> Tensor:
        return norm_11(x.flatten(-4, -3).flatten(-2, -1))

    return SideNorms(norm_11(hessian), norm(row_rotated), norm(both_rotated), least_norm_11(hessian))


Family = Callable[[int, int, int, torch.Generator], Tensor]
"""Function of the number of cases, m, n and a generator; it returns Hessians ``(cases, mn, mn)``."""


def _moment(cases: int, d: int, samples: int, generator: torch.Generator) -> Tensor:
    """Return ``F F^T / samples`` of a gaussian F ``(d, samples)``."""
    f = torch.randn(cases, d, samples, dtype=torch.float64, generator=generator)
    return f @ f.mT / samples


def _kron(a: Tensor, b: Tensor) -> Tensor:
    return torch.einsum("...ab,...ij->...aibj", a, b).flatten(-4, -3).flatten(-2, -1)


def kronecker(cases: int, m: int, n: int, generator: torch.Generator, terms: int = 1) -> Tensor:
    """Draw sums of ``terms`` products ``A kron B``, both positive semi-definite, with random bases and wide spectra."""

    def factor(d: int) -> Tensor:
        q = torch.linalg.qr(torch.randn(cases, d, d, dtype=torch.float64, generator=generator)).Q
        spectrum = torch.randn(cases, 1, d, dtype=torch.float64, generator=generator).mul(1.5).exp()
        return (q * spectrum) @ q.mT

    return torch.stack([_kron(factor(n), factor(m)) for _ in range(terms)]).sum(0)


def few_gradients(cases: int, m: int, n: int, generator: torch.Generator) -> Tensor:
    """Draw the second moment of four gaussian gradients."""
    return _moment(cases, m * n, 4, generator)


def full_rank(cases: int, m: int, n: int, generator: torch.Generator) -> Tensor:
    """Draw the second moment of 2 mn gaussian gradients, without a preferred basis."""
    return _moment(cases, m * n, 2 * m * n, generator)


def diagonal(cases: int, m: int, n: int, generator: torch.Generator) -> Tensor:
    """Draw diagonal Hessians whose entries have no order, so that the sides' second moments are diagonal too."""
    return torch.randn(cases, m * n, dtype=torch.float64, generator=generator).exp().diag_embed()


def kronecker_and_noise(cases: int, m: int, n: int, generator: torch.Generator) -> Tensor:
    """Draw ``A kron B`` plus a second moment without structure that has a tenth of its trace."""
    clean, noise = kronecker(cases, m, n, generator), _moment(cases, m * n, m * n, generator)

    def trace(x: Tensor) -> Tensor:
        return x.diagonal(dim1=-2, dim2=-1).sum(-1)

    return clean + (0.1 * trace(clean) / trace(noise))[:, None, None] * noise


def sparse_gradients(cases: int, m: int, n: int, generator: torch.Generator) -> Tensor:
    """Draw the second moment of 2 mn gradients, an eighth of whose entries are not 0."""
    f = torch.randn(cases, m * n, 2 * m * n, dtype=torch.float64, generator=generator)
    f = f * (torch.rand(f.shape, dtype=torch.float64, generator=generator) < 0.125)
    return f @ f.mT / (2 * m * n)


FAMILIES: dict[str, Family] = {
    "kronecker": kronecker, "kronecker and noise": kronecker_and_noise,
    "two kroneckers": lambda cases, m, n, generator: kronecker(cases, m, n, generator, terms=2),
    "full rank": full_rank, "few gradients": few_gradients, "sparse gradients": sparse_gradients,
    "diagonal": diagonal,
}  # fmt: skip
"""Random Hessians: the first satisfies the theorem's assumption; the others violate it, the last ones most."""
