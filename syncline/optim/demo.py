"""DeMo: workers exchange the largest coefficients of blocks of their momenta in an orthonormal basis.

A tensor is cut into blocks. Each block is transformed by an orthonormal matrix along each dimension, such as the
discrete cosine transform (DCT). A worker sends the k largest coefficients of each block, and subtracts them from its
momentum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any, Literal

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import (
    Communicator,
    Details,
    SparsePairs,
    WireFormat,
    encoding_details,
    first_row_per_replica,
    repeat_for_workers,
)
from syncline.costmodel import largest_divisor
from syncline.errors import SpecError
from syncline.optim.base import ParamRow, Reducer, UpdateRule
from syncline.optim.largest import KERNELS, compiled_loops, largest_indices
from syncline.optim.matrices import MatrixSplit, Orthogonalised, Signed
from syncline.optim.rules import MomentumRule
from syncline.optim.scalings import Unscaled, check_unit
from syncline.seeds import seed64

Basis = Literal["dct", "random", "identity"]


@lru_cache(maxsize=4096)
def block_shape(shape: tuple[int, ...], at_most: int) -> tuple[int, ...]:
    """Return the shape of a tensor's blocks: the largest divisor of each dimension, up to ``at_most``.

    >>> block_shape((128, 10), 64), block_shape((), 64)
    ((64, 10), (1,))
    """
    return tuple(largest_divisor(length, at_most) for length in shape) or (1,)


def to_blocks(x: Tensor, blocks: tuple[int, ...]) -> Tensor:
    """Cut a tensor ``(R, *s)`` into blocks of this shape: return ``(R, number of blocks, *blocks)``."""
    lengths = tuple(x.shape[1:]) or (1,)
    # Each dimension becomes two: the number of blocks along it, and the length of a block.
    split_shape = [x.shape[0]]
    for length, block_length in zip(lengths, blocks, strict=True):
        split_shape += [length // block_length, block_length]
    count_axes = range(1, len(split_shape), 2)
    length_axes = range(2, len(split_shape), 2)
    counts_first = x.reshape(split_shape).permute(0, *count_axes, *length_axes)
    return counts_first.reshape(x.shape[0], -1, *blocks)


def from_blocks(blocks: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Join blocks ``(R, number of blocks, *b)`` to a tensor ``(R, *shape)``: the inverse of ``to_blocks``."""
    block_lengths = blocks.shape[2:]
    dims = len(block_lengths)
    lengths = shape or (1,)  # a number is a block by itself
    counts = [length // block_length for length, block_length in zip(lengths, block_lengths, strict=True)]
    counts_first = blocks.reshape(blocks.shape[0], *counts, *block_lengths)
    axes = [0]
    for i in range(dims):
        axes += [1 + i, 1 + dims + i]  # the number of blocks along dimension i, and their length
    return counts_first.permute(axes).reshape(blocks.shape[0], *shape)


@lru_cache(maxsize=64)
def dct_matrix(n: int) -> Tensor:
    """Return the orthonormal n by n matrix of the discrete cosine transform (DCT-II), in fp64.

    It is ``C_kj = sqrt(2/n) cos(pi (j + 1/2) k / n)``, with row 0 divided by ``sqrt(2)``.
    """
    k = torch.arange(n, dtype=torch.float64, device="cpu").unsqueeze(1)
    j = torch.arange(n, dtype=torch.float64, device="cpu")
    c = math.sqrt(2 / n) * torch.cos(math.pi * (j + 0.5) * k / n)
    c[0] /= math.sqrt(2)
    return c


@lru_cache(maxsize=64)
def dct_matrix_on(n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the DCT-II matrix of n points in this dtype; the cache avoids repeated copies to a GPU."""
    return dct_matrix(n).to(device, dtype)


def random_matrix(n: int, step: int) -> Tensor:
    """Return a random orthonormal n by n matrix in fp64, which is new in each step and equal on all workers."""
    source = torch.Generator().manual_seed(seed64(0, "random basis", n, step))
    q, r = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=source, device="cpu"))
    return q * torch.sign(r.diagonal())  # these signs make the distribution uniform


def change_basis(blocks: Tensor, matrices: list[Tensor | None]) -> Tensor:
    """Return blocks ``(R, n, *b)`` multiplied along dimension i by a matrix ``(b_i, b_i)``; None is the identity."""
    for axis, matrix in enumerate(matrices, start=2):
        if matrix is not None:
            blocks = _multiply_along(blocks, matrix, axis)
    return blocks


def _multiply_along(blocks: Tensor, matrix: Tensor, axis: int) -> Tensor:
    """Return blocks ``(R, n, *b)`` multiplied by a matrix along one axis, if possible without a transposition."""
    last_axis = blocks.dim() - 1
    if axis == last_axis:
        return blocks @ matrix.mT
    if axis == last_axis - 1:
        return matrix @ blocks
    return torch.tensordot(blocks, matrix, dims=([axis], [1])).movedim(-1, axis)


def transform_sparse(
    loops: ModuleType, index: Tensor, value: Tensor, lengths: tuple[int, ...], matrices: Sequence[Tensor | None]
) -> Tensor:
    """Return ``change_basis`` of n sparse two-dimensional blocks per row, by a compiled loop.

    Args:
        loops: module of compiled loops, from `loops_for_sparse`.
        index: rising indices of the k nonzero entries of each flattened block, ``(R, n, k)``.
        value: values of these entries, ``(R, n, k)``.
        lengths: shape of a block.
        matrices: a matrix for each dimension of a block.

    Returns:
        Blocks ``(R, n, *lengths)``.
    """
    k = index.shape[-1]
    blocks = value.new_empty(*index.shape[:2], *lengths)
    # The loop reads rows of the transposed matrices; for the inverse DCT this copies nothing.
    left_rows, right_rows = (matrix.mT.contiguous().numpy() for matrix in matrices if matrix is not None)
    out = blocks.flatten(0, 1).numpy()  # a view: the loop writes to ``blocks``
    loops.transform_sparse_blocks(index.view(-1, k).numpy(), value.view(-1, k).numpy(), left_rows, right_rows, out=out)
    return blocks


def loops_for_sparse(x: Tensor, lengths: tuple[int, ...], matrices: Sequence[Tensor | None]) -> ModuleType | None:
    """Return the module of compiled loops if `transform_sparse` is faster than ``change_basis``, with the same bits.

    Args:
        x: tensor that is cut into blocks, ``(R, *s)``.
        lengths: shape of a block.
        matrices: a matrix for each dimension of a block; None is the identity.
    """
    if len(lengths) != 2 or any(matrix is None for matrix in matrices):
        return None
    loops, num_blocks = compiled_loops(x), x.numel() // math.prod(lengths)
    return loops if loops and loop_adds_like_products(min(num_blocks, MOST_TESTED_BLOCKS), lengths) else None


MOST_TESTED_BLOCKS = 64
"""Number of blocks from which on the order of a product's additions does not depend on their number."""


@lru_cache(maxsize=1024)
def loop_adds_like_products(num_blocks: int, lengths: tuple[int, ...]) -> bool:
    """Return whether `transform_sparse` gives the same bits as matrix products for blocks of this shape.

    It does if the products add their terms in order. Most BLAS libraries do so, except for small matrices.
    """
    source = torch.Generator().manual_seed(0)
    options: dict[str, Any] = {"generator": source, "dtype": torch.float32, "device": "cpu"}
    entries = torch.randn(1, num_blocks, math.prod(lengths), **options)
    index = largest_indices(entries, entries.shape[-1] // 4)  # any share shows the order of additions
    value = entries.gather(-1, index)
    matrices: list[Tensor | None] = [torch.randn(length, length, **options).mT for length in lengths]
    blocks = torch.zeros_like(entries).scatter_(-1, index, value).unflatten(-1, lengths)
    by_loop = transform_sparse(KERNELS.load(), index, value, lengths, matrices)
    return torch.equal(by_loop, change_basis(blocks, matrices))


MeanOver = Literal["senders", "all"]

CACHED_NUMBERS = 2**19
"""Size of a piece of a tensor that is transformed at once: 2 MiB of fp32, about a core's cache."""


@dataclass(frozen=True)
class Coefficients:
    """DeMo's selection: the k largest coefficients of each block of a tensor in an orthonormal basis.

    ``encode`` computes ``top-k(T(x))``, where T is the change of basis; ``decode_mean`` averages the coefficients of
    all workers and applies ``T^-1``.

    Args:
        k: number of coefficients that are sent per block; a block with fewer entries sends all.
        chunk: largest length of a block along a dimension. The length is the dimension's largest divisor up to this.
        basis: ``dct``; ``random``, an orthonormal basis that is new in each step and equal on all workers; or
            ``identity``.
        pairs: encoding of the pairs of index and value.

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

    def _matrices(self, like: Tensor, t: int, *, inverse: bool) -> list[Tensor | None]:
        """Return the orthonormal matrix of step ``t``, or its inverse, for each dimension of a block.

        The matrices have the dtype and device of ``like (R, *s)``. None stands for the identity.
        """
        matrices: list[Tensor | None] = []
        for size in block_shape(tuple(like.shape[1:]), self.chunk):
            if self.basis == "identity" or size == 1:
                matrices.append(None)
                continue
            if self.basis == "dct":
                matrix = dct_matrix_on(size, like.dtype, like.device)
            else:
                matrix = random_matrix(size, t).to(like)
            matrices.append(matrix.mT if inverse else matrix)
        return matrices

    def encode(self, x: Tensor, t: int) -> tuple[Tensor, Callable[[], Tensor]]:
        """Return the encoded bytes ``(R, b)`` of ``x (R, *s)``, and a function that returns their decoded tensor."""
        shape = tuple(x.shape[1:])
        block_lengths = block_shape(shape, self.chunk)
        block_size = math.prod(block_lengths)
        matrices = self._matrices(x, t, inverse=False)
        blocks = to_blocks(x, block_lengths)
        num_rows, num_blocks = blocks.shape[:2]

        # A CPU transforms few blocks at a time, so that coefficients stay in its cache; a GPU transforms all at once.
        blocks_per_piece = CACHED_NUMBERS // block_size if x.device.type == "cpu" else num_rows * num_blocks
        indices, values = [], []
        for piece in blocks.flatten(0, 1).split(max(1, blocks_per_piece)):
            coefficients = change_basis(piece.unsqueeze(0), matrices).flatten(2)
            piece_index = largest_indices(coefficients, min(self.k, block_size))
            indices.append(piece_index)
            values.append(coefficients.gather(-1, piece_index))
        index = torch.cat(indices, dim=1).view(num_rows, num_blocks, -1)
        value = torch.cat(values, dim=1).view(num_rows, num_blocks, -1)

        def decode() -> Tensor:
            inverse_matrices = self._matrices(x, t, inverse=True)
            sent_value = self.pairs.rounded(value)  # to the number format of the message
            loops = loops_for_sparse(x, block_lengths, inverse_matrices)  # None for matrix products
            if loops:
                sent_blocks = transform_sparse(loops, index, sent_value, block_lengths, inverse_matrices)
            else:
                zeros = value.new_zeros(num_rows, num_blocks, block_size)
                sent_coefficients = zeros.scatter_(-1, index, sent_value).unflatten(-1, block_lengths)
                sent_blocks = change_basis(sent_coefficients, inverse_matrices)
            return from_blocks(sent_blocks, shape)

        return self.pairs.encode(index.flatten(1), value.flatten(1), chunk=block_size), decode

    def decode_mean(self, encoded: Tensor, like: Tensor, t: int, average: MeanOver) -> Tensor:
        """Return the mean ``(S, *s)`` of the tensors that the workers of each of S replicas sent.

        Args:
            encoded: bytes that ``encode`` returned on all M workers of each replica, ``(S, M, b)``.
            like: one tensor per local worker, ``(R, *s)``; the result has its dtype and device.
            t: number of the step, which determines the random basis.
            average: whether a coefficient is averaged over the workers that sent it, or over all workers.
        """
        shape = tuple(like.shape[1:])
        block_lengths = block_shape(shape, self.chunk)
        block_size = math.prod(block_lengths)
        num_blocks, k = math.prod(shape) // block_size, min(self.k, block_size)
        replicas, workers = encoded.shape[:2]
        index, value = self.pairs.decode(encoded, num_blocks * k, chunk=block_size, dtype=like.dtype)
        # The coefficients of all workers for a block become neighbours: (S, num_blocks, M, k).
        index = index.view(replicas, workers, num_blocks, k).transpose(1, 2)
        value = value.view(replicas, workers, num_blocks, k).transpose(1, 2)
        inverse_matrices = self._matrices(like, t, inverse=True)
        loops = loops_for_sparse(like[:replicas], block_lengths, inverse_matrices)  # the loop transforms only the means
        if loops:
            index, value = mean_pairs(loops, index, value, block_size, average)
            return from_blocks(transform_sparse(loops, index, value, block_lengths, inverse_matrices), shape)
        index, value = index.flatten(2), value.flatten(2)
        total = value.new_zeros(replicas, num_blocks, block_size).scatter_add_(-1, index, value)
        if average == "senders":
            senders = torch.zeros_like(total).scatter_add_(-1, index, torch.ones_like(value))
            total.div_(senders.clamp_(min=1))  # a coefficient without senders stays 0
        else:
            total.div_(workers)
        return from_blocks(change_basis(total.unflatten(-1, block_lengths), inverse_matrices), shape)


def mean_pairs(
    loops: ModuleType, index: Tensor, value: Tensor, block_size: int, average: MeanOver
) -> tuple[Tensor, Tensor]:
    """Return the means over M workers of n sparse blocks, as rising indices and values ``(S, n, e)``.

    The workers' k indices and values per block are ``(S, n, M, k)``. A mean has at most ``e = min(M k, block_size)``
    entries; if it has fewer, the last index is repeated with values of zero. For ``average`` see `DeMoSpec`.
    """
    replicas, num_blocks, workers, k = index.shape
    num_entries = min(workers * k, block_size)
    mean_index = torch.empty(replicas, num_blocks, num_entries, dtype=torch.int64, device="cpu")
    mean_value = value.new_empty(replicas, num_blocks, num_entries)
    loops.mean_of_pairs(
        index.reshape(-1, workers, k).numpy(),
        value.reshape(-1, workers, k).numpy(),
        size=block_size,
        over_senders=average == "senders",
        out_index=mean_index.flatten(0, 1).numpy(),  # views: the loop writes through them
        out_value=mean_value.flatten(0, 1).numpy(),
    )
    return mean_index, mean_value


DEMO_MOMENTUM = "demo_momentum"

PAIRS = SparsePairs(64, "fp32")
"""The encoding in DeMo's public code: 12 bytes per pair of index and coefficient."""


def demo_rule(base: Literal["sgd", "signum", "muon"]) -> UpdateRule:
    """Return DeMo's update rule: with ``sgd`` parameters move by the averaged components q, see `CoefficientMean`.

    With ``signum`` they move by the sign of q. With ``muon`` matrices move by the polar factor of q, as in Muon, and
    other parameters by the sign of q.
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
    """DeMo's reducer: workers average the k largest coefficients per block of their momenta m in an orthonormal basis.

        m <- beta m + g;   c = top-k per block of T(m);   m <- m - alpha T^-1(c);   q = T^-1(mean of all workers' c)

    T is the change of basis, and q replaces the gradient. Workers send k pairs of index and value per block by one
    all-gather. With the identity basis, k a whole block and ``alpha = 0``, this is the average of momenta.

    With a ``period`` K workers exchange after steps ``K - 1``, ``2 K - 1``, ... Parameters do not move in other steps,
    because DeMo never averages parameters, so that local steps would make workers drift apart.

    With ``per_node`` above 1, consecutive workers form a node. They average their gradients in full in every step, and
    each node acts as one worker of DeMo. If there are fewer workers, all form one node.

    Args:
        k, chunk, basis, pairs: selection and encoding of the coefficients, see ``Coefficients``.
        beta, alpha, average, period, per_node: see `syncline.methods.demo.DeMoSpec`.
        encoded: whether a node's gradients must be converted to the wire format, see `MeanGradient`.

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
    encoded: bool = True

    def __post_init__(self) -> None:
        _ = self.coefficients  # raises an error for a value out of range
        for name in ("period", "per_node"):
            if getattr(self, name) < 1:
                raise SpecError(name, getattr(self, name), "an integer >= 1")
        check_unit("beta", self.beta)
        if not 0 <= self.alpha <= 1:
            raise SpecError("alpha", self.alpha, "a number from 0 to 1")
        if self.average not in ("senders", "all"):
            raise SpecError("average", self.average, "'senders' or 'all'")

    def hyperparameters(self) -> dict[str, Any]:
        """Return ``demo_beta``, the decay rate, and ``alpha`` by name."""
        return {"demo_beta": self.beta, "alpha": self.alpha}

    def init(self, x: Tensor, param_index: int) -> dict[str, Tensor]:
        """Return the momentum of a parameter, zeros at the start, by its name."""
        return {DEMO_MOMENTUM: torch.zeros_like(x)}

    @property
    def coefficients(self) -> Coefficients:
        """Return the selection of the coefficients of a momentum that are sent."""
        return Coefficients(self.k, self.chunk, self.basis, self.pairs)

    @override
    def reduce(self, rows: list[ParamRow], comm: Communicator, wire: WireFormat, t: int) -> Sequence[Tensor | None]:
        """Add the gradients to the momenta; return the averaged components q, or None in steps without an exchange."""
        # ``wire`` is the format of gradients inside a node; coefficients have a format of their own.
        node_size = min(self.per_node, comm.world_size)
        if node_size > 1:
            sent_details = Details(in_backward=True, encoded_bytes=None if self.encoded else 0)
            node_means = comm.mean_within(
                [row.g for row in rows], node_size, wire, label="gradient", details=sent_details
            )
            rows = [row._replace(g=g) for row, g in zip(rows, node_means, strict=True)]
        for row in rows:
            row.state[DEMO_MOMENTUM].mul_(row.group["demo_beta"]).add_(row.g)
        if (t + 1) % self.period:  # workers exchange only at the end of a period
            return [None] * len(rows)

        coefficients, messages = self.coefficients, []
        for row in rows:
            momentum, alpha = row.state[DEMO_MOMENTUM], row.group["alpha"]
            message, decode = coefficients.encode(momentum, t)
            if alpha:  # what is sent leaves the momentum
                momentum.sub_(decode(), alpha=alpha)
            messages.append(message)
        sent, details = torch.cat(messages, dim=-1), encoding_details(*[row.g for row in rows])
        if node_size > 1:
            gathered = gather_from_nodes(sent, node_size, comm, details)
        else:
            gathered = comm.all_gather(sent, label="top-k", details=details)

        # All workers of a replica receive the same messages, so that one of them decodes for all.
        parts = first_row_per_replica(gathered, comm).split([message.shape[-1] for message in messages], dim=-1)
        means: list[Tensor | None] = []
        for part, row in zip(parts, rows, strict=True):
            mean = coefficients.decode_mean(part, row.g, t, self.average)
            means.append(repeat_for_workers(mean, num_rows=len(row.g)))
        return means


def gather_from_nodes(sent: Tensor, node_size: int, comm: Communicator, details: Details) -> Tensor:
    """Gather one message of b bytes from each node of ``node_size`` workers, so that nodes send each message only once.

    Each worker sends one share of its node's message to the workers with the same position in the other nodes. Then the
    workers of each node gather all shares.

    Args:
        sent: messages ``(R, b)``; those of the workers of one node are equal.
        node_size: number of workers of a node, a divisor of M.
        details: details of the call between nodes, for the ledger.

    Returns:
        The messages of all nodes, ``(R, M / node_size, b)``.
    """
    nodes, nbytes = comm.world_size // node_size, sent.shape[1]
    if nodes == 1:
        return sent.unsqueeze(1)
    share_bytes = math.ceil(nbytes / node_size)
    shares = torch.nn.functional.pad(sent, (0, share_bytes * node_size - nbytes)).unflatten(1, (node_size, share_bytes))
    positions = [worker % node_size for worker in comm.local_workers]
    own_shares = shares[list(range(len(sent))), positions]  # (R, share_bytes)
    shares_of_nodes = comm.all_gather_across(own_shares, node_size, "top-k", details)  # (R, nodes, share_bytes)
    # Forwarded bytes are not encoded a second time.
    all_shares = comm.all_gather_within(shares_of_nodes.flatten(1), node_size, "top-k", Details(encoded_bytes=0))
    by_node = all_shares.unflatten(2, (nodes, share_bytes)).transpose(1, 2)  # (R, nodes, node_size, share_bytes)
    return by_node.flatten(2)[..., :nbytes]  # without the padding
