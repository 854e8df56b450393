"""Rules of servers for asynchronous workers, and corrections for delayed gradients in asynchronous pipelines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import Communicator, WireFormat
from syncline.errors import SpecError
from syncline.optim.base import ParamRow, Reducer
from syncline.optim.diloco import Nesterov
from syncline.optim.method import MEAN_GRADIENT, Method
from syncline.optim.momenta import NesterovAdam
from syncline.optim.rules import MomentumRule
from syncline.optim.scalings import AdamScaling, Scaling, check_unit, momentum_names


class ServerRule(Protocol):
    """A server's model with the rule by which workers' updates change it.

    An update is a gradient, or a pseudo-gradient: a worker's parameters at the start of local steps minus at their end.
    """

    def add_update(self, update: Sequence[Tensor], weight: float, share: float = 1.0) -> None:
        """Store an update for the next version, which uses ``sum_k s_k w_k u_k / sum_k s_k``.

        Args:
            update: u_k, a tensor for each parameter.
            weight: w_k, factor of the update, below 1 if it is stale.
            share: s_k, weight of the update in the mean, such as its number of tokens.
        """

    def set_mean_update(self, mean: Sequence[Tensor], weight: float) -> bool:
        """Store the mean of all updates of the next version, times ``weight``; return whether the server can use it."""

    def make_version(self) -> None:
        """Make a new version of the model from the updates stored since the last version."""


class _MeanServer:
    """The base of servers that use the weighted mean of the updates that arrived since the last version."""

    def __init__(self, params: Sequence[Tensor]) -> None:
        self.params = list(params)
        self._update_sums: list[Tensor] | None = None
        self._share_sum = 0.0
        self._mean: list[Tensor] | None = None

    @torch.no_grad()
    def add_update(self, update: Sequence[Tensor], weight: float, share: float = 1.0) -> None:
        """Add an update, times its weight and share (see `ServerRule.add_update`), to the sums of the next version."""
        self._share_sum += share
        if self._update_sums is None:
            self._update_sums = list(torch._foreach_mul(list(update), weight * share))
        else:
            torch._foreach_add_(self._update_sums, list(update), alpha=weight * share)

    @torch.no_grad()
    def set_mean_update(self, mean: Sequence[Tensor], weight: float) -> bool:
        """Store the mean of all updates of a version; do nothing and return False if updates are already stored.

        The mean keeps the exact bits that a collective gave it, because it is not added to a sum.
        """
        if self._update_sums is not None:
            return False
        self._mean = list(mean) if weight == 1 else list(torch._foreach_mul(list(mean), weight))
        return True

    @torch.no_grad()
    def pop_mean(self) -> list[Tensor]:
        """Return the weighted mean of the updates since the last version, and start again from zero."""
        if self._mean is not None:  # `set_mean_update` has stored it
            mean, self._mean = self._mean, None
            return mean
        assert self._update_sums is not None
        mean, self._update_sums = self._update_sums, None
        torch._foreach_div_(mean, self._share_sum)
        self._share_sum = 0.0
        return mean


class GradientServer(_MeanServer):
    """A server that takes an optimizer step with the weighted mean of gradients ``g = sum_k s_k w_k g_k / sum_k s_k``.

    For the share s_k and the weight w_k of a worker's gradient g_k see `ServerRule.add_update`.

    Args:
        optimizer: optimizer of the server's model, in a group of one worker.
    """

    def __init__(self, optimizer: Method) -> None:
        super().__init__([p for group in optimizer.param_groups for p in group["params"]])
        self.optimizer = optimizer

    def make_version(self) -> None:
        """Take one optimizer step with the mean of the gradients since the last version."""
        for p, mean in zip(self.params, self.pop_mean(), strict=True):
            p.grad = mean
        self.optimizer.step()


class OuterServer(_MeanServer):
    """A server that takes an outer Nesterov step with the weighted mean D of pseudo-gradients d_k.

        D = sum_k s_k w_k d_k / sum_k s_k;    b <- mu b + D;    x <- x - lr (D + mu b)

    For the share s_k and the weight w_k of an update see `ServerRule.add_update`. ``lr = 1, mu = 0`` is FedBuff with a
    server learning rate of 1.

    Args:
        outer: outer optimizer, whose learning rate and momentum coefficient are used.

    Source: J. Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation" (FedBuff, 2022), Algorithm 1;
    DiLoCo (Douillard et al., 2023).
    """

    def __init__(self, params: Sequence[Tensor], outer: Nesterov) -> None:
        super().__init__(params)
        self.outer, self.hyperparameters = outer, outer.hyperparameters()
        self.states = [outer.init(p.detach()) for p in self.params]

    @torch.no_grad()
    def make_version(self) -> None:
        """Take one outer step with the mean of the pseudo-gradients since the last version."""
        for p, mean, state in zip(self.params, self.pop_mean(), self.states, strict=True):
            self.outer.apply_average(p, mean, state, self.hyperparameters)


class DelayedNesterov:
    """A server with delayed Nesterov momentum: each pseudo-gradient d_t moves the model x, each N-th also updates m.

        D <- D + d_t
        each N-th d_t:    m <- mu m + D / N;  x <- x - lr ((1 - c N + c) mu m + d_t / N);  D <- 0
        other d_t:        x <- x - lr (c mu m + d_t / N)

    Args:
        momentum: mu, coefficient of the momentum.
        buffer_size: N, number of pseudo-gradients between updates of the momentum, at least 1.
        momentum_activation: c, share of the momentum that moves the model with each pseudo-gradient, from 0 to 1 / N.

    Source: B. Liu et al., "Asynchronous Local-SGD Training for Language Modeling" (2024), Algorithm 4.
    """

    def __init__(
        self, params: Sequence[Tensor], lr: float, momentum: float, buffer_size: int, momentum_activation: float = 0.0
    ) -> None:
        check_unit("outer_momentum", momentum)  # the name of the field in specs
        if buffer_size < 1:
            raise SpecError("buffer_size", buffer_size, "at least 1")
        if not 0 <= momentum_activation <= 1 / buffer_size:
            raise SpecError("momentum_activation", momentum_activation, f"from 0 to 1 / {buffer_size}")
        self.params, self.buffer_size = list(params), buffer_size
        self.lr, self.momentum, self.momentum_activation = lr, momentum, momentum_activation
        self.momenta = [torch.zeros_like(p) for p in self.params]
        self.update_sums = [torch.zeros_like(p) for p in self.params]
        self.last_update: list[Tensor] = []
        self.num_updates = 0

    @torch.no_grad()
    def add_update(self, update: Sequence[Tensor], weight: float, share: float = 1.0) -> None:
        """Store the update, times ``weight`` and ``share``, for the next version, and add it to the momentum's sum."""
        self.last_update = [weight * share * tensor for tensor in update]
        torch._foreach_add_(self.update_sums, self.last_update)
        self.num_updates += 1

    def set_mean_update(self, mean: Sequence[Tensor], weight: float) -> bool:
        """Return False: each version is made of a single update, so that the server cannot use a mean."""
        return False

    @torch.no_grad()
    def make_version(self) -> None:
        """Move the model by the last pseudo-gradient and a share of the momentum, see `DelayedNesterov` for N and c."""
        n, c = self.buffer_size, self.momentum_activation
        updates_momentum = self.num_updates % n == 0
        # The shares of the N versions that use one momentum sum to 1.
        momentum_share = (1 - c * n + c) if updates_momentum else c
        for x, m, update_sum, d in zip(self.params, self.momenta, self.update_sums, self.last_update, strict=True):
            if updates_momentum:  # m <- mu m + D / N
                m.mul_(self.momentum).add_(update_sum, alpha=1 / n)
                update_sum.zero_()
            x.sub_(m, alpha=self.lr * momentum_share * self.momentum).sub_(d, alpha=self.lr / n)


