"""Landscapes: functions of a few coordinates, with gradient noise and a shift of each worker's minimum.

`Quadratic` has any spectrum in any basis, `Rosenbrock` a curved valley, `Spiral` a valley whose curvature turns.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from syncline.errors import SpecError, require_one_of
from syncline.problems.base import Rows
from syncline.problems.random_draws import StepStream, gaussian, torch_generator

Oracle = Callable[[Tensor], tuple[Tensor, Tensor]]
"""A first-order oracle: points ``(..., d)`` to values ``(...)`` and gradients ``(..., d)``."""


@dataclass(frozen=True, kw_only=True)
class Landscape(ABC):
    """A function f that each of M workers sees with its own shift and its own gradient noise.

    Worker i takes the stochastic gradient of ``f_i(x) = f(x - s_i)``::

        g_i = grad f(x - s_i) + noise,    noise ~ N(0, noise_std^2 I),    sum_i s_i = 0

    and the loss of the group is ``F = mean_i f_i``.

    Args:
        noise_std: standard deviation of the gradient noise per coordinate, worker and step; 0 for exact gradients.
        shift_std: standard deviation of the shifts ``s_i`` per coordinate before they are centred; 0 for equal workers.
    """

    noise_std: float = 0.0
    shift_std: float = 0.0

    def __post_init__(self) -> None:
        for field in ("noise_std", "shift_std"):
            if not 0 <= getattr(self, field) < float("inf"):
                raise SpecError(f"problem.{field}", getattr(self, field), "a finite number, 0 or larger")

    @abstractmethod
    def oracle(self, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> Oracle:
        """Return f and its gradient in closed form."""

    @abstractmethod
    def start_point(self) -> Tensor:
        """Return the start point of the workers, ``(d,)`` in double precision, without the jitter of a replica."""

    def start_of(self, seed: int) -> Tensor:
        """Return the start point of the workers of the replica ``seed``, ``(d,)`` in double precision."""
        return self.start_point()

    @abstractmethod
    def optimum_point(self, shifts: Tensor) -> Tensor:
        """Return the minimiser ``(d,)`` of F, given the shifts ``(M, d)`` of its workers."""

    def build(
        self,
        rows: Rows,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        execution: str = "auto",
    ) -> LandscapeTask:
        """Return the task of moving the workers ``rows`` on this landscape.

        With an ``execution`` of ``loop``, each step evaluates the landscape at one worker after another.
        """
        if execution not in ("auto", "loop"):
            # Specs call ``auto`` eager.
            raise SpecError("execution", execution, "eager or loop, as a landscape's gradient is a formula")
        return LandscapeTask(self, rows, dtype, device, one_by_one=execution == "loop")

    def shifts(self, seed: int, world_size: int) -> Tensor:
        """Return the centred shifts ``(M, d)`` of the workers of the replica ``seed``."""
        size = (world_size, self.start_point().numel())
        draws = gaussian(self.shift_std)(torch_generator(seed, "shifts"), size)
        return draws - draws.mean(0)


class LandscapeTask:
    """The task of a landscape; its only parameter is the position ``params["x"]``, ``(R, d)`` for R workers."""

    # The FLOPs of a landscape say nothing about those of a model.
    flops_per_step: float | None = None
    matrices: tuple[str, ...] = ()

    def __init__(
        self, problem: Landscape, rows: Rows, dtype: torch.dtype, device: torch.device | str, one_by_one: bool = False
    ) -> None:
        start = problem.start_point()
        shifts = torch.stack([problem.shifts(seed, rows.world_size) for seed in rows.seeds])  # (S, M, d)
        optima = [problem.optimum_point(shift) for shift in shifts]
        self.rows = rows
        self.params = rows.parameters(lambda seed: {"x": problem.start_of(seed)}, dtype, device)
        self.optima = torch.stack(optima).to(device, dtype)  # (S, d)
        self._oracle, self._one_by_one = problem.oracle(dtype, device), one_by_one
        self._group_shifts = shifts.to(device, dtype)  # evaluations use the shifts of all workers
        self._shifts = self._group_shifts[:, list(rows.workers)].flatten(0, 1) if problem.shift_std else None  # (R, d)
        self._noise = None
        if problem.noise_std:
            draw = gaussian(problem.noise_std)
            self._noise = StepStream(rows, "noise", shape=tuple(start.shape), draw=draw, dtype=dtype, device=device)

    @torch.no_grad()
    def step_gradients(self, step: int) -> Tensor:
        """Return the losses ``f_i(x_i)`` without noise, ``(R,)``, and set ``.grad`` to the noisy gradient."""
        x = self.params["x"].detach()
        points = x if self._shifts is None else x - self._shifts
        if self._one_by_one:
            values_and_gradients = [self._oracle(point) for point in points]
            loss = torch.stack([value for value, _ in values_and_gradients])
            gradient = torch.stack([point_gradient for _, point_gradient in values_and_gradients])
        else:
            loss, gradient = self._oracle(points)
        self.params["x"].grad = gradient if self._noise is None else gradient.add_(self._noise[step])
        return loss

    @torch.no_grad()
    def evaluate(self, means: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the ``loss`` F and the ``distance`` to its minimiser, ``(S,)`` each, at mean positions ``(S, d)``."""
        mean = means["x"]
        values, _ = self._oracle(mean.unsqueeze(1) - self._group_shifts)
        return {"loss": values.mean(1), "distance": (mean - self.optima).norm(dim=-1)}

    @torch.no_grad()
    def trace(self) -> dict[str, Tensor]:
        """Return diagnostics of the workers in this process, for each of S replicas.

        Returns:
            ``distance (S,)`` from the workers' mean position to the minimiser of F; ``spread (S,)``, the workers' mean
            distance from their mean position; in two dimensions also this ``position (S, 2)``.
        """
        positions = self.rows.by_replica(self.params["x"].detach())
        mean = positions.mean(1, keepdim=True)
        trace = {
            "distance": (mean.squeeze(1) - self.optima).norm(dim=-1),
            "spread": (positions - mean).norm(dim=-1).mean(1),
        }
        if positions.shape[-1] == 2:
            trace["position"] = mean.squeeze(1)
        return trace

    def describe(self) -> dict[str, object]:
        """Return the number of coordinates and the minimiser of each replica."""
        return {"parameters": self.optima.shape[-1], "optima": self.optima.tolist()}


