"""Indices of the largest entries of vectors, found by compiled loops or by tensor operations."""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from syncline.acceleration import Kernels

KERNELS = Kernels("syncline.optim.compiled", break_even_units=2**25)
"""The compiled loops; their import pays off after about 2^25 numbers."""


def compiled_loops(x: Tensor) -> ModuleType | None:
    """Return the module of compiled loops, or None if tensor operations are faster or ``x`` is not fp32 on the CPU."""
    if x.device.type != "cpu" or x.dtype != torch.float32 or not x.numel():
        return None
    return KERNELS.for_work(x.numel())


GROUPS_PER_ENTRY = 4
"""Number of groups per entry to find, see `syncline.optim.compiled.find_largest`; with 4, random vectors have 1/7 more
candidates than entries."""


def largest_indices(x: Tensor, k: int) -> Tensor:
    """Return the indices ``(..., k)`` of the k entries of largest magnitude of vectors ``(..., n)``, in rising order.

    If several entries are equal to the k-th, it selects those that ``topk`` selects.

    >>> largest_indices(torch.tensor([[1.0, -3.0, 2.0, 0.0]]), 2).tolist()
    [[1, 2]]
    """
    loops = compiled_loops(x)
    if not loops:
        return _by_topk(x, k)
    rows = x.detach().reshape(-1, x.shape[-1]).contiguous()
    indices = torch.empty(len(rows), k, dtype=torch.int64, device="cpu")
    is_complete = torch.empty(len(rows), dtype=torch.bool, device="cpu")
    group_length = max(1, rows.shape[1] // (GROUPS_PER_ENTRY * k))
    loops.find_largest(rows.view(torch.int32).numpy(), k, group_length, indices.numpy(), is_complete.numpy())
    if not is_complete.all():  # rows with ties or NaN
        indices[~is_complete] = _by_topk(rows[~is_complete], k)
    return indices.view(*x.shape[:-1], k)


def _by_topk(x: Tensor, k: int) -> Tensor:
    """Return the rising indices ``(..., k)`` of the k entries of largest magnitude of ``x (..., n)``, by ``topk``."""
    return x.abs().topk(k, dim=-1, sorted=False).indices.sort(dim=-1).values
