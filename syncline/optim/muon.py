"""Muon: the polar factor of a matrix's Nesterov momentum.

Scion: every parameter moves to the point of its norm's ball that goes down most, whatever the gradient's size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import (
    Any,
    Literal,
)

from torch import Tensor

from syncline.errors import SpecError
from syncline.optim.base import Hyperparameters, UpdateRule
from syncline.optim.matrices import (
    MatrixSplit,
    Orthogonalised,
    as_matrix,
    newton_schulz,
    shape_scale,
)
from syncline.optim.rules import MomentumRule, adam
from syncline.optim.scalings import Scaling, Unscaled, check_unit, finite_sign


def muon(
    momentum: float = 0.95,
    *,
    nesterov: bool = True,
    steps: int = 5,
    adjust_lr: Literal["original", "match_rms_adamw", "spectral", "none"] = "original",
    other_rule: UpdateRule | None = None,
) -> MatrixSplit:
    """Return Muon for matrices, and Adam (or ``other_rule``) for everything else.

        u <- mu u + (1 - mu) g
        d  = scale(m, n) polar((1 - mu) g + mu u)          (without Nesterov: polar(u))

    Here g is a matrix's gradient, u its momentum, and d the direction of the update. ``polar`` is the polar factor: the
    matrix with the same singular vectors and all singular values 1. ``scale`` is a factor that depends on the matrix's
    numbers m of rows and n of columns.

    Args:
        momentum: mu, decay rate of the momentum.
        nesterov: whether the gradient is mixed into the momentum before the orthogonalisation.
        steps: number of Newton-Schulz iterations.
        adjust_lr: factor that depends on a matrix's shape, see ``shape_scale``.
        other_rule: rule of the parameters that are not matrices.

    Source: K. Jordan et al., "Muon" (2024); ``torch.optim.Muon``, which iterates in bfloat16.
    """
    weight = momentum if nesterov else 1.0
    rule = MomentumRule((momentum,), (weight,), Orthogonalised(steps=steps, adjust_lr=adjust_lr), nesterov=nesterov)
    return MatrixSplit(rule, other_rule or adam())


EPS = 1e-12  # keeps a zero gradient at zero


def over_rms(d: Tensor) -> Tensor:
    """Divide each row by its root mean square, ``sqrt(n) d / ||d||``: ``(..., n)`` to the same."""
    return d / (d.square().mean(-1, keepdim=True).sqrt() + EPS)


@dataclass(frozen=True)
class SpectralBall(Unscaled):
    """The ball of matrices ``(m, n)`` of spectral norm up to ``radius sqrt(m / n)``: ``radius sqrt(m / n) polar(d)``.

    Inputs of RMS 1 then become outputs of RMS at most ``radius``.
    """

    radius: float = 50.0
    steps: int = 5

    def hyperparameters(self) -> dict[str, Any]:
        """Return the value of ``radius``."""
        return {"radius": self.radius}

    def after(self, d: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        """Return the ball's farthest point along ``d``."""
        matrix = as_matrix(d)
        scale = h["radius"] * shape_scale(matrix.shape[-2], matrix.shape[-1], "spectral")
        return newton_schulz(matrix, self.steps).mul_(scale).view_as(d)


@dataclass(frozen=True)
class TableBall(Unscaled):
    """The ball of parameters that are not matrices: tables, one row per token or class, and vectors.

    A table has two dimensions. Everything else is a vector, a number alone too, and has an RMS of at most ``radius``.
    Tables of ``(m, n)``, by ``tables``:

    - ``sign``: entries of at most ``table_radius / n``, so that inputs of entries up to 1 become outputs up to
      ``table_radius``: the output head, and a table that is embedding and head at once.
    - ``rows``: rows with an RMS of at most ``table_radius``: an embedding, of which each input takes one row. The paper
      has it as a column, of weights ``(n, m)``.
    """

    radius: float = 50.0
    table_radius: float = 3000.0
    tables: Literal["sign", "rows"] = "sign"

    def hyperparameters(self) -> dict[str, Any]:
        """Return the values of ``radius`` and ``table_radius``."""
        return {"radius": self.radius, "table_radius": self.table_radius}

    def after(self, d: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        """Return the ball's farthest point along ``d``."""
        if d.dim() != 3:
            return (over_rms(d.reshape(len(d), -1)) * h["radius"]).view_as(d)
        if self.tables == "rows":
            return over_rms(d) * h["table_radius"]
        return finite_sign(d) * (h["table_radius"] / d.shape[-1])


def scion(
    momentum: float = 0.9,
    *,
    radius: float = 50.0,
    table_radius: float | None = None,
    tables: Literal["sign", "rows"] = "sign",
    steps: int = 5,
) -> MatrixSplit:
    """Return Scion without its constraint: the size of steps depends only on the norms of all layers.

        u <- mu u + (1 - mu) g
        d  = the point of the ball that is farthest along u          (x <- x - lr d)

    A matrix goes to ``SpectralBall``, everything else to ``TableBall``. The constrained form, which stays in the balls,
    is this one with ``weight_decay: 1``: ``x <- (1 - lr) x - lr d`` averages points of a ball.

    Args:
        momentum: mu, decay rate of the momentum; the paper's ``1 - alpha``.
        radius: radius of the norm balls of matrices and vectors.
        table_radius: radius of the norm ball of tables; by default ``60 radius`` with ``tables="sign"``, and ``radius``
            with ``tables="rows"``.
        tables: norm of tables, see ``TableBall``.
        steps: number of Newton-Schulz iterations.

    Raises:
        SpecError: for a momentum, a radius or a norm out of range.

    Source: Pethick et al., "Training Deep Learning Models with Norm-Constrained LMOs" (2025); its radii 50 and 3000 are
    those of a GPT whose embedding is its head.
    """
    check_unit("momentum", momentum)
    if tables not in ("sign", "rows"):
        raise SpecError("tables", tables, "'sign' or 'rows'")
    outer = table_radius if table_radius is not None else radius * (60 if tables == "sign" else 1)
    for field, value in (("radius", radius), ("table_radius", outer)):
        if not value > 0:
            raise SpecError(field, value, "a number > 0")

    def averaged(scaling: Scaling) -> MomentumRule:
        return MomentumRule((momentum,), (1.0,), scaling) if momentum else MomentumRule((), (), scaling)

    matrices = SpectralBall(radius=radius, steps=steps)
    others = TableBall(radius=radius, table_radius=outer, tables=tables)
    return MatrixSplit(averaged(matrices), averaged(others))
