"""Tools of update rules for matrices: orthonormalisation, low-rank factors, and the choice of a rule by shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import compute_once_if_shared
from syncline.costmodel.compute.tensors import matches_patterns
from syncline.errors import SpecError
from syncline.optim.base import Hyperparameters, UpdateRule
from syncline.optim.quantisers import at_least_fp32
from syncline.optim.scalings import States, Unscaled, finite_sign
from syncline.seeds import seed64

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients a, b, c of Muon's quintic iteration (Jordan et al., 2024), which moves singular values to 1 +- 0.3."""


def newton_schulz(x: Tensor, steps: int = 5, eps: float = 1e-7) -> Tensor:
    """Return an approximate polar factor: the matrix with the same singular vectors and singular values of about 1.

        X_0 = X / (||X||_F + eps);  X_{k+1} = a X_k + (b A + c A^2) X_k,  A = X_k X_k^T

    Args:
        x: matrices ``(..., m, n)``; those with more rows than columns are transposed for the iteration.
        steps: number of iterations; 5 bring singular values of at least 2e-3 of the norm into [0.68, 1.21].
        eps: number added to the norm, so that a zero matrix stays zero.

    Source: K. Jordan et al., "Muon" (2024).
    """
    a, b, c = NEWTON_SCHULZ
    tall = x.shape[-2] > x.shape[-1]
    y = x.mT if tall else x
    y = y / (y.norm(dim=(-2, -1), keepdim=True) + eps)
    for _ in range(steps):
        gram = y @ y.mT
        y = ((b * gram + c * gram @ gram) @ y).add_(a * y)
    return y.mT if tall else y


def orthonormal_columns(x: Tensor) -> Tensor:
    """Return Q of the reduced QR decomposition of ``(..., m, r)``, with ``Q^T Q = I``, computed at least in fp32.

    The signs of the columns are such that the diagonal of R is positive, so that all backends return the same Q.
    """
    x_float = x if x.dtype == torch.float64 else x.float()
    q, r = torch.linalg.qr(x_float)
    sign = torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(x_float.dtype)
    return (q * sign.unsqueeze(-2)).to(x.dtype)


def unit_columns(x: Tensor, eps: float) -> Tensor:
    """Return matrices ``(..., n, r)`` with each column divided by its norm plus ``eps``."""
    x_float = at_least_fp32(x)  # in fp16 an eps of 1e-8 is 0
    return (x_float / (x_float.norm(dim=-2, keepdim=True) + eps)).to(x.dtype)


Average = Callable[[list[Tensor], str], list[Tensor]]
"""A function that averages several tensors over the workers in one call, with a label for the ledger."""


def no_average(tensors: list[Tensor], label: str) -> list[Tensor]:
    """Return the tensors of each worker unchanged: the `Average` of an update without communication."""
    return tensors


def power_iteration(
    matrices: Sequence[Tensor], right: Sequence[Tensor], average: Average
) -> list[tuple[Tensor, Tensor]]:
    """Return low-rank factors P and R of each matrix, whose mean over the workers is about ``P R^T``.

        P = orth(mean(M Q)),    R = mean(M^T P)

    M is a worker's matrix, Q the right factor of the last iteration, and mean is over the workers. The averages of all
    matrices take two calls. If M is zero on all workers, P and R are zero instead of arbitrary unit vectors, so that
    ``keep_old_where_zero`` can keep the old Q.

    Args:
        matrices: M, each ``(R, m, n)``.
        right: Q, each ``(R, n, r)``.
        average: the average over the workers, or ``no_average``.

    Returns:
        P with orthonormal columns ``(R, m, r)`` and R ``(R, n, r)`` per matrix.

    Source: PowerSGD (Vogels et al., 2019), Algorithm 1; Dion (Ahn et al., 2025), Algorithm 1.
    """
    products = average([m @ q for m, q in zip(matrices, right, strict=True)], "P")  # mean(M Q)

    def orthonormal_or_zero(p: Tensor) -> Tensor:
        # A QR decomposition of zeros has arbitrary unit vectors.
        return torch.where(is_all_zero(p), 0.0, orthonormal_columns(p))

    left_factors = [compute_once_if_shared(orthonormal_or_zero, p) for p in products]
    new_right = average([m.mT @ p for m, p in zip(matrices, left_factors, strict=True)], "R")
    return list(zip(left_factors, new_right, strict=True))


