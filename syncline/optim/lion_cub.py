"""Lion Cub: Lion whose workers vote on their update vectors, and seldom or never average their momenta."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from typing_extensions import override

from syncline.costmodel.compute.layers import chosen_layers
from syncline.errors import SpecError
from syncline.optim.base import Reducer, Row
from syncline.optim.lion import LionRule
from syncline.optim.method import Method
from syncline.optim.sync import Periodic

MomentumLayers = Literal["all", "none", "first-and-last"] | tuple[str, ...]


class LionCubMethod(Method):
    """Every worker mixes its own gradient into its own momentum; the group moves by the sign of a vote.

        c_m = beta1 m_m + (1 - beta1) g_m;   m_m <- beta2 m_m + (1 - beta2) g_m;   x <- x - lr vote(c_1, ..., c_P)

    Parameters stay equal on all workers, momenta do not, unless they are averaged every ``momentum_period`` steps. With
    one worker it is Lion, up to what the vote makes of zeros.

    Args:
        params: parameters or parameter groups.
        lr: learning rate.
        rule: Lion without its sign.
        vote: vote that combines the workers' update vectors.
        momentum_period: K, number of steps between averages of the momenta.
        momentum_layers: layers whose momenta are averaged: ``all``, ``none``, ``first-and-last``, or patterns of
            parameter names (``embedding*``). The layer of a parameter is its name up to the last dot.
        **options: further options of ``Method``; ``wire`` is the format of averaged momenta.

    Raises:
        SpecError: for a value out of range, layers chosen by name among parameters without names, or a pattern that
            matches none.

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
        averaged = {} if momentum_layers == "none" else dict.fromkeys(rule.states, momentum_period)
        self.momentum_layers = momentum_layers
        sync = Periodic({"direction": 1} | averaged)
        super().__init__(params, lr, rule, sync, reducer=vote, **options)
        self._momenta_averaged()

    def _momenta_averaged(self) -> list[bool]:
        """Return whether each parameter's momentum is averaged, in order of parameter numbers."""
        if self.momentum_layers not in ("all", "none") and not all(self.names):
            raise SpecError("momentum_layers", self.momentum_layers, "'all' or 'none' for parameters without names")
        return chosen_layers(self.names, self.momentum_layers)

    @override
    def average(self, rows: list[Row], names: tuple[str, ...]) -> None:
        if names:
            averaged = self._momenta_averaged()
            super().average([row for row in rows if averaged[row.number]], names)
