"""A bowl that is as steep in every direction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from syncline.problems.landscapes import Landscape, Oracle


@dataclass(frozen=True, kw_only=True)
class Bowl(Landscape):
    """Acme's bowl: half of the squared distance from a point, times its steepness."""

    name: ClassVar[str] = "acme-bowl"
    steepness: float = 2.0

    def oracle(self, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> Oracle:
        """The function and its gradient."""
        return lambda point: (0.5 * self.steepness * point.square().sum(-1), self.steepness * point)

    def start_point(self) -> Tensor:
        """Away from the bottom."""
        return torch.tensor([3.0, -4.0], dtype=torch.float64)

    def optimum_point(self, shifts: Tensor) -> Tensor:
        """The bottom: shifts are centred."""
        return torch.zeros(2, dtype=torch.float64)
