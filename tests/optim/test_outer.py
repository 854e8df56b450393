"""Outer optimizers against literal derivations."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from syncline.errors import SpecError
from syncline.methods import MTDAO
from syncline.optim import FedAdam, Nesterov, sgdm
from syncline.optim.diloco import Streaming
from tests.optim.given import assert_same, gaussian, gradients, run

M, LR = 3, 0.1
ONLY_SGD = {"base": "sgdm", "betas": (0.0,), "omegas": (0.0,)}


def test_fedadam_from_its_algorithm() -> None:
    """Rounds of 3 steps of SGD, then Adam on the mean of start minus end, with no bias correction."""
    given, start = gradients(9, M, (4,)), gaussian(4, seed=7)
    outer = FedAdam(lr=0.05, beta1=0.8, beta2=0.9, eps=1e-3)
    got = run(partial(MTDAO, lr=LR, period=3, outer_optimizer=outer, **ONLY_SGD), given, [start])
    m, v, x = torch.zeros(4).double(), torch.zeros(4).double(), start
    for end in range(3, 10, 3):
        ends = x - LR * sum(step[0] for step in given[end - 3 : end])
        delta = (x - ends).mean(0)
        m = 0.8 * m + 0.2 * delta
        v = 0.9 * v + 0.1 * delta**2
        x = x - 0.05 * m / (v.sqrt() + 1e-3)
        for worker in got.path[end - 1][0]:
            torch.testing.assert_close(worker, x, rtol=1e-10, atol=1e-12)


def test_fedadam_without_moments_and_with_a_large_eps_is_averaging() -> None:
    """``lr m / (|delta| + eps)`` is delta itself in the limit ``lr = eps`` to infinity."""
    given = gradients(8, M, (4, 3))
    averaging = run(partial(MTDAO, lr=LR, period=4, **ONLY_SGD), given)
    fedadam = FedAdam(lr=1e9, beta1=0.0, beta2=0.0, eps=1e9)
    assert_same(run(partial(MTDAO, lr=LR, period=4, outer_optimizer=fedadam, **ONLY_SGD), given), averaging, atol=1e-8)


def test_outer_knobs_are_in_the_parameter_groups() -> None:
    """A group with its own outer rate moves by it: half as far."""
    given = gradients(2, M, (4,))

    def moved(rate: float) -> torch.Tensor:
        def build(params, **options):
            groups = [{"params": params, "outer_lr": rate}]
            return Streaming(groups, LR, sgdm(), {"params": 2}, outer_optimizer=FedAdam(0.3), **options)

        return run(build, given).params[0].detach()

    torch.testing.assert_close(moved(0.1), 0.5 * moved(0.2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FedAdam(lr=0.0), "outer_lr: got 0.0; expected a number > 0"),
        (lambda: FedAdam(beta1=1.0), "outer_beta1: got 1.0"),
        (lambda: FedAdam(beta2=-0.1), "outer_beta2: got -0.1"),
        (lambda: Nesterov(momentum=1.0), "outer_momentum: got 1.0"),
    ],
)
def test_misuse_is_one_helpful_line(call, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
