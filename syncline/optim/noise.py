"""Random numbers that are the same in every world: a function of names, the worker and the place.

Numbered coins instead of a stream: place i of worker w under a key is the i-th output of a generator whose start is
made from the key and w, so all workers' numbers come from the same few tensor operations, on any device.

Source: Steele, Lea & Flood, "Fast splittable pseudorandom number generators" (2014), its SplitMix64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from syncline.seeds import seed64

_GAMMA = 0x9E3779B97F4A7C15 - 2**64
_MULTIPLIERS = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)


def uniform(workers: Sequence[int], count: int, device: torch.device, *names: str | int) -> Tensor:
    """Draw numbers ``(R, count)`` in [0, 1), float64 multiples of ``2**-53``, independent over workers and names.

    Args:
        workers: number of each row's worker.
        count: number of random numbers per worker.
        device: device of the result.
        *names: names of the random stream, and the number of the step.
    """
    # The top 53 bits, as in a double's mantissa.
    if device.type == "cpu":
        return torch.from_numpy(_in_pieces(workers, count, names, 11, np.dtype(np.float64)))
    return _shift(_bits(workers, count, device, *names), 11).double() * 2.0**-53


def coins(workers: Sequence[int], count: int, device: torch.device, *names: str | int) -> Tensor:
    """Draw fair coins ``(R, count)`` as booleans; the arguments are those of ``uniform``."""
    if device.type == "cpu":
        return torch.from_numpy(_in_pieces(workers, count, names, 63, np.dtype(np.bool_)))
    return _bits(workers, count, device, *names) < 0


def starts(workers: Sequence[int], *names: str | int) -> NDArray[np.uint64]:
    """Return the start state of each worker's generator, ``(R,)``."""
    x = np.array(workers, np.uint64) * np.uint64(_GAMMA % 2**64) + np.uint64(seed64(0, *names))
    for shift, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(multiplier % 2**64)
    return x ^ (x >> np.uint64(31))


def _bits(workers: Sequence[int], count: int, device: torch.device, *names: str | int) -> Tensor:
    """Return 64 random bits per worker and place, as int64."""
    start = torch.from_numpy(starts(workers, *names).view(np.int64)).to(device).unsqueeze(1)
    return _mixed(start + torch.arange(1, count + 1, device=device) * _GAMMA)


PIECE = 2**13
"""Places that a CPU makes at once: they stay in its first cache."""


def _in_pieces(
    workers: Sequence[int], count: int, names: tuple[str | int, ...], drop: int, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Return the same bits without the lowest ``drop``, ``(R, count)``, as fractions in [0, 1) of type ``dtype``."""
    out = np.empty((len(workers), count), dtype)
    mixed, shifted = np.empty(PIECE, np.uint64), np.empty(PIECE, np.uint64)
    steps = np.arange(1, PIECE + 1, dtype=np.uint64) * np.uint64(_GAMMA % 2**64)
    for row, start in enumerate(starts(workers, *names).tolist()):
        for first in range(0, count, PIECE):
            size = min(PIECE, count - first)
            x, y = mixed[:size], shifted[:size]
            np.add(steps[:size], np.uint64((start + first * _GAMMA) % 2**64), out=x)
            for shift, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
                np.bitwise_xor(x, np.right_shift(x, np.uint64(shift), out=y), out=x)
                np.multiply(x, np.uint64(multiplier % 2**64), out=x)
            np.bitwise_xor(x, np.right_shift(x, np.uint64(31), out=y), out=x)
            np.right_shift(x, np.uint64(drop), out=x)
            part = out[row, first : first + size]
            if dtype == np.float64:
                np.multiply(x.view(np.int64), 2.0 ** (drop - 64), out=part)
            else:
                np.not_equal(x, 0, out=part)
    return out


def _mixed(x: Tensor) -> Tensor:
    """Apply SplitMix64's finaliser; products wrap around."""
    for shift, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
        x = (x ^ _shift(x, shift)) * multiplier
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Return ``x >> by`` with zeros from the left: int64's own shift copies the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
