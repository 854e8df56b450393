"""Landscapes: a function of a few coordinates, seen by every worker with noise of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from syncline.errors import SpecError
from syncline.problems.base import Rows
from syncline.problems.streams import StepStream, gaussian, torch_generator

Oracle = Callable[[Tensor], tuple[Tensor, Tensor]]
"""A first-order oracle: points ``(..., d)`` to values ``(...)`` and gradients ``(..., d)``."""


@dataclass(frozen=True, kw_only=True)
class Landscape(ABC):
    """A function f and what sets its workers apart.

    Worker i takes the stochastic gradient of ``f_i(x) = f(x - s_i)``::

        g_i = grad f(x - s_i) + noise,    noise ~ N(0, noise_std^2 I),    sum_i s_i = 0

    and the loss of the group is ``F = mean_i f_i``.

    Args:
        noise_std: standard deviation of the gradient noise per coordinate, worker and step; 0 for exact gradients.
        shift_std: standard deviation of the shifts ``s_i`` per coordinate before they are centred; 0 for equal workers.

    Raises:
        SpecError: a standard deviation is negative.
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
        """Return the workers' start, ``(d,)`` in double precision; replicas may start around it."""

    def start_of(self, seed: int) -> Tensor:
        """Return the start of the workers of the replica ``seed``, ``(d,)`` in double precision."""
        return self.start_point()

    @abstractmethod
    def optimum_point(self, shifts: Tensor) -> Tensor:
        """Return the minimiser ``(d,)`` of F, given the shifts ``(M, d)`` of its workers."""

    def build(
        self, rows: Rows, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> LandscapeTask:
        """Return the task of ``rows``."""
        return LandscapeTask(self, rows, dtype, device)

    def shifts(self, seed: int, world_size: int) -> Tensor:
        """Return the centred shifts ``(M, d)`` of the workers of the replica ``seed``."""
        size = (world_size, self.start_point().numel())
        draws = gaussian(self.shift_std)(torch_generator(seed, "shifts"), size)
        return draws - draws.mean(0)


class LandscapeTask:
    """All rows on one landscape; the parameter is the position, ``params["x"]`` of shape ``(R, d)``."""

    # Real models cost what their layers cost; a landscape stands for any of them.
    flops_per_step: float | None = None
    matrices: tuple[str, ...] = ()

    def __init__(self, problem: Landscape, rows: Rows, dtype: torch.dtype, device: torch.device | str) -> None:
        start = problem.start_point()
        shifts = torch.stack([problem.shifts(seed, rows.world_size) for seed in rows.seeds])  # (S, M, d)
        optima = [problem.optimum_point(shift) for shift in shifts]
        self.rows = rows
        self.params = rows.parameters(lambda seed: {"x": problem.start_of(seed)}, dtype, device)
        self.optima = torch.stack(optima).to(device, dtype)  # (S, d)
        self._oracle = problem.oracle(dtype, device)
        self._all_shifts = shifts.to(device, dtype)
        self._shifts = self._all_shifts[:, list(rows.workers)].flatten(0, 1) if problem.shift_std else None
        self._noise = None
        if problem.noise_std:
            draw = gaussian(problem.noise_std)
            self._noise = StepStream(rows, "noise", tuple(start.shape), draw, dtype=dtype, device=device)

    @torch.no_grad()
    def step_gradients(self, step: int) -> Tensor:
        """Return the losses ``f_i(x_i)`` without noise ``(R,)``; ``.grad`` is the noisy gradient."""
        x = self.params["x"]
        loss, gradient = self._oracle(x.detach() if self._shifts is None else x - self._shifts)
        x.grad = gradient if self._noise is None else gradient.add_(self._noise[step])
        return loss

    @torch.no_grad()
    def evaluate(self, means: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return ``loss`` F and ``distance`` to its minimiser, of the mean positions ``(S, d)``."""
        mean = means["x"]
        values, _ = self._oracle(mean.unsqueeze(1) - self._all_shifts)
        return {"loss": values.mean(1), "distance": (mean - self.optima).norm(dim=-1)}

    @torch.no_grad()
    def trace(self) -> dict[str, Tensor]:
        """Return ``distance`` and ``spread`` of each replica's local workers; in two dimensions also ``position``.

        ``distance`` is the distance of the workers' mean to the minimiser of F, ``spread`` the mean distance of a
        worker to the workers' mean, and ``position`` the workers' mean, ``(S, 2)``.
        """
        positions = self.rows.by_replica(self.params["x"].detach())
        mean = positions.mean(1, keepdim=True)
        trace = {
            "distance": (mean.squeeze(1) - self.optima).norm(dim=-1),
            "spread": (positions - mean).norm(dim=-1).mean(1),
        }
        return trace | ({"position": mean.squeeze(1)} if positions.shape[-1] == 2 else {})

    def describe(self) -> dict[str, object]:
        """Return the number of coordinates and the minimiser of each replica."""
        return {"parameters": self.optima.shape[-1], "optima": self.optima.tolist()}
