"""Basis Rotation, SOAP, EShampoo, full-rank GaLore, and the rotation of all coordinates of a small problem."""

from __future__ import annotations

from typing import Any, Literal

from syncline.errors import SpecError
from syncline.optim.base import UpdateRule
from syncline.optim.matrices import MatrixSplit
from syncline.optim.rotated import Curvature, RotatedAdam
from syncline.optim.rules import adam


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
        other_rule: rule of the parameters that are not rotated; by default Adam with the same rates.
        **options: ``estimate``, ``refresh``, ``momentum``, ``carry``, ``beta1``, ``beta2``, ``eps``,
            ``covariance_beta``, ``tolerance`` of ``RotatedAdam``.

    Source: see ``RotatedAdam``.
    """
    rule = RotatedAdam(source, geometry, frequency, **options)
    return MatrixSplit(rule, other_rule or adam(rule.beta1, rule.beta2, rule.eps), layers)


def soap(frequency: int | None = 10, *, beta1: float = 0.95, beta2: float = 0.95, **options: Any) -> MatrixSplit:
    """Return SOAP: Basis Rotation 2nd, bilateral, with ``refresh: after`` and ``momentum: rotated``.

    Args:
        frequency: steps between renewals of the bases; None for never.
        beta1: decay rate of the momentum.
        beta2: decay rate of the second moment, and of the averages of ``G G^T`` and ``G^T G``.
        **options: as for ``basis_rotation``.

    Source: N. Vyas et al., "SOAP: Improving and Stabilizing Shampoo using Adam" (2025), and its public code.
    """
    switches: dict[str, Any] = {"refresh": "after", "momentum": "rotated"}
    return basis_rotation("2nd", "bilateral", frequency, beta1=beta1, beta2=beta2, **(switches | options))


def galore(frequency: int | None = 200, **options: Any) -> MatrixSplit:
    """Return GaLore at full rank: the smaller side rotates by the singular vectors of one gradient.

    Both moments live in the rotated coordinates and stay as they are when those change.

    Args:
        frequency: steps between decompositions; None for the first alone.
        **options: as for ``basis_rotation``.

    Source: J. Zhao et al., "GaLore" (2024), Algorithm 2, with a rank of all and a scale of 1.
    """
    defaults: dict[str, Any] = {
        "source": "gradient",
        "geometry": "unilateral",
        "estimate": "exact",
        "momentum": "rotated",
        "carry": False,
    }
    return basis_rotation(frequency=frequency, **(defaults | options))


def eshampoo(frequency: int | None = 10, *, tolerance: float | None = None, **options: Any) -> MatrixSplit:
    """Return EShampoo: Shampoo with eigenvalues corrected in every step, and eigenvectors renewed less often.

    Basis Rotation 2nd, bilateral, but for two switches: ``estimate: exact``, and a second moment that stays as it is
    when its basis changes.

    Args:
        frequency: steps between renewals of the bases; None for the first alone.
        tolerance: a basis that is still this close to its matrix's eigenvectors is not renewed, see ``RotatedAdam``.
        **options: as for ``basis_rotation``.

    Source: R. Eschenhagen et al., "Purifying Shampoo: Investigating Shampoo's Heuristics by Decomposing its
    Preconditioner" (2025), eigenvalue-corrected Shampoo, and its public code.
    """
    switches: dict[str, Any] = {"estimate": "exact", "carry": False, "tolerance": tolerance}
    return basis_rotation("2nd", "bilateral", frequency, **(switches | options))


def full_rotation(
    source: Literal["gradient-covariance"] | Curvature = "gradient-covariance",
    frequency: int | None = 1,
    *,
    estimate: Literal["power", "exact"] = "exact",
    **options: Any,
) -> RotatedAdam:
    """Return Adam in a basis of all coordinates of a tensor together, for problems of few dimensions.

    Args:
        source: eigenvectors of what: an average of ``g g^T``, or the symmetric ``(R, d, d)`` that a function gives at
            a step (from 0), as an exact Hessian is.
        frequency: steps between renewals of the basis; None for never.
        estimate: see ``RotatedAdam``.
        **options: ``beta1``, ``beta2``, ``eps``, ``covariance_beta``, ``refresh``, ``momentum``, ``carry``.

    Source: Basis Rotation, equation 6.
    """
    if not callable(source):
        if source != "gradient-covariance":
            raise SpecError("source", source, "'gradient-covariance' or a function of the step")
        return RotatedAdam("2nd", "full", frequency, estimate, **options)
    return RotatedAdam(source, "full", frequency, estimate, **options)
