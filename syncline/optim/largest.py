"""Indices of the largest entries of vectors, found by compiled loops or by tensor operations."""

from __future__ import annotations

from types import ModuleType

import numpy as np
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


SHORTEST_BOUNDED = 512
"""Length of a vector from which `_by_bound` is faster than ``topk``."""

GROUPS_PER_ENTRY = 4
"""Number of groups per entry to find in `_by_bound`; with 4, random vectors have 1/7 more candidates than entries."""


def largest_indices(x: Tensor, k: int) -> Tensor:
    """Return the indices ``(..., k)`` of the k entries of largest magnitude of vectors ``(..., n)``, in rising order.

    If several entries are equal to the k-th, it selects those that ``topk`` selects.

    >>> largest_indices(torch.tensor([[1.0, -3.0, 2.0, 0.0]]), 2).tolist()
    [[1, 2]]
    """
    n = x.shape[-1]
    loops = compiled_loops(x)
    if loops:
        return _by_loop(x.reshape(-1, n), k, loops).view(*x.shape[:-1], k)
    magnitudes = x.abs()
    has_numpy_dtype = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
    group_length = n // (GROUPS_PER_ENTRY * k)
    if has_numpy_dtype and n >= SHORTEST_BOUNDED and group_length >= 2:
        return _by_bound(magnitudes.reshape(-1, n), k).view(*x.shape[:-1], k)
    return _by_topk(magnitudes, k)


def _by_topk(magnitudes: Tensor, k: int) -> Tensor:
    """Return the rising indices ``(..., k)`` of the k largest of magnitudes ``(..., n)``, by torch's ``topk``."""
    return magnitudes.topk(k, dim=-1, sorted=False).indices.sort(dim=-1).values


def _by_loop(x: Tensor, k: int, loops: ModuleType) -> Tensor:
    """Return the rising indices of the k entries of largest magnitude of rows ``(r, n)``, by a compiled loop."""
    rows, n = x.shape
    indices = torch.empty(rows, k, dtype=torch.int64)
    is_complete = torch.empty(rows, dtype=torch.bool)
    bits = x.detach().contiguous().view(torch.int32).numpy()
    group_length = max(1, n // (GROUPS_PER_ENTRY * k))
    loops.find_largest(bits, k, group_length, indices.numpy(), is_complete.numpy())
    return _fill_incomplete_rows(indices, is_complete, x, k)


def _fill_incomplete_rows(indices: Tensor, is_complete: Tensor, x: Tensor, k: int) -> Tensor:
    """Fill in, by ``topk``, the rows of indices ``(r, k)`` that are not complete, and return all indices."""
    if not is_complete.all():
        indices[~is_complete] = _by_topk(x[~is_complete].abs(), k)
    return indices


def _by_bound(magnitudes: Tensor, k: int) -> Tensor:
    """Return the rising indices of the k largest of each row of magnitudes ``(r, n)``, by a bound on the k-th largest.

    The entries of a row are divided into groups. The k-th largest of the groups' maxima is a lower bound of the k-th
    largest entry, so that only entries that reach it are candidates. ``topk`` does the rows with many candidates, with
    more than k entries as large as the k-th, or with NaN.
    """
    num_rows, n = magnitudes.shape
    values = magnitudes.numpy()

    # A lower bound of the k-th largest entry of each row: the k-th largest of the maxima of groups.
    length = n // (GROUPS_PER_ENTRY * k)
    num_groups = n // length  # group i has the entries i, i + num_groups, ...
    maxima = magnitudes[:, : num_groups * length].unflatten(1, (length, num_groups)).amax(1).numpy()
    bound = np.partition(maxima, num_groups - k, axis=1)[:, num_groups - k]

    # Indices of the candidates in the flattened array, without rows that have too many candidates or NaN.
    candidates = np.flatnonzero(values >= bound[:, None])
    row = candidates // n
    num_candidates = np.bincount(row, minlength=num_rows)
    has_nan = np.isnan(maxima).any(1) | np.isnan(values[:, num_groups * length :]).any(1)
    is_bounded = (num_candidates >= k) & (num_candidates <= 2 * GROUPS_PER_ENTRY * k) & ~has_nan
    if not is_bounded.all():
        candidates, row = candidates[is_bounded[row]], row[is_bounded[row]]
    num_candidates = np.where(is_bounded, num_candidates, 0)

    # Select the k largest from a table with the candidates of each row side by side.
    width = max(int(num_candidates.max(initial=0)), k)
    table = np.full((num_rows, width), -1.0, values.dtype)  # below all magnitudes
    first_candidate = np.cumsum(num_candidates) - num_candidates
    column = np.arange(len(candidates)) - first_candidate[row]
    table[row, column] = values.ravel()[candidates]
    kth_largest = np.partition(table, width - k, axis=1)[:, width - k]
    is_selected = table[row, column] >= kth_largest[row]
    is_complete = is_bounded & (np.bincount(row[is_selected], minlength=num_rows) == k)
    is_selected &= is_complete[row]
    indices = np.empty((num_rows, k), np.int64)
    indices[is_complete] = (candidates[is_selected] - row[is_selected] * n).reshape(-1, k)
    return _fill_incomplete_rows(torch.from_numpy(indices), torch.from_numpy(is_complete), magnitudes, k)
