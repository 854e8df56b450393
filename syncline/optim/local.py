"""Local methods: workers step alone, and average everything every K steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from syncline.optim.base import UpdateRule
from syncline.optim.method import Method
from syncline.optim.sync import Periodic


class Local(Method):
    """Local SGD, SGDM, Adam or ADOPT: parameters and all optimizer states are averaged every ``period`` steps.

    What travels: one all-reduce of ``(1 + states) 4 N`` bytes every K steps; for Adam 3 tensors, so K/3 times less than
    data parallelism. Local SGD(M) with ``period = 1`` is data-parallel SGD(M): averaging is linear, and so is the rule.

    Args:
        params: parameters or parameter groups.
        lr: learning rate.
        rule: ``sgdm(...)``, ``adam(...)``, ``adopt(...)``.
        period: K, steps between averages.
        **options: ``weight_decay``, ``clip_norm``, ``wire``, ``comm``, ``worker_axis`` of ``Method``.

    Source: Stich (2019) for SGD; Cheng & Glasgow (2025) for Adam, all states averaged.
    """

    def __init__(self, params: Iterable[Any], lr: float, rule: UpdateRule, period: int = 32, **options: Any) -> None:
        super().__init__(params, lr, rule, Periodic(dict.fromkeys(("params", *rule.states), period)), **options)
