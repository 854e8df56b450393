"""One copy for all workers: a tensor ``(R, *s)`` whose worker axis has stride 0 while all workers hold equal values.

Code that reads such a tensor sees R rows; torch refuses to write to these R rows. Code writes either to *the copy*,
``(1, *s)``, which all rows show, or to a tensor with separate memory for each row. A tensor of one row is its own copy.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def is_one_copy(x: Tensor) -> bool:
    """Return whether all rows are the same memory.

    >>> is_one_copy(torch.zeros(1, 3).expand(4, 3)), is_one_copy(torch.zeros(4, 3)), is_one_copy(torch.zeros(1, 3))
    (True, False, True)
    """
    return x.stride(0) == 0 or x.size(0) == 1


def the_copy(x: Tensor) -> Tensor:
    """Return the first row, ``(1, *s)``, of a tensor whose rows share memory, as a view; all rows show writes to it."""
    return x if x.size(0) == 1 else x[:1]


def for_rows(copy: Tensor, rows: int) -> Tensor:
    """Return a tensor ``(1, *s)`` expanded to all R rows without copying; return a tensor of R rows unchanged."""
    return copy if copy.size(0) == rows else copy.expand(rows, *copy.shape[1:])


def computed_once(function: Callable[..., Tensor], *xs: Tensor) -> Tensor:
    """Return ``function(*xs)``, computed for a single row if the rows of each input share memory."""
    if all(map(is_one_copy, xs)):
        return for_rows(function(*map(the_copy, xs)), xs[0].size(0))
    return function(*xs)


def as_one_copy(x: Tensor) -> Tensor:
    """Return ``x`` with all rows in the memory of one if its rows are equal, else ``x`` (waits for the device)."""
    if is_one_copy(x) or x.is_meta or not torch.equal(x, x[:1].expand_as(x)):
        return x
    return for_rows(x[:1].clone(), len(x))


def as_own_copies(x: Tensor) -> Tensor:
    """Return ``x`` with separate memory for each row."""
    return x.contiguous() if x.stride(0) == 0 and x.size(0) > 1 else x