def rosenbrock(point: Tensor) -> tuple[Tensor, Tensor]:
    """Return Rosenbrock's function and its gradient.

    ``f(x, y) = (1 - x)^2 + 100 r^2`` and ``grad f = (-2 (1 - x) - 400 x r, 200 r)`` with ``r = y - x^2``.

    Args:
        point: ``(..., 2)``.

    Returns:
        The values ``(...)`` and the gradients ``(..., 2)``.

    Source: H. H. Rosenbrock (1960), The Computer Journal 3(3), 175-184.
    """
    x, y = point.unbind(-1)
    along = 1 - x
    r = y - x * x
    gradient_y = 200 * r
    value = along * along + r * (0.5 * gradient_y)  # the second term is 100 r^2
    return value, torch.stack((-2 * along - 2 * x * gradient_y, gradient_y), dim=-1)


@dataclass(frozen=True, kw_only=True)
class Rosenbrock(Landscape):
    """Rosenbrock's curved valley with minimum 0 at (1, 1), which methods enter fast and follow slowly.

    Args:
        start: start point of every worker; (-1.2, 1) is Rosenbrock's.
    """

    name: ClassVar[str] = "rosenbrock"
    start: tuple[float, ...] = (-1.2, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.start) != 2:
            raise SpecError("problem.start", self.start, "two coordinates")

    def oracle(self, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> Oracle:
        """Return a function that computes Rosenbrock's function and its gradient at points ``(..., d)``."""
        return rosenbrock

    def start_point(self) -> Tensor:
        """Return the field ``start`` as a tensor."""
        return torch.tensor(self.start, dtype=torch.float64)

    def optimum_point(self, shifts: Tensor) -> Tensor:
        """Return the minimiser of ``F(x, y) = mean_i f(x - a_i, y - b_i)`` for centred shifts ``(a_i, b_i)``.

        For a given x, F is a parabola in y with its minimum at ``y = x^2 + mean a^2``. Along that curve F is a parabola
        in x with its minimum at::

            x = (1 + 200 mean(a b + a^3)) / (1 + 400 mean a^2)

        Without shifts the minimiser is (1, 1). Shifts across the valley move it much farther than the workers' minima.
        """
        a, b = shifts.unbind(-1)
        spread = (a * a).mean()
        x = (1 + 200 * (a * b + a**3).mean()) / (1 + 400 * spread)
        return torch.stack((x, x * x + spread))


StartBasis = Literal["coordinates", "eigenvectors"]
START_BASES = get_args(StartBasis)


@dataclass(frozen=True, kw_only=True)
class Quadratic(Landscape):
    """The quadratic ``f(x) = 1/2 (x - x*)^T H (x - x*)`` with ``H = Q diag(spectrum) Q^T``.

    Shifted workers share H, so their mean loss has the same minimiser ``x*``.

    Args:
        spectrum: the d eigenvalues of H, 0 or larger.
        start: start point of every worker, d numbers; all ones by default.
        start_basis: basis of ``start``: ``coordinates``, or ``eigenvectors`` of H, so that the start is ``x* + Q
            start``.
        start_jitter: half the width of the uniform draw that each replica adds to each number of ``start``; 0 for none.
        optimum: ``x*``, d coordinates; the origin by default.
        angle_deg: angle in degrees by which the eigenvectors of a two-dimensional H are rotated.
        rotation_seed: seed of a random orthogonal Q that rotates the eigenvectors, in any dimension; None for no random
            rotation.
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
        require_one_of("problem.start_basis", self.start_basis, START_BASES)
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
            cos = math.cos(math.radians(self.angle_deg))
            sin = math.sin(math.radians(self.angle_deg))
            return torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float64)
        return torch.eye(dimension, dtype=torch.float64)

    def hessian(self) -> Tensor:
        """Return H, ``(d, d)`` in double precision."""
        q = self.rotation()
        return (q * torch.tensor(self.spectrum, dtype=torch.float64)) @ q.T

    def oracle(self, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> Oracle:
        """Return f and its gradient ``H (x - x*)``."""
        hessian = self.hessian().to(device, dtype)
        optimum = self._point_or_constant(self.optimum, fill=0.0).to(device, dtype)

        def quadratic(x: Tensor) -> tuple[Tensor, Tensor]:
            offset = x - optimum
            gradient = offset @ hessian
            return 0.5 * (offset * gradient).sum(-1), gradient

        return quadratic

    def start_point(self) -> Tensor:
        """Return the field ``start`` as a position in coordinates."""
        return self._to_coordinates(self._point_or_constant(self.start, fill=1.0))

    def start_of(self, seed: int) -> Tensor:
        """Return the field ``start`` plus the jitter of the replica ``seed``, as a position in coordinates."""
        start = self._point_or_constant(self.start, fill=1.0)
        if self.start_jitter:
            draws = torch.rand(start.shape, generator=torch_generator(seed, "start"), dtype=torch.float64)
            start = start + self.start_jitter * (2 * draws - 1)
        return self._to_coordinates(start)

    def _to_coordinates(self, start: Tensor) -> Tensor:
        """Return a start point in coordinates; ``start`` has the basis ``start_basis``."""
        if self.start_basis == "coordinates":
            return start
        return self._point_or_constant(self.optimum, fill=0.0) + self.rotation() @ start

    def optimum_point(self, shifts: Tensor) -> Tensor:
        """Return ``x*``, because shifts with mean 0 do not move the minimiser."""
        return self._point_or_constant(self.optimum, fill=0.0)

    def _point_or_constant(self, point: tuple[float, ...] | None, fill: float) -> Tensor:
        """Return a point as a tensor in double precision; None is a point whose coordinates are all ``fill``."""
        coordinates = (fill,) * len(self.spectrum) if point is None else point
        return torch.tensor(coordinates, dtype=torch.float64)


TURNS, DEPTH = 4.0, 20.0
"""Turn of the spiral valley in radians per unit of radius, and depth of the valley.

Source: Basis Rotation, Appendix D.1."""

FLOOR_RAD = math.asin(1 / DEPTH)
"""Angle of the valley's floor: ``20 sin(4 r - theta) + 1`` is 0 at ``theta = 4 r + FLOOR_RAD``."""


class _Polar(NamedTuple):
    """A point in polar coordinates of the spiral.

    Attributes:
        r: radius.
        outward: radial unit vector, ``(..., 2)``.
        around: tangential unit vector, ``(..., 2)``.
        s: ``20 sin(4 r - theta) + 1``.
        c: ``20 cos(4 r - theta)``.
    """

    r: Tensor
    outward: Tensor
    around: Tensor
    s: Tensor
    c: Tensor


def _polar(point: Tensor) -> _Polar:
    """Return the polar coordinates of points ``(..., 2)``, and the spiral's terms s and c."""
    x, y = point.unbind(-1)
    # The radius is at least eps: at the origin the unit vectors are 0, and no quotient is undefined.
    r = torch.hypot(x, y).clamp_min(torch.finfo(point.dtype).eps)
    phase = TURNS * r - torch.atan2(y, x)
    outward = torch.stack((x, y), dim=-1) / r.unsqueeze(-1)
    around = torch.stack((-outward[..., 1], outward[..., 0]), dim=-1)
    return _Polar(r, outward, around, s=DEPTH * phase.sin() + 1, c=DEPTH * phase.cos())


def spiral(point: Tensor) -> tuple[Tensor, Tensor]:
    """Return the spiral function and its gradient, in polar coordinates r and theta.

    With ``s = 20 sin(4 r - theta) + 1`` and ``c = 20 cos(4 r - theta)``::

        f = r^2 + s^2,    grad f = (2 r + 8 s c) e_r - (2 s c / r) e_theta

    Near the origin f takes all values from 0 to 441. At the origin this function returns 0 and the gradient 0.

    Args:
        point: ``(..., 2)``.

    Returns:
        The values ``(...)`` and the gradients ``(..., 2)``.

    Source: Basis Rotation, Appendix D.1.
    """
    r, outward, around, s, c = _polar(point)
    radial = 2 * r + 2 * TURNS * s * c
    tangential = 2 * s * c / r  # `_polar` keeps r above 0
    gradient = radial.unsqueeze(-1) * outward - tangential.unsqueeze(-1) * around
    value = torch.where(point.any(-1), r * r + s * s, 0.0)
    return value, gradient


def spiral_hessian(point: Tensor) -> Tensor:
    """Return the Hessian of the spiral function, ``(..., 2, 2)``, at points other than the origin.

    With s and c as in `spiral`, ``k = c^2 - s (s - 1)``, 4 for TURNS, and unit vectors ``e_r``, ``e_theta`` as basis::

        H_rr = 2 + 32 k,    H_rt = -8 k / r + 2 s c / r^2,    H_tt = 2 k / r^2 + 2 + 8 s c / r
    """
    r, outward, around, s, c = _polar(point)
    k = c * c - s * (s - 1)
    h_rr = 2 + 2 * TURNS**2 * k
    h_rt = -2 * TURNS * k / r + 2 * s * c / r**2
    h_tt = 2 * k / r**2 + 2 + 2 * TURNS * s * c / r
    first_row, second_row = torch.stack((h_rr, h_rt), dim=-1), torch.stack((h_rt, h_tt), dim=-1)
    polar_hessian = torch.stack((first_row, second_row), dim=-2)
    unit_vectors = torch.stack((outward, around), dim=-1)  # columns
    return unit_vectors @ polar_hessian @ unit_vectors.mT


@dataclass(frozen=True, kw_only=True)
class Spiral(Landscape):
    """A valley that winds into the origin: ``f(r, theta) = r^2 + (20 sin(4 r - theta) + 1)^2``.

    The steep direction, across the valley, is within ``1 / (4 r)`` radians of the radius, so the eigenvectors of the
    Hessian turn with the angle: in each turn they are four times parallel to the coordinates, and four times diagonal.

    Args:
        radius: r of the start point of every worker, above 0.
        angle_deg: theta of the start point in degrees; by default on the valley's floor, ``4 r + asin(1 / 20)``
            radians.

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
        """Return a function that computes the spiral's height and gradient at points."""
        return spiral

    def start_point(self) -> Tensor:
        """Return the start point in Cartesian coordinates."""
        theta = TURNS * self.radius + FLOOR_RAD if self.angle_deg is None else math.radians(self.angle_deg)
        return self.radius * torch.tensor([math.cos(theta), math.sin(theta)], dtype=torch.float64)

    def optimum_point(self, shifts: Tensor) -> Tensor:
        """Return the origin as the optimum."""
        return torch.zeros(2, dtype=torch.float64)
