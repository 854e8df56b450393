"""The largest entries of many vectors, found in two looks."""

from __future__ import annotations

import math

import torch
from torch import Tensor

FEWEST = 1024
"""Entries from which on two looks are quicker than one."""


def largest(x: Tensor, k: int) -> Tensor:
    """Places of the k entries of largest magnitude, in rising order: ``(..., n)`` to ``(..., k)``.

    Of groups of ``g`` entries only the k whose largest entry is largest can hold one of them, as each group before has
    one at least as large. So n entries are compared, but only ``n / g + k g`` sorted: fewest for ``g = sqrt(n / k)``.
    Which of several equal entries is taken is left open, as by ``topk``, and is the one that ``topk`` takes.

    >>> largest(torch.tensor([[1.0, -3.0, 2.0, 0.0]]), 2).tolist()
    [[1, 2]]
    """
    size = x.abs()
    places = _in_two_looks(size, k) if x.device.type == "cpu" else None
    if places is None:
        places = size.topk(k, dim=-1, sorted=False).indices
    return places.sort(dim=-1).values


def _in_two_looks(size: Tensor, k: int) -> Tensor | None:
    """The places, in any order; None where one look is as quick."""
    n = size.shape[-1]
    length = round(math.sqrt(n / k))
    count = n // length  # groups; group i has every count-th entry from i on, so that they are compared side by side
    if n < FEWEST or length < 4:
        return None
    rows = size.reshape(-1, n)
    whole = rows[:, : count * length].unflatten(1, (length, count))
    tops = whole.amax(1)
    groups = tops.topk(k, dim=1, sorted=False).indices
    inside = whole.gather(2, groups.unsqueeze(1).expand(-1, length, -1)).flatten(1)
    seen = torch.cat([inside, rows[:, count * length :]], 1)
    values, best = seen.topk(k, dim=1, sorted=False)
    in_group = best.clamp(max=length * k - 1)
    places = (in_group // k) * count + groups.gather(1, in_group % k)
    places = torch.where(best < length * k, places, best - length * k + count * length)
    least = values.amin(1, keepdim=True)
    equal = ((seen >= least).sum(1) != k) | ((tops >= least).sum(1) > k) | least.isnan().squeeze(1)
    if equal.any():  # of the least: which are taken is then for one look to say
        places[equal] = rows[equal].topk(k, dim=1, sorted=False).indices
    return places.view(*size.shape[:-1], k)
