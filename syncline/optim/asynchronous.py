"""Servers that apply the updates of asynchronous workers.

Remedies for late gradients: discount them, compensate them, or look ahead. Rotation has a file of its own.

An asynchronous pipeline gives stage k a gradient that is tau_k updates old. What each remedy needs is little: the delay
of each parameter, and for two of them the weights that the gradient belongs to.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Sequence,
)
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from typing_extensions import override

from syncline.comm import Communicator, WireFormat
from syncline.errors import SpecError
from syncline.optim.base import Reducer, Row
from syncline.optim.diloco import Nesterov
from syncline.optim.method import (
    MEAN_GRADIENT,
    Method,
)
from syncline.optim.momenta import NesterovAdam
from syncline.optim.rules import MomentumRule
from syncline.optim.scalings import AdamScaling, Scaling, check_unit, momentum_names


class ServerRule(Protocol):
    """A server's model and the rule that moves it. An update is a gradient, or a pseudo-gradient: start minus end."""

    def take(self, update: Sequence[Tensor], weight: float, share: float = 1.0) -> None:
        """Take an update that has arrived, multiplied by ``weight``; ``share`` is its weight s_k in the mean."""

    def take_all(self, mean: Sequence[Tensor], weight: float) -> bool:
        """Take all updates of the next version with equal shares; return False to take them one by one instead."""

    def version(self) -> None:
        """Make a new version of the model from the updates taken since the last."""


class _Summed:
    """The sum of the updates that arrived since the last version."""

    def __init__(self, params: Sequence[Tensor]) -> None:
        self.params = list(params)
        self.sums: list[Tensor] | None = None
        self.shares = 0.0
        self.mean: list[Tensor] | None = None

    @torch.no_grad()
    def take(self, update: Sequence[Tensor], weight: float, share: float = 1.0) -> None:
        """Add a weighted update to the sums."""
        self.shares += share
        if self.sums is None:
            self.sums = list(torch._foreach_mul(list(update), weight * share))
        else:
            torch._foreach_add_(self.sums, list(update), alpha=weight * share)

    @torch.no_grad()
    def take_all(self, mean: Sequence[Tensor], weight: float) -> bool:
        """Take all updates of a version at once, by their mean; return False if single updates came before.

        The mean is not added to a sum, so that it keeps the exact bits of a collective.
        """
        if self.sums is not None:
            return False
        self.mean = list(mean) if weight == 1 else list(torch._foreach_mul(list(mean), weight))
        return True

    @torch.no_grad()
    def means(self) -> list[Tensor]:
        """Return the means, and reset the sums."""
        if self.mean is not None:
            out, self.mean = self.mean, None
            return out
        assert self.sums is not None
        out, self.sums = self.sums, None
        torch._foreach_div_(out, self.shares)
        self.shares = 0.0
        return out


class GradientServer(_Summed):
    """The step of an optimizer with the weighted mean of gradients: ``g = sum_k s_k w_k g_k / sum_k s_k``.

    Args:
        optimizer: optimizer of the server's model, in a group of one worker.
    """

    def __init__(self, optimizer: Method) -> None:
        super().__init__([p for group in optimizer.param_groups for p in group["params"]])
        self.optimizer = optimizer

    def version(self) -> None:
        """Take one optimizer step with the mean gradients."""
        for p, mean in zip(self.params, self.means(), strict=True):
            p.grad = mean
        self.optimizer.step()


class OuterServer(_Summed):
    """The outer Nesterov step with the weighted mean of pseudo-gradients: ``D = sum_k s_k w_k d_k / sum_k s_k``.

        b <- mu b + D;    x <- x - lr (D + mu b)

    ``lr = 1, mu = 0`` is FedBuff with a server rate of 1.

    Args:
        params: parameters of the server's model.
        outer: outer optimizer, whose learning rate and momentum coefficient are used.

    Source: J. Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation" (FedBuff, 2022), Algorithm 1;
    DiLoCo (Douillard et al., 2023).
    """

    def __init__(self, params: Sequence[Tensor], outer: Nesterov) -> None:
        super().__init__(params)
        self.outer, self.rates = outer, outer.hyperparameters()
        self.states = [outer.init(p.detach()) for p in self.params]

    @torch.no_grad()
    def version(self) -> None:
        """Take one outer step with the mean updates."""
        for p, mean, state in zip(self.params, self.means(), self.states, strict=True):
            self.outer.absorb(p, mean, state, self.rates)


