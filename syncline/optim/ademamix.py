"""AdEMAMix: Adam with a second, much slower momentum that is added to the first."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from typing_extensions import override

from syncline.errors import SpecError
from syncline.optim.base import Hyperparameters, UpdateRule
from syncline.optim.scalings import SECOND_MOMENT, check_unit, momentum_names


@dataclass(frozen=True)
class AdEMAMix(UpdateRule):
    """Adam's direction plus ``alpha`` times a slow momentum, both over the root of the second moment.

        u <- beta1 u + (1 - beta1) g,    s <- beta3 s + (1 - beta3) g,    v <- beta2 v + (1 - beta2) g^2
        d = (u^ + alpha s) / (sqrt(v^) + eps)

    u^ and v^ are corrected for their start at zero, s is not. Until ``alpha_warmup_steps``, alpha grows linearly from
    0; until ``beta3_warmup_steps``, ``1 / ln beta3`` goes linearly from beta1's, so that a half-life does about.

    Args:
        beta1: decay of the fast momentum u, in [0, 1).
        beta2: decay of the second moment, in [0, 1).
        beta3: decay of the slow momentum s, in [0, 1).
        alpha: weight of the slow momentum s, at least 0; with 0 the rule is Adam.
        eps: added to the root.
        alpha_warmup_steps: number of steps in which the weight grows to ``alpha``; with 0 it is constant.
        beta3_warmup_steps: number of steps in which the decay rate of s grows to ``beta3``; with 0 it is constant.

    Raises:
        SpecError: a value out of range.

    Source: M. Pagliardini, P. Ablin, D. Grangier, "The AdEMAMix Optimizer: Better, Faster, Older" (2025), Algorithm 1
    and the schedules of section 3; defaults of its public code.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    beta3: float = 0.9999
    alpha: float = 2.0
    eps: float = 1e-8
    alpha_warmup_steps: int = 0
    beta3_warmup_steps: int = 0
    states: tuple[str, ...] = (*momentum_names(2), SECOND_MOMENT)

    def __post_init__(self) -> None:
        for name in ("beta1", "beta2", "beta3"):
            check_unit(name, getattr(self, name))
        for name in ("alpha", "alpha_warmup_steps", "beta3_warmup_steps"):
            if not getattr(self, name) >= 0:
                raise SpecError(name, getattr(self, name), "at least 0")

    def hyperparameters(self) -> dict[str, Any]:
        """Return ``betas`` of both momenta, ``beta2``, ``alpha``, ``eps`` and the steps of both warmups."""
        warmups = {"alpha_warmup_steps": self.alpha_warmup_steps, "beta3_warmup_steps": self.beta3_warmup_steps}
        rates = {"betas": (self.beta1, self.beta3), "beta2": self.beta2, "alpha": self.alpha, "eps": self.eps}
        return {**rates, **warmups}

    @override
    def direction(self, g: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        (beta1, beta3), beta2 = h["betas"], h["beta2"]
        u, s = (state[name] for name in momentum_names(2))
        v = state[SECOND_MOMENT]
        u.lerp_(g, 1 - beta1)
        s.lerp_(g, 1 - beta3_at(beta1, beta3, t, h["beta3_warmup_steps"]))
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        d = (u / (1 - beta1 ** (t + 1))).add_(s, alpha=alpha_at(h["alpha"], t, h["alpha_warmup_steps"]))
        return d.div_((v / (1 - beta2 ** (t + 1))).sqrt_().add_(h["eps"]))


def alpha_at(alpha: float, t: int, warmup_steps: int) -> float:
    """Return the slow momentum's weight at step ``t`` (from 0).

    >>> [alpha_at(2.0, t, 4) for t in range(5)]
    [0.5, 1.0, 1.5, 2.0, 2.0]
    """
    return alpha * min(1.0, (t + 1) / warmup_steps) if warmup_steps else alpha


def beta3_at(beta1: float, beta3: float, t: int, warmup_steps: int) -> float:
    """Return the slow momentum's decay at step ``t`` (from 0).

        1 / ln beta(t) = (1 - s) / ln beta1 + s / ln beta3,    s = (t + 1) / steps

    >>> [round(beta3_at(0.9, 0.999, t, 4), 5) for t in range(4)]
    [0.99612, 0.99802, 0.99867, 0.999]
    """
    s = (t + 1) / warmup_steps if warmup_steps else 1.0
    if s >= 1 or beta3 <= beta1:
        return beta3
    from_first = (1 - s) / math.log(beta1) if beta1 else 0.0
    return math.exp(1 / (from_first + s / math.log(beta3)))