@dataclass(frozen=True)
class DelayCompensation(Reducer):
    """A reducer that corrects a delayed gradient g for the current weights x: ``g + lambda g * g * (x - x_stale)``.

    It is a first-order expansion around x_stale, the weights at which g was computed, with the diagonal of ``g g^T`` in
    place of the Hessian.

    Args:
        stale: function from a parameter index to x_stale, ``(R, *s)``.
        strength: lambda, coefficient of the correction, at least 0.
        reducer: reducer that combines the workers' gradients before the correction.

    Raises:
        SpecError: the strength is negative.

    Source: S. Zheng et al., "Asynchronous Stochastic Gradient Descent with Delay Compensation" (2017), equation (10).
    """

    stale: Callable[[int], Tensor]
    strength: float
    reducer: Reducer = MEAN_GRADIENT

    def __post_init__(self) -> None:
        if not 0 <= self.strength < float("inf"):
            raise SpecError("remedy.strength", self.strength, "a finite number, at least 0")

    def hyperparameters(self) -> dict[str, Any]:
        """Return the hyperparameters of the reducer that this one wraps, by name."""
        return self.reducer.hyperparameters()

    def init(self, x: Tensor, param_index: int) -> dict[str, Tensor]:
        """Return the initial states that the wrapped reducer keeps for a parameter, by name."""
        return self.reducer.init(x, param_index)

    @override
    def reduce(self, rows: list[ParamRow], comm: Communicator, wire: WireFormat, t: int) -> list[Tensor | None]:
        """Combine the workers' gradients by the inner reducer, and add the correction for the delay."""
        corrected: list[Tensor | None] = []
        for row, g in zip(rows, self.reducer.reduce(rows, comm, wire, t), strict=True):
            if g is None:
                corrected.append(None)
                continue
            moved_by = row.x - self.stale(row.param_index)  # g was computed at the stale weights
            corrected.append(g.addcmul(g * g, moved_by, value=self.strength))
        return corrected


