"""PowerSGD: workers average low-rank factors of the gradients of matrices, with error feedback."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import Communicator, WireFormat, compute_once_if_shared
from syncline.costmodel import is_worth_factors, matrix_sides
from syncline.errors import SpecError
from syncline.optim.base import ParamRow, Reducer
from syncline.optim.matrices import as_matrix, keep_old_where_zero, power_iteration, random_columns

ERROR, RIGHT_FACTOR = "error", "factor"


@dataclass(frozen=True)
class FactorMean(Reducer):
    """PowerSGD's reducer: workers average factors P and Q of the gradient g of each matrix, with an error e per worker.

        M = g + e;  P = orth(mean(M Q));  Q <- mean(M^T P);  g <- P Q^T;  e <- M - P Q^T

    Workers send ``4 (m + n) r`` bytes for an m by n matrix. Parameters with two dimensions or more are matrices, also
    embeddings; a convolution's weights are ``(out, rest)``. Matrices whose factors would be no smaller, vectors, and
    all gradients of the first ``warmup_steps`` steps are averaged uncompressed. At full rank this is data parallelism.

    The arguments are the fields of `syncline.methods.ddp.PowerSGDSpec`. With ``warm_start`` Q continues from the last
    step, otherwise it is random in each step, by the parameter's index and equal on all workers. Without
    ``error_feedback`` e stays zero. With ``compress_all_matrices`` factors may be larger than a matrix.

    Source: Vogels et al., "PowerSGD" (2019), Algorithms 1 and 2.
    """

    rank: int = 2
    warm_start: bool = True
    error_feedback: bool = True
    warmup_steps: int = 0
    compress_all_matrices: bool = False

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise SpecError("rank", self.rank, "an integer >= 1")
        if self.warmup_steps < 0:
            raise SpecError("warmup_steps", self.warmup_steps, "an integer >= 0")

    def rank_of(self, shape: tuple[int, ...]) -> int:
        """Return the rank of the factors of a parameter with this shape; 0 if its gradient is not compressed."""
        if len(shape) < 2:
            return 0
        m, n = matrix_sides(shape)
        rank = min(self.rank, m, n)
        is_compressed = self.compress_all_matrices or is_worth_factors(m, n, rank)
        return rank if is_compressed else 0

    def init(self, x: Tensor, param_index: int) -> dict[str, Tensor]:
        """Return a zero error and a random right factor Q by name; nothing for a parameter that is not compressed."""
        rank = self.rank_of(tuple(x.shape[1:]))
        if not rank:
            return {}
        _, n = matrix_sides(x.shape[1:])
        return {ERROR: torch.zeros_like(x), RIGHT_FACTOR: random_columns(x, n, rank, "powersgd", param_index)}

    @override
    def reduce(self, rows: list[ParamRow], comm: Communicator, wire: WireFormat, t: int) -> list[Tensor]:
        """Return the mean gradient of each row: exact, or as a product of averaged factors."""

        def average(tensors: list[Tensor], label: str) -> list[Tensor]:
            return comm.all_reduce_coalesced(tensors, wire=wire, label=label)

        mean_of_row: dict[int, Tensor] = {}
        # A parameter without a right factor is never compressed, see ``init``.
        exact_rows = [row for row in rows if t < self.warmup_steps or RIGHT_FACTOR not in row.state]
        if exact_rows:
            means = average([row.g for row in exact_rows], "gradient")
            mean_of_row = {row.param_index: mean for row, mean in zip(exact_rows, means, strict=True)}

        compressed_rows = [row for row in rows if row.param_index not in mean_of_row]
        corrected = [row.g + row.state[ERROR] if self.error_feedback else row.g for row in compressed_rows]
        right = [row.state[RIGHT_FACTOR] for row in compressed_rows]
        if not self.warm_start:
            right = [
                random_columns(q, *q.shape[1:], "powersgd", row.param_index, t)
                for row, q in zip(compressed_rows, right, strict=True)
            ]
        factors = power_iteration([as_matrix(g) for g in corrected], right, average) if compressed_rows else []
        for row, g, (p, q) in zip(compressed_rows, corrected, factors, strict=True):
            product = compute_once_if_shared(lambda p, q: p @ q.mT, p, q).view(g.shape)
            if self.error_feedback:
                row.state[ERROR].copy_(g - product)
            row.state[RIGHT_FACTOR].copy_(keep_old_where_zero(new=q, old=row.state[RIGHT_FACTOR]))
            mean_of_row[row.param_index] = product
        return [mean_of_row[row.param_index] for row in rows]
