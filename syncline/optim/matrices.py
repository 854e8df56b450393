"""Rules for matrices: which parameters are matrices, and scalings that look at a matrix as a whole.

Orthonormalisation of matrices, batched over any leading dimensions.

One power iteration to low-rank factors, with the averages over workers where Dion and PowerSGD put them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import computed_once
from syncline.costmodel.compute.tensors import matches_patterns
from syncline.errors import SpecError
from syncline.optim.base import Hyperparameters, UpdateRule
from syncline.optim.scalings import States, Unscaled, finite_sign

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of Muon's quintic iteration (Jordan et al., 2024): steep at 0, and near 1 only to within about 0.3."""


def newton_schulz(x: Tensor, steps: int = 5, eps: float = 1e-7) -> Tensor:
    """Return an approximate polar factor: singular values go to about 1, singular vectors stay.

        X_0 = X / (||X||_F + eps);  X_{k+1} = a X_k + (b A + c A^2) X_k,  A = X_k X_k^T

    Args:
        x: ``(..., m, n)``; the smaller side is iterated on.
        steps: iterations; 5 bring singular values of at least 2e-3 of the norm into [0.68, 1.21].
        eps: keeps a zero matrix at zero.

    Source: K. Jordan et al., "Muon" (2024).
    """
    a, b, c = NEWTON_SCHULZ
    tall = x.shape[-2] > x.shape[-1]
    y = x.mT if tall else x
    y = y / (y.norm(dim=(-2, -1), keepdim=True) + eps)
    for _ in range(steps):
        gram = y @ y.mT
        y = a * y + (b * gram + c * gram @ gram) @ y
    return y.mT if tall else y


def orthonormal_columns(x: Tensor) -> Tensor:
    """Return Q of the reduced QR decomposition, ``(..., m, r)`` with ``Q^T Q = I``, computed at least in fp32.

    The diagonal of R is positive, which fixes the signs of the columns, so that all backends return the same Q up to
    rounding.
    """
    wide = x if x.dtype == torch.float64 else x.float()
    q, r = torch.linalg.qr(wide)
    sign = torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(wide.dtype)
    return (q * sign.unsqueeze(-2)).to(x.dtype)


def unit_columns(x: Tensor, eps: float) -> Tensor:
    """Divide each column by its norm plus ``eps``: ``(..., n, r)`` to the same."""
    return x / (x.norm(dim=-2, keepdim=True) + eps)


Average = Callable[[list[Tensor], str], list[Tensor]]
"""The mean over the workers of several tensors in one call, with the label that the ledger notes."""


def no_average(tensors: list[Tensor], label: str) -> list[Tensor]:
    """Return the tensors without an average: every worker keeps its own."""
    return tensors


def power_iteration(
    matrices: Sequence[Tensor], right: Sequence[Tensor], average: Average
) -> list[tuple[Tensor, Tensor]]:
    """Return factors ``(P, R)``, ``P R^T`` near the mean matrix: ``P = orth(mean(M Q))``, ``R = mean(M^T P)``.

    All matrices are in flight together: two calls, however many layers. Where every worker's M is zero P is zero too,
    and R with it, for which ``kept_where_zero`` has the old Q: the QR decomposition of nothing has unit vectors, along
    which only the first r rows would move.

    Args:
        matrices: M, each ``(R, m, n)``.
        right: Q, each ``(R, n, r)``.
        average: ``apart``, or an average over the workers.

    Returns:
        P with orthonormal columns ``(R, m, r)`` and R ``(R, n, r)`` per matrix.

    Source: PowerSGD (Vogels et al., 2019), Algorithm 1; Dion (Ahn et al., 2025), Algorithm 1.
    """
    factors = average([m @ q for m, q in zip(matrices, right, strict=True)], "P")
    factors = [computed_once(lambda p: torch.where(is_all_zero(p), 0.0, orthonormal_columns(p)), p) for p in factors]
    return list(zip(factors, average([m.mT @ p for m, p in zip(matrices, factors, strict=True)], "R"), strict=True))


def kept_where_zero(new: Tensor, old: Tensor) -> Tensor:
    """Return the new right factor ``(R, n, r)``; workers whose factor is all zero keep the old one."""
    return torch.where(is_all_zero(new), old, new)


def is_all_zero(x: Tensor) -> Tensor:
    """Return which matrices ``(..., m, n)`` are all zero, ``(..., 1, 1)``; NaN is not zero."""
    return (x.flatten(-2).abs().amax(-1) == 0)[..., None, None]