def keep_old_where_zero(new: Tensor, old: Tensor) -> Tensor:
    """Return the new factors ``(R, n, r)`` of R workers, but the old factor where a worker's new factor is all zero."""
    return torch.where(is_all_zero(new), old, new)


def is_all_zero(x: Tensor) -> Tensor:
    """Return whether each matrix of ``(..., m, n)`` is all zero, as booleans ``(..., 1, 1)``; NaN is not zero."""
    return (x.flatten(-2).abs().amax(-1) == 0)[..., None, None]


def random_columns(x: Tensor, length: int, rank: int, *names: str | int) -> Tensor:
    """Return Gaussian columns ``(R, length, rank)``, equal on all workers, with the dtype and device of ``x (R, ...)``.

    Args:
        x: tensor with the worker axis of R rows.
        length: number of entries of a column.
        *names: names of the random stream; the random numbers depend only on these and on the shape.
    """
    if x.is_meta:  # only the shape matters
        return x.new_empty(x.shape[0], length, rank)
    source = torch.Generator().manual_seed(seed64(0, "right factor", *names))
    columns = torch.randn(length, rank, generator=source, dtype=torch.float64, device="cpu").to(x)
    return columns.expand(x.shape[0], length, rank).contiguous()


@dataclass(frozen=True)
class MatrixSplit:
    """An update rule made of two: one for matrices, another for all other parameters.

    A matrix is a nonempty parameter with two dimensions or more whose group does not say ``matrix: False``. Groups of
    embeddings and of the output head should say so, because their rows are used one by one. A convolution's weights
    count as matrices ``(out, rest)``, see ``as_matrix``. Other parameters use the learning rate ``other_lr`` of their
    group, if it has one.

    Args:
        layers: patterns of parameter names; only matching matrices count as matrices. By default, all do.
    """

    matrix: UpdateRule
    other_rule: UpdateRule
    layers: tuple[str, ...] = ()

    @property
    def states(self) -> tuple[str, ...]:
        """Return the names of the states of the rule for matrices and of the rule for all other parameters."""
        return tuple(dict.fromkeys(self.matrix.states + self.other_rule.states))

    def hyperparameters(self) -> dict[str, Any]:
        """Return an empty dictionary, because each of the two rules has hyperparameters of its own."""
        return {}

    def split_group(self, group: dict[str, Any], worker_axes: int) -> list[tuple[UpdateRule, dict[str, Any]]]:
        """Return the two rules, each with the part of a group that it updates; a rule without parameters is left out.

        Args:
            worker_axes: 1 if the parameters' first dimension is the worker axis, else 0.
        """
        names = group.get("param_names", [""] * len(group["params"]))
        if self.layers and not all(names):
            raise SpecError("layers", self.layers, "none, or parameters with names, as module.named_parameters() has")
        may_have_matrices = bool(group.get("matrix", True))  # a group of embeddings says False
        is_matrix = []
        for p, name in zip(group["params"], names, strict=True):
            has_matrix_shape = p.dim() - worker_axes >= 2 and p.numel() > 0
            is_matrix.append(may_have_matrices and has_matrix_shape and matches_patterns(name, self.layers))

        rules_and_groups: list[tuple[UpdateRule, dict[str, Any]]] = []
        for rule, are_matrices in ((self.matrix, True), (self.other_rule, False)):
            indices = [index for index, value in enumerate(is_matrix) if value == are_matrices]
            if not indices:
                continue
            part = {**group, "matrix": are_matrices}
            for key in ("params", "param_names"):
                if key in group:
                    part[key] = [group[key][index] for index in indices]
            if not are_matrices and part["other_lr"] is not None:
                part["lr"] = part["other_lr"]
            rules_and_groups.append((rule, part))
        return rules_and_groups

    def init(self, x: Tensor, param_index: int) -> dict[str, Tensor]:
        """Raise an AssertionError: a method calls the rule of each parameter, never the split itself."""
        raise AssertionError("a split rule has no parameters of its own")

    def direction(self, g: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor | None:
        """Raise an AssertionError: a method calls the rule of each parameter, never the split itself."""
        raise AssertionError("a split rule has no parameters of its own")


def as_matrix(x: Tensor) -> Tensor:
    """Return a tensor ``(R, m, *rest)`` as matrices ``(R, m, n)``, a view if x is contiguous.

    A convolution's weights get one row per output, as in the public codes of Muon, PowerSGD, SOAP and Scion.
    """
    return x.flatten(2)


def shape_factor(rows: int, columns: int, adjust_lr: str) -> float:
    """Return the factor of an orthonormal update of a matrix with m rows (outputs) and n columns (inputs).

    By ``adjust_lr`` the factor is: ``original``, ``max(1, m / n)^0.5`` (Jordan et al., 2024); ``match_rms_adamw``,
    ``0.2 max(m, n)^0.5``, so that updates have the size of Adam's (Liu et al., 2025); ``spectral``, ``(m / n)^0.5``
    (Dion); ``none``, 1.
    """
    if adjust_lr == "original":
        return max(1.0, rows / columns) ** 0.5
    if adjust_lr == "match_rms_adamw":
        return 0.2 * max(rows, columns) ** 0.5
    if adjust_lr == "spectral":
        return (rows / columns) ** 0.5
    if adjust_lr == "none":
        return 1.0
    raise SpecError("adjust_lr", adjust_lr, "'original', 'match_rms_adamw', 'spectral' or 'none'")


LARGEST_STACKED = 2**18
"""Largest number of elements of a matrix that is orthogonalised together with others of its shape."""


@dataclass(frozen=True)
class Orthogonalised(Unscaled):
    """Muon's scaling: the mixture of momenta is replaced by its polar factor, computed by Newton-Schulz iterations.

    Args:
        adjust_lr: factor that depends on a matrix's shape, see ``shape_factor``.
    """

    steps: int = 5
    adjust_lr: Literal["original", "match_rms_adamw", "spectral", "none"] = "original"

    def scale_direction(self, d: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        """Return the direction ``scale polar(d)`` for the mixture ``d`` of momenta."""
        return self._orthogonalise([d])[0]

    @override
    def scale_directions(
        self, ds: list[Tensor], gs: list[Tensor], states: States, h: Hyperparameters, t: int
    ) -> list[Tensor]:
        """Return the scaled polar factors of several parameters' mixed momenta ``ds``."""
        # Small matrices of one shape are orthogonalised together, because calls cost more than their arithmetic.
        directions = list(ds)
        indices_by_shape: dict[tuple[int, ...], list[int]] = {}
        for index, d in enumerate(ds):
            if d.numel() // d.size(0) <= LARGEST_STACKED:
                indices_by_shape.setdefault(tuple(d.shape[1:]), []).append(index)
            else:
                directions[index] = self._orthogonalise([d])[0]
        for indices in indices_by_shape.values():
            same_shape = self._orthogonalise([ds[index] for index in indices])
            for index, direction in zip(indices, same_shape, strict=True):
                directions[index] = direction
        return directions

    def _orthogonalise(self, ds: list[Tensor]) -> list[Tensor]:
        """Return the polar factor of each tensor d, times ``shape_factor``; all have one shape ``(R, m, *rest)``."""
        matrices = torch.cat([as_matrix(d) for d in ds]) if len(ds) > 1 else as_matrix(ds[0])  # saves a copy
        rows, columns = matrices.shape[-2:]
        polar = newton_schulz(matrices, self.steps) * shape_factor(rows, columns, self.adjust_lr)
        parts = polar.split([len(d) for d in ds])
        return [part.view_as(d) for part, d in zip(parts, ds, strict=True)]


@dataclass(frozen=True)
class Signed(Unscaled):
    """Signum's scaling: the mixture of momenta is replaced by its sign."""

    def scale_direction(self, d: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        """Return the direction ``sign(d)`` for the mixture ``d`` of momenta."""
        return finite_sign(d)
