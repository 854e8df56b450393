"""Quadratics with any spectrum in any basis."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from syncline.errors import SpecError, one_of
from syncline.problems.landscapes import Landscape, Oracle
from syncline.problems.streams import torch_generator

StartBasis = Literal["coordinates", "eigenvectors"]
START_BASES = get_args(StartBasis)


@dataclass(frozen=True, kw_only=True)
class Quadratic(Landscape):
    """A bowl whose axes may lie across the coordinates.

    ``f(x) = 1/2 (x - x*)^T H (x - x*)`` with ``H = Q diag(spectrum) Q^T``. Shifted workers share H, so their mean loss
    has the same minimiser ``x*``.

    Args:
        spectrum: the d eigenvalues of H, 0 or larger.
        start: start point of every worker, d numbers; all ones by default.
        start_basis: basis of ``start``: ``coordinates``, or ``eigenvectors`` of H, so that the start is ``x* + Q
            start``.
        start_jitter: half the width of the uniform draw that each replica adds to ``start``, per number; 0 for none.
        optimum: ``x*``, d coordinates; the origin by default.
        angle_deg: angle in degrees by which the eigenvectors of a two-dimensional H are rotated.
        rotation_seed: seed of a random orthogonal Q that rotates the eigenvectors, in any dimension; None for no random
            rotation.

    Raises:
        SpecError: the spectrum is empty or negative, a point has another dimension, the rotation does not apply, or the
            start has an unknown basis or a negative jitter.
    """

    name: ClassVar[str] = "quadratic"
    spectrum: tuple[float, ...] = (1.0, 100.0)
    start: tuple[float, ...] | None = None
    start_basis: StartBasis = "coordinates"
    start_jitter: float = 0.0
    optimum: tuple[float, ...] | None = None
    angle_deg: float = 0.0
    rotation_seed: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        dimension = len(self.spectrum)
        if not self.spectrum or not all(0 <= eigenvalue < math.inf for eigenvalue in self.spectrum):
            raise SpecError("problem.spectrum", self.spectrum, "at least one eigenvalue, each finite and 0 or larger")
        for field, point in (("start", self.start), ("optimum", self.optimum)):
            if point is not None and len(point) != dimension:
                raise SpecError(f"problem.{field}", point, f"{dimension} coordinates, as many as the spectrum has")
        if self.start_basis not in START_BASES:
            raise SpecError("problem.start_basis", self.start_basis, one_of(START_BASES, self.start_basis))
        if not 0 <= self.start_jitter < math.inf:
            raise SpecError("problem.start_jitter", self.start_jitter, "a finite number, 0 or larger")
        if self.angle_deg and (dimension != 2 or self.rotation_seed is not None):
            expected = "0 unless the spectrum has 2 values and there is no rotation_seed"
            raise SpecError("problem.angle_deg", self.angle_deg, expected)

    def rotation(self) -> Tensor:
        """Return the orthogonal Q, ``(d, d)`` in double precision; its columns are the eigenvectors of H.

        A random Q is uniform over the orthogonal group: the Q of a gaussian matrix's QR decomposition, with signs that
        make the diagonal of R positive (F. Mezzadri (2007), Notices of the AMS 54(5), 592-604).
        """
        dimension = len(self.spectrum)
        if self.rotation_seed is not None:
            source = torch_generator(self.rotation_seed, "rotation")
            q, r = torch.linalg.qr(torch.randn(dimension, dimension, generator=source, dtype=torch.float64))
            return q * r.diagonal().sign()
        if self.angle_deg:
            cos, sin = math.cos(math.radians(self.angle_deg)), math.sin(math.radians(self.angle_deg))
            return torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float64)
        return torch.eye(dimension, dtype=torch.float64)

    def hessian(self) -> Tensor:
        """Return H, ``(d, d)`` in double precision."""
        q = self.rotation()
        return (q * torch.tensor(self.spectrum, dtype=torch.float64)) @ q.T

    def oracle(self, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> Oracle:
        """Return f and its gradient ``H (x - x*)``."""
        hessian = self.hessian().to(device, dtype)
        optimum = self._point(self.optimum, 0.0).to(device, dtype)

        def quadratic(x: Tensor) -> tuple[Tensor, Tensor]:
            offset = x - optimum
            gradient = offset @ hessian
            return 0.5 * (offset * gradient).sum(-1), gradient

        return quadratic

    def start_point(self) -> Tensor:
        """Return ``start`` as a position."""
        return self._placed(self._point(self.start, 1.0))

    def start_of(self, seed: int) -> Tensor:
        """Return ``start`` and the jitter of the replica ``seed`` as a position: the same draw in whatever basis."""
        start = self._point(self.start, 1.0)
        if self.start_jitter:
            draws = torch.rand(start.shape, generator=torch_generator(seed, "start"), dtype=torch.float64)
            start = start + self.start_jitter * (2 * draws - 1)
        return self._placed(start)

    def _placed(self, start: Tensor) -> Tensor:
        if self.start_basis == "coordinates":
            return start
        return self._point(self.optimum, 0.0) + self.rotation() @ start

    def optimum_point(self, shifts: Tensor) -> Tensor:
        """Return ``x*``: centred shifts do not move it."""
        return self._point(self.optimum, 0.0)

    def _point(self, point: tuple[float, ...] | None, fill: float) -> Tensor:
        coordinates = (fill,) * len(self.spectrum) if point is None else point
        return torch.tensor(coordinates, dtype=torch.float64)
