"""The Dion family: low-rank orthonormal updates, exchanged in every step, on a schedule or on a trigger."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import as_own_copies, computed_once, is_one_copy, the_copy
from syncline.costmodel import dion_rank, is_worth_factors, matrix_sides
from syncline.errors import SpecError
from syncline.optim.base import Hyperparameters, Row, UpdateRule
from syncline.optim.compressors import Compressor
from syncline.optim.error_feedback import CompressedMean
from syncline.optim.matrices import (
    MatrixSplit,
    as_matrix,
    kept_where_zero,
    no_average,
    power_iteration,
    random_columns,
    shape_scale,
    unit_columns,
)
from syncline.optim.method import Method
from syncline.optim.scalings import check_unit
from syncline.optim.sync import EveryStep
from syncline.optim.triggers import MOMENTUM, RMMC, Every, Trigger, trigger_trace

RIGHT = "right"

HELD = "held"
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
        return (MOMENTUM, RIGHT)

    def hyperparameters(self) -> dict[str, Any]:
        """Return ``betas`` by name: mu, the decay rate of the momentum."""
        return {"betas": (self.mu,)}

    def init(self, x: Tensor, number: int) -> dict[str, Tensor]:
        """Return a zero momentum, and a random right factor that is equal on all workers, by name."""
        m, n = matrix_sides(x.shape[1:])
        rank = dion_rank(m, n, self.rank_fraction)
        momentum = torch.zeros_like(x, memory_format=torch.contiguous_format)
        return {MOMENTUM: momentum, RIGHT: random_columns(x, min(m, n), rank, "dion", number)}

    def accumulate(self, g: Tensor, state: dict[str, Tensor]) -> Tensor:
        """Add the gradient ``g`` to the momentum M, and return M as matrices with at least as many rows as columns."""
        return tall(as_matrix(state[MOMENTUM].add_(g)))

    def finish(self, p: Tensor, r: Tensor, state: dict[str, Tensor], h: Hyperparameters) -> Tensor:
        """Subtract ``(1 - mu) P R^T`` from the momentum, update the right factor Q, and return the direction.

        Args:
            p: left factor P of the momentum, ``(R, m, r)``.
            r: right factor R, ``(R, n, r)``.
            state: momentum and last right factor.
            h: hyperparameters; ``betas`` has mu.
        """
        momentum = as_matrix(state[MOMENTUM])
        m, n = momentum.shape[-2:]
        tall(momentum).sub_(computed_once(lambda p, r: p @ r.mT, p, r), alpha=1 - h["betas"][0])
        if all(map(is_one_copy, (p, r, state[RIGHT]))):
            p, r, right = the_copy(p), the_copy(r), the_copy(state[RIGHT])
        else:
            right = state[RIGHT] = as_own_copies(state[RIGHT])
        right.copy_(kept_where_zero(unit_columns(r, self.eps), right))
        direction = p @ right.mT
        scaled_direction = (direction if m >= n else direction.mT) * shape_scale(m, n, "spectral")
        return scaled_direction.reshape(-1, *state[MOMENTUM].shape[1:])

    def direction(self, g: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        """Return the direction of a single worker, computed from the factors of its momentum without an exchange."""
        ((p, r),) = power_iteration([self.accumulate(g, state)], [state[RIGHT]], no_average)
        return self.finish(p, r, state, h)


def tall(x: Tensor) -> Tensor:
    """Return matrices ``(..., m, n)`` as a view with at least as many rows as columns, transposed if necessary."""
    return x if x.shape[-2] >= x.shape[-1] else x.mT


class DionMethod(Method):
    """Dion, with low-rank orthonormal updates of matrices, whose workers exchange in the steps that a trigger selects.

    Workers exchange the full gradient or, with ``factors``, ``P = orth(mean(M Q))`` and ``R = mean(M^T P)``, where M is
    a worker's momentum. Parameters that are not matrices, and matrices with fewer bytes than their factors, are
    averaged as gradients. In steps without an exchange each worker updates by its own gradient.

    Args:
        params: parameters or parameter groups; see ``MatrixSplit`` for which are matrices.
        lr: learning rate of the matrices.
        rule: the update rule: ``DionRule`` for matrices, another rule for other parameters.
        trigger: trigger that decides in which steps workers exchange.
        factors: whether workers exchange factors instead of gradients.
        hold: whether workers, in steps without an exchange, add up their gradients and do not move. By default, every
            worker takes Dion's step on its own gradient, and workers drift apart.
        compressor: compressor of all exchanged tensors; by default none. Factors need no error feedback, because M
            keeps what their rounding leaves out (P is orthonormalised, and R is exact for any P).
        error_feedback: whether compressed gradients have error feedback.
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
        factors: bool,
        hold: bool,
        compressor: Compressor | None = None,
        error_feedback: bool = True,
        **options: Any,
    ) -> None:
        """Combine the rule with a reducer of gradients, and with the compressor of factors if there is one."""
        self.trigger, self.factors, self.hold, self._exchanging = trigger, factors, hold, False
        self._compressor = compressor
        if compressor is not None:
            options["reducer"] = CompressedMean(compressor, error_feedback)
        super().__init__(params, lr, rule, EveryStep(), **options)
        if compressor is not None:
            compressor.check(self.comm.world_size)

    @property
    @override
    def keeps_workers_equal(self) -> bool:
        """Return whether all workers take the same steps: they do if they never step alone."""
        return self.hold or (isinstance(self.trigger, Every) and self.trigger.period == 1)

    def _is_factored(self, row: Row) -> bool:
        """Return whether workers send the factors of this parameter's momentum instead of its gradient."""
        if not self.factors or not isinstance(row.rule, DionRule):
            return False
        return is_worth_factors(*matrix_sides(row.x.shape[1:]), row.state[RIGHT].shape[-1])

    @override
    def trace(self) -> dict[str, Tensor]:
        """Return ``averaged``, whether the last step exchanged, and ``trigger``, the value that the trigger tested."""
        return trigger_trace(self.trigger, self._exchanging, self.comm.replicas)

    @override
    def exchange(self, rows: list[Row], t: int) -> list[Row]:
        """Decide whether workers exchange; average the gradients of all parameters that are not factored if they do."""
        if self.hold:  # without an exchange parameters rest, and gradients add up until the next one
            rows = [row._replace(g=row.state_or_zeros(HELD).add_(row.g)) for row in rows]
        matrices = [row for row in rows if isinstance(row.rule, DionRule)]
        for row in matrices:
            for name, value in self.trigger.init(row.x).items():
                row.state.setdefault(name, value)
        if isinstance(self.trigger, RMMC) and not any(isinstance(rule, DionRule) for rule, _ in self._rules):
            raise SpecError("method", "curvadion", "a model with matrices, whose momenta the trigger looks at")
        self._exchanging = self.trigger.fires(matrices, self.comm, t)
        if not self._exchanging:
            return [] if self.hold else rows
        if self.hold:
            rows = [row._replace(g=row.g.clone()) for row in rows]
            for row in rows:
                row.state_or_zeros(HELD).zero_()

        # The gradients of factored matrices stay local: `directions` averages the factors of their momenta.
        averaged_rows = [row for row in rows if not self._is_factored(row)]
        means = iter(self.reducer.reduce(averaged_rows, self.comm, self.wire, t) if averaged_rows else [])
        gradients = [row.g if self._is_factored(row) else next(means) for row in rows]
        return [row._replace(g=g) for row, g in zip(rows, gradients, strict=True) if g is not None]

    @override
    def directions(self, rows: list[Row], t: int) -> list[Tensor | None]:
        """Return the directions: of factored matrices from averaged factors, of all other rows by their rules."""
        factored = [row for row in rows if self._exchanging and self._is_factored(row)]
        if not factored:
            return super().directions(rows, t)

        def average(tensors: list[Tensor], label: str) -> list[Tensor]:
            if self._compressor:
                names = [f"{label} {row.number}" for row in factored]
                return self._compressor.mean(tensors, names, self.comm, t, label).means
            return self.comm.all_reduce_coalesced(tensors, wire=self.wire, label=label)

        for row in factored:  # gradients, and therefore momenta, differ between workers
            row.state[MOMENTUM] = as_own_copies(row.state[MOMENTUM])
        momenta = [row.rule.accumulate(row.g, row.state) for row in factored]  # type: ignore[attr-defined]
        factors = iter(power_iteration(momenta, [row.state[RIGHT] for row in factored], average))
        other_directions = iter(super().directions([row for row in rows if not self._is_factored(row)], t))
        directions: list[Tensor | None] = []
        for row in rows:
            if self._is_factored(row):
                p, r = next(factors)
                directions.append(row.rule.finish(p, r, row.state, row.group))  # type: ignore[attr-defined]
            else:
                directions.append(next(other_directions))
        return directions
