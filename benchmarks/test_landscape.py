"""A step of 256 workers in Rosenbrock's valley, beside the same mathematics as a literal loop. Goal: 0.24 ms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from benchmarks.conftest import Compare
from syncline.comm import SimulatedCommunicator
from syncline.methods import MTDAO, Local
from syncline.optim import adam
from syncline.problems import Rosenbrock
from syncline.training import rows_of, train

WORKERS, STEPS, PERIOD = 256, 2000, 32
BETA1, BETA2, LR, NOISE, EPS = 0.9999, 0.999, 0.1, 2.0, 1e-8

METHODS: dict[str, Callable[..., Any]] = {
    "mt-dao": lambda params, **world: MTDAO(params, LR, betas=[BETA1], omegas=[0.95], beta2=BETA2, **world),
    "local-adam": lambda params, **world: Local(params, LR, adam(BETA1, BETA2), PERIOD, **world),
}
OMEGA = {"mt-dao": 0.95, "local-adam": 1.0}


def training(method: str, seeds: tuple[int, ...]) -> None:
    comm = SimulatedCommunicator(WORKERS, replicas=len(seeds))
    task = Rosenbrock(noise_std=NOISE).build(rows_of(comm, seeds))
    train(task, METHODS[method](task.params.values(), comm=comm, worker_axis=True), seeds, STEPS, eval_every=200)


def literal_loop(omega: float) -> None:
    """The method and the problem with nothing around them; it notes the distance and the loss of each step, too."""
    source = torch.Generator().manual_seed(0)
    x = torch.tensor([-1.2, 1.0]).repeat(WORKERS, 1)
    u, v, optimum = torch.zeros_like(x), torch.zeros_like(x), torch.ones(2)
    losses, distances = [], []
    for t in range(STEPS):
        a, b = x[:, 0], x[:, 1]
        r = b - a * a
        losses.append(((1 - a) ** 2 + 100 * r * r).mean())
        g = torch.stack((-2 * (1 - a) - 400 * a * r, 200 * r), 1)
        g = g + NOISE * torch.randn(g.shape, generator=source)
        u = BETA1 * u + (1 - BETA1) * g
        v = BETA2 * v + (1 - BETA2) * g * g
        u_hat, v_hat = u / (1 - BETA1 ** (t + 1)), v / (1 - BETA2 ** (t + 1))
        x = x - LR * ((1 - omega) * g + omega * u_hat) / (v_hat.sqrt() + EPS)
        if (t + 1) % PERIOD == 0:
            x, u, v = (z.mean(0, keepdim=True).expand_as(z) for z in (x, u, v))
        distances.append((x.mean(0) - optimum).norm())


@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2, 3, 4)], ids=["1-seed", "5-seeds"])
@pytest.mark.parametrize("method", METHODS)
def test_step(against: Compare, method: str, seeds: tuple[int, ...]) -> None:
    against(
        f"rosenbrock, 256 workers, {method}, {len(seeds)} seed{'s' * (len(seeds) > 1)} (goal for one: 0.24)",
        lambda: training(method, seeds),
        "literal loop, one seed",
        lambda: literal_loop(OMEGA[method]),
        unit="ms per step",
        scale=1e3 / STEPS,
        rounds=5,
    )
