"""Adam in a rotated basis: Basis Rotation, SOAP, EShampoo, full-rank GaLore, and a rotation of all coordinates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from typing_extensions import override

from syncline.errors import SpecError
from syncline.optim.base import Hyperparameters, ParamRow, UpdateRule
from syncline.optim.matrices import MatrixSplit, as_matrix, orthonormal_columns
from syncline.optim.rules import adam
from syncline.optim.scalings import SECOND_MOMENT, AdamScaling, check_unit, momentum_names


def rotate(x: Tensor, left_basis: Tensor | None, right_basis: Tensor | None) -> Tensor:
    """Return ``U^T X V`` for matrices X and bases U (left) and V (right); a basis of None is the identity."""
    if left_basis is not None:
        x = left_basis.mT @ x
    return x if right_basis is None else x @ right_basis


def rotate_back(x: Tensor, left_basis: Tensor | None, right_basis: Tensor | None) -> Tensor:
    """Return ``U X V^T``, the inverse of ``rotate``; a basis of None is the identity."""
    if left_basis is not None:
        x = left_basis @ x
    return x if right_basis is None else x @ right_basis.mT


def rayleigh_order(matrix: Tensor, basis: Tensor) -> Tensor:
    """Return indices ``(..., d)`` that sort the columns b of a basis by falling Rayleigh quotient ``b^T C b``.

    C is the symmetric ``matrix``.
    """
    return (basis * (matrix @ basis)).sum(-2).argsort(dim=-1, descending=True, stable=True)


def reordered(x: Tensor, order: Tensor, dim: int) -> Tensor:
    """Return matrices ``x`` with rows (``dim=-2``) or columns (``dim=-1``) in the order of indices ``(..., d)``."""
    index = order.unsqueeze(-1 if dim == -2 else -2)
    return x.gather(dim, index.expand_as(x))


def off_diagonal_share(matrix: Tensor) -> Tensor:
    """Return ``||B - diag(B)|| / ||B||`` of matrices B ``(..., d, d)``, as ``(..., 1, 1)``; 0 for a matrix of zeros.

    For ``B = U^T C U`` it tells how far the basis U is from the eigenvectors of C.

    Source: R. Eschenhagen et al., "Purifying Shampoo" (2025), its criterion for a warm-started QR iteration.
    """
    total = matrix.square().sum((-2, -1), keepdim=True)
    diagonal = matrix.diagonal(dim1=-2, dim2=-1).square().sum(-1)[..., None, None]
    return ((total - diagonal).clamp(min=0) / total.clamp(min=torch.finfo(total.dtype).tiny)).sqrt()


def exact_basis(matrix: Tensor) -> Tensor:
    """Return the eigenvectors of symmetric matrices ``(..., d, d)`` as columns, by falling eigenvalues.

    A matrix that is not finite gives NaN instead of an error, so that the loss shows it.
    """
    matrix_float = matrix if matrix.dtype == torch.float64 else matrix.float()
    zero_or_nan = (matrix_float * 0).sum((-2, -1), keepdim=True)  # NaN for a matrix that is not finite
    finite_matrix = matrix_float.nan_to_num(nan=0, posinf=0, neginf=0)
    vectors = torch.linalg.eigh(finite_matrix).eigenvectors.flip(-1)  # eigh has the smallest eigenvalue first
    return (vectors + zero_or_nan).to(matrix.dtype)


def power_basis(matrix: Tensor, basis: Tensor) -> Tensor:
    """Return an orthonormal basis after one power iteration and a QR decomposition: ``orth((C + s I) B)``.

    The shift s is a few rounding errors of C. It keeps columns in the null space of C, which rounding would change.

    Args:
        matrix: C, symmetric and positive semidefinite, ``(..., d, d)``.
        basis: B, the last basis, with columns in the order of falling Rayleigh quotients.

    Source: S. Wang et al., "4-bit Shampoo" (2024), and SOAP (N. Vyas et al., 2025), without the shift.
    """
    matrix_float = matrix if matrix.dtype == torch.float64 else matrix.float()
    trace = matrix_float.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    columns = basis.to(matrix_float.dtype)
    shift = 8 * torch.finfo(matrix_float.dtype).eps * trace
    return orthonormal_columns(matrix_float @ columns + shift * columns).to(matrix.dtype)


(MOMENTUM,) = momentum_names(1)

BASES = ("left_basis", "right_basis")
COVARIANCES = ("left_covariance", "right_covariance")
"""Names of states by side: 0 is the left, with ``U`` and ``E[G G^T]``; 1 is the right, with ``V`` and ``E[G^T G]``."""

LONGEST_STACKED = {"cpu": 0, "cuda": 512}
"""Largest length of bases that are decomposed together, by device. A longer basis keeps a GPU busy by itself. A CPU
decomposes one basis after another, and is up to twice as fast without stacking."""

Curvature = Callable[[int], Tensor]
"""A function that returns, at step t, the symmetric matrix ``(R, d, d)`` whose eigenvectors are the basis."""


class RotatedParam(NamedTuple):
    """A parameter of a rotated rule: its gradient as matrices ``(R, m, n)``, its states, and its hyperparameters."""

    g: Tensor
    state: dict[str, Tensor]
    hyperparameters: Hyperparameters

    @property
    def bases(self) -> tuple[Tensor | None, Tensor | None]:
        """Return the bases U and V, or None for a side that is not rotated."""
        left_name, right_name = BASES
        return self.state.get(left_name), self.state.get(right_name)


class BasisRenewal(NamedTuple):
    """A basis that is due to be renewed.

    Attributes:
        param: the parameter that the basis rotates.
        side: 0 for the left basis, 1 for the right.
        curvature: C, the symmetric matrix ``(R, d, d)`` whose eigenvectors are the new basis.
    """

    param: RotatedParam
    side: int
    curvature: Tensor


@dataclass(frozen=True)
class RotatedAdam(UpdateRule):
    """Adam on the rotated gradient ``U^T G V`` of a matrix; the direction d is rotated back.

        M <- beta1 M + (1 - beta1) G,   v <- beta2 v + (1 - beta2) (U^T G V)^2
        d  = U [ (U^T M_hat V) / (sqrt(v_hat) + eps) ] V^T

    G is the gradient; hats denote bias correction. Basis Rotation, SOAP, EShampoo and full-rank GaLore are settings of
    it. The bases U and V are eigenvectors of a matrix C, and are renewed every f steps.

    Args:
        source: ``1st``: C is ``M M^T`` for U and ``M^T M`` for V. ``gradient``: C is ``G G^T`` and ``G^T G``. ``2nd``:
            C is a moving average of the latter. Or, for geometry ``full``, a function that returns C at a step.
        geometry: ``bilateral``: both sides. ``unilateral``: only the smaller side of a matrix (the right one of a
            square). ``full``: any tensor as one vector, by a basis of all its d coordinates.
        frequency: f, number of steps between renewals of the bases, which happen at steps f - 1, 2 f - 1, ... (from 0).
            With None only the first step computes bases. A parameter group may have another f.
        estimate: how bases are renewed: ``power``, by one power iteration and a QR decomposition; ``exact``, by
            eigenvectors.
        refresh: when bases are renewed: ``before`` the moments of a step, which use the new bases; or ``after`` its
            update, as in SOAP, where the first step computes bases and does not move.
        momentum: state that is kept: ``original``, M as above; ``rotated``, ``U^T M V``.
        carry: whether moments follow renewed bases: v is sorted, and a rotated momentum is rotated into the new bases.
        covariance_beta: decay rate of the moving averages C of ``2nd``; by default ``beta2``.
        tolerance: a basis U is not renewed while ``||B - diag(B)|| <= tolerance ||B||`` for ``B = U^T C U`` (EShampoo);
            by default it is always renewed.

    Raises:
        SpecError: a value is out of range, or the geometry does not support the source.

    Source: H. Jung et al., "Mitigating Staleness in Asynchronous Pipeline Parallelism via Basis Rotation" (2026),
    Algorithms 1 and 2, refreshed as in its public code.
    """

    source: Literal["1st", "2nd", "gradient"] | Curvature = "2nd"
    geometry: Literal["unilateral", "bilateral", "full"] = "bilateral"
    frequency: int | None = 10
    estimate: Literal["power", "exact"] = "power"
    refresh: Literal["before", "after"] = "before"
    momentum: Literal["original", "rotated"] = "original"
    carry: bool = True
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    covariance_beta: float | None = None
    tolerance: float | None = None

    def __post_init__(self) -> None:
        choices_by_field = {
            "geometry": ("unilateral", "bilateral", "full"),
            "estimate": ("power", "exact"),
            "refresh": ("before", "after"),
            "momentum": ("original", "rotated"),
        }
        for name, choices in choices_by_field.items():
            if getattr(self, name) not in choices:
                raise SpecError(name, getattr(self, name), " or ".join(repr(choice) for choice in choices))
        if callable(self.source):
            if self.geometry != "full":
                raise SpecError("source", self.source, "'1st', '2nd' or 'gradient' of a matrix; a function is for full")
        elif self.source not in ("1st", "2nd", "gradient"):
            raise SpecError("source", self.source, "'1st', '2nd' or 'gradient'")
        if self.frequency is not None and not self.frequency >= 1:
            raise SpecError("frequency", self.frequency, "steps, at least 1, or none")
        check_unit("beta1", self.beta1)
        check_unit("beta2", self.beta2)
        if self.covariance_beta is not None:
            check_unit("covariance_beta", self.covariance_beta)
        if self.tolerance is not None and not 0 <= self.tolerance <= 1:
            raise SpecError("tolerance", self.tolerance, "a number from 0 to 1, or none")

    @property
    def states(self) -> tuple[str, ...]:
        """Return the names of states that workers may average: the momentum, if it is in original coordinates."""
        return (MOMENTUM,) if self.momentum == "original" else ()

    def hyperparameters(self) -> dict[str, Any]:
        """Return by name ``betas``, ``beta2``, ``eps``, ``covariance_beta`` and ``frequency``."""
        return {
            "betas": (self.beta1,),
            "beta2": self.beta2,
            "eps": self.eps,
            "covariance_beta": self.beta2 if self.covariance_beta is None else self.covariance_beta,
            "frequency": self.frequency,
        }

    def init(self, x: Tensor, param_index: int) -> dict[str, Tensor]:
        """Return zero moments and covariances, and the identity as bases, by name."""
        state = {}
        for name in (MOMENTUM, SECOND_MOMENT):
            state[name] = torch.zeros_like(x, memory_format=torch.contiguous_format)
        for side in self.rotated_sides(x):
            d = self._as_matrices(x).shape[-2 + side]  # m on the left, n on the right
            eye = torch.eye(d, dtype=x.dtype, device=x.device).expand(x.shape[0], d, d)
            state[BASES[side]] = eye.contiguous()
            if self.source == "2nd":
                state[COVARIANCES[side]] = torch.zeros_like(state[BASES[side]])
        return state

    def rotated_sides(self, x: Tensor) -> tuple[int, ...]:
        """Return the sides of a parameter ``(R, *s)`` that have a basis: 0 is the left, 1 the right."""
        if self.geometry == "bilateral":
            return (0, 1)
        if self.geometry == "full":
            return (0,)
        rows, columns = self._as_matrices(x).shape[-2:]
        return (0,) if rows < columns else (1,)

    @override
    def direction(self, g: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor | None:
        return self._directions([RotatedParam(self._as_matrices(g), state, h)], [g], t)[0]

    def directions(self, rows: list[ParamRow], t: int) -> list[Tensor | None]:
        """Return the directions of several parameters, and renew their bases together."""
        params = [RotatedParam(self._as_matrices(row.g), row.state, row.group) for row in rows]
        return self._directions(params, [row.g for row in rows], t)

    def _directions(self, params: list[RotatedParam], gradients: list[Tensor], t: int) -> list[Tensor | None]:
        """Return the directions of parameters at step ``t``, in the shapes of ``gradients``, and renew bases."""
        if self.refresh == "before":  # step t, counted from 0, makes update number t + 1 of the moments
            self._renew_bases(params, t, num_updates=t + 1)
            return [self._adam_direction(param, t).view_as(g) for param, g in zip(params, gradients, strict=True)]
        directions: list[Tensor | None] = [None] * len(params)
        if t > 0:  # step 0 only computes bases, so that step t is Adam's step t - 1
            for index, (param, g) in enumerate(zip(params, gradients, strict=True)):
                directions[index] = self._adam_direction(param, t - 1).view_as(g)
        self._renew_bases(params, t, num_updates=t)
        return directions

    def _as_matrices(self, x: Tensor) -> Tensor:
        """Return a tensor of R workers as matrices ``(R, m, n)``; geometry ``full`` has columns ``(R, d, 1)``."""
        return x.reshape(x.shape[0], -1, 1) if self.geometry == "full" else as_matrix(x)

    def _adam_direction(self, param: RotatedParam, t: int) -> Tensor:
        """Return the direction at Adam's step ``t`` (from 0) in the current bases, rotated back; update moments."""
        g, state, h = param
        (beta1,) = h["betas"]
        scaling = AdamScaling(h["beta2"], h["eps"])
        rotated_g = rotate(g, *param.bases)
        moments = {SECOND_MOMENT: self._as_matrices(state[SECOND_MOMENT])}
        scaling.scale_gradient(rotated_g, moments, h, t)
        u = self._as_matrices(state[MOMENTUM])
        if self.momentum == "original":
            u.lerp_(g, 1 - beta1)
            rotated_u = rotate(u, *param.bases)
        else:
            u.lerp_(rotated_g, 1 - beta1)
            rotated_u = u
        corrected_u = rotated_u * (1 / (1 - beta1 ** (t + 1)))
        return rotate_back(scaling.scale_direction(corrected_u, moments, h, t), *param.bases)

    def _renew_bases(self, params: list[RotatedParam], t: int, num_updates: int) -> None:
        """Add gradients to the covariances; renew bases in step ``t = 0`` and if ``frequency`` divides ``num_updates``.

        Args:
            num_updates: number of updates of the moments, including this step's if ``refresh`` is ``before``.
        """
        due_params: list[tuple[RotatedParam, Tensor]] = []  # each with its momentum u in original coordinates
        for param in params:
            if self.source == "2nd":
                weight = 1 - param.hyperparameters["covariance_beta"]
                for side in self.rotated_sides(param.g):
                    param.state[COVARIANCES[side]].lerp_(gram(param.g, side), weight)
            frequency = param.hyperparameters["frequency"]
            if t == 0 or (frequency is not None and num_updates % frequency == 0):
                u = self._as_matrices(param.state[MOMENTUM])
                due_params.append((param, u if self.momentum == "original" else rotate_back(u, *param.bases)))

        # Bases of one length are decomposed together, unless they are long.
        renewals_by_length: dict[int, list[BasisRenewal]] = {}
        for param, u in due_params:
            for side in self.rotated_sides(param.g):
                curvature = self._curvature_matrix(param, u, t, side)
                renewals_by_length.setdefault(curvature.shape[-1], []).append(BasisRenewal(param, side, curvature))
        for length, renewals in renewals_by_length.items():
            device = renewals[0].curvature.device.type
            if length <= LONGEST_STACKED.get(device, LONGEST_STACKED["cuda"]):
                self._renew_bases_together(renewals, t)
            else:
                for renewal in renewals:
                    self._renew_bases_together([renewal], t)

        if self.momentum == "rotated" and self.carry:  # rotate the momenta into the new bases
            for param, u in due_params:
                self._as_matrices(param.state[MOMENTUM]).copy_(rotate(u, *param.bases))

    def _renew_bases_together(self, renewals: list[BasisRenewal], t: int) -> None:
        """Renew bases of one length; with ``carry``, put second moments into the order of the new basis vectors."""
        bases = [renewal.param.state[BASES[renewal.side]] for renewal in renewals]
        num_workers = [len(basis) for basis in bases]  # 1 where all workers share a basis
        curvatures = torch.cat([renewal.curvature for renewal in renewals])
        if t == 0:  # the bases are still the identity: there is nothing to improve or to sort by
            new = exact_basis(curvatures)
        else:
            old = torch.cat(bases)
            order = rayleigh_order(curvatures, old)
            if self.estimate == "exact":
                new = exact_basis(curvatures)
            else:
                new = power_basis(curvatures, reordered(old, order, dim=-1))
            if self.tolerance is not None:
                is_unchanged = off_diagonal_share(rotate(curvatures, old, old)) <= self.tolerance
                new = torch.where(is_unchanged, old, new)
                # Where a basis stays, the second moments stay in their order too.
                order = torch.where(is_unchanged[..., 0], torch.arange(len(order[0]), device=order.device), order)
            if self.carry:
                for renewal, basis_order in zip(renewals, order.split(num_workers), strict=True):
                    v = self._as_matrices(renewal.param.state[SECOND_MOMENT])
                    dim = -2 if renewal.side == 0 else -1  # rows for the left basis, columns for the right
                    v.copy_(reordered(v, basis_order, dim))
        for basis, new_basis in zip(bases, new.split(num_workers), strict=True):
            basis.copy_(new_basis)

    def _curvature_matrix(self, param: RotatedParam, u: Tensor, t: int, side: int) -> Tensor:
        """Return the symmetric matrix C ``(R, d, d)`` whose eigenvectors are the basis of a side of a parameter.

        ``u`` is the momentum in original coordinates.
        """
        if callable(self.source):
            matrix = self.source(t)
            return matrix[: len(param.g)]  # the gradient has one row if all workers share its memory
        if self.source == "2nd":
            return param.state[COVARIANCES[side]]
        if self.source == "gradient":
            return gram(param.g, side)
        # The source is ``1st``, the momentum after this step's update. If ``refresh`` is ``after``, u has this update
        # already, except in step 0, which updates no moments.
        if self.refresh == "before" or t == 0:
            (beta1,) = param.hyperparameters["betas"]  # of the momentum
            u = u.lerp(param.g, 1 - beta1)
        return gram(u, side)


