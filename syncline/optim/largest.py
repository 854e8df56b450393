"""The largest entries of many vectors.

Choice of compiled loops over single numbers.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from syncline.acceleration import Kernels

KERNELS = Kernels("syncline.optim.compiled", break_even_units=2**25)
"""Work counts in numbers, for each of which tensor operations take some nanoseconds."""


def compiled_loops(x: Tensor) -> ModuleType | None:
    """Return the compiled loops, for a tensor that they can walk; None if tensor operations are to do it."""
    if x.device.type != "cpu" or x.dtype != torch.float32 or not x.numel():
        return None
    return KERNELS.for_work(x.numel())


FEWEST = 512
"""Entries from which on a bound pays."""

GROUPS = 4
"""Groups for each entry that is wanted: with four the bound lets through a seventh more than are wanted, of numbers
that have nothing to do with their neighbours."""


def largest(x: Tensor, k: int) -> Tensor:
    """Return the places of the k entries of largest magnitude, in rising order: ``(..., n)`` to ``(..., k)``.

    Of several equal entries it takes those that ``topk`` takes.

    >>> largest(torch.tensor([[1.0, -3.0, 2.0, 0.0]]), 2).tolist()
    [[1, 2]]
    """
    n = x.shape[-1]
    loops = compiled_loops(x)
    if loops:
        return _by_loop(x.reshape(-1, n), k, loops).view(*x.shape[:-1], k)
    size = x.abs()
    bounded = size.device.type == "cpu" and size.dtype in (torch.float32, torch.float64)
    if not bounded or n < max(FEWEST, 2 * GROUPS * k):
        return _by_topk(size, k)
    return _by_bound(size.reshape(-1, n), k).view(*size.shape[:-1], k)


def _by_topk(size: Tensor, k: int) -> Tensor:
    return size.topk(k, dim=-1, sorted=False).indices.sort(dim=-1).values


def _by_loop(x: Tensor, k: int, loops: ModuleType) -> Tensor:
    """Return the indices of the k largest entries of rows ``(r, n)``; use ``topk`` for rows where the loop fails."""
    rows, n = x.shape
    indices, is_complete = torch.empty(rows, k, dtype=torch.int64), torch.empty(rows, dtype=torch.bool)
    bits = x.detach().contiguous().view(torch.int32).numpy()
    loops.find_largest(bits, k, max(1, n // (GROUPS * k)), indices.numpy(), is_complete.numpy())
    return indices if is_complete.all() else _others(indices, ~is_complete, x.abs(), k)


def _others(indices: Tensor, others: Tensor, size: Tensor, k: int) -> Tensor:
    """Return the same with rows by ``topk``."""
    indices[others] = _by_topk(size[others], k)
    return indices


def _by_bound(size: Tensor, k: int) -> Tensor:
    """Return the same of rows ``(r, n)``: entries are cut into groups, of which the k-th largest maximum is a bound.

    At least k entries reach it, and few more: only these are compared with each other. For ``topk`` are rows in which
    more than k entries are as large as the k-th, rows of which many reach the bound, as where most are zero, and rows
    with what is not a number.
    """
    rows, n = size.shape
    length = n // (GROUPS * k)
    count = n // length  # groups; group i has every count-th entry from i on, so that they are compared side by side
    maxima = size[:, : count * length].unflatten(1, (length, count)).amax(1).numpy()
    values = size.numpy()
    bound = np.partition(maxima, count - k, axis=1)[:, count - k]
    reached = np.flatnonzero(values >= bound[:, None])
    row = reached // n
    reaching = np.bincount(row, minlength=rows)
    lost = np.isnan(maxima).any(1) | np.isnan(values[:, count * length :]).any(1)
    few = (reaching >= k) & (reaching <= 2 * GROUPS * k) & ~lost
    reached, row = (reached, row) if few.all() else (reached[few[row]], row[few[row]])
    reaching = np.where(few, reaching, 0)
    widest = max(int(reaching.max(initial=0)), k)
    candidates = np.full((rows, widest), -1.0, values.dtype)
    place = np.arange(len(reached)) - (np.cumsum(reaching) - reaching)[row]
    candidates[row, place] = values.ravel()[reached]
    threshold = np.partition(candidates, widest - k, axis=1)[:, widest - k]
    is_selected = candidates[row, place] >= threshold[row]
    is_complete = few & (np.bincount(row[is_selected], minlength=rows) == k)
    is_selected &= is_complete[row]
    out = np.empty((rows, k), np.int64)
    out[is_complete] = (reached[is_selected] - row[is_selected] * n).reshape(-1, k)
    indices = torch.from_numpy(out)
    return indices if is_complete.all() else _others(indices, torch.from_numpy(~is_complete), size, k)
