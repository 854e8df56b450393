"""PowerSGD: gradients of matrices travel as low-rank factors, and what they leave out is sent later."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import Communicator, WireFormat, computed_once
from syncline.costmodel import is_worth_factors, matrix_sides
from syncline.errors import SpecError
from syncline.optim.base import Reducer, Row
from syncline.optim.dion import random_columns
from syncline.optim.matrices import as_matrix, kept_where_zero, power_iteration

ERROR, FACTOR = "error", "factor"


@dataclass(frozen=True)
class FactorMean(Reducer):
    """A reducer: ``M = g + e;  P = orth(mean(M Q));  Q <- mean(M^T P);  g <- P Q^T;  e <- M - P Q^T``.

    Every parameter of two dimensions or more is a matrix, embeddings too; a convolution's weights are worked on as
    ``(out, rest)``. Matrices whose factors are no smaller, vectors, and every gradient of the first ``warmup_steps``
    steps are averaged as they are. What travels: ``4 (m + n) r`` bytes per matrix. At full rank it is data parallelism.

    Args:
        rank: r, rank of the factors.
        warm_start: whether Q continues from the last step; otherwise it is random in each step, equal on all workers.
        error_feedback: whether the error e is kept and added to the next gradient.
        warmup_steps: number of first steps in which full gradients are averaged.
        compress_all_matrices: whether matrices are compressed even if their factors are larger than the matrix (for
            limit cases).

    Raises:
        SpecError: for a value out of range.

    Source: Vogels et al. (2019), Algorithms 1 and 2.
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
        """Return the rank of a parameter's factors; 0 if it travels as it is."""
        if len(shape) < 2:
            return 0
        sides = matrix_sides(shape)
        rank = min(self.rank, *sides)
        return rank if self.compress_all_matrices or is_worth_factors(*sides, rank) else 0

    def init(self, x: Tensor, number: int) -> dict[str, Tensor]:
        """Return a zero error and a random factor for each matrix that is compressed."""
        rank = self.rank_of(tuple(x.shape[1:]))
        if not rank:
            return {}
        columns = matrix_sides(x.shape[1:])[1]
        return {ERROR: torch.zeros_like(x), FACTOR: random_columns(x, columns, rank, "powersgd", number)}

    @override
    def reduce(self, rows: list[Row], comm: Communicator, wire: WireFormat, t: int) -> list[Tensor]:
        warm = t < self.warmup_steps
        plain = [row.g for row in rows if warm or FACTOR not in row.state]
        means = iter(comm.all_reduce_coalesced(plain, wire=wire, label="gradient") if plain else [])
        compressed = [row for row in rows if not warm and FACTOR in row.state]

        def average(tensors: list[Tensor], label: str) -> list[Tensor]:
            return comm.all_reduce_coalesced(tensors, wire=wire, label=label)

        wholes = [row.g + row.state[ERROR] if self.error_feedback else row.g for row in compressed]
        matrices = [as_matrix(corrected) for corrected in wholes]
        right = [self._start(row, number, t) for number, row in enumerate(compressed)]
        factors = power_iteration(matrices, right, average) if compressed else []
        approximations = []
        for row, corrected, (p, q) in zip(compressed, wholes, factors, strict=True):
            approximation = computed_once(lambda p, q, like=corrected: (p @ q.mT).view(len(p), *like.shape[1:]), p, q)
            if self.error_feedback:
                row.state[ERROR].copy_(corrected - approximation)
            row.state[FACTOR].copy_(kept_where_zero(q, row.state[FACTOR]))
            approximations.append(approximation)
        lowered = iter(approximations)
        return [next(means) if warm or FACTOR not in row.state else next(lowered) for row in rows]

    def _start(self, row: Row, number: int, t: int) -> Tensor:
        factor = row.state[FACTOR]
        if self.warm_start:
            return factor
        return random_columns(row.g, factor.shape[-2], factor.shape[-1], "powersgd", number, t)
