"""Quasi-hyperbolic rules, AggMo, AdEMAMix and MT-DAO's mixture, from their formulas and in their limits."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from syncline.errors import SpecError
from syncline.methods import DDP, MTDAO, Local, method_of
from syncline.optim import AdamScaling, AdEMAMix, adam, adopt, aggmo, qhadam, qhadopt, qhm, sgdm
from tests.optim.given import assert_same, gradients, run

M, LR, T = 3, 0.1, 25
GIVEN = gradients(T, M, (4,))
SHAPES = ((6, 4), (5,))


def ddp(rule: object) -> Callable[..., object]:
    return partial(DDP, lr=LR, rule=rule)


def assert_path(rule: object, direction: Callable[[int, Tensor], Tensor | None]) -> None:
    """Data parallelism moves every worker by the direction of the mean gradient; None rests."""
    got, x = run(ddp(rule), GIVEN), torch.zeros(4).double()
    for t, (g,) in enumerate(GIVEN):
        d = direction(t, g.mean(0))
        x = x if d is None else x - LR * d
        torch.testing.assert_close(got.path[t][0], x.expand(M, 4), rtol=1e-10, atol=1e-12)


def test_qhm_from_its_formula() -> None:
    beta, nu, u = 0.97, 0.6, torch.zeros(4).double()

    def direction(t: int, g: Tensor) -> Tensor:
        nonlocal u
        u = beta * u + (1 - beta) * g
        return (1 - nu) * g + nu * u

    assert_path(qhm(beta, nu), direction)


@pytest.mark.parametrize("nu2", [0.0, 0.4, 1.0])
def test_qhadam_from_its_formula(nu2: float) -> None:
    beta1, beta2, nu1, eps = 0.95, 0.98, 0.6, 1e-3
    u = v = torch.zeros(4).double()

    def direction(t: int, g: Tensor) -> Tensor:
        nonlocal u, v
        u, v = beta1 * u + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        above = (1 - nu1) * g + nu1 * u / (1 - beta1 ** (t + 1))
        below = (1 - nu2) * g * g + nu2 * v / (1 - beta2 ** (t + 1))
        return above / (below.sqrt() + eps)

    assert_path(qhadam(beta1, beta2, nu1, nu2, eps), direction)


def test_qhadopt_from_its_formula() -> None:
    beta1, beta2, nu, eps = 0.95, 0.99, 0.8, 1e-6
    u = v = torch.zeros(4).double()

    def direction(t: int, g: Tensor) -> Tensor | None:
        nonlocal u, v
        if t == 0:
            v = g * g
            return None
        c = (g / v.sqrt().clamp(min=eps)).clamp(-(t**0.25), t**0.25)
        u, v = beta1 * u + (1 - beta1) * c, beta2 * v + (1 - beta2) * g * g
        return (1 - nu) * c + nu * u

    assert_path(qhadopt(beta1, beta2, nu, eps), direction)


def test_aggmo_from_its_formula() -> None:
    betas = (0.0, 0.9, 0.99, 0.5)
    velocities = [torch.zeros(4).double() for _ in betas]

    def direction(t: int, g: Tensor) -> Tensor:
        for j, beta in enumerate(betas):
            velocities[j] = beta * velocities[j] - g
        return -sum(velocities, torch.zeros(4).double()) / len(betas)

    assert_path(aggmo(betas), direction)


@pytest.mark.parametrize(("alpha_steps", "beta3_steps"), [(0, 0), (12, 20), (40, 40)])
def test_ademamix_from_its_algorithm(alpha_steps: int, beta3_steps: int) -> None:
    beta1, beta2, beta3, alpha, eps = 0.8, 0.95, 0.995, 4.0, 1e-4
    fast = slow = v = torch.zeros(4).double()

    def direction(t: int, g: Tensor) -> Tensor:
        nonlocal fast, slow, v
        step, b3, weight = t + 1, beta3, alpha
        if step < beta3_steps:
            share = step / beta3_steps
            logs = math.log(beta1), math.log(beta3)
            b3 = min(math.exp(logs[0] * logs[1] / ((1 - share) * logs[1] + share * logs[0])), beta3)
        if step < alpha_steps:
            weight = alpha * step / alpha_steps
        fast, slow = beta1 * fast + (1 - beta1) * g, b3 * slow + (1 - b3) * g
        v = beta2 * v + (1 - beta2) * g * g
        return (fast / (1 - beta1**step) + weight * slow) / ((v / (1 - beta2**step)).sqrt() + eps)

    assert_path(AdEMAMix(beta1, beta2, beta3, alpha, eps, alpha_steps, beta3_steps), direction)


LIMITS = {
    "qhm with all the weight is sgdm": (qhm(0.9, 1.0), sgdm(0.9, "ema")),
    "qhm without is sgd": (qhm(0.9, 0.0), sgdm()),
    "qhadam with all the weight is adam": (qhadam(0.9, 0.99, 1.0, 1.0), adam(0.9, 0.99)),
    "qhadopt with all the weight is adopt": (qhadopt(0.9, 0.99, 1.0), adopt(0.9, 0.99)),
    "aggmo of one is sgdm": (aggmo((0.9,)), sgdm(0.9)),
    "aggmo of equals is sgdm": (aggmo((0.9, 0.9, 0.9)), sgdm(0.9)),
    "aggmo of nothing is sgd": (aggmo((0.0, 0.0)), sgdm()),
    "ademamix without its slow momentum is adam": (AdEMAMix(0.9, 0.99, alpha=0.0), adam(0.9, 0.99)),
    "a mixture of one is qhadam": (
        {"kind": "multi-momentum", "betas": (0.99,), "omegas": (0.8,), "beta2": 0.9},
        qhadam(0.99, 0.9, 0.8),
    ),
    "a mixture of one over adopt is qhadopt": (
        {"kind": "multi-momentum", "base": "adopt", "betas": (0.99,), "omegas": (0.8,), "beta2": 0.9},
        qhadopt(0.99, 0.9, 0.8),
    ),
    "a mixture of one over sgdm is qhm": (
        {"kind": "multi-momentum", "base": "sgdm", "betas": (0.99,), "omegas": (0.8,)},
        qhm(0.99, 0.8),
    ),
}


@pytest.mark.parametrize("name", LIMITS)
def test_limits(name: str) -> None:
    given = gradients(14, M, *SHAPES)
    one, other = (run(ddp(rule), given) for rule in LIMITS[name])
    assert_same(one, other)


def test_qhm_with_nu_beta_is_torchs_nesterov() -> None:
    given = gradients(14, 1, (4,))
    got, p = run(ddp(qhm(0.9, 0.9)), given), torch.nn.Parameter(torch.zeros(4).double())
    nesterov = torch.optim.SGD([p], lr=LR * (1 - 0.9), momentum=0.9, nesterov=True)
    for t, (g,) in enumerate(given):
        p.grad = g[0].clone()
        nesterov.step()
        torch.testing.assert_close(got.path[t][0][0], p.detach(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("base", ["adam", "adopt", "sgdm"])
def test_one_worker_of_mt_dao_is_the_mixture_as_a_rule(base: str) -> None:
    """With nobody to average with, periods do not matter; MT-DAO's analogue in data parallelism is the same rule."""
    knobs = {"base": base, "betas": (0.9, 0.99, 0.999), "omegas": (0.05, 0.15, 0.8)}
    given = gradients(14, 1, *SHAPES)
    mixture = run(ddp({"kind": "multi-momentum", **knobs}), given)
    assert_same(run(partial(MTDAO, lr=LR, period=4, **knobs), given), mixture, exact=True)


