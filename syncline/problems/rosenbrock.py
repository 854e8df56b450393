"""The banana valley of Rosenbrock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from syncline.errors import SpecError
from syncline.problems.landscapes import Landscape, Oracle


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
    across = y - x * x
    steep = 200 * across
    value = along * along + across * (0.5 * steep)
    return value, torch.stack((-2 * along - 2 * x * steep, steep), dim=-1)


@dataclass(frozen=True, kw_only=True)
class Rosenbrock(Landscape):
    """A curved valley with minimum 0 at (1, 1): easy to enter and slow to follow.

    Args:
        start: start point of every worker; (-1.2, 1) is Rosenbrock's.

    Raises:
        SpecError: ``start`` does not have two coordinates.
    """

    name: ClassVar[str] = "rosenbrock"
    start: tuple[float, ...] = (-1.2, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.start) != 2:
            raise SpecError("problem.start", self.start, "two coordinates")

    def oracle(self, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> Oracle:
        """Return Rosenbrock's function and its gradient."""
        return rosenbrock

    def start_point(self) -> Tensor:
        """Return ``start`` as a tensor."""
        return torch.tensor(self.start, dtype=torch.float64)

    def optimum_point(self, shifts: Tensor) -> Tensor:
        """Return the minimiser of ``F(x, y) = mean_i f(x - a_i, y - b_i)`` for centred shifts ``(a_i, b_i)``.

        F is a parabola in y with ``y = x^2 + mean a^2`` at its bottom, and along that curve a parabola in x::

            x = (1 + 200 mean(a b + a^3)) / (1 + 400 mean a^2)

        Without shifts this is (1, 1). Shifts cross the valley, so they move the minimum of F much farther than its
        workers' own minima.
        """
        a, b = shifts.unbind(-1)
        spread = (a * a).mean()
        x = (1 + 200 * (a * b + a**3).mean()) / (1 + 400 * spread)
        return torch.stack((x, x * x + spread))
