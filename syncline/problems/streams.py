"""Random draws by step: what a worker sees does not depend on the process in which it lives."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from syncline.problems.base import Rows
from syncline.seeds import seed64

Draw = Callable[[torch.Generator, tuple[int, ...]], Tensor]

# A block holds about this many numbers, 8 MiB of doubles: enough steps that the cost of a draw vanishes in a step.
BLOCK_NUMBERS = 2**20
BLOCK_STEPS = 256


def torch_generator(seed: int, *names: str | int) -> torch.Generator:
    """Return a CPU generator on the stream ``names`` under ``seed``; draws move to the device afterwards."""
    return torch.Generator().manual_seed(seed64(seed, *names))


class StepStream:
    """Independent draws for every step and row, ``stream[step] -> (R, *shape)``.

    Steps are drawn in blocks. Block b of replica ``seed`` comes from the stream ``(name, b)``, is drawn for the whole
    group of M workers and then cut to the local ones. So a process with one worker sees the bits that the simulator
    sees, and any step can be asked for first.

    Args:
        rows: rows that get draws.
        name: name of the random stream.
        shape: shape of the draw of one worker in one step.
        draw: function ``draw(generator, size)`` that samples the distribution.
        dtype: dtype of the result, to which the draws are rounded.
        device: device of the result.
    """

    def __init__(
        self,
        rows: Rows,
        name: str,
        shape: tuple[int, ...],
        draw: Draw,
        *,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> None:
        self._rows, self._name, self._shape, self._draw = rows, name, shape, draw
        self._dtype, self._device = dtype, device
        numbers_per_step = max(1, rows.world_size * math.prod(shape))
        self._steps = max(1, min(BLOCK_STEPS, BLOCK_NUMBERS // numbers_per_step))
        self._block, self._draws = -1, torch.empty(0)

    def __getitem__(self, step: int) -> Tensor:
        block, offset = divmod(step, self._steps)
        if block != self._block:
            self._block, self._draws = block, self._draw_block(block)
        return self._draws[offset]

    def _draw_block(self, block: int) -> Tensor:
        size = (self._steps, self._rows.world_size, *self._shape)
        workers = list(self._rows.workers)
        replicas = [self._drawn(seed, block, size)[:, workers] for seed in self._rows.seeds]
        return torch.cat(replicas, dim=1).to(self._device, self._dtype)

    def _drawn(self, seed: int, block: int, size: tuple[int, ...]) -> Tensor:
        """Return the draws of the whole group for a block."""

        def draw() -> Tensor:
            return self._draw(torch_generator(seed, self._name, block), size)

        shared = self._rows.drawn
        return draw() if shared is None else shared.get((seed, self._name, block, size), draw)


def gaussian(std: float) -> Draw:
    """Return a function that draws independent numbers from N(0, std^2), in double precision."""
    return lambda source, size: std * torch.randn(size, generator=source, dtype=torch.float64)


def integers(stop: int) -> Draw:
    """Return a function that draws independent uniform integers from 0, ..., stop - 1."""
    return lambda source, size: torch.randint(stop, size, generator=source)
