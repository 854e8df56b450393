"""Every scheduler of torch over a method of each family, with one value for all groups and with a list."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch.optim import lr_scheduler as torchs

from syncline.comm import SimulatedCommunicator
from syncline.methods import DDP, Dion
from syncline.optim import CoefficientMean, EveryStep, Method, adam, demo_rule, lion, muon, sgdm
from tests.methods.table import METHODS
from tests.optim.given import dion, gaussian

STEPS = 6

Make = Callable[[torch.optim.Optimizer], object]


def half(t: int) -> float:
    return 0.5**t


SCHEDULERS: dict[str, Make] = {
    "LambdaLR": lambda o: torchs.LambdaLR(o, half),
    "LambdaLR-list": lambda o: torchs.LambdaLR(o, [half, half]),
    "MultiplicativeLR": lambda o: torchs.MultiplicativeLR(o, lambda t: 0.9),
    "MultiplicativeLR-list": lambda o: torchs.MultiplicativeLR(o, [lambda t: 0.9, lambda t: 0.8]),
    "StepLR": lambda o: torchs.StepLR(o, 2),
    "MultiStepLR": lambda o: torchs.MultiStepLR(o, [2, 5]),
    "ConstantLR": lambda o: torchs.ConstantLR(o, total_iters=3),
    "LinearLR": lambda o: torchs.LinearLR(o, total_iters=3),
    "ExponentialLR": lambda o: torchs.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: torchs.PolynomialLR(o, 8, 2),
    "CosineAnnealingLR": lambda o: torchs.CosineAnnealingLR(o, 8),
    "CosineAnnealingWarmRestarts": lambda o: torchs.CosineAnnealingWarmRestarts(o, 4),
    "SequentialLR": lambda o: torchs.SequentialLR(o, [torchs.ConstantLR(o), torchs.ExponentialLR(o, 0.9)], [3]),
    "ChainedScheduler": lambda o: torchs.ChainedScheduler([torchs.ConstantLR(o), torchs.ExponentialLR(o, 0.9)]),
    "CyclicLR": lambda o: torchs.CyclicLR(o, 1e-4, 1e-3, 3),
    "CyclicLR-list": lambda o: torchs.CyclicLR(o, [1e-4, 1e-5], [1e-3, 1e-4], 3),
    "OneCycleLR": lambda o: torchs.OneCycleLR(o, 1e-3, 20),
    "OneCycleLR-list": lambda o: torchs.OneCycleLR(o, [1e-3, 2e-3], 20, max_momentum=[0.95, 0.9]),
    "ReduceLROnPlateau": lambda o: torchs.ReduceLROnPlateau(o, patience=1),
    "ReduceLROnPlateau-list": lambda o: torchs.ReduceLROnPlateau(o, patience=1, min_lr=[1e-6, 1e-7]),
}

FAMILIES = [
    "ddp-adam",
    "local-sgdm",
    "mt-dao-own-periods",
    "diloco",
    "ddp-muon",
    "ddp-scion",
    "dion-compressed",
    "powersgd-cold",
    "one-bit-adam",
    "zero-one-adam",
    "lion-cub",
    "ddp-lion",
    "sign-sgd",
    "soap",
    "ddp-nadam",
    "streaming-mt-dao",
    "ddp-top-k",
]
"""Rows of the table; each has a momentum."""


def test_no_scheduler_of_torch_is_missing() -> None:
    known = {name.removesuffix("-list") for name in SCHEDULERS}
    public = {
        name
        for name, value in vars(torchs).items()
        if isinstance(value, type) and value.__module__ == torchs.__name__ and hasattr(value, "step")
    }
    assert public - {"LRScheduler", "_LRScheduler"} <= known | {"SWALR"}


def mixed() -> list[torch.nn.Parameter]:
    """Two groups' worth of a matrix and a vector each."""
    return [torch.nn.Parameter(gaussian(*shape, seed=i)) for i, shape in enumerate([(4, 3), (3,), (5, 4), (5,)])]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_scheduler_over_two_groups_of_matrices_and_vectors(scheduler: str) -> None:
    for name in FAMILIES:
        check_two_groups(name, scheduler)


