"""Blocks of a tensor in an orthonormal basis: what DeMo looks at when it decides what to send.

Each dimension is cut into equal chunks, and each block is multiplied by an orthonormal matrix along each dimension:
a batched matrix product, so that all blocks of all workers are transformed at once.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from syncline.costmodel import largest_divisor
from syncline.seeds import seed64

Basis = Literal["dct", "random", "identity"]


@lru_cache(maxsize=4096)
def chunk_shape(shape: tuple[int, ...], at_most: int) -> tuple[int, ...]:
    """Return the block that each dimension's largest divisor gives; a scalar is a block of one."""
    return tuple(largest_divisor(length, at_most) for length in shape) or (1,)


def to_blocks(x: Tensor, blocks: tuple[int, ...]) -> Tensor:
    """Map ``(R, *s)`` to ``(R, number of blocks, *blocks)``."""
    rows = x.shape[0]
    lengths = tuple(x.shape[1:]) or (1,)
    split = [part for length, size in zip(lengths, blocks, strict=True) for part in (length // size, size)]
    order = [0, *range(1, len(split) + 1, 2), *range(2, len(split) + 1, 2)]
    return x.reshape(rows, *split).permute(order).reshape(rows, -1, *blocks)


def from_blocks(blocks: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the inverse of ``to_blocks``: ``(R, n, *blocks)`` to ``(R, *shape)``."""
    sizes = blocks.shape[2:]
    counts = [length // size for length, size in zip(shape or (1,), sizes, strict=True)]
    d = len(sizes)
    x = blocks.reshape(blocks.shape[0], *counts, *sizes)
    order = [0] + [axis for i in range(d) for axis in (1 + i, 1 + d + i)]
    return x.permute(order).reshape(blocks.shape[0], *shape)


@lru_cache(maxsize=64)
def dct_matrix(n: int) -> Tensor:
    """Return the orthonormal DCT-II in fp64: ``C_kj = sqrt(2/n) cos(pi (j + 1/2) k / n)``, row 0 over sqrt 2."""
    k, j = torch.arange(n, dtype=torch.float64).unsqueeze(1), torch.arange(n, dtype=torch.float64)
    c = math.sqrt(2 / n) * torch.cos(math.pi * (j + 0.5) * k / n)
    c[0] /= math.sqrt(2)
    return c


@lru_cache(maxsize=64)
def dct_matrix_on(n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return ``dct_matrix`` in this dtype, cached on this device, because a copy to a GPU would block."""
    return dct_matrix(n).to(device, dtype)


def random_matrix(n: int, step: int) -> Tensor:
    """Return a random orthonormal matrix in double precision, new in each step and the same on all workers."""
    source = torch.Generator().manual_seed(seed64(0, "random basis", n, step))
    q, r = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=source))
    return q * torch.sign(r.diagonal())


def transform(blocks: Tensor, matrices: list[Tensor | None]) -> Tensor:
    """Return ``(R, n, *b)`` multiplied by one matrix ``(b_i, b_i)`` per dimension; None leaves a dimension as it is."""
    for axis, matrix in enumerate(matrices, start=2):
        if matrix is not None:
            blocks = _along(blocks, matrix, axis)
    return blocks


def _along(blocks: Tensor, matrix: Tensor, axis: int) -> Tensor:
    """Multiply by a matrix along one axis; for the last two axes, as a product per block without a transposition."""
    last = blocks.dim() - 1
    if last == 2:
        return blocks @ matrix.mT
    if axis < last - 1:
        return torch.tensordot(blocks, matrix, dims=([axis], [1])).movedim(-1, axis)
    stacked = blocks.flatten(0, -3)
    same = matrix.expand(len(stacked), *matrix.shape)
    return (torch.bmm(stacked, same.mT) if axis == last else torch.bmm(same, stacked)).view(blocks.shape)
