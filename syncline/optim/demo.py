"""DeMo: each worker sends the largest coefficients of its momentum's blocks, and forgets what it sent.

Blocks of a tensor in an orthonormal basis: what DeMo looks at when it decides what to send.

Each dimension is cut into equal chunks, and each block is multiplied by an orthonormal matrix along each dimension:
a batched matrix product, so that all blocks of all workers are transformed at once.

DeMo's selection of a tensor's coefficients: the largest of its blocks in an orthonormal basis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import (
    Any,
    Literal,
)

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import (
    Communicator,
    Details,
    SparsePairs,
    WireFormat,
    encoded_from,
    first_rows,
    for_all,
)
from syncline.costmodel import largest_divisor
from syncline.errors import SpecError
from syncline.optim.base import Reducer, Row, UpdateRule
from syncline.optim.largest import largest
from syncline.optim.matrices import MatrixSplit, Orthogonalised, Signed
from syncline.optim.rules import MomentumRule
from syncline.optim.scalings import Unscaled, check_unit
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


DEMO_MOMENTUM = "demo_momentum"

PAIRS = SparsePairs(64, "fp32")
"""The public code's: 12 bytes per coefficient."""


def demo_rule(base: Literal["sgd", "signum", "muon"]) -> UpdateRule:
    """Return the rule for DeMo's averaged components: used as they are, by their sign, or orthogonalised.

    Muon's orthogonalisation takes matrices; everything else then moves by its sign.
    """
    sign = MomentumRule((), (), Signed())
    if base == "sgd":
        return MomentumRule((), (), Unscaled())
    if base == "signum":
        return sign
    if base == "muon":
        return MatrixSplit(MomentumRule((), (), Orthogonalised()), sign)
    raise SpecError("base", base, "'sgd', 'signum' or 'muon'")


