"""The parameters of a model as shapes: what a method's traffic depends on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class TensorShape(NamedTuple):
    """One parameter of a model: its name, its shape, and whether matrix rules such as Muon's and Dion's take it.

    Embeddings and output heads have two dimensions and are no matrices to these rules. A convolution's weights
    ``(out, in, *kernel)`` are a matrix of ``out`` rows.
    """

    name: str
    shape: tuple[int, ...]
    is_matrix: bool = False

    @property
    def elements(self) -> int:
        """Numbers that it holds."""
        return math.prod(self.shape)

    @property
    def sides(self) -> tuple[int, int]:
        """Of a matrix: rows and columns, see ``matrix_sides``."""
        return matrix_sides(self.shape)

    def is_worth_factors(self, rank: int) -> bool:
        """Of a matrix: see the function of that name."""
        return is_worth_factors(*self.sides, rank)


def matrix_sides(shape: Sequence[int]) -> tuple[int, int]:
    """Rows and columns of what is worked on as a matrix: ``(out, rest)``, as public codes view convolutions.

    >>> matrix_sides((768, 3072)), matrix_sides((16, 3, 5, 5))
    ((768, 3072), (16, 75))
    """
    return shape[0], math.prod(shape[1:])


def balanced_parts(sizes: Sequence[int], parts: int) -> list[list[int]]:
    """Cut a row of tensors into runs of about equal size, none of them empty while there are tensors for all.

    Tensor i goes where its middle falls, moved as little as it takes for every run to have one.

    Args:
        sizes: elements of each tensor, in order.
        parts: F.

    Returns:
        The indices of each run.

    >>> balanced_parts([8, 1, 1, 2], 3)
    [[0], [1], [2, 3]]
    """
    total, before = max(sum(sizes), 1), 0
    out: list[list[int]] = [[] for _ in range(parts)]
    last = -1
    for i, size in enumerate(sizes):
        wanted = min((2 * before + size) * parts // (2 * total), parts - 1)
        # Not before the last run, not skipping one, and leaving a tensor for each run still to come.
        part = max(min(wanted, last + 1), last, parts - (len(sizes) - i), 0)
        part = min(part, last + 1)
        out[part].append(i)
        last, before = part, before + size
    return out


def largest_divisor(length: int, at_most: int) -> int:
    """The largest divisor of ``length`` that is not above ``at_most``.

    >>> largest_divisor(768, 64), largest_divisor(50, 64), largest_divisor(97, 64)
    (64, 50, 1)
    """
    return next(size for size in range(min(length, at_most), 0, -1) if length % size == 0)


def is_worth_factors(rows: int, columns: int, rank: int) -> bool:
    """Whether low-rank factors are smaller than their matrix: ``(m + n) r < m n``."""
    return (rows + columns) * rank < rows * columns


def dion_rank(rows: int, columns: int, fraction: float) -> int:
    """``ceil(fraction min(m, n))``, at least 1.

    >>> dion_rank(768, 3072, 0.25), dion_rank(8, 3, 0.5)
    (192, 2)
    """
    return max(1, math.ceil(fraction * min(rows, columns)))