@torch.no_grad()
def look_ahead(method: Method, p: Tensor, delay: int | Tensor) -> Tensor:
    """Return a prediction of a parameter x after tau more updates with constant momentum: ``x - tau lr d``.

    d is SGD's momentum (SpecTrain), or Adam's momentum divided by the root of its second moment (XPipe), with bias
    correction if the rule has one. Before the first step the prediction is x.

    Args:
        method: method whose momenta are used.
        delay: tau, number of updates to look ahead, for the parameter or for each coordinate.

    Raises:
        SpecError: the method's rule does not have exactly one momentum.

    Source: C.-C. Chen, C.-L. Yang, H.-Y. Cheng, "Efficient and Robust Parallel DNN Training through Model Parallelism
    on Multi-GPU Platform" (SpecTrain, 2018), equation (4); L. Guan et al., "XPipe" (2019), section 3.3.
    """
    scaling: Scaling
    if isinstance(method.rule, NesterovAdam):
        scaling, bias_correction = AdamScaling(), True  # the rates of ``h`` replace those of the scaling
    elif isinstance(method.rule, MomentumRule) and method.rule.omegas == (1.0,):
        scaling, bias_correction = method.rule.scaling, method.rule.bias_correction
    else:
        expected = "another remedy, or a rule with one momentum to look ahead along: sgdm, adam, nadam, ada-sgd, adopt"
        raise SpecError("method.remedy", "look-ahead", expected)
    state = method.state.get(p)
    if not state:
        return p.detach().clone()
    (h,) = [group for group in method.param_groups if any(group_param is p for group_param in group["params"])]
    last_step = method.steps_done - 1  # number of the step that made the present moments
    (momentum_name,) = momentum_names(1)
    momentum = state[momentum_name].clone()
    if bias_correction:
        beta1 = h["betas"][0]
        momentum = momentum / (1 - beta1 ** (last_step + 1))
    d = scaling.scale_direction(momentum, state, h, last_step)
    return p.detach() - h["lr"] * d.view_as(p) * delay
