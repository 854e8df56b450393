"""Choice of compiled loops over single numbers."""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from syncline.kernels import Kernels

KERNELS = Kernels("syncline.optim.compiled", break_even_units=2**25)
"""Work counts in numbers, for each of which tensor operations take some nanoseconds."""


def compiled_loops(x: Tensor) -> ModuleType | None:
    """Return the compiled loops, for a tensor that they can walk; None if tensor operations are to do it."""
    if x.device.type != "cpu" or x.dtype != torch.float32 or not x.numel():
        return None
    return KERNELS.for_work(x.numel())
