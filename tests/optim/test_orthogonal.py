"""Orthonormalisation against singular value and QR decompositions."""

from __future__ import annotations

import pytest
import torch

from syncline.optim.matrices import newton_schulz, orthonormal_columns, unit_columns

SHAPES = [(6, 6), (9, 4), (4, 9), (1, 5), (5, 1)]


def gaussian(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


def with_singular_values(m: int, values: torch.Tensor) -> torch.Tensor:
    """``(m, n)`` with these ``n`` singular values."""
    u, _ = torch.linalg.qr(gaussian(m, len(values)))
    v, _ = torch.linalg.qr(gaussian(len(values), len(values)))
    return u @ torch.diag(values.double()) @ v.mT


@pytest.mark.parametrize("shape", SHAPES)
def test_newton_schulz_is_near_the_polar_factor(shape: tuple[int, int]) -> None:
    """In the singular basis of X the result is diagonal, within the quintic's 0.33 of the identity."""
    x = gaussian(3, *shape)
    u, _, vh = torch.linalg.svd(x, full_matrices=False)
    diagonal = u.mT @ newton_schulz(x) @ vh.mT
    values = diagonal.diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(diagonal, torch.diag_embed(values), rtol=0, atol=1e-9)
    torch.testing.assert_close(u @ diagonal @ vh, newton_schulz(x), rtol=0, atol=1e-9)
    assert float((values - 1).abs().max()) < 0.33


def test_newton_schulz_lifts_singular_values_from_two_thousandths() -> None:
    """The documented range, and its limit: a tenth of that is not lifted."""
    kept = with_singular_values(60, torch.cat([torch.ones(1), torch.full((3,), 2.1e-3)]))
    got = torch.linalg.svdvals(newton_schulz(kept))
    assert float(got.min()) > 0.68
    assert float(got.max()) < 1.21
    lost = with_singular_values(60, torch.tensor([1.0, 2e-4]))
    assert float(torch.linalg.svdvals(newton_schulz(lost)).min()) < 0.2


def test_newton_schulz_ignores_scale_and_keeps_zero() -> None:
    x = gaussian(5, 3)
    torch.testing.assert_close(newton_schulz(1000 * x), newton_schulz(x), rtol=1e-5, atol=1e-6)
    assert torch.equal(newton_schulz(torch.zeros(2, 5, 3)), torch.zeros(2, 5, 3))
    torch.testing.assert_close(newton_schulz(x.mT), newton_schulz(x).mT)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_qr_has_positive_diagonal(dtype: torch.dtype) -> None:
    """``Q^T X`` is upper triangular with a positive diagonal: the one QR decomposition that has that."""
    x = gaussian(4, 7, 3, dtype=torch.float64).to(dtype)
    q = orthonormal_columns(x)
    assert q.dtype == dtype
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.05}[dtype]
    q, x = q.double(), x.double()
    torch.testing.assert_close(q.mT @ q, torch.eye(3).double().expand(4, 3, 3), rtol=0, atol=tolerance)
    r = q.mT @ x
    assert bool((r.diagonal(dim1=-2, dim2=-1) > 0).all())
    assert float(r.tril(-1).abs().max()) < tolerance * 3


def test_columns_of_an_orthonormal_matrix_stay() -> None:
    """Also those that a Householder QR would flip."""
    q, _ = torch.linalg.qr(gaussian(6, 4))
    torch.testing.assert_close(orthonormal_columns(q), q)
    torch.testing.assert_close(orthonormal_columns(-q), -q)


def test_unit_columns() -> None:
    x = gaussian(2, 5, 3)
    torch.testing.assert_close(unit_columns(x, 0.0).norm(dim=-2), torch.ones(2, 3).double())
    assert torch.equal(unit_columns(torch.zeros(2, 5, 3), 1e-8), torch.zeros(2, 5, 3))
