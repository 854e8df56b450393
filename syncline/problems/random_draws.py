"""Random draws that depend on the seed, the worker and the step alone, and laws with light to heavy tails.

A worker therefore sees the same data in the simulator, in a process of its own, and after a run was resumed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from syncline.errors import SpecError
from syncline.problems.base import Rows
from syncline.seeds import seed64

Draw = Callable[[torch.Generator, tuple[int, ...]], Tensor]
"""A function ``draw(generator, size)`` that returns a tensor of independent draws from a distribution."""

BLOCK_NUMBERS, BLOCK_STEPS = 2**20, 256
"""Largest size of a block of draws, in numbers (8 MiB of doubles) and in steps; larger blocks would save no time."""


def torch_generator(seed: int, *names: str | int) -> torch.Generator:
    """Return a CPU generator for the random stream ``names`` under ``seed``."""
    return torch.Generator().manual_seed(seed64(seed, *names))


def perturbed(weights: dict[str, Tensor], size: float, seed: int) -> dict[str, Tensor]:
    """Return initial weights ``w (1 + size n)`` with ``n ~ N(0, 1)`` drawn from the seed; size 0 changes nothing.

    A training from weights that are changed by 1e-6 shows how much rounding errors grow.
    """
    if not size:
        return weights
    noise = torch_generator(seed, "perturbation")
    return {name: weight * (1 + size * torch.randn(weight.shape, generator=noise)) for name, weight in weights.items()}


class StepStream:
    """Independent draws for every step and row; ``stream[step]`` is a tensor ``(R, *shape)``.

    Steps are drawn in blocks. Block b of replica ``seed`` comes from the random stream ``(name, b)``. Each block is
    drawn for all M workers, and each row keeps its worker's part. A process with one worker therefore gets the same
    numbers as the simulator, whichever step it reads first.

    Args:
        shape: shape of the draw of one worker in one step.
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
        """Choose the number of steps that are drawn together as a block; nothing is drawn yet."""
        self._rows, self._name, self._shape, self._draw = rows, name, shape, draw
        self._dtype, self._device = dtype, device
        numbers_per_step = max(1, rows.world_size * math.prod(shape))
        self._steps_per_block = max(1, min(BLOCK_STEPS, BLOCK_NUMBERS // numbers_per_step))
        self._block, self._draws = -1, torch.empty(0)  # number and draws of the current block; none yet

    def __getitem__(self, step: int) -> Tensor:
        block, offset = divmod(step, self._steps_per_block)
        if block != self._block:
            self._block, self._draws = block, self._draw_block(block)
        return self._draws[offset]

    def _draw_block(self, block: int) -> Tensor:
        """Return the draws of all workers for a block of steps, ``(steps, R, *shape)``."""
        size = (self._steps_per_block, self._rows.world_size, *self._shape)
        workers, cache = list(self._rows.workers), self._rows.drawn
        replicas = []
        for seed in self._rows.seeds:
            draw = partial(self._draw, torch_generator(seed, self._name, block), size)
            draws = draw() if cache is None else cache.get((seed, self._name, block, size), draw)
            replicas.append(draws[:, workers])
        return torch.cat(replicas, dim=1).to(self._device, self._dtype)


def gaussian(std: float) -> Draw:
    """Return a function that draws independent numbers from N(0, std^2), in double precision."""
    return lambda source, size: std * torch.randn(size, generator=source, dtype=torch.float64)


def integers(stop: int) -> Draw:
    """Return a function that draws independent uniform integers from 0, ..., stop - 1."""
    return lambda source, size: torch.randint(stop, size, generator=source)


def laplace(scale: float) -> Draw:
    """Return a function that draws numbers with density ``exp(-|x| / scale) / (2 scale)``, in double precision."""
    return lambda source, size: scale * random_signs(source, size) * _exponential(source, size)


def stable(alpha: float, scale: float = 1.0) -> Draw:
    """Return a function that draws ``scale * S``, S symmetric alpha-stable: ``E exp(i t S) = exp(-|t|^alpha)``.

    With V uniform on (-pi/2, pi/2) and W exponential of mean 1::

        S = sin(alpha V) / cos(V)^(1/alpha) * (cos((1 - alpha) V) / W)^((1 - alpha) / alpha)

    An alpha of 2 gives the gaussian of variance 2, an alpha of 1 the Cauchy distribution. Below 2 the variance is
    infinite and the probability of more than x falls like ``x^-alpha``; at 1 and below there is no mean. The draws are
    in double precision and can overflow to infinity for alpha below about 0.1.

    Args:
        alpha: the index of stability, above 0 and at most 2.
        scale: factor of the draws.

    Source: J. M. Chambers, C. L. Mallows, B. W. Stuck, "A Method for Simulating Stable Random Variables", JASA 71
    (1976), equation 2.1 without skewness.
    """
    if not 0 < alpha <= 2:
        raise SpecError("alpha", alpha, "a number above 0 (heaviest tails) and at most 2 (gaussian)")

    def draw(source: torch.Generator, size: tuple[int, ...]) -> Tensor:
        """Draw symmetric stable numbers by equation 2.1 of Chambers, Mallows and Stuck."""
        angle = math.pi * (torch.rand(size, generator=source, dtype=torch.float64) - 0.5)
        exponential = _exponential(source, size)
        sine = torch.sin(alpha * angle)
        # For a small alpha the powers would overflow; their logarithms do not.
        log_magnitude = sine.abs().log_() - angle.cos().log_() / alpha
        if alpha != 1:  # at 1 the second factor is 1
            log_ratio = torch.cos((1 - alpha) * angle).log_() - exponential.log_()
            log_magnitude += (1 - alpha) / alpha * log_ratio
        return scale * sine.sign_() * log_magnitude.exp_()

    return draw


def random_signs(source: torch.Generator, size: tuple[int, ...]) -> Tensor:
    """Draw signs, +1 or -1 with equal probability."""
    return 2.0 * torch.randint(2, size, generator=source, dtype=torch.float64) - 1.0


def _exponential(source: torch.Generator, size: tuple[int, ...]) -> Tensor:
    """Draw exponential variates of mean 1, above 0."""
    uniform = torch.rand(size, generator=source, dtype=torch.float64)
    # 1 - uniform is in (0, 1], so that the logarithm is finite; the bound keeps the result above 0.
    return -torch.log1p(-uniform).clamp_max_(-torch.finfo(torch.float64).tiny)
