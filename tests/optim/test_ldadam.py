"""LDAdam from its algorithms, and the limits in which it is Adam."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from syncline.comm import SimulatedCommunicator
from syncline.errors import SpecError
from syncline.methods import DDP, LDAdam, method_of
from syncline.optim import LowRankAdam, adam
from tests.optim.given import Given, assert_same, gradients, run

M, LR, EPS, T = 3, 0.1, 1e-4, 12


def subspace(p: Tensor) -> Tensor:
    """What does not depend on the signs of columns."""
    return p @ p.mT


def by_hand(
    gs: list[Tensor], rank: int, rho: float, b1: float, b2: float, owes: bool, u: Tensor | None = None
) -> list[Tensor]:
    """Algorithms 1 and 2 on one matrix with at most as many rows as columns, in the paper's order.

    ``u`` has singular vectors of the first gradient, where these are not unique, as of a gradient of zero.
    """
    rows, columns = gs[0].shape
    x, error = torch.zeros(rows, columns).double(), torch.zeros(rows, columns).double()
    m, v = torch.zeros(rank, columns).double(), torch.zeros(rank, columns).double()
    u = torch.linalg.svd(gs[0], full_matrices=False)[0][:, :rank] if u is None else u
    out = []
    for t, g in enumerate(gs, start=1):
        a = g + error if owes else g
        if t == 1:
            new, turned_m, turned_v = u, m, v
        else:
            m_hat, v_hat = m / (1 - b1 ** (t - 1)), v / (1 - b2 ** (t - 1))
            b = rho * u @ m_hat + (1 - rho) * a
            new = torch.linalg.qr(b @ b.T @ u)[0] if bool(b.any()) else u
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


def begun_late(given: list[list[Tensor]], late_steps: int) -> list[list[Tensor]]:
    """Return the gradients, with zeros in the first steps."""
    return [[torch.zeros_like(g) if t < late_steps else g for g in step] for t, step in enumerate(given)]


def test_a_gradient_that_begins_late_follows_the_algorithms_from_any_singular_vectors_of_zero() -> None:
    given = begun_late(gradients(T, M, (4, 6)), 3)
    got = trained(given, rank_fraction=0.5, rho=0.6, beta1=0.8, beta2=0.9)
    start = LowRankAdam(0.5).init(torch.zeros(1, 4, 6).double(), 0)["projection"][0]
    torch.testing.assert_close(start.T @ start, torch.eye(2).double(), rtol=0, atol=1e-12)
    literal = by_hand([g.mean(0) for (g,) in given], 2, 0.6, 0.8, 0.9, True, start)
    for step, expected in zip(got.path, literal, strict=True):
        torch.testing.assert_close(step[0][0], expected, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("first", ["zero", "none"])
def test_a_matrix_that_begins_late_comes_as_near_to_its_optimum_as_one_that_trains_from_the_start(first: str) -> None:
    """Of a quadratic, with a rank of 2 of 8; what is owed stays as small, where it once grew in every step."""

    def distance_and_error(late_steps: int) -> tuple[float, float]:
        x = torch.nn.Parameter(torch.zeros(1, 8, 12).double())
        optimum = gradients(1, 1, (8, 12))[0][0]
        method = LDAdam([x], lr=0.02, comm=SimulatedCommunicator(1), worker_axis=True)
        for t in range(late_steps + 150):
            late = t < late_steps
            x.grad = None if late and first == "none" else torch.zeros_like(x) if late else x.detach() - optimum
            method.step()
        return float((x.detach() - optimum).norm()), float(method.state[x]["projection_error"].abs().max())

    (late, owed), (punctual, owed_punctual) = distance_and_error(20), distance_and_error(0)
    assert late < 1.2 * punctual < 0.6 * float(gradients(1, 1, (8, 12))[0][0].norm())
    assert owed < 2 * owed_punctual


def test_rows_that_begin_at_different_steps_are_as_alone() -> None:
    """Of a seed whose gradient begins in the first step and one whose begins in the fifth, and never mixed up."""
    rule, group = LowRankAdam(0.5), {"betas": (0.9,), "beta2": 0.99, "eps": EPS, "rho": 0.6}
    gs = [g for (g,) in gradients(T, 2, (4, 6))]
    for t in range(4):
        gs[t][1] = 0

    def path(of_rows: list[Tensor]) -> list[Tensor]:
        state = rule.init(of_rows[0], 0)
        return [rule.direction(g, state, group, t) for t, g in enumerate(of_rows)]

    both = path(gs)
    for row in (0, 1):
        alone = path([g[row : row + 1] for g in gs])
        for together, by_itself in zip(both, alone, strict=True):
            torch.testing.assert_close(together[row : row + 1], by_itself, rtol=1e-9, atol=1e-12)
    assert not bool(both[3][1].any()) and bool(both[4][1].any())


@pytest.mark.parametrize("late_steps", [0, 3])
@pytest.mark.parametrize("shape", [(1, 6), (6, 1)])
def test_a_matrix_of_one_row_or_column_is_adams(shape: tuple[int, int], late_steps: int) -> None:
    """Its subspace is all that there is, and has one direction up to a sign."""
    given = begun_late(gradients(T, M, shape), late_steps)
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
