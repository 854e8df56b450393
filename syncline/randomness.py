"""The global generators of torch, NumPy and Python, from which code of others draws, under seeds by name.

Modules, transforms and optimizers draw from them; whatever is drawn is a function of a seed and of names.
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
    """Where the global generators stand."""

    of_torch: Tensor
    of_numpy: tuple[Any, ...]
    of_python: tuple[Any, ...]
    of_cuda: Tensor | None

    @classmethod
    def now(cls, device: torch.device) -> GlobalState:
        """Where they stand now."""
        cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        numpy: Any = np.random.get_state(legacy=True)  # noqa: NPY002
        return cls(torch.get_rng_state(), numpy, random.getstate(), cuda)

    def restore(self, device: torch.device) -> None:
        """Put them back."""
        torch.set_rng_state(self.of_torch)
        np.random.set_state(self.of_numpy)  # noqa: NPY002
        random.setstate(self.of_python)
        if self.of_cuda is not None:
            torch.cuda.set_rng_state(self.of_cuda, device)

    def same_as(self, other: GlobalState) -> bool:
        """Whether nothing was drawn between the two."""
        return (
            torch.equal(self.of_torch, other.of_torch)
            and self.of_numpy[2:] == other.of_numpy[2:]
            and np.array_equal(self.of_numpy[1], other.of_numpy[1])
            and self.of_python == other.of_python
            and (self.of_cuda is None or other.of_cuda is None or torch.equal(self.of_cuda, other.of_cuda))
        )


@contextmanager
def preserved(device: torch.device) -> Iterator[None]:
    """The global generators stand after the block where they stood before it."""
    before = GlobalState.now(device)
    try:
        yield
    finally:
        before.restore(device)


def seed_all(device: torch.device, seed: int, *names: str | int) -> None:
    """Put the global generators on the stream ``names`` under ``seed``; for inside of `preserved`."""
    number = seed64(seed, *names)
    torch.default_generator.manual_seed(number)
    np.random.seed(number % 2**32)  # noqa: NPY002
    random.seed(number)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(number)
