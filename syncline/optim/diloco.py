"""DiLoCo: long local rounds, joined by an outer Nesterov step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from syncline.optim.base import UpdateRule
from syncline.optim.method import Method
from syncline.optim.outer import Nesterov
from syncline.optim.rules import adam
from syncline.optim.sync import Periodic


class DiLoCo(Method):
    """Local steps of any rule, whose states stay local; every ``period`` steps an outer Nesterov step.

    The pseudo-gradient of a round is start minus end, averaged over the workers. What travels: one all-reduce of
    ``4 N`` bytes every K steps. With ``outer_lr = 1, outer_momentum = 0`` it is parameter averaging.

    Args:
        params: parameters or parameter groups.
        lr: inner learning rate.
        rule: inner rule; Adam if none (the paper's AdamW, with ``weight_decay``).
        period: H, inner steps per round.
        outer_lr: outer learning rate.
        outer_momentum: outer Nesterov momentum.
        **options: ``weight_decay``, ``clip_norm``, ``wire``, ``comm``, ``worker_axis`` of ``Method``.

    Source: Douillard et al. (2023).
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        rule: UpdateRule | None = None,
        period: int = 32,
        *,
        outer_lr: float = 0.7,
        outer_momentum: float = 0.9,
        **options: Any,
    ) -> None:
        outer = Nesterov(outer_lr, outer_momentum)
        super().__init__(params, lr, rule or adam(), Periodic({"params": period}), outer=outer, **options)