def check_two_groups(name: str, scheduler: str) -> None:
    """Check that a method's parameters stay finite, and that the scheduler changes the rates of both groups."""
    params = mixed()
    groups = [{"params": params[:2]}, {"params": params[2:]}]
    method = METHODS[name].spec.build(groups, SimulatedCommunicator(1), worker_axis=False)
    schedule = SCHEDULERS[scheduler](method)
    assert len(method.param_groups) == 2
    rates = set()
    for t in range(STEPS):
        for i, p in enumerate(params):
            p.grad = gaussian(*p.shape, seed=10 * t + i)
        rates |= {group["lr"] for group in method.param_groups}
        method.step()
        schedule.step(*([1.0] if "Plateau" in scheduler else []))
    assert all(p.isfinite().all() for p in params), name
    assert len(rates) > 1, name


def path(optimizer: torch.optim.Optimizer, params: list[torch.nn.Parameter], make: Make) -> list[torch.Tensor]:
    schedule = make(optimizer)
    for t in range(STEPS):
        for i, p in enumerate(params):
            p.grad = gaussian(*p.shape, seed=10 * t + i)
        optimizer.step()
        schedule.step()
    return [p.detach() for p in params]


CYCLES = ["OneCycleLR", "CyclicLR"]


@pytest.mark.parametrize("scheduler", CYCLES)
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (partial(DDP, lr=0.003, rule=adam()), partial(torch.optim.AdamW, lr=0.003, weight_decay=0.0)),
        (partial(DDP, lr=0.05, rule=sgdm(0.9)), partial(torch.optim.SGD, lr=0.05, momentum=0.9)),
    ],
    ids=["adam", "sgdm"],
)
def test_the_first_momentum_is_cycled_as_torch_does(ours, theirs, scheduler: str) -> None:
    own, reference = mixed(), mixed()
    got = path(ours(own, comm=SimulatedCommunicator(1)), own, SCHEDULERS[scheduler])
    expected = path(theirs(reference), reference, SCHEDULERS[scheduler])
    for x, y in zip(got, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-14)


def still(optimizer: torch.optim.Optimizer) -> object:
    """A cycle that stands still: one learning rate, one decay rate."""
    return torchs.CyclicLR(optimizer, 0.01, 0.01, 5, base_momentum=0.5, max_momentum=0.5)


@pytest.mark.parametrize(
    ("cycled", "expected"),
    [
        (partial(DDP, rule=muon()), partial(DDP, rule=muon(0.5, other_rule=adam(0.5)))),
        (partial(DDP, rule=muon(other_rule=lion())), partial(DDP, rule=muon(0.5, other_rule=lion(0.5)))),
        (partial(DDP, rule=lion()), partial(DDP, rule=lion(0.5))),
        (Dion, partial(dion, mu=0.5, other=adam(0.5))),
    ],
    ids=["muon", "muon-lion", "lion", "dion"],
)
def test_every_rules_first_rate_is_cycled(cycled, expected) -> None:
    """It then is the rule with that rate, both rules of a shared group."""
    own, reference = mixed(), mixed()
    got = path(cycled(own, lr=0.01, comm=SimulatedCommunicator(1)), own, still)
    fixed = expected(reference, lr=0.01, comm=SimulatedCommunicator(1))
    for x, y in zip(got, path(fixed, reference, lambda o: torchs.StepLR(o, 1000)), strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize(
    "build",
    [
        partial(DDP, rule=sgdm(0.0)),
        partial(Method, rule=demo_rule("signum"), sync=EveryStep(), reducer=CoefficientMean()),
    ],
    ids=["sgd", "demo"],
)
def test_a_rule_without_momentum_has_nothing_to_cycle(build) -> None:
    method = build(mixed(), lr=0.1, comm=SimulatedCommunicator(1))
    with pytest.raises(ValueError, match="must support momentum"):
        torchs.OneCycleLR(method, 0.1, 10)
    torchs.OneCycleLR(method, 0.1, 10, cycle_momentum=False)
