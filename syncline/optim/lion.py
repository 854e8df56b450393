"""Lion, which steps by the sign of a mixture of momentum and gradient, and Lion Cub, whose workers vote on signs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from typing_extensions import override

from syncline.costmodel.compute.tensors import chosen_layers
from syncline.errors import SpecError
from syncline.optim.base import Hyperparameters, ParamRow, Reducer, UpdateRule
from syncline.optim.method import Method
from syncline.optim.scalings import check_unit, finite_sign, momentum_names
from syncline.optim.sync import Periodic


@dataclass(frozen=True)
class LionRule(UpdateRule):
    """Lion: each coordinate moves by lr along the sign of a mixture c of momentum m and gradient g.

        c = beta1 m + (1 - beta1) g;   d = sign(c);   m <- beta2 m + (1 - beta2) g

    With ``beta1 <= beta2``, c has the sign of the quasi-hyperbolic momentum ``(1 - omega) g + omega m'``, where m' is
    the new m and ``omega = beta1 / beta2``.

    Args:
        beta1: weight of the momentum in the mixture c, in [0, 1); the gradient has weight ``1 - beta1``.
        beta2: decay rate of the momentum, in [0, 1).
        signed: whether the direction is ``sign(c)``; otherwise it is ``c``, so that workers can vote on its sign.

    Source: Chen et al., "Symbolic Discovery of Optimization Algorithms" (2023).
    """

    beta1: float = 0.9
    beta2: float = 0.99
    signed: bool = True

    def __post_init__(self) -> None:
        check_unit("beta1", self.beta1)
        check_unit("beta2", self.beta2)

    @property
    def states(self) -> tuple[str, ...]:
        """Return the name of the only state, ``momentum_1``."""
        return momentum_names(1)

    def hyperparameters(self) -> dict[str, Any]:
        """Return ``betas`` by name: beta1 of the mixture c, and beta2 of the momentum."""
        return {"betas": (self.beta1, self.beta2)}

    @override
    def direction(self, g: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        """Return the sign of the mixture c, or c itself if the rule is not ``signed``, and update the momentum."""
        (name,) = self.states
        beta1, beta2 = h["betas"]
        c = torch.lerp(g, state[name], beta1)
        state[name].lerp_(g, 1 - beta2)
        return finite_sign(c) if self.signed else c


def lion(beta1: float = 0.9, beta2: float = 0.99) -> LionRule:
    """Return Lion (Chen et al., 2023) with its published rates.

    Its steps are larger than Adam's: divide the learning rate, and multiply the weight decay, by 3 to 10.
    """
    return LionRule(beta1, beta2)


MomentumLayers = Literal["all", "none", "first-and-last"] | tuple[str, ...]


class LionCubMethod(Method):
    """Lion Cub: workers vote on the signs of their update vectors c_m, and all move by the result of the vote.

        c_m = beta1 m_m + (1 - beta1) g_m;   m_m <- beta2 m_m + (1 - beta2) g_m;   x <- x - lr vote(c_1, ..., c_P)

    g_m and m_m are gradient and momentum of worker m. Parameters stay equal on all workers; momenta differ, but can be
    averaged every ``momentum_period`` steps. With one worker this is Lion, except where c is 0.

    Args:
        rule: Lion with ``signed=False``, whose direction is c instead of its sign.
        momentum_period, momentum_layers: see `syncline.methods.voting.LionCubSpec`.
        **options: further options of ``Method``; ``wire`` is the format of averaged momenta.

    Raises:
        SpecError: a value is out of range, a pattern matches no layer, or layers are chosen by name although parameters
            have no names.

    Source: Lion Cub, Algorithm 1 and section 5.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        rule: LionRule,
        *,
        vote: Reducer,
        momentum_period: int,
        momentum_layers: MomentumLayers,
        **options: Any,
    ) -> None:
        self.momentum_layers = momentum_layers
        periods = {"direction": 1}
        if momentum_layers != "none":
            for name in rule.states:
                periods[name] = momentum_period
        super().__init__(params, lr, rule, Periodic(periods), reducer=vote, **options)
        self._is_momentum_averaged()  # raises an error for patterns that match no layer

    def _is_momentum_averaged(self) -> list[bool]:
        """Return, for each parameter in order, whether its momentum is averaged."""
        if self.momentum_layers not in ("all", "none") and not all(self.names):
            raise SpecError("momentum_layers", self.momentum_layers, "'all' or 'none' for parameters without names")
        return chosen_layers(self.names, self.momentum_layers)

    @override
    def average_states(self, rows: list[ParamRow], names: tuple[str, ...]) -> None:
        """Average the named states of the parameters that belong to the layers ``momentum_layers``."""
        if names:
            is_averaged = self._is_momentum_averaged()
            super().average_states([row for row in rows if is_averaged[row.param_index]], names)
