"""Orthonormal bases that follow a symmetric matrix: found at once, or improved by one power iteration."""

from __future__ import annotations

import torch
from torch import Tensor

from syncline.optim.orthogonal import orthonormal_columns


def rotate(x: Tensor, left_basis: Tensor | None, right_basis: Tensor | None) -> Tensor:
    """Return ``U^T X V``; a basis that is none is the identity."""
    x = x if left_basis is None else left_basis.mT @ x
    return x if right_basis is None else x @ right_basis


def rotate_back(x: Tensor, left_basis: Tensor | None, right_basis: Tensor | None) -> Tensor:
    """Return ``U X V^T``, which undoes ``rotate``."""
    x = x if left_basis is None else left_basis @ x
    return x if right_basis is None else x @ right_basis.mT


def rayleigh_order(matrix: Tensor, basis: Tensor) -> Tensor:
    """Return the order ``(..., d)`` of a basis's columns by their Rayleigh quotients ``b^T C b``, the largest first."""
    return (basis * (matrix @ basis)).sum(-2).argsort(dim=-1, descending=True, stable=True)


def reordered(x: Tensor, order: Tensor, dim: int) -> Tensor:
    """Return ``x`` with its rows (-2) or columns (-1) in an order ``(..., d)``."""
    index = order.unsqueeze(-1 if dim == -2 else -2)
    return x.gather(dim, index.expand_as(x))


def off_diagonal_share(matrix: Tensor) -> Tensor:
    """Return ``||B - diag(B)|| / ||B||`` of matrices ``(..., d, d)``, as ``(..., 1, 1)``; 0 of a matrix of zeros.

    It is the relative error of C where ``B = U^T C U`` is taken for diagonal, so how far U is from C's eigenvectors.

    Source: R. Eschenhagen et al., "Purifying Shampoo" (2025), its criterion for a warm-started QR iteration.
    """
    total = matrix.square().sum((-2, -1), keepdim=True)
    diagonal = matrix.diagonal(dim1=-2, dim2=-1).square().sum(-1)[..., None, None]
    return ((total - diagonal).clamp(min=0) / total.clamp(min=torch.finfo(total.dtype).tiny)).sqrt()


def exact_basis(matrix: Tensor) -> Tensor:
    """Return eigenvectors of a symmetric matrix ``(..., d, d)`` as columns, that of the largest eigenvalue first."""
    wide = matrix if matrix.dtype == torch.float64 else matrix.float()
    # A decomposition of what is not finite raises an error; it has no basis, and that shall be seen in the loss.
    lost = (wide * 0).sum((-2, -1), keepdim=True)
    vectors = torch.linalg.eigh(wide.nan_to_num(0, 0, 0)).eigenvectors.flip(-1)
    return (vectors + lost).to(matrix.dtype)


def power_basis(matrix: Tensor, basis: Tensor) -> Tensor:
    """Apply one power iteration and a QR decomposition: ``orth((C + s I) B)``.

    The shift ``s`` is a few rounding errors of C, so that columns where C is zero stay where they are: without it
    rounding alone would choose them anew.

    Args:
        matrix: C, symmetric and not negative, ``(..., d, d)``.
        basis: B, its columns by falling Rayleigh quotients.

    Source: S. Wang et al., "4-bit Shampoo" (2024), and SOAP (N. Vyas et al., 2025), without the shift.
    """
    wide = matrix if matrix.dtype == torch.float64 else matrix.float()
    trace = wide.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    columns = basis.to(wide.dtype)
    shift = 8 * torch.finfo(wide.dtype).eps * trace
    return orthonormal_columns(wide @ columns + shift * columns).to(matrix.dtype)
