"""The levels of QSGD: drawn from each worker's stream, and their mean. In one pass each once loops are compiled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from syncline.optim.loops import compiled_loops
from syncline.optim.noise import starts, uniform
from syncline.optim.quantisers import divisor, euclidean, qsgd

MOST_IN_A_BYTE = 127
"""Levels whose integers, from none to twice as many, fit into a byte."""

IN_ORDER = 16
"""Workers up to which their numbers are added one after the other; torch adds more in an order of its own."""


def drawn(x: Tensor, levels: int, workers: Sequence[int], *names: str | int) -> tuple[Tensor, Tensor]:
    """Return ``qsgd``'s integers plus ``levels`` and the norms, with the numbers of ``uniform``.

    Args:
        x: ``(R, n)``.
        levels: s, number of levels on one side of zero.
        workers: number of each row's worker.
        *names: names of the random stream, and the number of the step.

    Returns:
        Integers ``(R, n)``, in one byte where they fit, and norms ``(R, 1)`` in the type of x.
    """
    narrow = levels <= MOST_IN_A_BYTE
    loops = compiled_loops(x) if narrow else None
    if loops is None:
        q, norm = qsgd(x, levels, uniform(workers, x.shape[1], x.device, *names))
        return (q if narrow else q.long()).add_(levels).to(torch.uint8 if narrow else torch.int64), norm
    norm, out = euclidean(x), torch.empty(x.shape, dtype=torch.uint8)
    numbers = x.detach().contiguous().numpy()
    begin = starts(workers, *names)
    loops.draw_levels(numbers, divisor(norm).view(-1).numpy(), np.float32(levels), begin, out.numpy())
    return out, norm


def mean_of(integers: Tensor, units: Tensor, levels: int) -> Tensor:
    """Return the mean over M of ``(integers - levels) units``.

    Args:
        integers: ``(S, M, n)``.
        units: value of one level, ``(S, M, 1)``, in the dtype of the result.
        levels: s, number of levels on one side of zero.

    Returns:
        ``(S, n)``.
    """
    workers = integers.shape[1]
    loops = compiled_loops(units) if integers.dtype == torch.uint8 and workers <= IN_ORDER else None
    if loops is None:
        wide = integers.to(torch.promote_types(units.dtype, torch.float32))
        parts = wide.sub_(levels).to(units.dtype).mul_(units)
        if workers > IN_ORDER:
            return parts.mean(1)
        first, *others = parts.unbind(1)
        for part in others:
            first += part
        return first / workers
    out = torch.empty(len(integers), integers.shape[2])
    numbers = integers.contiguous().numpy()
    loops.mean_of_levels(numbers, units.reshape(units.shape[:2]).numpy(), np.float32(levels), out.numpy())
    return out