@dataclass(frozen=True)
class CoefficientMean(Reducer):
    """A reducer that decouples momenta: top-k coefficients of blocks in an orthonormal basis.

        m <- beta m + g;   c = top-k per block of T(m);   m <- m - alpha T^-1(c);   q = T^-1(mean of all workers' c)

    and ``q`` takes the place of the gradient: SGD uses it, Signum its sign, Muon its polar factor. What travels: an
    all-gather of k (index, value) pairs per block. With the identity basis, k a whole block and ``alpha = 0`` it is the
    average of momenta.

    With a ``period`` K the momentum takes in every gradient and is exchanged after steps ``K - 1``, ``2 K - 1``, ...;
    parameters do not change in between: DeMo never averages parameters, so local steps would make workers drift
    apart.

    Args:
        k: number of coefficients that are sent per block; a block with fewer entries sends all.
        chunk: largest length of a block along a dimension. The length is the dimension's largest divisor up to this.
        beta: decay rate of the momentum.
        alpha: share of the sent components that is subtracted from the momentum: 1 in the public code, 0.2 in the
            paper.
        basis: ``dct``; ``random``, an orthonormal basis that is new in each step and equal on all workers; or
            ``identity``.
        average: ``senders``, each coefficient is averaged over the workers that sent it (public code); ``all``, over
            all workers (paper).
        pairs: encoding of the pairs of index and value.
        period: K, number of steps between exchanges; 1 for DeMo as published.
        per_node: number of workers of a node; consecutive workers form a node. They average their gradients in full in
            every step, and each node acts as one worker of DeMo. If there are fewer workers, all form one node. 1 for
            DeMo without nodes.

    Raises:
        SpecError: for a value out of range.

    Source: DeMo, section 2.1 and Algorithm 4; section 5 for nodes; defaults of its public code.
    """

    k: int = 32
    chunk: int = 64
    beta: float = 0.999
    alpha: float = 1.0
    basis: Basis = "dct"
    average: MeanOver = "senders"
    pairs: SparsePairs = PAIRS
    period: int = 1
    per_node: int = 1

    def __post_init__(self) -> None:
        Coefficients(self.k, self.chunk, self.basis, self.pairs)
        for name in ("period", "per_node"):
            if getattr(self, name) < 1:
                raise SpecError(name, getattr(self, name), "an integer >= 1")
        check_unit("beta", self.beta)
        if not 0 <= self.alpha <= 1:
            raise SpecError("alpha", self.alpha, "a number from 0 to 1")
        if self.average not in ("senders", "all"):
            raise SpecError("average", self.average, "'senders' or 'all'")

    def hyperparameters(self) -> dict[str, Any]:
        """Return the values of ``demo_beta`` and ``alpha``."""
        return {"demo_beta": self.beta, "alpha": self.alpha}

    def init(self, x: Tensor, number: int) -> dict[str, Tensor]:
        """Return a zero momentum for a parameter."""
        return {DEMO_MOMENTUM: torch.zeros_like(x)}

    @property
    def coefficients(self) -> Coefficients:
        """Return the selection of coefficients to send of a momentum."""
        return Coefficients(self.k, self.chunk, self.basis, self.pairs)

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Return the bytes that one worker sends for a parameter of this shape."""
        return self.coefficients.nbytes(shape)

    @override
    def reduce(self, rows: list[Row], comm: Communicator, wire: WireFormat, t: int) -> Sequence[Tensor | None]:
        # The wire is the pairs' own; ``wire`` is that of gradients inside a node.
        size = min(self.per_node, comm.world_size)
        if size > 1:
            details = Details(in_backward=True)
            means = comm.mean_within([row.g for row in rows], size, wire, "gradient", details)
            rows = [row._replace(g=g) for row, g in zip(rows, means, strict=True)]
        for row in rows:
            row.state[DEMO_MOMENTUM].mul_(row.group["demo_beta"]).add_(row.g)
        if (t + 1) % self.period:
            return [None] * len(rows)
        encoded = [self._extract(row, t) for row in rows]
        sizes = [part.shape[-1] for part in encoded]
        details = encoded_from(*(row.g for row in rows))
        sent = torch.cat(encoded, dim=-1)
        if size > 1:
            everyone = from_all_nodes(sent, size, comm, details)
        else:
            everyone = comm.all_gather(sent, label="top-k", details=details)
        # All workers of a replica receive the same: decode it once.
        parts = first_rows(everyone, comm).split(sizes, dim=-1)
        return [self._assemble(part, row, t) for part, row in zip(parts, rows, strict=True)]

    def _extract(self, row: Row, t: int) -> Tensor:
        """Return the bytes that each worker sends ``(R, b)``; takes them out of its momentum."""
        momentum = row.state[DEMO_MOMENTUM]
        encoded, arrived = self.coefficients.extract(momentum, t)
        if row.group["alpha"]:
            momentum.sub_(arrived(), alpha=row.group["alpha"])
        return encoded

    def _assemble(self, encoded: Tensor, row: Row, t: int) -> Tensor:
        """Return ``q (R, *s)`` from what all workers sent ``(S, M, b)``."""
        return for_all(self.coefficients.assemble(encoded, row.g, t, self.average), row.g.shape[0])


def from_all_nodes(sent: Tensor, size: int, comm: Communicator, details: Details) -> Tensor:
    """Gather the bytes of each node of ``size`` workers, ``(R, b)`` to ``(R, M/size, b)``; its workers have the same.

    Each worker hands its share of the node's bytes to those in its place of the other nodes, and what they hand back to
    its node: between nodes everything travels once.
    """
    nodes, nbytes = comm.world_size // size, sent.shape[1]
    if nodes == 1:
        return sent.unsqueeze(1)
    share = -(-nbytes // size)
    shares = torch.nn.functional.pad(sent, (0, share * size - nbytes)).unflatten(1, (size, share))
    places = [worker % size for worker in comm.local_workers]
    local_shares = shares[list(range(len(sent))), places]
    between = comm.all_gather_across(local_shares, size, "top-k", details)
    inside = comm.all_gather_within(between.flatten(1), size, "top-k", Details(encoded_bytes=0))
    return inside.unflatten(2, (nodes, share)).transpose(1, 2).flatten(2)[..., :nbytes]
