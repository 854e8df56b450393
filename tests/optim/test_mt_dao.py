"""MT-DAO's several momenta and its switch, in their limits."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from syncline.costmodel import calls_of
from syncline.errors import SpecError
from syncline.methods import MTDAO, Local, method_of
from syncline.optim import Random, adam, muon, sgdm
from syncline.optim.rules import initial_zero_weight
from tests.optim.given import assert_same, gaussian, gradients, run

M, LR = 3, 0.1
SHAPES = ((6, 4), (5,))


def test_of_several_momenta_one_with_all_the_weight_is_local_adam() -> None:
    given = gradients(14, M, *SHAPES)
    options = {"betas": (0.999, 0.9, 0.5), "omegas": (0.0, 1.0, 0.0), "beta2": 0.99, "period": 4}
    several = run(partial(MTDAO, lr=LR, **options), given)
    assert_same(several, run(partial(Local, lr=LR, rule=adam(0.9, 0.99), period=4), given))


@pytest.mark.parametrize("base", ["adam", "adopt", "sgdm"])
def test_without_weight_the_decay_does_not_matter(base: str) -> None:
    given = gradients(10, M, *SHAPES)
    build = partial(MTDAO, lr=LR, base=base, omegas=(0.0,), period=4)
    assert_same(run(partial(build, betas=(0.999,)), given), run(partial(build, betas=(0.0,)), given), exact=True)


def test_sgdm_without_weight_is_local_sgd() -> None:
    given = gradients(10, M, *SHAPES)
    without = run(partial(MTDAO, lr=LR, base="sgdm", betas=(0.99, 0.9), omegas=(0.0, 0.0), period=4), given)
    assert_same(without, run(partial(Local, lr=LR, rule=sgdm(), period=4), given))


def test_a_switch_beyond_the_end_is_the_base_optimizer() -> None:
    given = gradients(12, M, *SHAPES)
    options = {"betas": (0.999, 0.99), "omegas": (0.3, 0.6), "period": 4, "switch_step": 12}
    local = run(partial(Local, lr=LR, rule=adam(), period=4), given)
    assert_same(run(partial(MTDAO, lr=LR, **options), given), local)
    another = run(partial(MTDAO, lr=LR, warmup_beta=0.5, **options), given)
    assert_same(another, run(partial(Local, lr=LR, rule=adam(0.5), period=4), given))
    options |= {"omegas": (0.0, 0.0), "base": "muon"}
    warm = run(partial(MTDAO, lr=LR, warmup_beta=0.95, **options), given)
    plain = run(partial(Local, lr=LR, rule=muon(0.95, nesterov=False), period=4), given)
    for one, other in zip(warm.path, plain.path, strict=True):
        torch.testing.assert_close(one[0], other[0])


def test_a_switch_at_zero_is_mt_dao_from_the_start() -> None:
    given = gradients(6, M, *SHAPES)
    build = partial(MTDAO, lr=LR, betas=(0.99,), omegas=(0.9,), period=4)
    assert_same(run(partial(build, switch_step=0, warmup_beta=0.1), given), run(build, given), exact=True)


def test_the_switch_from_its_formula() -> None:
    """Decay 0.9 and all the weight on the first momentum for 5 steps, and from then on the method's own."""
    betas, omegas, beta2, switch = (0.99, 0.7), (0.6, 0.3), 0.95, 5
    given = gradients(12, 1, (4,))
    build = partial(MTDAO, lr=LR, betas=betas, omegas=omegas, beta2=beta2, period=10**6, switch_step=switch)
    got = run(build, given)
    x, v, u, shares = torch.zeros(4).double(), torch.zeros(4).double(), [torch.zeros(4).double()] * 2, [1.0, 1.0]
    for t, (g,) in enumerate(given):
        v = beta2 * v + (1 - beta2) * g[0] ** 2
        now, weights = ((0.9, 0.9), (1.0, 0.0)) if t < switch else (betas, omegas)
        mixture = (1 - sum(weights)) * g[0]
        for j in range(2):
            u[j] = now[j] * u[j] + (1 - now[j]) * g[0]
            shares[j] *= now[j]
            mixture = mixture + weights[j] * u[j] / (1 - shares[j])
        x = x - LR * mixture / ((v / (1 - beta2 ** (t + 1))).sqrt() + 1e-8)
        torch.testing.assert_close(got.path[t][0][0], x, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("switch_step", [0, 1, 7, 30])
def test_bias_correction_has_no_jump_at_the_switch(switch_step: int) -> None:
    """Corrected momenta are averages, with weights of sum 1: of a gradient that stays, each is that gradient."""
    g = gaussian(1, 5)
    build = partial(MTDAO, lr=LR, betas=(0.9999, 0.95), omegas=(0.5, 0.4), period=10**6, switch_step=switch_step)
    got = run(build, [[g]] * 30)
    steps = torch.diff(torch.stack([p[0][0] for p in got.path]), dim=0, prepend=torch.zeros(1, 5).double())
    torch.testing.assert_close(steps, -LR * g.sign().expand(30, 5), rtol=1e-6, atol=0)


@pytest.mark.parametrize("switch_step", [0, 3, 8])
def test_zero_share_is_the_product_of_decay_rates(switch_step: int) -> None:
    h = {"betas": (0.99, 0.5), "switch_step": switch_step, "warmup_beta": 0.9}
    for j, beta in enumerate(h["betas"]):
        product = 1.0
        for t in range(8):
            product *= 0.9 if t < switch_step else beta
            assert initial_zero_weight(h, j, t) == pytest.approx(product, rel=1e-12)


def test_random_averages_from_algorithm_4() -> None:
    """Its loops, with averages after the step: every state by its own coin, of which the ledger tells how it fell."""
    betas, omegas, k_x, k_j, steps = (0.9, 0.99), (0.3, 0.5), 3, (4, 2), 40
    given = gradients(steps, M, (4,))
    build = partial(MTDAO, lr=LR, base="sgdm", betas=betas, omegas=omegas, phase="random")
    got = run(partial(build, period=k_x, momentum_periods=k_j), given)
    fell: dict[int, set[str]] = {record.step: set(record.label.split("+")) for record in got.records}
    x, u = torch.zeros(M, 4).double(), [torch.zeros(M, 4).double() for _ in betas]
    for t, (g,) in enumerate(given):
        direction = (1 - sum(omegas)) * g
        for j, beta in enumerate(betas):
            u[j] = beta * u[j] + (1 - beta) * g
            direction = direction + omegas[j] * u[j]
            if f"momentum_{j + 1}" in fell.get(t, ()):
                u[j] = u[j].mean(0, keepdim=True).expand(M, 4)
        x = x - LR * direction
        if "params" in fell.get(t, ()):
            x = x.mean(0, keepdim=True).expand(M, 4)
        torch.testing.assert_close(got.path[t][0], x, rtol=1e-9, atol=1e-12)
    assert len({frozenset(states) for states in fell.values()}) > 4 and len(fell) < steps


def test_coins_are_fair_and_of_their_own() -> None:
    """Within four standard deviations of 1 / K, and of the product for two at once; the same whenever asked."""
    policy, steps = Random({"params": 4, "momentum_1": 4, "momentum_2": 1}), 4000
    due = [policy.states_due(t) for t in range(steps)]
    assert due == [policy.states_due(t) for t in range(steps)] and all("momentum_2" in names for names in due)
    for names, p in ((("params",), 1 / 4), (("momentum_1",), 1 / 4), (("params", "momentum_1"), 1 / 16)):
        share = sum(all(name in one for name in names) for one in due) / steps
        assert abs(share - p) < 4 * (p * (1 - p) / steps) ** 0.5


def test_random_averages_that_are_certain_are_those_of_every_step() -> None:
    given = gradients(8, M, *SHAPES)
    build = partial(MTDAO, lr=LR, betas=(0.99,), omegas=(0.9,), period=1)
    assert_same(run(partial(build, phase="random"), given), run(build, given), exact=True)


def test_random_averages_send_as_much_as_periodic_ones() -> None:
    """In bytes; calls coincide less often, and each is counted by itself."""
    knobs = {"kind": "mt-dao", "lr": LR, "betas": [0.9, 0.99], "omegas": [0.3, 0.6], "period": 4}
    random, periodic = (method_of({**knobs, "phase": phase}).exchanges(10, M) for phase in ("random", "aligned"))
    assert [(e.payload_bytes, e.period) for e in random] == [(e.payload_bytes, e.period) for e in periodic]
    assert len(calls_of(random, 4)) == 4 and len(calls_of(periodic, 4)) == 1


P = [torch.nn.Parameter(torch.zeros(1))]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MTDAO(P, LR, switch_step=-1), "switch_step: got -1; expected at least 0"),
        (lambda: MTDAO(P, LR, warmup_beta=1.0), "warmup_beta: got 1.0; expected less than 1"),
        (
            lambda: MTDAO(P, LR, betas=(), omegas=(), switch_step=3),
            "switch_step: got 3; expected 0 where there is no mom",
        ),
        (lambda: MTDAO(P, LR, phase="random", compressor="top-k"), "compressor: got 'top-k'; expected none with phase"),
        (lambda: Random({"params": 0}), "periods.params: got 0; expected an integer >= 1"),
    ],
)
def test_misuse_is_one_helpful_line(call, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
