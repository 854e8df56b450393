"""Remedies for late gradients: discount them, compensate them, or look ahead. Rotation has a file of its own.

An asynchronous pipeline gives stage k a gradient that is tau_k updates old. What each remedy needs is little: the delay
of each parameter, and for two of them the weights that the gradient belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from typing_extensions import override

from syncline.comm import Communicator, WireFormat
from syncline.errors import SpecError
from syncline.optim.base import Reducer, Row
from syncline.optim.method import MEAN_GRADIENT, Method
from syncline.optim.nesterov import NesterovAdam
from syncline.optim.rules import MomentumRule
from syncline.optim.scalings import AdamScaling, Scaling, momentum_names


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
