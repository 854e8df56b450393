"""DeMo's selection of a tensor's coefficients: the largest of its blocks in an orthonormal basis."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from syncline.comm import SparsePairs
from syncline.errors import SpecError
from syncline.optim.chunks import Basis, chunk_shape, dct_matrix_on, from_blocks, random_matrix, to_blocks, transform
from syncline.optim.largest import largest

MeanOver = Literal["senders", "all"]


@dataclass(frozen=True)
class Coefficients:
    """The k coefficients of largest magnitude of each block, ``c = top-k(T(x))``, and what they stand for, ``T^-1(c)``.

    Args:
        k: number of coefficients that are sent per block; a block with fewer entries sends all.
        chunk: largest length of a block along a dimension. The length is the dimension's largest divisor up to this.
        basis: ``dct``; ``random``, an orthonormal basis that is new in each step and equal on all workers; or
            ``identity``.
        pairs: encoding of the pairs of index and value.

    Raises:
        SpecError: for a value out of range.

    Source: DeMo, section 2.1.
    """

    k: int
    chunk: int
    basis: Basis
    pairs: SparsePairs

    def __post_init__(self) -> None:
        for name in ("k", "chunk"):
            if getattr(self, name) < 1:
                raise SpecError(name, getattr(self, name), "an integer >= 1")
        if self.basis not in ("dct", "random", "identity"):
            raise SpecError("basis", self.basis, "'dct', 'random' or 'identity'")

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Return the bytes that one worker sends of a tensor of this shape."""
        block = math.prod(chunk_shape(shape, self.chunk))
        count = math.prod(shape) // block
        return self.pairs.nbytes(count * min(self.k, block), block)

    def _matrices(self, like: Tensor, t: int, *, inverse: bool) -> list[Tensor | None]:
        """Return an orthonormal matrix per dimension, with dtype and device of ``like``; an inverse is a transpose."""
        out: list[Tensor | None] = []
        for size in chunk_shape(tuple(like.shape[1:]), self.chunk):
            if self.basis == "identity" or like.is_meta or size == 1:
                out.append(None)
                continue
            if self.basis == "dct":
                matrix = dct_matrix_on(size, like.dtype, like.device)
            else:
                matrix = random_matrix(size, t).to(like)
            out.append(matrix.mT if inverse else matrix)
        return out

    def extract(self, x: Tensor, t: int) -> tuple[Tensor, Callable[[], Tensor]]:
        """Return the encoded bytes ``(R, b)`` of ``x (R, *s)``, and a function that decodes them once."""
        shape = tuple(x.shape[1:])
        sizes = chunk_shape(shape, self.chunk)
        flat = transform(to_blocks(x, sizes), self._matrices(x, t, inverse=False)).flatten(2)
        if flat.data_ptr() == x.data_ptr():
            flat = flat.clone()  # one block in the identity basis is x itself, which is written over below
        block = flat.shape[-1]
        index = largest(flat, min(self.k, block))  # in order, so that equal sets are equal bytes
        value = flat.gather(-1, index)

        def arrived() -> Tensor:
            # What the others will decode, rounding included.
            # In the identity's basis the coefficients may be x itself, which has to stay.
            empty = torch.zeros_like(flat) if self.basis == "identity" else flat.zero_()
            coefficients = empty.scatter_(-1, index, self.pairs.rounded(value))
            return from_blocks(transform(coefficients.unflatten(-1, sizes), self._matrices(x, t, inverse=True)), shape)

        return self.pairs.encode(index.flatten(1), value.flatten(1), block), arrived

    def assemble(self, encoded: Tensor, like: Tensor, t: int, average: MeanOver) -> Tensor:
        """Return the mean ``(S, *s)`` of what all workers sent, ``(S, M, b)``.

        Args:
            encoded: bytes from ``extract``, of all workers.
            like: a tensor with the shape ``(R, *s)``, dtype and device of the result.
            t: number of the step, which determines the random basis.
            average: whether a coefficient is averaged over the workers that sent it, or over all workers.
        """
        shape = tuple(like.shape[1:])
        sizes = chunk_shape(shape, self.chunk)
        block = math.prod(sizes)
        count, k = math.prod(shape) // block, min(self.k, block)
        replicas, workers = encoded.shape[:2]
        index, value = self.pairs.decode(encoded, count * k, block, like.dtype)
        # (S, M, count * k) -> (S, count, M * k): all that arrived for a block side by side.
        index, value = (x.view(replicas, workers, count, k).transpose(1, 2).flatten(2) for x in (index, value))
        total = value.new_zeros(replicas, count, block).scatter_add_(-1, index, value)
        if average == "senders":
            senders = torch.zeros_like(total).scatter_add_(-1, index, torch.ones_like(value))
            total.div_(senders.clamp_(min=1))
        else:
            total.div_(workers)
        return from_blocks(transform(total.unflatten(-1, sizes), self._matrices(like, t, inverse=True)), shape)
