"""LDAdam from its algorithms, and the limits in which it is Adam."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from syncline.errors import SpecError
from syncline.methods import DDP, LDAdam, method_of
from syncline.optim import LowRankAdam, adam
from tests.optim.given import Given, assert_same, gradients, run

M, LR, EPS, T = 3, 0.1, 1e-4, 12


def subspace(p: Tensor) -> Tensor:
    """What does not depend on the signs of columns."""
    return p @ p.mT


def by_hand(gs: list[Tensor], rank: int, rho: float, b1: float, b2: float, owes: bool) -> list[Tensor]:
    """Algorithms 1 and 2 on one matrix with at most as many rows as columns, in the paper's order."""
    rows, columns = gs[0].shape
    x, error = torch.zeros(rows, columns).double(), torch.zeros(rows, columns).double()
    m, v = torch.zeros(rank, columns).double(), torch.zeros(rank, columns).double()
    u = torch.linalg.svd(gs[0], full_matrices=False)[0][:, :rank]
    out = []
    for t, g in enumerate(gs, start=1):
        a = g + error if owes else g
        if t == 1:
            new, turned_m, turned_v = u, m, v
        else:
            m_hat, v_hat = m / (1 - b1 ** (t - 1)), v / (1 - b2 ** (t - 1))
            b = rho * u @ m_hat + (1 - rho) * a
            new = torch.linalg.qr(b @ b.T @ u)[0]
            change = new.T @ u
            turned_m = change @ m
            spread = (change * change) @ (v_hat - m_hat * m_hat)
            turned_v = (1 - b2 ** (t - 1)) * (spread + (change @ m_hat) ** 2).abs()
        low = new.T @ a
        error = a - new @ low + b1 / (1 - b1) * (u @ m - new @ turned_m)
        m = b1 * turned_m + (1 - b1) * low
        v = b2 * turned_v + (1 - b2) * low * low
        x = x - LR * new @ ((m / (1 - b1**t)) / ((v / (1 - b2**t)).sqrt() + EPS))
        u = new
        out.append(x)
    return out


def trained(given: list[list[Tensor]], **knobs: object) -> Given:
    return run(partial(LDAdam, lr=LR, eps=EPS, **knobs), given)


@pytest.mark.parametrize("owes", [True, False])
@pytest.mark.parametrize(("shape", "fraction"), [((4, 6), 0.5), ((6, 4), 0.5), ((5, 5), 0.3), ((4, 6), 1.0)])
def test_ldadam_from_its_algorithms(shape: tuple[int, int], fraction: float, owes: bool) -> None:
    given = gradients(T, M, shape)
    got = trained(given, rank_fraction=fraction, rho=0.6, beta1=0.8, beta2=0.9, error_feedback=owes)
    tall = shape[0] > shape[1]
    gs = [g.mean(0).T if tall else g.mean(0) for (g,) in given]
    rank = {(4, 6): 2, (6, 4): 2, (5, 5): 2}[shape] if fraction < 1 else 4
    literal = by_hand(gs, rank, 0.6, 0.8, 0.9, owes)
    for step, expected in zip(got.path, literal, strict=True):
        for worker in step[0]:
            torch.testing.assert_close(worker, expected.T if tall else expected, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("shape", [(1, 6), (6, 1)])
def test_a_matrix_of_one_row_or_column_is_adams(shape: tuple[int, int]) -> None:
    """Its subspace is all that there is, and has one direction up to a sign."""
    given = gradients(T, M, shape)
    got = trained(given, beta1=0.9, beta2=0.99)
    assert_same(got, run(partial(DDP, lr=LR, rule=adam(0.9, 0.99, EPS)), given))


def test_at_full_rank_nothing_is_owed_and_the_momentum_is_adams() -> None:
    given = gradients(T, M, (4, 6))
    got = trained(given, rank_fraction=1.0, beta1=0.8)
    momentum = torch.zeros(4, 6).double()
    for (g,) in given:
        momentum = 0.8 * momentum + 0.2 * g.mean(0)
    projection, low = got.state(0, "projection")[0], got.state(0, "momentum_1")[0]
    torch.testing.assert_close(subspace(projection), torch.eye(4).double(), rtol=0, atol=1e-12)
    torch.testing.assert_close(projection @ low, momentum, rtol=1e-10, atol=1e-12)
    assert got.state(0, "projection_error").abs().max() < 1e-12


def test_with_a_full_rank_the_feedback_does_not_matter() -> None:
    given = gradients(T, M, (4, 6))
    with_it, without = (trained(given, rank_fraction=1.0, error_feedback=owes) for owes in (True, False))
    assert_same(with_it, without, atol=1e-9)


def test_error_feedback_loses_nothing() -> None:
    """Of a gradient that stays, all is applied or owed: moments in the subspace and E add up to what came."""
    g = gradients(1, 1, (4, 6))[0][0]
    got = trained([[g]] * 30, rank_fraction=0.25, beta1=0.5, beta2=0.5)
    forgetful = trained([[g]] * 30, rank_fraction=0.25, beta1=0.5, beta2=0.5, error_feedback=False)
    # Without it only the subspace of the first gradient is ever explored.
    assert torch.linalg.matrix_rank(forgetful.path[-1][0][0]) == 1 < torch.linalg.matrix_rank(got.path[-1][0][0])


def test_zeros_move_nothing() -> None:
    got = trained([[torch.zeros(M, 4, 6).double()]] * 3)
    assert all(bool((step[0] == 0).all()) for step in got.path)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LowRankAdam(0.0), "rank_fraction: got 0.0; expected a number in"),
        (lambda: LowRankAdam(rho=1.0), "rho: got 1.0; expected a number in"),
        (
            lambda: method_of({"kind": "ldadam", "lr": 1, "rank_fraction": 2}),
            "rank_fraction: got 2; expected less than or eq",
        ),
    ],
)
def test_misuse_is_one_helpful_line(call, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
