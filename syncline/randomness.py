"""Control of the global random generators of torch, NumPy and Python by named seeds.

Modules, transforms and optimizers of other packages draw from these generators; their draws become a function of a seed
and of names.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from syncline.seeds import seed64


class GlobalState(NamedTuple):
    """A snapshot of the states of the global generators."""

    of_torch: Tensor
    of_numpy: tuple[Any, ...]
    of_python: tuple[Any, ...]
    of_cuda: Tensor | None

    @classmethod
    def capture(cls, device: torch.device) -> GlobalState:
        """Return a snapshot of the current states."""
        cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        numpy: Any = np.random.get_state(legacy=True)  # noqa: NPY002
        return cls(torch.get_rng_state(), numpy, random.getstate(), cuda)

    def restore(self, device: torch.device) -> None:
        """Set the global generators to the states of this snapshot."""
        torch.set_rng_state(self.of_torch)
        np.random.set_state(self.of_numpy)  # noqa: NPY002
        random.setstate(self.of_python)
        if self.of_cuda is not None:
            torch.cuda.set_rng_state(self.of_cuda, device)

    def equals(self, other: GlobalState) -> bool:
        """Return whether both snapshots are equal, so that nothing was drawn in between."""
        # NumPy's state: the generator's name, an array, and numbers.
        return (
            torch.equal(self.of_torch, other.of_torch)
            and self.of_numpy[2:] == other.of_numpy[2:]
            and np.array_equal(self.of_numpy[1], other.of_numpy[1])
            and self.of_python == other.of_python
            and (self.of_cuda is None or other.of_cuda is None or torch.equal(self.of_cuda, other.of_cuda))
        )


@contextmanager
def preserved(device: torch.device) -> Iterator[None]:
    """Restore the states of the global generators after the block."""
    saved_state = GlobalState.capture(device)
    try:
        yield
    finally:
        saved_state.restore(device)


def seed_all(device: torch.device, seed: int, *names: str | int) -> None:
    """Seed the global generators with the stream ``names`` under ``seed``; use it inside of `preserved`."""
    number = seed64(seed, *names)
    torch.default_generator.manual_seed(number)
    np.random.seed(number % 2**32)  # noqa: NPY002  # the largest seed of this generator has 32 bits
    random.seed(number)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(number)
