"""Methods against literal derivations and against each other in their limits."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syncline.comm import BF16, SimulatedCommunicator
from syncline.costmodel import Call
from syncline.errors import SpecError
from syncline.methods import DDP, DESLOC, MTDAO, DiLoCo, Local
from syncline.optim import (
    CoefficientMean,
    CompressedMean,
    EveryStep,
    FactorMean,
    MeanGradient,
    Method,
    Nesterov,
    NesterovAdam,
    Periodic,
    Reducer,
    TopK,
    ada_sgd,
    adam,
    adopt,
    multi_momentum_rule,
    sgdm,
    wsd_factor,
)
from syncline.optim.momenta import nadam_weight, nadam_weight_product
from syncline.problems import Quadratic, Rows

M, T, LR = 3, 40, 0.02
PROBLEM = Quadratic(spectrum=(1.0, 4.0, 9.0), start=(1.0, -2.0, 0.5), noise_std=0.5, shift_std=0.3, rotation_seed=1)
Build = Callable[[list[torch.nn.Parameter], SimulatedCommunicator], Method]


def path(build: Build, workers: int = M, steps: int = T) -> torch.Tensor:
    """Positions ``(T, M, d)`` in double precision."""
    comm = SimulatedCommunicator(workers)
    task = PROBLEM.build(Rows.whole_group(workers), dtype=torch.float64)
    method = build(list(task.params.values()), comm)
    out = []
    for t in range(steps):
        task.step_gradients(t)
        method.step()
        out.append(task.params["x"].detach().clone())
    return torch.stack(out)


def with_axis(cls: type[Method], *args, **options) -> Build:
    return lambda params, comm: cls(params, *args, comm=comm, worker_axis=True, **options)


def literal(step: Callable[[int, torch.Tensor, torch.Tensor], torch.Tensor], workers: int = M) -> torch.Tensor:
    """A path by a function ``(t, x, g) -> x`` of plain tensors ``(M, d)``."""
    task = PROBLEM.build(Rows.whole_group(workers), dtype=torch.float64)
    p = task.params["x"]
    out = []
    for t in range(T):
        task.step_gradients(t)
        with torch.no_grad():
            p.copy_(step(t, p.detach().clone(), p.grad.clone()))
        out.append(p.detach().clone())
    return torch.stack(out)


def assert_same_path(got: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-12)


def everyone(x: torch.Tensor) -> torch.Tensor:
    return x.mean(0, keepdim=True).expand_as(x)


# Literal derivations.


@pytest.mark.parametrize("phase", ["aligned", "paper"])
def test_mt_dao_adam_from_its_algorithm(phase: str) -> None:
    """Algorithm 1 in the form of Algorithms 2 and 3, two momenta, every period its own."""
    betas, omegas, beta2, k_x, k_j, k_v = (0.9, 0.99), (0.3, 0.5), 0.95, 3, (4, 5), 7
    u, v = [torch.zeros(M, 3, dtype=torch.float64) for _ in betas], torch.zeros(M, 3, dtype=torch.float64)
    late = 1 if phase == "paper" else 0

    def step(t: int, x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        nonlocal v
        v = beta2 * v + (1 - beta2) * g**2
        mixture = (1 - sum(omegas)) * g
        for j, (beta, omega) in enumerate(zip(betas, omegas, strict=True)):
            u[j] = beta * u[j] + (1 - beta) * g
            mixture = mixture + omega * u[j] / (1 - beta ** (t + 1))
        x = x - LR * mixture / ((v / (1 - beta2 ** (t + 1))).sqrt() + 1e-8)
        for j, k in enumerate(k_j):
            if (t + 1 - late) % k == 0:
                u[j] = everyone(u[j])
        if (t + 1 - late) % k_v == 0:
            v = everyone(v)
        return everyone(x) if (t + 1) % k_x == 0 else x

    got = path(
        with_axis(MTDAO, LR, betas=betas, omegas=omegas, beta2=beta2, period=k_x, momentum_periods=k_j,
                  second_moment_period=k_v, phase=phase)
    )  # fmt: skip
    assert_same_path(got, literal(step))


def test_ada_sgd_is_adam_with_the_mean_of_squares() -> None:
    beta1, beta2, eps = 0.8, 0.95, 1e-6
    m, v = torch.zeros(M, 3, dtype=torch.float64), torch.zeros(M, 1, dtype=torch.float64)

    def step(t: int, x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        nonlocal m, v
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * (g**2).mean(1, keepdim=True)
        return x - LR * m / (1 - beta1 ** (t + 1)) / ((v / (1 - beta2 ** (t + 1))).sqrt() + eps)

    assert_same_path(path(with_axis(Local, LR, ada_sgd(beta1, beta2, eps), period=T + 1)), literal(step))


def test_ada_sgd_of_single_numbers_is_adam() -> None:
    """A tensor of one entry has its own mean."""
    paths = []
    for rule in (ada_sgd(), adam()):
        p = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))  # (R,)
        method = Local([p], LR, rule, period=T, comm=SimulatedCommunicator(2), worker_axis=True)
        for t in range(10):
            p.grad = p.detach() * (1 + t)
            method.step()
        paths.append(p.detach())
    torch.testing.assert_close(*paths, rtol=1e-12, atol=0)


def test_nadam_from_its_recurrence() -> None:
    """Dozat's schedule of shares, with the products carried from step to step."""
    beta1, beta2, eps, psi = 0.9, 0.95, 1e-8, 0.004
    m, v = torch.zeros(M, 3, dtype=torch.float64), torch.zeros(M, 3, dtype=torch.float64)
    product = 1.0

    def step(t: int, x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        nonlocal m, v, product
        now, following = (beta1 * (1 - 0.5 * 0.96 ** (i * psi)) for i in (t + 1, t + 2))
        product *= now
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
        d = (1 - now) * g / (1 - product) + following * m / (1 - product * following)
        return x - LR * d / ((v / (1 - beta2 ** (t + 1))).sqrt() + eps)

    assert_same_path(path(with_axis(Local, LR, NesterovAdam(beta1, beta2, eps, psi), period=T + 1)), literal(step))


@pytest.mark.parametrize("t", [0, 1, 2, 7, 8, 1000])
def test_the_product_of_nadams_shares_is_that_of_each_in_turn(t: int) -> None:
    product = 1.0
    for i in range(t + 1):
        product *= nadam_weight(0.99, 0.004, i)
    assert nadam_weight_product(0.99, 0.004, t) == product


def test_adopt_from_its_published_recurrence() -> None:
    beta1, beta2, eps = 0.9, 0.99, 1e-6
    m, v = torch.zeros(M, 3, dtype=torch.float64), torch.zeros(M, 3, dtype=torch.float64)

    def step(t: int, x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        nonlocal m, v
        if t == 0:
            v = g**2
            return x
        normalised = torch.clamp(g / torch.maximum(v.sqrt(), torch.tensor(eps)), -(t**0.25), t**0.25)
        m = beta1 * m + (1 - beta1) * normalised
        v = beta2 * v + (1 - beta2) * g**2
        return x - LR * m

    assert_same_path(path(with_axis(Local, LR, adopt(beta1, beta2, eps), period=10**6)), literal(step))


def test_mt_dao_adopt_mixes_the_normalised_gradient() -> None:
    beta, omega, beta2 = 0.97, 0.8, 0.99
    u, v = torch.zeros(M, 3, dtype=torch.float64), torch.zeros(M, 3, dtype=torch.float64)

    def step(t: int, x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        nonlocal u, v
        if t == 0:
            v = g**2
        else:
            seen = torch.clamp(g / torch.clamp(v.sqrt(), min=1e-6), -(t**0.25), t**0.25)
            v = beta2 * v + (1 - beta2) * g**2
            u = beta * u + (1 - beta) * seen
            x = x - LR * ((1 - omega) * seen + omega * u)
        if (t + 1) % 4 == 0:
            x, u, v = everyone(x), everyone(u), everyone(v)
        return x

    build = with_axis(MTDAO, LR, base="adopt", betas=(beta,), omegas=(omega,), beta2=beta2, period=4)
    assert_same_path(path(build), literal(step))


def test_diloco_from_its_formula() -> None:
    lr, mu, k = 0.7, 0.9, 5
    start = torch.tensor(PROBLEM.start, dtype=torch.float64).expand(M, 3)
    b = torch.zeros(M, 3, dtype=torch.float64)

    def step(t: int, x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        nonlocal start, b
        x = x - LR * g
        if (t + 1) % k == 0:
            delta = start - everyone(x)
            b = mu * b + delta
            start = x = start - lr * (delta + mu * b)
        return x

    assert_same_path(path(with_axis(DiLoCo, LR, sgdm(), period=k)), literal(step))


def test_diloco_is_torchs_nesterov_on_pseudo_gradients() -> None:
    """The outer step is ``torch.optim.SGD(nesterov=True)``, whose sign a flipped pseudo-gradient would turn."""
    outer_x = torch.nn.Parameter(torch.tensor([5.0, -3.0], dtype=torch.float64))
    outer = torch.optim.SGD([outer_x], lr=0.7, momentum=0.9, nesterov=True)
    x = torch.nn.Parameter(outer_x.detach().clone().unsqueeze(0))
    method = DiLoCo([x], 0.1, sgdm(), period=4, comm=SimulatedCommunicator(1), worker_axis=True)
    for _ in range(6):
        inner = outer_x.detach().clone()
        for _ in range(4):
            inner -= 0.1 * inner  # f = x^2 / 2
            x.grad = x.detach().clone()
            method.step()
        outer_x.grad = outer_x.detach() - inner
        outer.step()
        torch.testing.assert_close(x[0].detach(), outer_x.detach())
    assert float(x.detach().norm()) < float(torch.tensor([5.0, -3.0]).norm())


def test_clipping_is_torchs_per_worker() -> None:
    grads = [torch.randn(M, 4, dtype=torch.float64), torch.randn(M, 2, 3, dtype=torch.float64)]
    params = [torch.nn.Parameter(torch.zeros_like(g)) for g in grads]
    method = Local(params, 1.0, sgdm(), period=9, clip_norm=0.7, comm=SimulatedCommunicator(M), worker_axis=True)
    for p, g in zip(params, grads, strict=True):
        p.grad = g.clone()
    method.step()
    for m in range(M):
        alone = [torch.nn.Parameter(torch.zeros_like(g[m])) for g in grads]
        for p, g in zip(alone, grads, strict=True):
            p.grad = g[m].clone()
        torch.nn.utils.clip_grad_norm_(alone, 0.7)
        for p, q in zip(params, alone, strict=True):
            torch.testing.assert_close(p[m].detach(), -q.grad)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [1e-4, 300.0])
def test_clipping_of_half_precision_is_of_the_norm_in_single(dtype: torch.dtype, size: float) -> None:
    """In fp16 the square of 300 is infinite, and that of 1e-4 is zero; a model may mix types."""
    grads = [torch.full((3, 4), size, dtype=dtype), torch.full((2,), size, dtype=torch.float32)]
    params = [torch.nn.Parameter(torch.zeros_like(g)) for g in grads]
    method = Local(params, 1.0, sgdm(0.5, "ema"), period=9, clip_norm=size)
    for p, g in zip(params, grads, strict=True):
        p.grad = g.clone()
    method.step()
    for p, g in zip(params, grads, strict=True):  # of 14 equal entries
        torch.testing.assert_close(p.detach(), -0.5 * g / 14**0.5, rtol=0.01, atol=0.0)
        assert p.dtype == g.dtype


def test_clipping_has_the_same_bits_however_many_workers_are_beside() -> None:
    """A process that holds one worker clips as the simulator does, which holds all: a sign may hang on the last bit."""

    def clipped(grads: list[torch.Tensor]) -> list[torch.Tensor]:
        params = [torch.nn.Parameter(torch.zeros_like(g)) for g in grads]
        comm = SimulatedCommunicator(len(grads[0]))
        method = Local(params, 1.0, sgdm(), period=9, clip_norm=0.7, comm=comm, worker_axis=True)
        for p, g in zip(params, grads, strict=True):
            p.grad = g.clone()
        method.step()
        return [p.detach() for p in params]

    rng = torch.Generator().manual_seed(0)
    for _ in range(5):
        grads = [torch.randn(4, n, generator=rng) * 3**i for i, n in enumerate((3, 5, 8, 2, 9, 7, 4, 6, 1, 8, 5, 3))]
        together = clipped(grads)
        for m in range(4):
            alone = clipped([g[m : m + 1] for g in grads])
            assert all(torch.equal(p[m], q[0]) for p, q in zip(together, alone, strict=True))


# Limit cases: a method with its trick turned off is the simpler method.


def test_mt_dao_with_one_full_momentum_is_local_adam() -> None:
    """Local Adam here is torch's AdamW per worker, with parameters and both states averaged by hand."""
    beta1, beta2, k = 0.95, 0.99, 4
    task = PROBLEM.build(Rows.whole_group(M), dtype=torch.float64)
    p = task.params["x"]
    workers = [torch.nn.Parameter(row.clone()) for row in p.detach()]
    optimizers = [torch.optim.AdamW([w], lr=LR, betas=(beta1, beta2), weight_decay=0.0) for w in workers]
    expected = []
    for t in range(T):
        with torch.no_grad():
            p.copy_(torch.stack([w.detach() for w in workers]))
        task.step_gradients(t)
        for w, optimizer, g in zip(workers, optimizers, p.grad, strict=True):
            w.grad = g.clone()
            optimizer.step()
        if (t + 1) % k == 0:
            with torch.no_grad():
                states = [o.state[w] for o, w in zip(optimizers, workers, strict=True)]
                for tensors in (workers, *([s[name] for s in states] for name in ("exp_avg", "exp_avg_sq"))):
                    mean = torch.stack([x.detach() for x in tensors]).mean(0)
                    for x in tensors:
                        x.copy_(mean)
        expected.append(torch.stack([w.detach().clone() for w in workers]))
    options = {"betas": (beta1,), "omegas": (1.0,), "beta2": beta2, "period": k}
    assert_same_path(path(with_axis(MTDAO, LR, **options)), torch.stack(expected))
    assert_same_path(path(with_axis(Local, LR, adam(beta1, beta2), period=k)), torch.stack(expected))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("form", ["heavy-ball", "ema"])
def test_local_sgdm_with_period_one_is_data_parallel(momentum: float, form: str) -> None:
    rule = sgdm(momentum, form)
    assert_same_path(path(with_axis(Local, LR, rule, period=1)), path(with_axis(DDP, LR, rule)))


def test_local_adam_with_period_one_is_not_data_parallel() -> None:
    """A square is not linear: the mean of the second moments is not that of the mean gradient."""
    local, ddp = path(with_axis(Local, LR, adam(), period=1)), path(with_axis(DDP, LR, adam()))
    assert float((local - ddp).abs().max()) > 1e-3


def test_diloco_without_its_outer_optimizer_is_parameter_averaging() -> None:
    averaging = lambda params, comm: Method(params, LR, adam(), Periodic({"params": 4}), comm=comm, worker_axis=True)  # noqa: E731
    assert_same_path(path(with_axis(DiLoCo, LR, adam(), period=4, outer_lr=1.0, outer_momentum=0.0)), path(averaging))


def test_omega_zero_is_the_rule_without_momentum() -> None:
    assert_same_path(
        path(with_axis(MTDAO, LR, base="sgdm", betas=(0.999,), omegas=(0.0,), period=4)),
        path(with_axis(Local, LR, sgdm(), period=4)),
    )
    assert_same_path(
        path(with_axis(MTDAO, LR, betas=(0.999,), omegas=(0.0,), beta2=0.99, period=4)),
        path(with_axis(MTDAO, LR, betas=(0.0,), omegas=(1.0,), beta2=0.99, period=4)),
    )


def test_heavy_ball_is_the_ema_at_a_larger_rate() -> None:
    assert_same_path(
        path(with_axis(DDP, LR, sgdm(0.9, "heavy-ball"))), path(with_axis(DDP, LR / (1 - 0.9), sgdm(0.9, "ema")))
    )


def test_equal_momenta_are_one() -> None:
    assert_same_path(
        path(with_axis(MTDAO, LR, betas=(0.9, 0.9, 0.9), omegas=(0.2, 0.3, 0.5), period=4)),
        path(with_axis(MTDAO, LR, betas=(0.9,), omegas=(1.0,), period=4)),
    )


def test_des_loc_is_mt_dao_with_periods_from_half_lives() -> None:
    assert_same_path(
        path(with_axis(DESLOC, LR, beta1=0.95, beta2=0.99, period=4)),
        path(with_axis(MTDAO, LR, betas=(0.95,), omegas=(1.0,), beta2=0.99, period=4, momentum_periods=(14,),
                       second_moment_period=69)),
    )  # fmt: skip
    due = DESLOC([torch.nn.Parameter(torch.zeros(1))], LR, base="adopt").sync.periods
    assert due == {"params": 32, "momentum_1": 32, "second_moment": 6931}  # MT-DAO, Table 3


def test_mt_dao_with_an_idle_outer_optimizer_is_mt_dao() -> None:
    options = {"betas": (0.99,), "omegas": (0.9,), "period": 4}
    assert_same_path(
        path(with_axis(MTDAO, LR, outer_optimizer=Nesterov(1.0, 0.0), **options)), path(with_axis(MTDAO, LR, **options))
    )


def test_phases_differ_only_in_when_momenta_are_averaged() -> None:
    options = {"betas": (0.99,), "omegas": (0.9,), "period": 4}
    aligned = MTDAO([torch.nn.Parameter(torch.zeros(1))], LR, **options).sync
    paper = MTDAO([torch.nn.Parameter(torch.zeros(1))], LR, phase="paper", **options).sync
    assert [aligned.states_due(t) for t in range(4)] == [(), (), (), ("params", "momentum_1", "second_moment")]
    assert [paper.states_due(t) for t in range(5)] == [
        ("momentum_1", "second_moment"), (), (), ("params",), ("momentum_1", "second_moment"),
    ]  # fmt: skip


# Traffic, wire, schedules, refusals.


def test_unified_mt_dao_sends_32_thirds_less_than_data_parallelism() -> None:
    sent = {}
    for name, build in {"ddp": with_axis(DDP, LR, adam()), "mt-dao": with_axis(MTDAO, LR)}.items():
        comm = SimulatedCommunicator(M)
        task = PROBLEM.build(Rows.whole_group(M))
        method = build(list(task.params.values()), comm)
        for t in range(96):
            task.step_gradients(t)
            method.step()
        sent[name] = comm.ledger.payload_bytes()
    assert sent["ddp"] == 96 * 3 * 4
    assert sent["ddp"] / sent["mt-dao"] == pytest.approx(32 / 3)


def test_bf16_halves_the_bytes_and_keeps_workers_together() -> None:
    comm = SimulatedCommunicator(M)
    task = PROBLEM.build(Rows.whole_group(M))
    method = DDP(task.params.values(), LR, adam(), wire=BF16, comm=comm, worker_axis=True)
    task.step_gradients(0)
    method.step()
    assert comm.ledger.records == [
        Call(0, "all_reduce", 6, range(M), encoded_bytes=12, in_backward=True, label="gradient")
    ]
    x = task.params["x"]
    assert torch.equal(x, x[:1].expand_as(x))


@given(st.integers(1, 200), st.data())
def test_wsd_rises_stays_and_falls(steps: int, data: st.DataObject) -> None:
    warmup = data.draw(st.integers(0, steps))
    cooldown = data.draw(st.integers(0, steps - warmup))
    factors = [wsd_factor(t, steps, warmup, cooldown) for t in range(steps)]
    assert all(0 < f <= 1 for f in factors)
    rising, flat, falling = factors[:warmup], factors[warmup : steps - cooldown], factors[steps - cooldown :]
    assert rising == [(t + 1) / warmup for t in range(warmup)]
    assert set(flat) <= {1.0}
    assert falling == sorted(falling, reverse=True)
    if cooldown:
        assert wsd_factor(steps - cooldown // 2, steps, warmup, cooldown) == pytest.approx(
            1 - math.sqrt((cooldown - cooldown // 2) / cooldown)
        )


@given(st.integers(1, 30), st.integers(0, 40), st.integers(0, 100))
def test_a_state_is_due_once_per_period(period: int, offset: int, start: int) -> None:
    policy = Periodic({"params": period}, {"params": offset})
    assert sum(policy.states_due(t) == ("params",) for t in range(start, start + period)) == 1


def test_every_step_is_due_for_gradients_alone() -> None:
    assert {EveryStep().states_due(t) for t in range(5)} == {("gradient",)}


P = [torch.nn.Parameter(torch.zeros(1))]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: DDP(P, -1.0, adam()), "lr: got -1.0"),
        (lambda: DDP(P, 1.0, adam(beta1=1.0)), r"betas.0: got 1.0; expected a number in \[0, 1\)"),
        (lambda: DDP(P, 1.0, adam(beta2=-0.1)), "beta2: got -0.1"),
        (lambda: DDP(P, 1.0, sgdm(2.0)), "momentum: got 2.0"),
        (lambda: DDP(P, 1.0, sgdm(0.5, "nesterov")), "'ema' or 'heavy-ball'"),
        (lambda: DDP(P, 1.0, adam(), clip_norm=0.0), "clip_norm: got 0.0"),
        (lambda: DDP(P, 1.0, adam(), weight_decay=-1.0), "weight_decay: got -1.0"),
        (lambda: Local(P, 1.0, adam(), period=0), "period: got 0"),
        (lambda: MTDAO(P, 1.0, betas=(0.9, 0.9), omegas=(0.5,)), "omegas"),
        (lambda: MTDAO(P, 1.0, betas=(0.9, 0.9), omegas=(0.6, 0.6)), "sum is at most 1"),
        (lambda: MTDAO(P, 1.0, momentum_periods=(1, 2)), "one period per beta"),
        (lambda: MTDAO(P, 1.0, phase="odd"), "'aligned', 'paper' or 'random'"),
        (lambda: MTDAO(P, 1.0, base="lion"), "'adam', 'adopt', 'sgdm' or 'muon'"),
        (lambda: DiLoCo(P, 1.0, outer_lr=0.0), "outer_lr: got 0.0"),
        (lambda: Method(P, 1.0, sgdm(), Periodic({"momentum_1": 2})), "sync: got 'momentum_1'"),
        (lambda: multi_momentum_rule("sgdm", (0.9,), (-0.5,)), "omegas"),
    ],
)
def test_misuse_is_one_helpful_line(unchecked, call: Callable[[], object], message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_closure_is_called_and_its_loss_returned() -> None:
    p = torch.nn.Parameter(torch.tensor([2.0]))
    method = DDP([p], 0.5, sgdm())

    def closure() -> torch.Tensor:
        method.zero_grad()
        loss = (p**2).sum()
        loss.backward()
        return loss

    assert method.step(closure).item() == 4.0
    assert p.item() == 0.0


def test_parameters_without_gradient_stay() -> None:
    used, unused = (torch.nn.Parameter(torch.ones(1)) for _ in range(2))
    method = DDP([used, unused], 0.5, sgdm())
    used.grad = torch.ones(1)
    method.step()
    assert (used.item(), unused.item()) == (0.5, 1.0)


def test_a_parameter_without_a_gradient_just_now_is_averaged_all_the_same() -> None:
    """It moved since the last average; a frozen one is no part of it."""
    moved, frozen = torch.nn.Parameter(torch.zeros(2, 3)), torch.nn.Parameter(torch.ones(2, 3), requires_grad=False)
    method = Local([moved, frozen], 0.1, sgdm(), 4, comm=SimulatedCommunicator(2), worker_axis=True)
    for t in range(4):
        moved.grad = torch.tensor([[1.0], [3.0]]).expand(2, 3).clone() if t < 3 else None
        method.step()
    torch.testing.assert_close(moved.detach(), torch.full((2, 3), -0.6))
    assert [r.payload_bytes for r in method.comm.ledger.records] == [12]
    assert torch.equal(frozen, torch.ones(2, 3))


@pytest.mark.parametrize("reducer", [MeanGradient(), CoefficientMean(), FactorMean(), CompressedMean(TopK())])
def test_a_step_without_any_gradient_sends_nothing(reducer: Reducer) -> None:
    p = torch.nn.Parameter(torch.ones(2, 3))
    method = Method([p], 0.5, sgdm(), EveryStep(), reducer=reducer, comm=SimulatedCommunicator(1))
    method.step()
    assert torch.equal(p, torch.ones(2, 3))
    assert method.comm.ledger.records == []
    assert method.steps_done == 1
