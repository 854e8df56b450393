"""Nesterov momentum in Adam's form."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from operator import mul
from typing import Any

from torch import Tensor
from typing_extensions import override

from syncline.errors import SpecError
from syncline.optim.base import Hyperparameters, UpdateRule
from syncline.optim.scalings import SECOND_MOMENT, check_unit, momentum_names

DECAY_BASE = 0.96
"""Source: T. Dozat, "Incorporating Nesterov Momentum into Adam" (2016), section 3; torch's NAdam too."""


@dataclass(frozen=True)
class NesterovAdam(UpdateRule):
    """Adam whose direction already has the next step's momentum (NAdam).

        mu_t = beta1 (1 - 1/2 0.96^(t psi)),    u <- beta1 u + (1 - beta1) g,    v <- beta2 v + (1 - beta2) g^2
        d = [(1 - mu_t) g / (1 - prod_{i <= t} mu_i) + mu_{t+1} u / (1 - prod_{i <= t+1} mu_i)] / (sqrt(v_hat) + eps)

    t counts from 1 here. With a large beta1 this is the look-ahead that asynchronous pipelines use against delay.

    Args:
        beta1: decay rate of the momentum, in [0, 1).
        beta2: decay rate of the second moment, in [0, 1).
        eps: number added to the root of the second moment.
        momentum_decay: psi, at least 0, which sets how fast the momentum's weight mu_t grows to ``beta1``.

    Raises:
        SpecError: a rate out of range.

    Source: T. Dozat (2016), in torch's form; T. Ajanthan et al., "Nesterov Method for Asynchronous Pipeline Parallel
    Optimization" (2025) with beta1 .99.
    """

    beta1: float = 0.99
    beta2: float = 0.999
    eps: float = 1e-8
    momentum_decay: float = 0.004
    states: tuple[str, ...] = (*momentum_names(1), SECOND_MOMENT)

    def __post_init__(self) -> None:
        check_unit("beta1", self.beta1)
        check_unit("beta2", self.beta2)
        if self.momentum_decay < 0:
            raise SpecError("momentum_decay", self.momentum_decay, "at least 0")

    def hyperparameters(self) -> dict[str, Any]:
        """Return ``betas``, ``beta2``, ``eps``, ``momentum_decay``."""
        return {"betas": (self.beta1,), "beta2": self.beta2, "eps": self.eps, "momentum_decay": self.momentum_decay}

    @override
    def direction(self, g: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        (beta1,), beta2 = h["betas"], h["beta2"]
        u, v = state[momentum_names(1)[0]], state[SECOND_MOMENT]
        u.lerp_(g, 1 - beta1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        now, following = mu(beta1, h["momentum_decay"], t), mu(beta1, h["momentum_decay"], t + 1)
        product = mu_product(beta1, h["momentum_decay"], t)
        d = g * ((1 - now) / (1 - product)) + u * (following / (1 - product * following))
        return d.div_((v / (1 - beta2 ** (t + 1))).sqrt_().add_(h["eps"]))


def mu(beta1: float, momentum_decay: float, t: int) -> float:
    """Return the momentum's share at step t, from 0."""
    return float(beta1 * (1 - 0.5 * DECAY_BASE ** ((t + 1) * momentum_decay)))


def mu_product(beta1: float, momentum_decay: float, t: int) -> float:
    """Return the product of the shares of steps 0 to t, which no state has to carry from step to step."""
    return _products(beta1, momentum_decay, 1 << t.bit_length())[t]


@lru_cache(maxsize=16)
def _products(beta1: float, momentum_decay: float, steps: int) -> tuple[float, ...]:
    """Return the products of the first shares, for so many steps; asked for in powers of two, so that few are kept."""
    return tuple(accumulate((mu(beta1, momentum_decay, t) for t in range(steps)), mul))
