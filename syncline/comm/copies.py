"""Tensors ``(R, *s)`` whose R rows, one per worker, share the memory of one row while all workers hold equal values.

The worker axis of such a tensor has stride 0, so that torch refuses to write to its R rows. Code writes either to the
shared row, ``(1, *s)``, which all rows show, or to a tensor with separate memory for each row.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def rows_share_memory(x: Tensor) -> bool:
    """Return whether all rows of a tensor ``(R, *s)`` are the same memory, as in a tensor of one row.

    >>> rows_share_memory(torch.zeros(1, 3).expand(4, 3)), rows_share_memory(torch.zeros(4, 3))
    (True, False)
    """
    return x.stride(0) == 0 or x.size(0) == 1


def shared_row(x: Tensor) -> Tensor:
    """Return the first row, ``(1, *s)``, of a tensor whose rows share memory, as a view; all rows show writes to it."""
    return x if x.size(0) == 1 else x[:1]


def expand_rows(x: Tensor, num_rows: int) -> Tensor:
    """Return a tensor ``(1, *s)`` expanded to R rows without copying; return a tensor of R rows unchanged."""
    return x if x.size(0) == num_rows else x.expand(num_rows, *x.shape[1:])


def compute_once_if_shared(function: Callable[..., Tensor], *xs: Tensor) -> Tensor:
    """Return ``function(*xs)`` for tensors ``(R, *s)``, computed for a single row if the rows of each share memory."""
    if not all(rows_share_memory(x) for x in xs):
        return function(*xs)
    result = function(*[shared_row(x) for x in xs])
    return expand_rows(result, num_rows=len(xs[0]))


def share_equal_rows(x: Tensor) -> Tensor:
    """Return ``x`` with all rows in the memory of one row if its rows are equal, else ``x``.

    The comparison waits for the device.
    """
    if rows_share_memory(x) or x.is_meta or not torch.equal(x, x[:1].expand_as(x)):
        return x
    return expand_rows(x[:1].clone(), len(x))


def separate_rows(x: Tensor) -> Tensor:
    """Return ``x`` with separate memory for each row."""
    return x.contiguous() if x.stride(0) == 0 and x.size(0) > 1 else x
