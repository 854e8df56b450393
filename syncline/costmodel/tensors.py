"""The parameters of a model as shapes: what a method's traffic depends on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class TensorShape(NamedTuple):
    """One parameter of a model: its name, its shape, and whether matrix rules such as Muon's and Dion's take it.

    Embeddings and output heads have two dimensions and are no matrices to these rules.
    """

    name: str
    shape: tuple[int, ...]
    is_matrix: bool = False

    @property
    def elements(self) -> int:
        """Numbers that it holds."""
        return math.prod(self.shape)


def first_and_last_layers(names: Sequence[str]) -> list[bool]:
    """Which parameters belong to the first or to the last layer of a model.

    A layer is what stands before the last dot of a name; ``embedding`` alone is a layer too.

    Args:
        names: the parameters' names, in the model's order.

    >>> first_and_last_layers(["embedding", "0.up", "0.down", "head.weight", "head.bias"])
    [True, False, False, True, True]
    """
    layers = [name.rpartition(".")[0] or name for name in names]
    return [layer in (layers[0], layers[-1]) for layer in layers]


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
