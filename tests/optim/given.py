"""Steps on given gradients: a method on its own, without a problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from syncline.comm import SimulatedCommunicator
from syncline.costmodel import Call
from syncline.optim import (
    DionMethod,
    DionRule,
    Every,
    LionCubMethod,
    LionRule,
    MatrixSplit,
    Method,
    QuantisedVote,
    adam,
)

Build = Callable[..., Method]


def gaussian(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gradients(steps: int, workers: int, *shapes: tuple[int, ...]) -> list[list[Tensor]]:
    """For each step one gradient ``(M, *s)`` per parameter."""
    return [[gaussian(workers, *s, seed=100 * t + i) for i, s in enumerate(shapes)] for t in range(steps)]


class Given:
    """A method in the simulator whose parameters start at zero, or at ``starts``, and whose gradients are given."""

    def __init__(self, build: Build, given: Sequence[Sequence[Tensor]], starts: Sequence[Tensor] = ()) -> None:
        self.given = given
        workers = given[0][0].shape[0]
        at = [x.expand_as(g) for x, g in zip(starts, given[0], strict=True)] if starts else given[0]
        self.params = [torch.nn.Parameter(x.clone() if starts else torch.zeros_like(x)) for x in at]
        self.comm = SimulatedCommunicator(workers)
        self.method = build(self.params, comm=self.comm, worker_axis=True)
        self.path: list[list[Tensor]] = []

    def run(self, first: int = 0, last: int | None = None) -> Given:
        """Steps ``first`` to ``last``, each noted in ``path``."""
        for step in self.given[first:last]:
            for p, g in zip(self.params, step, strict=True):
                p.grad = g.clone()
            self.method.step()
            self.path.append([p.detach().clone() for p in self.params])
        return self

    def state(self, number: int, name: str) -> Tensor:
        return self.method.state[self.params[number]][name]

    @property
    def records(self) -> list[Call]:
        return self.comm.ledger.records


def run(build: Build, given: Sequence[Sequence[Tensor]], starts: Sequence[Tensor] = ()) -> Given:
    return Given(build, given, starts).run()


def assert_same(got: Given, expected: Given, *, exact: bool = False, atol: float = 1e-11) -> None:
    """The same positions after every step."""
    tolerance = {"rtol": 0, "atol": 0} if exact else {"rtol": 1e-9, "atol": atol}
    for one, other in zip(got.path, expected.path, strict=True):
        for x, y in zip(one, other, strict=True):
            torch.testing.assert_close(x, y, **tolerance)


def dion(
    params,
    lr,
    *,
    trigger=None,
    exchange="gradient",
    local_step="step",
    other=None,
    rank_fraction=0.25,
    mu=0.95,
    **options,
) -> Method:
    """Dion with a trigger or a rule for the rest that no name stands for."""
    rule = MatrixSplit(DionRule(rank_fraction, mu), other or adam())
    how = {"sends_factors": exchange == "compressed", "holds": local_step == "hold"}
    return DionMethod(params, lr, rule, trigger=trigger or Every(), **how, **options)


def lion_cub(
    params, lr, *, vote=None, beta1=0.9, beta2=0.99, momentum_period=10, momentum_layers="none", **options
) -> Method:
    """Lion Cub with a vote that is an object."""
    momenta = {"momentum_period": momentum_period, "momentum_layers": momentum_layers}
    rule = LionRule(beta1, beta2, signed=False)
    return LionCubMethod(params, lr, rule, vote=vote or QuantisedVote(), **momenta, **options)
