"""Lion: the sign of a mixture of momentum and gradient, one state per parameter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from syncline.optim.base import Hyperparameters, UpdateRule
from syncline.optim.scalings import check_unit, momentum_names
from syncline.optim.signs import finite_sign


@dataclass(frozen=True)
class LionRule(UpdateRule):
    """Two decay rates: one mixes the direction, the other keeps the momentum.

        c = beta1 m + (1 - beta1) g;   d = sign(c);   m <- beta2 m + (1 - beta2) g

    Every coordinate moves by exactly lr. With ``beta1 <= beta2`` it is the sign of a quasi-hyperbolic momentum: of
    ``(1 - omega) g + omega m'``, m' being the new m and ``omega = beta1 / beta2``; with equal rates, of m' alone.

    Args:
        beta1: weight of the momentum in the mixture c, in [0, 1); the gradient has weight ``1 - beta1``.
        beta2: decay rate of the momentum, in [0, 1).
        signed: whether the direction is ``sign(c)``; otherwise it is ``c``, on whose sign workers vote.

    Raises:
        SpecError: for a rate out of range.

    Source: Chen et al., "Symbolic Discovery of Optimization Algorithms" (2023). Lion Cub prints its gradient with a
    minus, and the sign of the step with a plus.
    """

    beta1: float = 0.9
    beta2: float = 0.99
    signed: bool = True

    def __post_init__(self) -> None:
        check_unit("beta1", self.beta1)
        check_unit("beta2", self.beta2)

    @property
    def states(self) -> tuple[str, ...]:
        """Return the state's name, ``momentum_1``."""
        return momentum_names(1)

    def hyperparameters(self) -> dict[str, Any]:
        """Return both values of ``betas``."""
        return {"betas": (self.beta1, self.beta2)}

    @override
    def direction(self, g: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        (name,) = self.states
        beta1, beta2 = h["betas"]
        c = torch.lerp(g, state[name], beta1)
        state[name].lerp_(g, 1 - beta2)
        return finite_sign(c) if self.signed else c


def lion(beta1: float = 0.9, beta2: float = 0.99) -> LionRule:
    """Return Lion (Chen et al., 2023), with its published rates; its decoupled weight decay is the method's.

    Steps are larger than Adam's: take a learning rate 3 to 10 times lower, and a weight decay as many times higher.
    """
    return LionRule(beta1, beta2)
