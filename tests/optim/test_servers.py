"""What a server does with updates, against the papers' formulas."""

from __future__ import annotations

import pytest
import torch

from syncline.errors import SpecError
from syncline.methods import method_of
from syncline.optim import Nesterov
from syncline.optim.asynchronous import DelayedNesterov, GradientServer, OuterServer

LR, MU = 0.7, 0.9


def model() -> list[torch.Tensor]:
    return [torch.tensor([[1.0, -2.0]], dtype=torch.float64), torch.tensor([[0.5]], dtype=torch.float64)]


def updates(count: int) -> list[list[torch.Tensor]]:
    draw = torch.Generator().manual_seed(0)
    return [[torch.randn(x.shape, generator=draw, dtype=torch.float64) for x in model()] for _ in range(count)]


def test_fedbuff_literally() -> None:
    """Algorithm 1: add each update to the buffer; when there are K, ``w <- w - eta_g sum / K``."""
    x, w = model(), model()
    server = OuterServer(x, Nesterov(LR, 0.0))
    weights = [1.0, 0.5, 0.25, 1.0, 2**-0.5, 1.0]
    for begin in (0, 3):
        for update, weight in list(zip(updates(6), weights, strict=True))[begin : begin + 3]:
            server.add_update(update, weight)
        server.make_version()
        for i in range(2):
            total = sum(weights[k] * updates(6)[k][i] for k in range(begin, begin + 3))
            w[i] = w[i] - LR * total / 3
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(x, w, strict=True))


@pytest.mark.parametrize(("n", "c"), [(1, 0.0), (1, 1.0), (3, 0.0), (4, 0.1), (4, 0.25)])
def test_delayed_nesterov_literally(n: int, c: float) -> None:
    """Algorithm 4 of Asynchronous Local-SGD, t from 0."""
    x, theta = model(), model()
    server = DelayedNesterov(x, LR, MU, n, c)
    m = [torch.zeros_like(p) for p in theta]
    delta = [torch.zeros_like(p) for p in theta]
    for t, g in enumerate(updates(11)):
        server.add_update(g, 1.0)
        server.make_version()
        for i in range(2):
            delta[i] = delta[i] + g[i]
            if (t + 1) % n == 0:
                m[i] = MU * m[i] + delta[i] / n
                theta[i] = theta[i] - LR * ((1 - c * n + c) * MU * m[i] + g[i] / n)
                delta[i] = torch.zeros_like(delta[i])
            else:
                theta[i] = theta[i] - LR * (c * MU * m[i] + g[i] / n)
        assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(x, theta, strict=True))


def test_delayed_nesterov_is_nesterov_of_means_after_every_nth() -> None:
    late, whole = model(), model()
    delayed, plain = DelayedNesterov(late, LR, MU, 4), OuterServer(whole, Nesterov(LR, MU))
    for t, g in enumerate(updates(12), 1):
        delayed.add_update(g, 1.0)
        delayed.make_version()
        plain.add_update(g, 1.0)
        if t % 4 == 0:
            plain.make_version()
            assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(late, whole, strict=True))


def test_a_gradient_server_steps_its_optimizer_with_the_weighted_mean() -> None:
    ours, theirs = ([torch.nn.Parameter(x[0].clone()) for x in model()] for _ in range(2))
    method = method_of({"kind": "ddp", "rule": "adam", "lr": 0.1}).build(ours, None, worker_axis=False)
    server, adam = GradientServer(method), torch.optim.Adam(theirs, lr=0.1)
    for begin in (0, 2):
        for g in updates(4)[begin : begin + 2]:
            server.add_update([u[0] for u in g], 0.5)
        server.make_version()
        for i, p in enumerate(theirs):
            p.grad = (0.5 * updates(4)[begin][i][0] + 0.5 * updates(4)[begin + 1][i][0]) / 2
        adam.step()
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ((0.7, 1.0, 2, 0.0), "outer_momentum"),
        ((0.7, 0.9, 0, 0.0), "buffer_size"),
        ((0.7, 0.9, 2, 0.6), "momentum_activation"),
    ],
)
def test_what_cannot_be(values: tuple[float, float, int, float], line: str) -> None:
    with pytest.raises(SpecError, match=line):
        DelayedNesterov(model(), *values)