@dataclass(frozen=True)
class MatrixSplit:
    """One rule for matrices, another for everything else.

    A matrix is a parameter of two dimensions or more that is not empty, unless its group says ``matrix: False``, as it
    should for embeddings and the output head, whose rows are looked up or read out one by one. Weights of a convolution
    ``(out, in, *kernel)`` are worked on as ``(out, rest)``, see ``as_matrix``. A group with both kinds is cut in two;
    the other kind's learning rate is the group's ``other_lr``, if it has one.

    Args:
        matrix: rule of the matrices.
        other_rule: rule of all other parameters.
        layers: patterns of parameter names; only matching matrices count as matrices. By default, all do.
    """

    matrix: UpdateRule
    other_rule: UpdateRule
    layers: tuple[str, ...] = ()

    @property
    def states(self) -> tuple[str, ...]:
        """Return the states of both."""
        return tuple(dict.fromkeys(self.matrix.states + self.other_rule.states))

    def hyperparameters(self) -> dict[str, Any]:
        """Return no hyperparameters; each part has those of its rule."""
        return {}

    def parts(self, group: dict[str, Any], worker_axes: int) -> list[tuple[UpdateRule, dict[str, Any]]]:
        """Return the group's matrices, then its others."""
        allowed = group.get("matrix", True)
        names = group.get("param_names", [""] * len(group["params"]))
        if self.layers and not all(names):
            raise SpecError("layers", self.layers, "none, or parameters with names, as module.named_parameters() has")
        is_matrix = [
            allowed and p.dim() - worker_axes >= 2 and p.numel() > 0 and matches_patterns(name, self.layers)
            for p, name in zip(group["params"], names, strict=True)
        ]
        out: list[tuple[UpdateRule, dict[str, Any]]] = []
        for wanted, rule in ((True, self.matrix), (False, self.other_rule)):
            selected: dict[str, list[Any]] = {}
            for key in ("params", "param_names"):
                if key in group:
                    selected[key] = [
                        value for value, matrix in zip(group[key], is_matrix, strict=True) if matrix == wanted
                    ]
            if selected["params"]:
                part = {**group, **selected, "matrix": wanted}
                if not wanted and part["other_lr"] is not None:
                    part["lr"] = part["other_lr"]
                out.append((rule, part))
        return out

    def init(self, x: Tensor, number: int) -> dict[str, Tensor]:
        """Raise an error if called, because each parameter belongs to one of the parts."""
        raise AssertionError("a split rule has no parameters of its own")

    def direction(self, g: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor | None:
        """Raise an error if called, because each parameter belongs to one of the parts."""
        raise AssertionError("a split rule has no parameters of its own")


def as_matrix(x: Tensor) -> Tensor:
    """Return ``(R, m, *rest)`` as matrices ``(R, m, n)``, a view wherever x is contiguous.

    A row is one output, as Muon's, PowerSGD's, SOAP's and Scion's public codes view the weights of a convolution.
    """
    return x.flatten(2)


def shape_scale(rows: int, columns: int, adjust_lr: str) -> float:
    """Return the factor of an orthonormal update of ``(m, n)``, for ``m`` outputs and ``n`` inputs.

    ``original``: ``max(1, m / n)^0.5`` (Jordan et al., 2024). ``match_rms_adamw``: ``0.2 max(m, n)^0.5``, Adam's usual
    size of an update (Liu et al., 2025). ``spectral``: ``(m / n)^0.5`` (Dion). ``none``: 1.
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


TOGETHER = 2**18
"""Numbers of a matrix up to which several are iterated on at once."""


@dataclass(frozen=True)
class Orthogonalised(Unscaled):
    """The mixture of momenta is replaced by its polar factor, by Newton-Schulz iterations: Muon.

    Args:
        steps: number of Newton-Schulz iterations.
        adjust_lr: factor that depends on a matrix's shape, see ``shape_scale``.
    """

    steps: int = 5
    adjust_lr: Literal["original", "match_rms_adamw", "spectral", "none"] = "original"

    def after(self, d: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        """Return ``scale polar(d)`` as the direction."""
        return self._orthogonal([d])[0]

    @override
    def after_all(self, ds: list[Tensor], gs: list[Tensor], states: States, h: Hyperparameters, t: int) -> list[Tensor]:
        # Small matrices of one shape are iterated on together; of large ones the arithmetic is all.
        out = list(ds)
        alike: dict[tuple[int, ...], list[int]] = {}
        for place, d in enumerate(ds):
            size = d.numel() // d.size(0)
            key = tuple(d.shape[1:]) if size <= TOGETHER else (place, -1)
            alike.setdefault(key, []).append(place)
        for places in alike.values():
            for place, direction in zip(places, self._orthogonal([ds[place] for place in places]), strict=True):
                out[place] = direction
        return out

    def _orthogonal(self, ds: list[Tensor]) -> list[Tensor]:
        """Return ``scale polar(d)`` of tensors of one shape."""
        matrices = [as_matrix(d) for d in ds]
        scale = shape_scale(matrices[0].shape[-2], matrices[0].shape[-1], self.adjust_lr)
        polar = newton_schulz(torch.cat(matrices) if len(ds) > 1 else matrices[0], self.steps) * scale
        return [part.view_as(d) for part, d in zip(polar.split([len(d) for d in ds]), ds, strict=True)]


@dataclass(frozen=True)
class Signed(Unscaled):
    """The mixture of momenta is replaced by its sign: Signum."""

    def after(self, d: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        """Return ``sign(d)`` as the direction."""
        return finite_sign(d)