class DelayedNesterov:
    """Nesterov momentum that changes with every N-th pseudo-gradient only, while each moves the model.

        D <- D + d_t
        with every N-th:  m <- mu m + D / N;  x <- x - lr ((1 - c N + c) mu m + d_t / N);  D <- 0
        else:             x <- x - lr (c mu m + d_t / N)

    Args:
        params: parameters of the server's model.
        lr: outer learning rate.
        momentum: mu, coefficient of the momentum.
        buffer_size: N, number of pseudo-gradients between updates of the momentum, at least 1.
        momentum_activation: c, share of the momentum that moves the model with each pseudo-gradient, from 0 to 1 / N.

    Raises:
        SpecError: a value out of range.

    Source: B. Liu et al., "Asynchronous Local-SGD Training for Language Modeling" (2024), Algorithm 4.
    """

    def __init__(
        self, params: Sequence[Tensor], lr: float, momentum: float, buffer_size: int, momentum_activation: float = 0.0
    ) -> None:
        check_unit("outer_momentum", momentum)
        if buffer_size < 1:
            raise SpecError("buffer_size", buffer_size, "at least 1")
        if not 0 <= momentum_activation <= 1 / buffer_size:
            raise SpecError("momentum_activation", momentum_activation, f"from 0 to 1 / {buffer_size}")
        self.params = list(params)
        self.lr, self.momentum, self.buffer_size, self.momentum_activation = (
            lr,
            momentum,
            buffer_size,
            momentum_activation,
        )
        self.momenta = [torch.zeros_like(p) for p in self.params]
        self.sums = [torch.zeros_like(p) for p in self.params]
        self.last: list[Tensor] = []
        self.taken = 0

    @torch.no_grad()
    def take(self, update: Sequence[Tensor], weight: float, share: float = 1.0) -> None:
        """Keep the pseudo-gradient for the next version, and add it to the sum for the momentum."""
        self.last = [weight * share * u for u in update]
        for total, u in zip(self.sums, self.last, strict=True):
            total.add_(u)
        self.taken += 1

    def take_all(self, mean: Sequence[Tensor], weight: float) -> bool:
        """Return False, because versions consist of single updates."""
        return False

    @torch.no_grad()
    def version(self) -> None:
        """Move the model by the pseudo-gradient that was kept."""
        n, due = self.buffer_size, self.taken % self.buffer_size == 0
        share = (1 - self.momentum_activation * n + self.momentum_activation) if due else self.momentum_activation
        for p, m, total, u in zip(self.params, self.momenta, self.sums, self.last, strict=True):
            if due:
                m.mul_(self.momentum).add_(total, alpha=1 / n)
                total.zero_()
            p.sub_(m, alpha=self.lr * share * self.momentum).sub_(u, alpha=self.lr / n)


def discount(t: int, delay: int, anneal_steps: int) -> float:
    """Return the learning-rate factor for a delay of tau: ``tau^-(1 - min(t / T, 1))``; 1 for a tau of 0 or 1.

    Args:
        t: number of the step, from 0.
        delay: tau, number of updates by which the gradient is late.
        anneal_steps: T, number of steps until the factor is 1 again; with 0 it is always 1.

    Source: B. Yang et al., "PipeMare" (2021), section 3.1 (T1); Basis Rotation calls it PipeDream-LR.

    >>> [round(discount(t, 16, 100), 3) for t in (0, 50, 100, 200)]
    [0.062, 0.25, 1.0, 1.0]
    """
    if anneal_steps <= 0:
        return 1.0
    return float(max(delay, 1) ** -(1 - min(t / anneal_steps, 1.0)))


