"""Basis Rotation's theorem on (1,1)-norms, inside what it assumes and outside."""

from __future__ import annotations

import pytest
import torch

from replication.theory.hessian import norm_11
from replication.theory.kronecker import FAMILIES, SideNorms, kronecker, side_moments, side_norms

CASES = 300
SIZES = [(2, 2), (3, 4), (4, 3), (6, 6)]


def source(seed=0):
    return torch.Generator().manual_seed(seed)


def first_moment_norms(mean):
    """The same where ``H = E[g] E[g]^T`` and U, V are the singular vectors of ``E[G]`` ``(..., m, n)``.

    ``|zz^T| = |z|_1^2``, so these are squared sums of magnitudes, of G, of ``Sigma V^T`` and of ``Sigma``. The first
    inequality holds for every G, as the singular values' sum is at most that of all magnitudes. The second is
    proven for rank one, and holds for no other rank in general.

    Source: Basis Rotation, Theorem F.5.
    """
    _, sigma, vt = torch.linalg.svd(mean, full_matrices=False)
    one = (sigma.unsqueeze(-1) * vt).abs().sum((-2, -1))
    return SideNorms(
        mean.abs().sum((-2, -1)).square(), one.square(), sigma.sum(-1).square(), mean.square().sum((-2, -1))
    )


def rates(family, m, n):
    """How often either inequality fails."""
    first, second = side_norms(FAMILIES[family](CASES, m, n, source()), m, n).violations()
    return (first | second).double().mean().item()


def test_side_moments_are_those_of_the_gradients():
    g = torch.randn(7, 3, 4, generator=source(), dtype=torch.float64)
    vec = g.mT.flatten(1)  # columns end to end
    left, right = side_moments(vec.T @ vec / 7, 3, 4)
    assert torch.allclose(left, (g @ g.mT).mean(0))
    assert torch.allclose(right, (g.mT @ g).mean(0))


def test_norms_are_those_of_the_rotated_hessians_written_down():
    h = FAMILIES["full rank"](1, 3, 2, source())[0]
    left, right = side_moments(h, 3, 2)
    u, v = (torch.linalg.eigh(side).eigenvectors.contiguous() for side in (left, right))
    one = torch.kron(torch.eye(2, dtype=torch.float64), u)
    both = torch.kron(v, u)
    norms = side_norms(h, 3, 2)
    assert norms.plain.item() == pytest.approx(norm_11(h).item())
    assert norms.unilateral.item() == pytest.approx(norm_11(one.T @ h @ one).item())
    assert norms.bilateral.item() == pytest.approx(norm_11(both.T @ h @ both).item())


@pytest.mark.parametrize(("m", "n"), SIZES)
def test_the_theorem_holds_of_kronecker_products_and_reaches_the_least(m, n):
    norms = side_norms(kronecker(CASES, m, n, source()), m, n)
    first, second = norms.violations()
    assert not first.any() and not second.any()
    assert torch.allclose(norms.bilateral, norms.least, rtol=1e-9)
    assert (norms.plain / norms.least).median() > 1.5  # there was something to gain


def test_outside_it_fails_the_more_the_less_structure_there_is():
    failed = {family: rates(family, 2, 2) for family in FAMILIES}
    assert failed["kronecker"] == failed["diagonal"] == 0
    assert 0.05 < failed["kronecker and noise"] < 0.2 and 0.05 < failed["two kroneckers"] < 0.2
    assert 0.4 < failed["few gradients"] < 0.6 and 0.45 < failed["full rank"] < 0.65
    assert 0.3 < rates("full rank", 6, 6) < 0.55
    assert rates("sparse gradients", 3, 4) > 0.9  # an aligned Hessian without order is misaligned by the rotation
    assert rates("two kroneckers", 6, 6) == 0


@pytest.mark.parametrize(("rank", "expected"), [(1, (0.0, 0.0)), (2, (0.05, 0.2))])
def test_the_first_moment_s_second_inequality_is_for_rank_one(rank, expected):
    g = source()
    left, right = (torch.randn(CASES, *shape, generator=g, dtype=torch.float64) for shape in ((2, rank), (rank, 2)))
    first, second = first_moment_norms(left @ right).violations()
    assert not first.any()
    assert expected[0] <= second.double().mean().item() <= expected[1]


def test_first_moment_norms_are_those_of_the_rank_one_hessian():
    """By the definition, with U and V from the singular value decomposition."""
    mean = torch.randn(3, 3, generator=source(4), dtype=torch.float64)
    u, _, vt = torch.linalg.svd(mean)
    g = mean.T.flatten()
    written, short = side_norms(torch.outer(g, g), 3, 3, u, vt.T), first_moment_norms(mean)
    for a, b in zip(written, short, strict=True):
        assert a.item() == pytest.approx(b.item())