def gram(x: Tensor, side: int) -> Tensor:
    """Return ``X X^T`` for side 0, the left, and ``X^T X`` for side 1, the right, of matrices X ``(R, m, n)``."""
    return x @ x.mT if side == 0 else x.mT @ x


def basis_rotation(
    source: Literal["1st", "2nd", "gradient"] = "2nd",
    geometry: Literal["unilateral", "bilateral"] = "bilateral",
    frequency: int | None = 10,
    *,
    layers: tuple[str, ...] = (),
    other_rule: UpdateRule | None = None,
    **options: Any,
) -> MatrixSplit:
    """Return Basis Rotation for matrices, and Adam (or ``other_rule``) for everything else.

    Args:
        source: see ``RotatedAdam``.
        geometry: see ``RotatedAdam``.
        frequency: steps between renewals of the bases; None for never.
        layers: patterns of parameter names; only matching matrices are rotated. By default, all matrices are.
        other_rule: rule of the parameters that are not rotated; by default Adam with the same betas and ``eps``.
        **options: ``estimate``, ``refresh``, ``momentum``, ``carry``, ``beta1``, ``beta2``, ``eps``,
            ``covariance_beta``, ``tolerance`` of ``RotatedAdam``.

    Source: see ``RotatedAdam``.
    """
    rule = RotatedAdam(source, geometry, frequency, **options)
    return MatrixSplit(rule, other_rule or adam(rule.beta1, rule.beta2, rule.eps), layers)


def full_rotation(
    source: Literal["gradient-covariance"] | Curvature = "gradient-covariance",
    frequency: int | None = 1,
    *,
    estimate: Literal["power", "exact"] = "exact",
    **options: Any,
) -> RotatedAdam:
    """Return Adam in a basis of all coordinates of a tensor, for problems of few dimensions.

    Args:
        source: matrix whose eigenvectors are the basis: the average of ``g g^T`` for gradients g; or a function from
            the step (from 0) to a symmetric matrix ``(R, d, d)``, such as an exact Hessian.
        frequency: number of steps between renewals of the basis; None for never.
        estimate: see ``RotatedAdam``.
        **options: ``beta1``, ``beta2``, ``eps``, ``covariance_beta``, ``refresh``, ``momentum``, ``carry``.

    Source: Basis Rotation, equation 6.
    """
    if callable(source):
        return RotatedAdam(source, geometry="full", frequency=frequency, estimate=estimate, **options)
    if source != "gradient-covariance":
        raise SpecError("source", source, "'gradient-covariance' or a function of the step")
    # The source ``2nd`` averages ``G G^T``, where G is the column g.
    return RotatedAdam("2nd", geometry="full", frequency=frequency, estimate=estimate, **options)
