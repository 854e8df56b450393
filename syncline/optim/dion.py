"""The Dion family: low-rank orthonormal updates, exchanged in every step, on a schedule or on a trigger."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import compute_once_if_shared, rows_share_memory, separate_rows, shared_row
from syncline.costmodel import dion_rank, is_worth_factors, matrix_sides
from syncline.errors import SpecError
from syncline.optim.base import Hyperparameters, ParamRow, UpdateRule
from syncline.optim.compressors import Compressor
from syncline.optim.error_feedback import CompressedMean
from syncline.optim.matrices import (
    MatrixSplit,
    as_matrix,
    keep_old_where_zero,
    no_average,
    power_iteration,
    random_columns,
    shape_factor,
    unit_columns,
)
from syncline.optim.method import Method
from syncline.optim.scalings import check_unit
from syncline.optim.sync import EveryStep
from syncline.optim.triggers import MOMENTUM, RMMC, Every, Trigger, trigger_trace

RIGHT_FACTOR = "right"

GRADIENT_SUM = "held"
"""Name of the state that sums a worker's gradients until the next exchange."""


@dataclass(frozen=True)
class DionRule(UpdateRule):
    """Dion's update of an m by n matrix on one worker; ``DionMethod`` adds the averages over workers.

        M <- M + G;  P = orth(M Q);  R = M^T P;  M <- M - (1 - mu) P R^T;  Q <- R / (||R||_col + eps)
        d  = (m / n)^0.5 P Q^T

    G is the gradient, M the momentum, P and R are its factors, and Q is the right factor of the last step. The part of
    M that the factors leave out stays in M (error feedback). A matrix with fewer rows than columns is transposed. If M
    is zero, P is 0 and Q stays.

    Args:
        rank_fraction: rank of the factors as a share of ``min(m, n)``, in (0, 1].
        mu: decay rate of the momentum along the factors: the share of ``P R^T`` that stays in M.
        eps: number added to the norms of Q's columns, to avoid a division by 0.

    Source: Dion (Ahn et al., 2025), Algorithm 1; defaults of its public code.
    """

    rank_fraction: float = 0.25
    mu: float = 0.95
    eps: float = 1e-8

    def __post_init__(self) -> None:
        if not 0 < self.rank_fraction <= 1:
            raise SpecError("rank_fraction", self.rank_fraction, "a number in (0, 1]")
        check_unit("mu", self.mu)

    @property
    def states(self) -> tuple[str, ...]:
        """Return the names of the momentum M and of the right factor Q."""
        return (MOMENTUM, RIGHT_FACTOR)

    def hyperparameters(self) -> dict[str, Any]:
        """Return ``betas`` by name: mu, the decay rate of the momentum."""
        return {"betas": (self.mu,)}

    def init(self, x: Tensor, param_index: int) -> dict[str, Tensor]:
        """Return a zero momentum, and a random right factor that is equal on all workers, by name."""
        m, n = matrix_sides(x.shape[1:])
        rank = dion_rank(m, n, self.rank_fraction)
        momentum = torch.zeros_like(x, memory_format=torch.contiguous_format)
        return {MOMENTUM: momentum, RIGHT_FACTOR: random_columns(x, min(m, n), rank, "dion", param_index)}

    def add_to_momentum(self, g: Tensor, state: dict[str, Tensor]) -> Tensor:
        """Add the gradient ``g`` to the momentum M, and return M as matrices with at least as many rows as columns."""
        return transpose_if_wide(as_matrix(state[MOMENTUM].add_(g)))

    def apply_factors(self, p: Tensor, r: Tensor, state: dict[str, Tensor], h: Hyperparameters) -> Tensor:
        """Subtract ``(1 - mu) P R^T`` from the momentum, update Q, and return the direction, see `DionRule`.

        Args:
            p: P, one matrix ``(m, rank)`` per row.
            r: R, one matrix ``(n, rank)`` per row.
            state: momentum M, and Q of the last step.
        """
        momentum = as_matrix(state[MOMENTUM])
        m, n = momentum.shape[-2:]
        (mu,) = h["betas"]
        product = compute_once_if_shared(lambda p, r: p @ r.mT, p, r)
        transpose_if_wide(momentum).sub_(product, alpha=1 - mu)  # a view, so that M changes in place

        # If workers share the memory of their factors, compute their direction once.
        if rows_share_memory(p) and rows_share_memory(r) and rows_share_memory(state[RIGHT_FACTOR]):
            p, r, q = shared_row(p), shared_row(r), shared_row(state[RIGHT_FACTOR])
        else:
            q = separate_rows(state[RIGHT_FACTOR])
            state[RIGHT_FACTOR] = q
        q.copy_(keep_old_where_zero(new=unit_columns(r, self.eps), old=q))
        direction = p @ q.mT
        if m < n:  # the factors are those of the transposed matrix
            direction = direction.mT
        direction = direction * shape_factor(m, n, "spectral")
        return direction.reshape(-1, *state[MOMENTUM].shape[1:])

    def direction(self, g: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        """Return the direction of a single worker, computed from the factors of its momentum without an exchange."""
        momentum = self.add_to_momentum(g, state)
        ((p, r),) = power_iteration([momentum], [state[RIGHT_FACTOR]], no_average)
        return self.apply_factors(p, r, state, h)


def transpose_if_wide(x: Tensor) -> Tensor:
    """Return a view of matrices ``(..., m, n)``, transposed if they have more columns than rows."""
    return x if x.shape[-2] >= x.shape[-1] else x.mT


class DionMethod(Method):
    """Dion: low-rank orthonormal updates of matrices; workers exchange in the steps that a trigger selects.

    Workers exchange the full gradient or, with ``sends_factors``, the factors ``P = orth(mean(M Q))`` and
    ``R = mean(M^T P)``, where M is a worker's momentum. Parameters that are not matrices, and matrices with fewer bytes
    than their factors, are averaged as gradients. In steps without an exchange each worker updates by its own gradient.

    Args:
        params: parameters or parameter groups; see ``MatrixSplit`` for which are matrices.
        rule: the update rule: ``DionRule`` for matrices, another rule for other parameters.
        trigger: trigger that decides in which steps workers exchange.
        sends_factors: whether workers exchange factors instead of gradients.
        holds: whether workers, in steps without an exchange, add up their gradients and do not move. By default, every
            worker takes Dion's step on its own gradient, and workers drift apart.
        compressor: compressor of all exchanged tensors; by default none.
        error_feedback: whether compressed gradients have error feedback. Factors need none, because M keeps what their
            rounding leaves out.
        **options: further options of ``Method``.

    Source: Dion (Ahn et al., 2025); CurvaDion, Algorithms 1 and 2.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        rule: MatrixSplit,
        *,
        trigger: Trigger,
        sends_factors: bool,
        holds: bool,
        compressor: Compressor | None = None,
        error_feedback: bool = True,
        **options: Any,
    ) -> None:
        self.trigger, self.sends_factors, self.holds = trigger, sends_factors, holds
        self._is_exchanging = False  # whether the trigger has fired in this step
        self._compressor = compressor
        if compressor is not None:
            options["reducer"] = CompressedMean(compressor, error_feedback)
        # `EveryStep` calls `exchange_gradients` in every step, which asks the trigger.
        super().__init__(params, lr, rule, EveryStep(), **options)
        if compressor is not None:
            compressor.check(self.comm.world_size)

    @property
    @override
    def keeps_workers_equal(self) -> bool:
        """Return whether all workers take the same steps: they do if they never step alone."""
        return self.holds or (isinstance(self.trigger, Every) and self.trigger.period == 1)

    def _is_factored(self, row: ParamRow) -> bool:
        """Return whether workers send the factors of this parameter's momentum instead of its gradient."""
        if not self.sends_factors or not isinstance(row.rule, DionRule):
            return False
        m, n = matrix_sides(row.x.shape[1:])
        rank = row.state[RIGHT_FACTOR].shape[-1]
        return is_worth_factors(m, n, rank)

    @override
    def trace(self) -> dict[str, Tensor]:
        """Return ``averaged``, whether the last step exchanged, and ``trigger``, the value that the trigger tested."""
        return trigger_trace(self.trigger, self._is_exchanging, self.comm.replicas)

    @override
    def exchange_gradients(self, rows: list[ParamRow], t: int) -> list[ParamRow]:
        """Ask the trigger whether workers exchange; if they do, average the gradients that are not sent as factors.

        With ``holds`` gradients add up until an exchange, and without an exchange no rows are returned.
        """
        if self.holds:
            rows = [row._replace(g=row.state_or_zeros(GRADIENT_SUM).add_(row.g)) for row in rows]
        matrix_rows = [row for row in rows if isinstance(row.rule, DionRule)]
        for row in matrix_rows:
            for name, tensor in self.trigger.init(row.x).items():
                row.state.setdefault(name, tensor)
        has_matrices = any(isinstance(rule, DionRule) for rule, _is_other_rule in self._rules)
        if isinstance(self.trigger, RMMC) and not has_matrices:  # it compares momenta of matrices
            raise SpecError("method", "curvadion", "a model with matrices, whose momenta the trigger looks at")
        self._is_exchanging = bool(rows) and self.trigger.fires(matrix_rows, self.comm, t)
        if not self._is_exchanging:
            return [] if self.holds else rows
        if self.holds:  # exchange copies of the sums, which start again from zero
            rows = [row._replace(g=row.g.clone()) for row in rows]
            for row in rows:
                row.state_or_zeros(GRADIENT_SUM).zero_()

        # The gradients of factored matrices stay local: `directions` averages the factors of their momenta.
        averaged_rows = [row for row in rows if not self._is_factored(row)]
        mean_of: dict[int, Tensor | None] = {}
        if averaged_rows:
            means = self.reducer.reduce(averaged_rows, self.comm, self.wire, t)
            mean_of = {row.param_index: mean for row, mean in zip(averaged_rows, means, strict=True)}
        exchanged_rows = []
        for row in rows:
            g = mean_of.get(row.param_index, row.g)
            if g is not None:  # None: the reducer leaves the parameter where it is
                exchanged_rows.append(row._replace(g=g))
        return exchanged_rows

    @override
    def directions(self, rows: list[ParamRow], t: int) -> list[Tensor | None]:
        """Return the directions: for factored matrices from averaged factors, for other parameters by their rules."""
        factored_rows = [row for row in rows if self._is_factored(row)]
        other_rows = [row for row in rows if not self._is_factored(row)]
        if not (self._is_exchanging and factored_rows):
            return super().directions(rows, t)

        def average(tensors: list[Tensor], label: str) -> list[Tensor]:
            if self._compressor:
                names = [f"{label} {row.param_index}" for row in factored_rows]
                return self._compressor.mean(tensors, names, self.comm, t, label).means
            return self.comm.all_reduce_coalesced(tensors, wire=self.wire, label=label)

        momenta = []
        for row in factored_rows:
            row.state[MOMENTUM] = separate_rows(row.state[MOMENTUM])  # each worker adds its own gradient
            momenta.append(row.rule.add_to_momentum(row.g, row.state))  # type: ignore[attr-defined]
        factors = power_iteration(momenta, [row.state[RIGHT_FACTOR] for row in factored_rows], average)
        other_directions = super().directions(other_rows, t)

        direction_of: dict[int, Tensor | None] = {}  # by parameter index
        for row, (p, r) in zip(factored_rows, factors, strict=True):
            direction = row.rule.apply_factors(p, r, row.state, row.group)  # type: ignore[attr-defined]
            direction_of[row.param_index] = direction
        for row, other_direction in zip(other_rows, other_directions, strict=True):
            direction_of[row.param_index] = other_direction
        return [direction_of[row.param_index] for row in rows]
