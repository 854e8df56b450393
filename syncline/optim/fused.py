"""Adam in one pass over memory, by torch's own kernel, where it has one: on a CPU."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

WORTH = 2**15
"""Moments of one worker from which on it pays; fewer are moved by operations on all workers' at once."""


def is_worth_fusing(moments: Sequence[Tensor]) -> bool:
    """Whether the kernel is for parameters with these moments ``(R, *s)``; the same however many workers live here."""
    first = moments[0]
    has_kernel = first.device.type == "cpu" and first.dtype in (torch.float32, torch.float64)
    if not has_kernel or sum(x.numel() // x.size(0) for x in moments) < WORTH:
        return False
    return all(x.is_contiguous() for x in moments)  # it goes through memory in order


def fused_adam(
    gs: Sequence[Tensor],
    momenta: Sequence[Tensor],
    squares: Sequence[Tensor],
    betas: tuple[float, float],
    eps: float,
    t: int,
) -> list[Tensor]:
    """Adam's directions ``u_hat / (sqrt(v_hat) + eps)`` of step ``t``, with bias correction; moments move in place.

    Every worker's tensors are given by themselves: the kernel rounds the end of a tensor otherwise than its inside, and
    a worker's end shall not depend on who else is in the process.

    Args:
        gs: gradients ``(R, *s)``.
        momenta: u of each.
        squares: v of each.
        betas: decay rates of u and v.
        eps: added to the root.
        t: the step, from 0.
    """
    directions = [torch.zeros_like(u) for u in momenta]
    gradients = [g if g[0].is_contiguous() else g.contiguous() for g in gs]
    ds, own, us, vs = ([row for x in xs for row in x.unbind(0)] for xs in (directions, gradients, momenta, squares))
    steps = [torch.tensor(float(t + 1))] * len(ds)
    # From zero, at a rate of -1, the step is the direction.
    torch._fused_adam_(
        ds, own, us, vs, [], steps, lr=-1.0, beta1=betas[0], beta2=betas[1], weight_decay=0.0, eps=eps, amsgrad=False,
        maximize=False,
    )  # fmt: skip
    return directions
