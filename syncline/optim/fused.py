"""Adam in one pass over memory, by torch's own kernel, where it has one: on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

WORTH = 3 * 2**14
"""Numbers of one worker, parameters and moments, from which on it pays; fewer take operations on all at once."""


def is_worth_fusing(xs: Sequence[Tensor]) -> bool:
    """Return whether to use the kernel for ``(R, *s)``; the answer does not depend on the number of local workers."""
    first = xs[0]
    has_kernel = first.device.type == "cpu" and first.dtype in (torch.float32, torch.float64)
    if not has_kernel or sum(x.numel() // x.size(0) for x in xs) < WORTH:
        return False
    return all(x.is_contiguous() for x in xs)  # it goes through memory in order


class Moments(NamedTuple):
    """Gradients, first and second moments of several parameters ``(R, *s)``."""

    gs: Sequence[Tensor]
    us: Sequence[Tensor]
    vs: Sequence[Tensor]


def fused_adam(
    xs: Sequence[Tensor], moments: Moments, lr: float, betas: tuple[float, float], eps: float, t: int
) -> None:
    """Make Adam's step ``x <- x - lr u_hat / (sqrt(v_hat) + eps)`` in place, on parameters x and on their moments.

    Here u is the first moment and v the second, and hats are corrected for their start at zero. The kernel gets the
    tensors of each worker separately, because it rounds the end of a tensor differently from its inside. A worker's
    result therefore does not depend on the other workers of the process.

    Args:
        xs: parameters, contiguous, as moments are.
        moments: first and second moments of the parameters.
        lr: learning rate.
        betas: decay rates of u and v.
        eps: added to the root.
        t: number of the step, from 0.
    """
    gradients = [g if g[0].is_contiguous() else g.contiguous() for g in moments.gs]
    params, gs, us, vs = (
        [row for x in some for row in x.unbind(0)] for some in (xs, gradients, moments.us, moments.vs)
    )
    steps = [torch.tensor(float(t + 1))] * len(params)
    torch._fused_adam_(
        params, gs, us, vs, [], steps, lr=lr, beta1=betas[0], beta2=betas[1], weight_decay=0.0, eps=eps, amsgrad=False,
        maximize=False,
    )  # fmt: skip
