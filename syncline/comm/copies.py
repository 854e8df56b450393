"""One copy for all workers: a tensor ``(R, *s)`` whose worker axis has stride 0 until something differs between them.

Whoever reads such a tensor sees R rows; torch refuses to write to it as to R rows. What is written to is *the copy*,
``(1, *s)``, which all rows show, or rows of their own from then on. With one row a tensor is its own copy.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def is_one_copy(x: Tensor) -> bool:
    """Whether all rows are the same memory.

    >>> is_one_copy(torch.zeros(1, 3).expand(4, 3)), is_one_copy(torch.zeros(4, 3)), is_one_copy(torch.zeros(1, 3))
    (True, False, True)
    """
    return x.stride(0) == 0 or x.size(0) == 1


def the_copy(x: Tensor) -> Tensor:
    """The first row of what is one copy, ``(1, *s)``, a view: all rows see what is written to it."""
    return x if x.size(0) == 1 else x[:1]


def for_rows(copy: Tensor, rows: int) -> Tensor:
    """One copy ``(1, *s)`` as all rows see it, ``(R, *s)``; what has R rows already as it is."""
    return copy if copy.size(0) == rows else copy.expand(rows, *copy.shape[1:])


def computed_once(of: Callable[..., Tensor], *xs: Tensor) -> Tensor:
    """``of(*xs)``, row by row the same function, ``(R, *s)``; of one copy, where all are one."""
    if all(map(is_one_copy, xs)):
        return for_rows(of(*map(the_copy, xs)), xs[0].size(0))
    return of(*xs)


def as_one_copy(x: Tensor) -> Tensor:
    """``x`` as one copy, if all its rows are equal, else as it is. It looks at values: a device is waited for."""
    if is_one_copy(x) or x.is_meta or not torch.equal(x, x[:1].expand_as(x)):
        return x
    return for_rows(x[:1].clone(), len(x))


def as_own_copies(x: Tensor) -> Tensor:
    """``x`` with memory of its own for each row."""
    return x.contiguous() if x.stride(0) == 0 and x.size(0) > 1 else x
