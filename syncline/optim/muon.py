"""Muon and Scion: steps of a fixed size in a norm that suits each parameter, such as the spectral norm of a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from syncline.errors import SpecError
from syncline.optim.base import Hyperparameters, UpdateRule
from syncline.optim.matrices import MatrixSplit, Orthogonalised, as_matrix, newton_schulz, shape_factor
from syncline.optim.quantisers import at_least_fp32
from syncline.optim.rules import MomentumRule, adam
from syncline.optim.scalings import Unscaled, check_unit, finite_sign


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

    g is the gradient of an m by n matrix, u its momentum, and d the direction of its step. ``polar`` is the polar
    factor: the matrix with the same singular vectors and all singular values 1.

    Args:
        momentum: mu, decay rate of the momentum.
        nesterov: whether the gradient is mixed into the momentum before the orthogonalisation.
        steps: number of Newton-Schulz iterations.
        adjust_lr: factor that depends on a matrix's shape, see ``shape_factor``.
        other_rule: rule of the parameters that are not matrices.

    Source: K. Jordan et al., "Muon" (2024); ``torch.optim.Muon``, which iterates in bfloat16.
    """
    weight = momentum if nesterov else 1.0
    scaling = Orthogonalised(steps=steps, adjust_lr=adjust_lr)
    matrix_rule = MomentumRule(betas=(momentum,), omegas=(weight,), scaling=scaling, nesterov=nesterov)
    return MatrixSplit(matrix_rule, other_rule or adam())


def divide_by_rms(d: Tensor) -> Tensor:
    """Return rows ``(..., n)`` divided by their root mean square: ``sqrt(n) d / ||d||``; rows of zeros stay zero."""
    d_float = at_least_fp32(d)  # in fp16 small squares, and 1e-12, are 0
    return (d_float / (d_float.square().mean(-1, keepdim=True).sqrt() + 1e-12)).to(d.dtype)


@dataclass(frozen=True)
class SpectralBall(Unscaled):
    """Scion's scaling of matrices: ``radius sqrt(m / n) polar(d)`` for the mixture d of momenta, an m by n matrix.

    It is the point of the ball of matrices with spectral norm up to ``radius sqrt(m / n)`` that is farthest along d. A
    matrix of this ball maps inputs of root mean square 1 to outputs of root mean square at most ``radius``.
    """

    radius: float = 50.0
    steps: int = 5

    def hyperparameters(self) -> dict[str, Any]:
        """Return the rule's only hyperparameter, the ``radius`` of the norm ball, by name."""
        return {"radius": self.radius}

    def scale_direction(self, d: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        """Return the point of the ball that is farthest along the mixture ``d`` of momenta."""
        matrix = as_matrix(d)
        scale = h["radius"] * shape_factor(matrix.shape[-2], matrix.shape[-1], "spectral")
        return newton_schulz(matrix, self.steps).mul_(scale).view_as(d)


@dataclass(frozen=True)
class TableBall(Unscaled):
    """Scion's scaling of parameters that are not matrices: tables, with one row per token or class, and vectors.

    The result is the point of a norm ball that is farthest along the mixture of momenta. A parameter with two
    dimensions is a table; all others are vectors, with a root mean square (RMS) of at most ``radius``. The ball of a
    table ``(m, n)`` depends on ``tables``:

    - ``sign``: entries of at most ``table_radius / n``, so that inputs with entries up to 1 become outputs up to
      ``table_radius``. It is for the output head, and for a table that is embedding and head at once.
    - ``rows``: rows with an RMS of at most ``table_radius``. It is for an embedding, because each input selects one
      row.
    """

    radius: float = 50.0
    table_radius: float = 3000.0
    tables: Literal["sign", "rows"] = "sign"

    def hyperparameters(self) -> dict[str, Any]:
        """Return the values of ``radius`` and ``table_radius`` by name."""
        return {"radius": self.radius, "table_radius": self.table_radius}

    def scale_direction(self, d: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        """Return the point of the ball that is farthest along the mixture ``d`` of momenta."""
        if d.dim() != 3:  # a vector; a table is (R, m, n)
            return (divide_by_rms(d.reshape(len(d), -1)) * h["radius"]).view_as(d)
        if self.tables == "rows":
            return divide_by_rms(d) * h["table_radius"]
        num_columns = d.shape[-1]
        return finite_sign(d) * (h["table_radius"] / num_columns)


def scion(
    momentum: float = 0.9,
    *,
    radius: float = 50.0,
    table_radius: float | None = None,
    tables: Literal["sign", "rows"] = "sign",
    steps: int = 5,
) -> MatrixSplit:
    """Return Scion: each parameter x moves by the point of a norm ball that is farthest along its momentum u.

        u <- mu u + (1 - mu) g
        d  = the point of the ball that is farthest along u          (x <- x - lr d)

    The ball is ``SpectralBall`` for matrices and ``TableBall`` for other parameters. This is Scion's unconstrained
    form. With ``weight_decay: 1`` it becomes the constrained form, in which ``x <- (1 - lr) x - lr d`` stays in the
    ball.

    Args:
        momentum: mu, decay rate of the momentum; the paper's ``1 - alpha``.
        radius: radius of the norm balls of matrices and vectors.
        table_radius: radius of the norm ball of tables; by default ``60 radius`` with ``tables="sign"``, and ``radius``
            with ``tables="rows"``.
        tables: norm of tables, see ``TableBall``.
        steps: number of Newton-Schulz iterations.

    Raises:
        SpecError: a momentum, a radius or a norm is out of range.

    Source: Pethick et al., "Training Deep Learning Models with Norm-Constrained LMOs" (2025); its radii 50 and 3000 are
    those of a GPT whose embedding is its head.
    """
    check_unit("momentum", momentum)
    if tables not in ("sign", "rows"):
        raise SpecError("tables", tables, "'sign' or 'rows'")
    if table_radius is None:
        table_radius = 60 * radius if tables == "sign" else radius  # 60 is the paper's ratio 3000 / 50
    for field, value in (("radius", radius), ("table_radius", table_radius)):
        if not value > 0:
            raise SpecError(field, value, "a number > 0")

    betas, omegas = ((momentum,), (1.0,)) if momentum else ((), ())
    matrix_scaling = SpectralBall(radius=radius, steps=steps)
    other_scaling = TableBall(radius=radius, table_radius=table_radius, tables=tables)
    return MatrixSplit(MomentumRule(betas, omegas, matrix_scaling), MomentumRule(betas, omegas, other_scaling))
