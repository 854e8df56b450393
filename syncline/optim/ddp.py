"""Data parallelism: gradients are averaged in every step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from syncline.optim.base import UpdateRule
from syncline.optim.method import MeanGradient, Method
from syncline.optim.sync import EveryStep


class DDP(Method):
    """Any update rule on the workers' mean gradient: ``x <- x - lr d(mean_m g_m)``.

    What travels: one all-reduce of the gradient per step, ``4 N`` bytes in fp32. With one worker it is the serial
    optimizer.

    Args:
        params: parameters or parameter groups.
        lr: learning rate.
        rule: ``sgdm(...)``, ``adam(...)``, ``adopt(...)``.
        **options: ``weight_decay``, ``clip_norm``, ``wire``, ``comm``, ``worker_axis`` of ``Method``.

    >>> import torch
    >>> from syncline.optim import DDP, adam
    >>> x = torch.nn.Parameter(torch.tensor([1.0]))
    >>> optimizer = DDP([x], lr=0.1, rule=adam())
    >>> x.grad = torch.tensor([3.0])
    >>> optimizer.step()
    >>> round(x.item(), 6)  # Adam's first step is lr, whatever the gradient's size
    0.9
    """

    def __init__(self, params: Iterable[Any], lr: float, rule: UpdateRule, **options: Any) -> None:
        reducer = options.pop("reducer", None) or MeanGradient(in_backward=True)
        super().__init__(params, lr, rule, EveryStep(), reducer=reducer, **options)