def test_linear_mixtures_in_every_step_are_data_parallelism() -> None:
    """Averaging is linear, and so is a mixture over SGD: MT-DAO with period 1 averages gradients in other words."""
    knobs = {"base": "sgdm", "betas": (0.9, 0.99), "omegas": (0.3, 0.6)}
    given = gradients(14, M, *SHAPES)
    mixture = run(ddp({"kind": "multi-momentum", **knobs}), given)
    assert_same(run(partial(MTDAO, lr=LR, period=1, **knobs), given), mixture)


def test_local_averages_every_momentum_of_a_rule() -> None:
    given = gradients(6, M, (4,))
    got = run(partial(Local, lr=LR, rule=AdEMAMix(), period=3), given)
    (call, _) = got.records
    assert call.label == "params+momentum_1+momentum_2+second_moment" and call.payload_bytes == 4 * 4 * 8
    spec = method_of({"kind": "local", "lr": LR, "rule": "ademamix", "period": 3})
    assert [(one.label, one.payload_bytes) for one in spec.exchanges(4, M)] == [(call.label, 4 * 4 * 4)]  # in fp32


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: AdEMAMix(beta3=1.0), "beta3: got 1.0; expected a number in"),
        (lambda: AdEMAMix(alpha=-1.0), "alpha: got -1.0; expected at least 0"),
        (lambda: qhm(0.9, 1.5), "omegas: got .1.5,.; expected weights"),
        (lambda: AdamScaling(nu2=2.0), "nu2: got 2.0; expected a number from 0 to 1"),
        (lambda: AdamScaling(nu2=0.5, per="tensor"), "nu2: got 0.5; expected .* 1 per tensor"),
        (
            lambda: method_of({"kind": "ddp", "lr": 1, "rule": {"kind": "qhadam", "nu1": 2}}),
            "rule.nu1: got 2; exp",
        ),
        (lambda: method_of({"kind": "ddp", "lr": 1, "rule": {"kind": "aggmo", "betas": []}}), "rule.betas: got"),
        (
            lambda: method_of({"kind": "ddp", "lr": 1, "rule": {"kind": "multi-momentum", "betas": [0.9, 0.99]}}),
            "rule.omegas: got .0.95,.; expected one weight per beta .2.",
        ),
        (
            lambda: method_of({"kind": "ddp", "lr": 1, "rule": {"kind": "ademamix", "alpha_warmup_steps": -1}}),
            "rule.alpha_warmup_steps: got -1; expected at least 0",
        ),
    ],
)
def test_misuse_is_one_helpful_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
