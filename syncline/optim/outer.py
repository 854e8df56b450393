"""Outer optimizers: what is done with the average of the workers' parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from syncline.errors import SpecError
from syncline.optim.base import Hyperparameters
from syncline.optim.scalings import check_unit

ANCHOR, OUTER_MOMENTUM = "anchor", "outer_momentum"


OUTER_SECOND_MOMENT = "outer_second_moment"


@dataclass(frozen=True)
class FedAdam:
    """Adam on the pseudo-gradient ``delta = mean_m (x_start - x_end,m)`` of a period.

        m <- beta1 m + (1 - beta1) delta;   v <- beta2 v + (1 - beta2) delta^2
        x <- x_start - lr m / (sqrt(v) + eps)

    Raises:
        SpecError: for a rate out of range.

    Source: Reddi et al. (2021), Algorithm 2; no bias correction, and an eps that matters (tau there).
    """

    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    eps: float = 1e-3

    def __post_init__(self) -> None:
        if not self.lr > 0:
            raise SpecError("outer_lr", self.lr, "a number > 0")
        check_unit("outer_beta1", self.beta1)
        check_unit("outer_beta2", self.beta2)

    def hyperparameters(self) -> dict[str, Any]:
        """Return the values of ``outer_lr``, ``outer_beta1`` and ``outer_beta2``."""
        return {"outer_lr": self.lr, "outer_beta1": self.beta1, "outer_beta2": self.beta2}

    def init(self, x: Tensor) -> dict[str, Tensor]:
        """Return the parameters at the start of the period, and zero moments of pseudo-gradients."""
        zeros = x.new_zeros(x.shape)
        return {ANCHOR: x.clone(), OUTER_MOMENTUM: zeros, OUTER_SECOND_MOMENT: zeros.clone()}

    def payload(self, x: Tensor, state: dict[str, Tensor]) -> Tensor:
        """Return the pseudo-gradient: the parameters at the period's start minus those at its end."""
        return state[ANCHOR] - x

    def absorb(self, x: Tensor, average: Tensor, state: dict[str, Tensor], h: Hyperparameters) -> None:
        """Take one Adam step from the start of the period."""
        m = state[OUTER_MOMENTUM].lerp_(average, 1 - h["outer_beta1"])
        v = state[OUTER_SECOND_MOMENT].mul_(h["outer_beta2"]).addcmul_(average, average, value=1 - h["outer_beta2"])
        state[ANCHOR].addcdiv_(m, v.sqrt().add_(self.eps), value=-h["outer_lr"])
        x.copy_(state[ANCHOR])


@dataclass(frozen=True)
class Nesterov:
    """Nesterov momentum on the pseudo-gradient ``delta = mean_m (x_start - x_end,m)`` of a period.

        b <- mu b + delta
        x <- x_start - lr (delta + mu b)

    ``outer_lr = 1, outer_momentum = 0`` is parameter averaging.

    Raises:
        SpecError: for a rate out of range.

    Source: DiLoCo (Douillard et al., 2023), with its defaults 0.7 and 0.9.
    """

    lr: float = 0.7
    momentum: float = 0.9

    def __post_init__(self) -> None:
        if not self.lr > 0:
            raise SpecError("outer_lr", self.lr, "a number > 0")
        check_unit("outer_momentum", self.momentum)

    def hyperparameters(self) -> dict[str, Any]:
        """Return the values of ``outer_lr`` and ``outer_momentum``."""
        return {"outer_lr": self.lr, "outer_momentum": self.momentum}

    def init(self, x: Tensor) -> dict[str, Tensor]:
        """Return the parameters at the start of the period, and a zero momentum of pseudo-gradients."""
        return {ANCHOR: x.clone(), OUTER_MOMENTUM: x.new_zeros(x.shape)}

    def payload(self, x: Tensor, state: dict[str, Tensor]) -> Tensor:
        """Return the pseudo-gradient: the parameters at the period's start minus those at its end."""
        return state[ANCHOR] - x

    def absorb(self, x: Tensor, average: Tensor, state: dict[str, Tensor], h: Hyperparameters) -> None:
        """Take one Nesterov step from the start of the period; the next period starts where it ends."""
        momentum = h["outer_momentum"]
        b = state[OUTER_MOMENTUM].mul_(momentum).add_(average)
        anchor = state[ANCHOR]
        anchor.sub_(average, alpha=h["outer_lr"]).sub_(b, alpha=h["outer_lr"] * momentum)
        x.copy_(anchor)