def discounted(
    optimizer: Optimizer,
    delays: Sequence[int],
    anneal_steps: int,
    factor: Callable[[int], float] = lambda t: 1.0,
) -> LambdaLR:
    """Return a schedule whose rate is discounted for each parameter group by its delay.

    Args:
        optimizer: optimizer with at least one parameter group per stage.
        delays: tau, number of updates by which the gradients of each parameter group are late.
        anneal_steps: T of `discount`.
        factor: function of the step t that gives the learning-rate factor of all groups.

    Raises:
        SpecError: another number of delays than of groups, or a negative one.
    """
    if len(delays) != len(optimizer.param_groups):
        raise SpecError("delays", delays, f"one per parameter group ({len(optimizer.param_groups)})")
    if min(delays) < 0:
        raise SpecError("delays", delays, "updates, at least 0")

    def rate_factor(delay: int) -> Callable[[int], float]:
        return lambda t: factor(t) * discount(t, delay, anneal_steps)

    return LambdaLR(optimizer, [rate_factor(delay) for delay in delays])


@dataclass(frozen=True)
class DelayCompensation(Reducer):
    """A gradient moved to where the weights are by now: ``g + lambda g * g * (x - x_stale)``.

    ``g g^T`` stands for the Hessian, of which only the diagonal is used.

    Args:
        stale: the weights ``(R, *s)`` that the gradient of a parameter, by number, belongs to.
        strength: lambda, coefficient of the correction, at least 0.
        reducer: reducer that combines the workers' gradients before the correction.

    Raises:
        SpecError: a negative strength.

    Source: S. Zheng et al., "Asynchronous Stochastic Gradient Descent with Delay Compensation" (2017), equation (10).
    """

    stale: Callable[[int], Tensor]
    strength: float
    reducer: Reducer = MEAN_GRADIENT

    def __post_init__(self) -> None:
        if not 0 <= self.strength < float("inf"):
            raise SpecError("remedy.strength", self.strength, "a finite number, at least 0")

    def hyperparameters(self) -> dict[str, Any]:
        """Return the hyperparameters of the reducer."""
        return self.reducer.hyperparameters()

    def init(self, x: Tensor, number: int) -> dict[str, Tensor]:
        """Return the states of the reducer."""
        return self.reducer.init(x, number)

    @override
    def reduce(self, rows: list[Row], comm: Communicator, wire: WireFormat, t: int) -> list[Tensor | None]:
        reduced = self.reducer.reduce(rows, comm, wire, t)
        return [
            None if g is None else g.addcmul(g * g, row.x - self.stale(row.number), value=self.strength)
            for row, g in zip(rows, reduced, strict=True)
        ]


@torch.no_grad()
def look_ahead(method: Method, p: Tensor, delay: int | Tensor) -> Tensor:
    """Predict a parameter tau updates ahead, if its momentum does not change: ``x - tau lr d``.

    d is the direction that the rule has without a new gradient: the momentum of SGD (SpecTrain), and Adam's divided by
    its second moment (XPipe), each with its bias correction. Before the first step nothing moves.

    Args:
        method: method whose momenta are used.
        p: a parameter of the method.
        delay: tau, number of updates to look ahead, for the parameter or for each coordinate.

    Raises:
        SpecError: a rule whose direction is not one momentum.

    Source: C.-C. Chen, C.-L. Yang, H.-Y. Cheng, "Efficient and Robust Parallel DNN Training through Model Parallelism
    on Multi-GPU Platform" (SpecTrain, 2018), equation (4); L. Guan et al., "XPipe" (2019), section 3.3.
    """
    rule = method.rule
    if not isinstance(rule, NesterovAdam) and not (isinstance(rule, MomentumRule) and rule.omegas == (1.0,)):
        raise SpecError("method.rule", rule, "a rule with one momentum to look ahead along: sgdm, adam, nadam, ada-sgd")
    state, t = method.state.get(p), method.steps_done - 1
    if not state:
        return p.detach().clone()
    group = next(g for g in method.param_groups if any(q is p for q in g["params"]))
    d, beta1 = state[momentum_names(1)[0]].clone(), group["betas"][0]
    scaling: Scaling = AdamScaling() if isinstance(rule, NesterovAdam) else rule.scaling  # whose knobs the group has
    corrected = isinstance(rule, NesterovAdam) or rule.bias_correction
    d = scaling.after(d / (1 - beta1 ** (t + 1)) if corrected else d, state, group, t)
    return p.detach() - group["lr"] * d.view_as(p) * delay
