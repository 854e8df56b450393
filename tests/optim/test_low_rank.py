"""Dion, CurvaDion and PowerSGD against literal derivations and in their limits."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch

from syncline.comm import SimulatedCommunicator
from syncline.comm.wire import DENSE
from syncline.costmodel import TensorShape, calls_at
from syncline.errors import SpecError
from syncline.methods import DDP, CurvaDion, Dion, method_of
from syncline.optim import DionRule, Every, EveryStep, FactorMean, Method, sgdm
from syncline.optim.base import ParamRow
from syncline.optim.dion import dion_rank, random_columns
from tests.optim.given import Given, assert_same, dion, gaussian, gradients, run

M, LR, MU = 3, 0.1, 0.9
SHAPES = ((6, 4), (3, 8), (5,))


def qr(x: torch.Tensor) -> torch.Tensor:
    """Q of the QR decomposition with a positive diagonal, by Gram and Schmidt."""
    out: list[torch.Tensor] = []
    for j in range(x.shape[1]):
        v = x[:, j].clone()
        for q in out:
            v = v - (q @ v) * q
        out.append(v / v.norm())
    return torch.stack(out, dim=1)


def dion_step(
    x: torch.Tensor, m: torch.Tensor, q: torch.Tensor, g: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Dion's Algorithm 1 on a matrix with at least as many rows as columns, without its scale."""
    b = m + g
    p = qr(b @ q)
    r = b.T @ p
    m = b - (1 - MU) * p @ r.T
    q = r / (r.norm(dim=0) + 1e-8)
    return x - LR * p @ q.T, m, q


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5)])
def test_dion_from_its_algorithm(shape: tuple[int, int]) -> None:
    given = gradients(4, 2, shape)
    got = run(partial(Dion, lr=LR, rank_fraction=0.5, mu=MU), given)
    wide = shape[0] < shape[1]
    rows, columns = sorted(shape, reverse=True)
    rank = math.ceil(0.5 * columns)
    assert dion_rank(*shape, 0.5) == rank
    x, m = torch.zeros(rows, columns).double(), torch.zeros(rows, columns).double()
    q = random_columns(torch.zeros(1, *shape).double(), columns, rank, "dion", 0)[0]
    for t, (gradient,) in enumerate(given):
        mean = gradient.mean(0)
        x, m, q = dion_step(x, m, q, mean.T if wide else mean)
        scaled = math.sqrt(shape[0] / shape[1]) * (x.T if wide else x)
        for worker in got.path[t][0]:
            torch.testing.assert_close(worker, scaled, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(got.state(0, "momentum")[1], m.T if wide else m, rtol=1e-9, atol=1e-11)


def test_dion_by_itself_uses_each_workers_own_gradient() -> None:
    given = gradients(3, 2, (6, 4))
    together = run(partial(dion, lr=LR, rank_fraction=0.5, mu=MU, trigger=Every(10**6)), given)
    for worker in range(2):
        alone = run(
            partial(Dion, lr=LR, rank_fraction=0.5, mu=MU), [[g[worker : worker + 1] for g in s] for s in given]
        )
        torch.testing.assert_close(together.params[0][worker], alone.params[0][0])
    assert together.records == []


@pytest.mark.parametrize("trigger", [Every(1), Every(3)])
def test_scheduled_dion_exchanges_at_the_end_of_its_period(trigger: Every) -> None:
    got = run(partial(dion, lr=LR, trigger=trigger), gradients(7, M, *SHAPES))
    assert [r.step for r in got.records] == list(range(trigger.period - 1, 7, trigger.period))


def test_full_rank_dion_takes_an_orthogonal_momentum_as_it_is() -> None:
    """The polar factor of an orthogonal matrix is itself, whatever the right factor."""
    g = qr(gaussian(5, 5))
    for scale in (1.0, 7.0):
        got = run(partial(Dion, lr=1.0, rank_fraction=1.0, mu=0.0), [[(scale * g).unsqueeze(0)]])
        torch.testing.assert_close(got.params[0][0].detach(), -g, rtol=1e-6, atol=1e-6)


def test_full_rank_dion_comes_to_the_polar_factor() -> None:
    """One power iteration a step on the same matrix: with mu 0 nothing of it stays in the momentum."""
    u, _ = torch.linalg.qr(gaussian(6, 4))
    v, _ = torch.linalg.qr(gaussian(4, 4, seed=1))
    g = u @ torch.diag(torch.tensor([8.0, 4.0, 2.0, 1.0]).double()) @ v.T
    got = run(partial(Dion, lr=1.0, rank_fraction=1.0, mu=0.0), [[g.unsqueeze(0)]] * 60)
    last = got.path[-2][0][0] - got.path[-1][0][0]
    torch.testing.assert_close(last, math.sqrt(6 / 4) * u @ v.T, rtol=0, atol=1e-6)


def test_dion_keeps_what_its_rank_leaves_out() -> None:
    """Momentum after a step is what came in, less what was used: ``(I - (1 - mu) P P^T) B``."""
    given = gradients(1, 1, (8, 6))
    rule = DionRule(rank_fraction=0.25, mu=MU)
    state = rule.init(torch.zeros(1, 8, 6).double(), 0)
    p = qr(given[0][0][0] @ state["right"][0])
    rule.direction(given[0][0], state, {"betas": (MU,)}, 0)
    b = given[0][0][0]
    torch.testing.assert_close(state["momentum"][0], b - (1 - MU) * p @ p.T @ b)


def test_exchanging_factors_is_exchanging_gradients() -> None:
    """Averages and products are linear: ``mean(M Q) = mean(M) Q``. Only the bytes differ, and each worker's error."""
    build = partial(dion, lr=LR, rank_fraction=0.25, mu=MU, other=sgdm(0.9))
    given = gradients(8, M, (12, 8), (6, 10), (5,))
    gradient, compressed = run(build, given), run(partial(build, exchange="compressed"), given)
    assert_same(compressed, gradient)
    for number in (0, 1):
        mean = compressed.state(number, "momentum").mean(0)
        torch.testing.assert_close(mean, gradient.state(number, "momentum")[0])
    assert [r.payload_bytes for r in gradient.records[:1]] == [8 * (96 + 60 + 5)]
    # Ranks 2 and 2: P has the longer sides, R the shorter ones.
    expected = [("gradient", 8 * 5), ("P", 8 * (12 + 10) * 2), ("R", 8 * (8 + 6) * 2)]
    assert [(r.label, r.payload_bytes) for r in compressed.records[:3]] == expected


def test_factors_that_are_no_smaller_are_not_sent() -> None:
    got = run(partial(Dion, lr=LR, rank_fraction=1.0, exchange="compressed"), gradients(1, M, (6, 6)))
    assert [(r.label, r.payload_bytes) for r in got.records] == [("gradient", 8 * 36)]


def test_curvadion_at_threshold_zero_is_dion() -> None:
    given = gradients(8, M, *SHAPES)
    always = run(partial(CurvaDion, lr=LR, threshold=0.0), given)
    assert_same(always, run(partial(Dion, lr=LR), given), exact=True)
    assert [r.label for r in always.records] == ["trigger", "gradient"] * 8
    assert {r.payload_bytes for r in always.records if r.label == "trigger"} == {4}


@pytest.mark.parametrize("exchange", ["gradient", "compressed"])
def test_held_gradients_are_one_step_on_their_sum(exchange: str) -> None:
    """Nobody moves between exchanges, and an exchange is Dion's step on what each worker has added up."""
    given = gradients(9, M, *SHAPES)
    options = {"lr": LR, "rank_fraction": 0.5, "mu": MU, "exchange": exchange}
    got = run(partial(dion, trigger=Every(3), local_step="hold", **options), given)
    sums = [[sum(step[i] for step in given[t : t + 3]) for i in range(len(SHAPES))] for t in (0, 3, 6)]
    expected = run(partial(Dion, **options), sums)
    start = [torch.zeros_like(g) for g in given[0]]
    for t in range(9):
        after = expected.path[(t + 1) // 3 - 1] if t >= 2 else start
        for x, y in zip(got.path[t], after, strict=True):
            if x.dim() == 3:  # Adam's bias correction counts steps, held ones too
                torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-11)
            assert torch.equal(x, x[:1].expand_as(x))


@pytest.mark.parametrize("variant", ["paper", "code"])
def test_curvadion_at_infinity_never_exchanges(variant: str) -> None:
    given = gradients(5, M, *SHAPES)
    got = run(partial(CurvaDion, lr=LR, threshold=math.inf, variant=variant), given)
    assert [(r.step, r.label, r.collective, r.payload_bytes) for r in got.records] == [
        (t, "trigger", "all_reduce", 4) for t in range(5)
    ]
    assert_same(got, run(partial(dion, lr=LR, trigger=Every(10**6)), given), exact=True)


def test_powersgd_from_its_algorithm() -> None:
    """Two steps of two workers on one matrix, warm start and error feedback."""
    given, rank = gradients(3, 2, (6, 5)), 2
    got = run(partial(Method, lr=LR, rule=sgdm(), sync=EveryStep(), reducer=FactorMean(rank)), given)
    x, error = torch.zeros(6, 5).double(), [torch.zeros(6, 5).double()] * 2
    q = random_columns(torch.zeros(1).double(), 5, rank, "powersgd", 0)[0]
    for t, (g,) in enumerate(given):
        corrected = [g[worker] + error[worker] for worker in range(2)]
        p = qr(sum(m @ q for m in corrected) / 2)
        q = sum(m.T @ p for m in corrected) / 2
        error = [m - p @ q.T for m in corrected]
        x = x - LR * p @ q.T
        for worker in range(2):
            torch.testing.assert_close(got.path[t][0][worker], x, rtol=1e-9, atol=1e-11)
            torch.testing.assert_close(got.state(0, "error")[worker], error[worker]) if t == 2 else None
    assert [(r.label, r.payload_bytes) for r in got.records[:2]] == [("P", 8 * 6 * rank), ("R", 8 * 5 * rank)]


@pytest.mark.parametrize("warm_start", [True, False])
@pytest.mark.parametrize("error_feedback", [True, False])
def test_powersgd_at_full_rank_is_data_parallelism(warm_start: bool, error_feedback: bool) -> None:
    given = gradients(5, M, *SHAPES)
    reducer = FactorMean(99, warm_start=warm_start, error_feedback=error_feedback, compress_all_matrices=True)
    full = run(partial(Method, lr=LR, rule=sgdm(0.9), sync=EveryStep(), reducer=reducer), given)
    assert_same(full, run(partial(DDP, lr=LR, rule=sgdm(0.9)), given))
    assert {r.label for r in full.records} == {"gradient", "P", "R"}


def test_a_cold_factor_is_drawn_by_the_parameter_and_not_by_who_else_has_a_gradient() -> None:
    reducer, comm = FactorMean(1, warm_start=False), SimulatedCommunicator(M)
    rows = []
    for index in range(2):
        g = torch.randn(M, 6, 5, generator=torch.Generator().manual_seed(index))
        rows.append(ParamRow(g, g, reducer.init(g, index), {}, sgdm(), index))
    alone = reducer.reduce(rows[1:], comm, DENSE, 3)
    rows[1].state["error"].zero_()
    _, beside = reducer.reduce(rows, comm, DENSE, 3)
    assert torch.equal(alone[0], beside)


def test_powersgd_warms_up_as_data_parallelism() -> None:
    given = gradients(6, M, *SHAPES)
    plain = run(partial(DDP, lr=LR, rule=sgdm(0.9)), given)
    got = run(partial(Method, lr=LR, rule=sgdm(0.9), sync=EveryStep(), reducer=FactorMean(1, warmup_steps=4)), given)
    assert torch.equal(got.path[3][0], plain.path[3][0])
    assert not torch.allclose(got.path[4][0], plain.path[4][0])
    # As PowerSGD's factors, its whole gradients are sent when the backward pass is over.
    assert got.records[:4] == [call._replace(in_backward=False) for call in plain.records[:4]]


def test_powersgds_closed_form_counts_its_warmup() -> None:
    """Whole gradients first, then factors: the calls of every step, to the byte."""
    spec = method_of({"kind": "powersgd", "lr": LR, "rank": 1, "warmup_steps": 4})
    given = gradients(7, M, *SHAPES)
    params = [torch.nn.Parameter(torch.zeros_like(g, dtype=torch.float32)) for g in given[0]]
    comm = SimulatedCommunicator(M)
    method = spec.build(params, comm)
    for step in given:
        for p, g in zip(params, step, strict=True):
            p.grad = g.float()
        method.step()
    tensors = [TensorShape(str(i), shape, len(shape) == 2) for i, shape in enumerate(SHAPES)]
    due = [(t, c.payload_bytes) for t in range(7) for c in calls_at(spec.exchanges(tensors, M), t)]
    assert [(r.step, r.payload_bytes) for r in comm.ledger.records] == due
    assert len({nbytes for t, nbytes in due if t < 4}) == 1 and len(due) > 7


@pytest.mark.parametrize("warm_start", [True, False])
def test_powersgd_loses_nothing(warm_start: bool) -> None:
    """What was sent so far and what is still owed, averaged over the workers, is the sum of all mean gradients."""
    given = gradients(9, M, (6, 5), (4, 9))
    got = run(
        partial(Method, lr=1.0, rule=sgdm(), sync=EveryStep(), reducer=FactorMean(1, warm_start=warm_start)), given
    )
    for number in range(2):
        sent, owed = -got.params[number].detach()[0], got.state(number, "error").mean(0)
        assert float(owed.norm()) > 0.1
        torch.testing.assert_close(sent + owed, sum(step[number].mean(0) for step in given))


def test_powersgd_without_error_feedback_owes_nothing() -> None:
    got = run(
        partial(Method, lr=1.0, rule=sgdm(), sync=EveryStep(), reducer=FactorMean(1, error_feedback=False)),
        gradients(3, M, (6, 5)),
    )
    assert torch.equal(got.state(0, "error"), torch.zeros(M, 6, 5).double())


def test_a_warm_start_finds_the_largest_direction() -> None:
    """Subspace iteration on a gradient that stays: its error falls to that of the best approximation of the rank."""
    g = gaussian(8, 6)
    got = run(
        partial(Method, lr=1.0, rule=sgdm(), sync=EveryStep(), reducer=FactorMean(1, error_feedback=False)),
        [[g.unsqueeze(0)]] * 80,
    )
    last = got.path[-2][0][0] - got.path[-1][0][0]
    u, s, vh = torch.linalg.svd(g)
    torch.testing.assert_close(last, s[0] * torch.outer(u[:, 0], vh[0]), rtol=0, atol=1e-6)


P = [torch.nn.Parameter(torch.zeros(2, 2))]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Dion(P, LR, rank_fraction=0.0), "rank_fraction: got 0.0; expected greater than 0"),
        (lambda: Dion(P, LR, rank_fraction=1.5), "rank_fraction: got 1.5"),
        (lambda: Dion(P, LR, mu=1.0), "mu: got 1.0; expected less than 1"),
        (lambda: Dion(P, LR, exchange="factors"), "exchange: got 'factors'; expected 'gradient' or 'compressed'"),
        (lambda: Dion(P, LR, exchange="compressed", clip_norm=1.0), "clip_norm: got 1.0; expected none where"),
        (lambda: Every(0), "period: got 0; expected an integer >= 1"),
        (lambda: CurvaDion(P, LR, threshold=-1.0), "threshold: got -1.0"),
        (lambda: CurvaDion(P, LR, threshold=math.nan), "threshold: got nan"),
        (lambda: CurvaDion(P, LR, variant="odd"), "variant: got 'odd'; expected 'paper' or 'code'"),
        (lambda: FactorMean(0), "rank: got 0; expected an integer >= 1"),
        (lambda: FactorMean(1, warmup_steps=-1), "warmup_steps: got -1"),
        (lambda: run(partial(CurvaDion, lr=LR), gradients(1, M, (5,))), "a model with matrices"),
    ],
)
def test_misuse_is_one_helpful_line(unchecked, call, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_learning_rates_of_matrices_and_others() -> None:
    """An embedding is no matrix where its group says so; what is no matrix has the other learning rate."""
    given = [torch.ones(1, 4, 3).double(), torch.ones(1, 4, 3).double(), torch.ones(1, 3).double()]

    def build(params, **options):
        groups = [{"params": [params[0], params[2]]}, {"params": [params[1]], "matrix": False}]
        return dion(groups, 0.5, other=sgdm(), other_lr=0.25, **options)

    got = Given(build, [given]).run()
    torch.testing.assert_close(got.params[1].detach(), -0.25 * given[1])
    torch.testing.assert_close(got.params[2].detach(), -0.25 * given[2])
    assert "right" in got.method.state[got.params[0]]
    assert "right" not in got.method.state[got.params[1]]


def moved_rows(before: torch.Tensor, after: torch.Tensor) -> int:
    """The least number of rows in which a worker's matrix moved."""
    return int(((after - before).abs().amax(-1) > 1e-9).sum(-1).min())


@pytest.mark.parametrize("shape", [(12, 8), (8, 12)])
@pytest.mark.parametrize(
    "build",
    [
        partial(Dion, rank_fraction=0.25),
        partial(Dion, rank_fraction=0.25, exchange="compressed"),
        partial(dion, rank_fraction=0.25, trigger=Every(100)),
        partial(dion, rank_fraction=0.25, trigger=Every(2), local_step="hold", exchange="compressed"),
        partial(CurvaDion, rank_fraction=0.25, threshold=0.1),
        partial(CurvaDion, rank_fraction=0.25, threshold=0.1, exchange="compressed", variant="code"),
        partial(Method, rule=sgdm(), sync=EveryStep(), reducer=FactorMean(2)),
    ],
    ids=["dense", "compressed", "local", "held", "trigger", "trigger-compressed", "powersgd"],
)
def test_a_layer_whose_gradient_is_zero_at_first_moves_in_all_rows(build: partial, shape: tuple[int, int]) -> None:
    """As one behind a projection that starts at zero: its right factor is still there when a gradient comes."""
    given = gradients(6, M, shape)
    given[0][0].zero_()
    given[1][0].zero_()
    got = run(partial(build, lr=LR), given)
    assert not got.path[1][0].any()
    first = next(t for t in range(6) if got.path[t][0].any())
    assert first <= 3
    assert moved_rows(torch.zeros(M, *shape), got.path[first][0]) == shape[0]


def test_a_zero_momentum_keeps_its_right_factor() -> None:
    rule = DionRule(rank_fraction=0.5, mu=MU)
    state = rule.init(torch.zeros(2, 6, 4).double(), 0)
    before = state["right"].clone()
    half = torch.stack([torch.zeros(6, 4).double(), gaussian(6, 4)])  # the first worker's alone is zero
    assert not rule.direction(half, state, {"betas": (MU,)}, 0)[0].any()
    assert torch.equal(state["right"][0], before[0])
    assert not torch.equal(state["right"][1], before[1])


def test_a_zero_initialised_projection_trains_the_layer_before_it() -> None:
    """Two layers, the second zero: the first one's gradient is zero at step 0, and then it moves as a whole."""
    first, second = torch.nn.Linear(10, 12, bias=False), torch.nn.Linear(12, 10, bias=False)
    torch.nn.init.zeros_(second.weight)
    optimizer = Dion([first.weight, second.weight], 0.02, rank_fraction=0.25)
    x, y = gaussian(64, 10).float(), gaussian(64, 10, seed=1).float()
    for step in range(2):
        before = first.weight.detach().clone()
        optimizer.zero_grad()
        (second(first(x).relu()) - y).square().mean().backward()
        optimizer.step()
        assert moved_rows(before[None], first.weight.detach()[None]) == (12 if step else 0)
