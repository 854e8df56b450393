"""A spiral valley: wherever it leads, the curvature across it turns with it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from syncline.errors import SpecError
from syncline.problems.landscapes import Landscape, Oracle

TURNS = 4.0
DEPTH = 20.0
"""What the valley turns per unit of radius, and how deep it is. Source: Basis Rotation, Appendix D.1."""

FLOOR_RAD = math.asin(1 / DEPTH)
"""Where ``20 sin(4 r - theta) + 1`` is 0: ``theta = 4 r + FLOOR_RAD``."""


class _Polar(NamedTuple):
    """Radius, radial and tangential unit vectors ``(..., 2)``, and the ``s`` and ``c`` of `spiral`."""

    r: Tensor
    outward: Tensor
    around: Tensor
    s: Tensor
    c: Tensor


def _polar(point: Tensor) -> _Polar:
    x, y = point.unbind(-1)
    # Kept off 0, so that at the origin the unit vectors are 0 and no quotient is undefined.
    r = torch.hypot(x, y).clamp_min(torch.finfo(point.dtype).eps)
    phase = TURNS * r - torch.atan2(y, x)
    outward = torch.stack((x, y), dim=-1) / r.unsqueeze(-1)
    around = torch.stack((-outward[..., 1], outward[..., 0]), dim=-1)
    return _Polar(r, outward, around, DEPTH * phase.sin() + 1, DEPTH * phase.cos())


def spiral(point: Tensor) -> tuple[Tensor, Tensor]:
    """Return the spiral and its gradient.

    ``f = r^2 + s^2`` with ``s = 20 sin(4 r - theta) + 1``, and with ``c = 20 cos(4 r - theta)``::

        grad f = (2 r + 8 s c) e_r - (2 s c / r) e_theta

    All values from 0 to 441 meet at the origin; there f is its infimum 0 and the gradient 0.

    Args:
        point: ``(..., 2)``.

    Returns:
        The values ``(...)`` and the gradients ``(..., 2)``.

    Source: Basis Rotation, Appendix D.1.
    """
    r, outward, around, s, c = _polar(point)
    radial = 2 * r + 2 * TURNS * s * c
    gradient = radial.unsqueeze(-1) * outward - (2 * s * c / r).unsqueeze(-1) * around
    return torch.where(point.any(-1), r * r + s * s, 0.0), gradient


def spiral_hessian(point: Tensor) -> Tensor:
    """Return the second derivatives of the spiral, ``(..., 2, 2)``; a point is not the origin.

    With ``k = c^2 - s (s - 1)``, the derivative of ``s c``, and in the frame of ``e_r`` and ``e_theta``::

        H_rr = 2 + 32 k,    H_rt = -8 k / r + 2 s c / r^2,    H_tt = 2 k / r^2 + 2 + 8 s c / r
    """
    r, outward, around, s, c = _polar(point)
    k = c * c - s * (s - 1)
    rr = 2 + 2 * TURNS**2 * k
    rt = -2 * TURNS * k / r + 2 * s * c / r**2
    tt = 2 * k / r**2 + 2 + 2 * TURNS * s * c / r
    frame = torch.stack((outward, around), dim=-1)  # columns
    inner = torch.stack((torch.stack((rr, rt), dim=-1), torch.stack((rt, tt), dim=-1)), dim=-2)
    return frame @ inner @ frame.mT


@dataclass(frozen=True, kw_only=True)
class Spiral(Landscape):
    """A valley that winds into the origin: ``f(r, theta) = r^2 + (20 sin(4 r - theta) + 1)^2``.

    The steep direction, across the valley, is within ``1 / (4 r)`` radians of the radius, so the eigenvectors of the
    Hessian turn with the angle: four times a turn they lie along the coordinates, and four times across them. f is 0
    at the origin only in the limit along the valley's two arms.

    Args:
        radius: r of the start point of every worker, above 0.
        angle_deg: theta of the start point in degrees; by default on the valley's floor, ``4 r + asin(1 / 20)``
            radians.

    Raises:
        SpecError: a radius that is not above 0, or workers whose optima are shifted: their mean has no known minimiser.

    Source: Basis Rotation, section 2.2 and Appendix D.1.
    """

    name: ClassVar[str] = "spiral"
    radius: float = 10.0
    angle_deg: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.radius < math.inf:
            raise SpecError("problem.radius", self.radius, "a finite number above 0")
        if self.angle_deg is not None and not math.isfinite(self.angle_deg):
            raise SpecError("problem.angle_deg", self.angle_deg, "a finite number of degrees")
        if self.shift_std:
            expected = "0 on a spiral: the mean of shifted spirals has no minimiser in closed form"
            raise SpecError("problem.shift_std", self.shift_std, expected)

    def oracle(self, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> Oracle:
        """Return the spiral and its gradient."""
        return spiral

    def start_point(self) -> Tensor:
        """Return ``radius`` and ``angle_deg`` as a position."""
        floor = TURNS * self.radius + FLOOR_RAD
        theta = floor if self.angle_deg is None else math.radians(self.angle_deg)
        return self.radius * torch.tensor([math.cos(theta), math.sin(theta)], dtype=torch.float64)

    def optimum_point(self, shifts: Tensor) -> Tensor:
        """Return the origin as the optimum."""
        return torch.zeros(2, dtype=torch.float64)
