"""Servers that apply the updates of asynchronous workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from syncline.errors import SpecError
from syncline.optim.method import Method
from syncline.optim.outer import Nesterov
from syncline.optim.scalings import check_unit


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
