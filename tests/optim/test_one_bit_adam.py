"""1-bit Adam against a literal derivation and in its limits."""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from syncline.errors import SpecError
from syncline.methods import DDP, OneBitAdam, ZeroOneAdam
from syncline.optim import Method, adam
from tests.optim.given import Given, assert_same, gaussian, gradients, run
from tests.optim.test_one_bit import LiteralMean

M, LR, BETA1, BETA2, EPS = 3, 0.1, 0.9, 0.99, 1e-3
KNOBS = {"lr": LR, "beta1": BETA1, "beta2": BETA2, "eps": EPS}


def one_bit_adam(freeze_step: int, **options) -> partial[Method]:
    return partial(OneBitAdam, freeze_step=freeze_step, **{**KNOBS, **options})


def ddp_adam(bias_correction: bool = True, **options) -> partial[Method]:
    return partial(DDP, lr=LR, rule=adam(BETA1, BETA2, EPS, bias_correction), **options)


def literal(given: list[list[Tensor]], freeze_step: int, scale: str, bias_correction: bool) -> list[np.ndarray]:
    """Positions of one vector after every step, with loops over the workers."""
    workers, count = given[0][0].shape
    x, m, v = np.zeros(count), np.zeros(count), np.zeros(count)
    mean, path = LiteralMean(count, workers, scale), []
    for t, (g,) in enumerate(given):
        if t < freeze_step:
            average = sum(g[i].numpy() for i in range(workers)) / workers
            m = BETA1 * m + (1 - BETA1) * average
            v = BETA2 * v + (1 - BETA2) * average**2
        else:
            m = mean.mean([BETA1 * m + (1 - BETA1) * g[i].numpy() for i in range(workers)])
        first = 1 - BETA1 ** (t + 1) if bias_correction else 1
        second = 1 - BETA2 ** min(t + 1, freeze_step) if bias_correction else 1
        x = x - LR * (m / first) / (np.sqrt(v / second) + EPS)
        path.append(x)
    return path


@pytest.mark.parametrize("bias_correction", [True, False])
@pytest.mark.parametrize(("freeze_step", "scale"), [(1, "rms"), (3, "mean"), (4, "rms")])
def test_one_bit_adam_from_its_formula(freeze_step: int, scale: str, bias_correction: bool) -> None:
    given = gradients(8, M, (11,))
    got = run(one_bit_adam(freeze_step, scale=scale, bias_correction=bias_correction), given)
    for positions, expected in zip(got.path, literal(given, freeze_step, scale, bias_correction), strict=True):
        for worker in positions[0]:
            np.testing.assert_allclose(worker.numpy(), expected, atol=1e-11)


@pytest.mark.parametrize("bias_correction", [True, False])
def test_until_the_freeze_it_is_adam(bias_correction: bool) -> None:
    given = gradients(6, M, (4, 3), (5,))
    got = run(one_bit_adam(6, bias_correction=bias_correction, weight_decay=0.1), given)
    assert_same(got, run(ddp_adam(bias_correction, weight_decay=0.1), given), exact=True)


@pytest.mark.parametrize("scale", ["rms", "mean"])
def test_the_freeze_is_not_felt_where_gradients_are_constant(scale: str) -> None:
    """Gradients of one size that never change: signs are exact, and both corrected moments stay as they are."""
    g = 0.7 * gaussian(1, 9).sign().expand(M, 9)
    given = [[g]] * 12
    assert_same(run(one_bit_adam(4, scale=scale), given), run(ddp_adam(), given))


def test_numbers_on_their_own_follow_the_mean_momentum() -> None:
    """A parameter of one number compresses exactly: what is left is Adam whose second moment stays."""
    given = gradients(10, M, ())
    got, freeze = run(one_bit_adam(5), given), 5
    whole = run(ddp_adam(), given)
    torch.testing.assert_close(got.state(0, "momentum_1"), whole.state(0, "momentum_1"), rtol=0, atol=1e-14)
    frozen = run(ddp_adam(), given[:freeze]).state(0, "second_moment")
    assert torch.equal(got.state(0, "second_moment"), frozen)


def test_what_no_worker_has_a_gradient_of_stays() -> None:
    """Signs know no zero: without a second moment to divide by, a step would be the scale over eps."""
    given = gradients(8, M, (6,))
    for (g,) in given:
        g[:, 2] = 0
    got = run(one_bit_adam(2, eps=1e-12), given)
    assert got.params[0].detach()[:, 2].eq(0).all()
    assert got.state(0, "momentum_1")[:, 2].eq(0).all()
    assert got.params[0].detach().abs().max() < 100 * LR


def test_clipping_is_of_the_mean_and_then_of_each_worker() -> None:
    """Huge gradients of one worker count no more than the radius, before and after the freeze."""
    given = gradients(6, M, (4,))
    for step in given:
        step[0][0] *= 1e6
    got = run(one_bit_adam(3, clip_norm=1.0), given)
    assert float(got.state(0, "momentum_1").abs().max()) <= 1.0


def test_gradients_then_signs() -> None:
    got = run(one_bit_adam(2), gradients(4, M, (16, 3), (5,)))
    labels = [(r.step, r.collective, r.label) for r in got.records]
    assert labels == [(t, "all_reduce", "gradient") for t in (0, 1)] + [
        (t, collective, label)
        for t in (2, 3)
        for collective, label in (("all_to_all", "worker signs"), ("all_gather", "owner signs"))
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"freeze_step": 0}, "freeze_step: got 0; expected at least 1"),
        ({"freeze_step": 1, "scale": "max"}, "scale: got 'max'; expected 'rms' or 'mean'"),
        ({"freeze_step": 1, "beta1": 1.0}, "beta1: got 1.0; expected less than 1"),
        ({"freeze_step": 1, "beta2": -0.1}, "beta2: got -0.1; expected at least 0"),
    ],
)
def test_misuse_is_one_helpful_line(unchecked, options: dict, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        OneBitAdam([torch.nn.Parameter(torch.zeros(2))], LR, **options)


@pytest.mark.parametrize("build", [one_bit_adam(1), partial(ZeroOneAdam, freeze_step=1, **KNOBS)])
@pytest.mark.parametrize("count", [8, 61])
def test_a_state_of_other_workers_goes_on_with_new_errors(build: partial[Method], count: int) -> None:
    """Two workers own half of a tensor each, four a quarter: the errors of the halves belong to none of the four."""
    given = gradients(9, 4, (count,))
    two = Given(build, [[g[:2] for g in step] for step in given]).run(0, 5)
    saved = two.method.state_dict()
    for name, tensor in saved["state"][0].items():
        saved["state"][0][name] = tensor.repeat(2, 1)
    four, fresh = (Given(build, given, [two.params[0][:1].detach()]) for _ in range(2))
    four.method.load_state_dict(copy.deepcopy(saved))
    for name in ("worker_error", "server_error"):  # the same state without errors
        saved["state"][0].pop(name)
    fresh.method.load_state_dict(copy.deepcopy(saved))
    assert_same(four.run(5), fresh.run(5), exact=True)
    assert four.params[0].isfinite().all()
