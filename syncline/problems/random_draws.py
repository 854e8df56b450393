"""Random draws by step: what a worker sees does not depend on the process in which it lives.

Symmetric laws from light to heavy tails, to draw noise from: gaussian, Laplace, log-normal, alpha-stable.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from syncline.errors import SpecError
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


__all__ = ["gaussian", "laplace", "log_normal", "stable"]


def laplace(scale: float) -> Draw:
    """Return a function that draws numbers with density ``exp(-|x| / scale) / (2 scale)``, in double precision."""
    return lambda source, size: scale * _signs(source, size) * _exponential(source, size)


def log_normal(sigma: float, scale: float = 1.0) -> Draw:
    """Return a function that draws ``+-scale * exp(sigma z)`` with z from N(0, 1), each sign with probability 1/2.

    Args:
        sigma: standard deviation of the logarithm of the magnitude, 0 or larger.
        scale: median of the magnitude.
    """
    return lambda source, size: scale * _signs(source, size) * gaussian(sigma)(source, size).exp_()


def stable(alpha: float, scale: float = 1.0) -> Draw:
    """Return a function that draws ``scale * S``, S symmetric alpha-stable: ``E exp(i t S) = exp(-|t|^alpha)``.

    With V uniform on (-pi/2, pi/2) and W exponential of mean 1::

        S = sin(alpha V) / cos(V)^(1/alpha) * (cos((1 - alpha) V) / W)^((1 - alpha) / alpha)

    2 is the gaussian of variance 2, 1 the Cauchy distribution. Below 2 the variance is infinite, the probability of
    more than x falls like ``x^-alpha``; at 1 and below there is no mean. Drawn in double precision, in which a draw can
    overflow to infinity for alpha below about 0.1.

    Args:
        alpha: the index of stability, above 0 and at most 2.
        scale: factor of the draws.

    Raises:
        SpecError: ``alpha`` is outside (0, 2].

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
        # By logarithms, as the powers of a small alpha would overflow one by one.
        log_magnitude = sine.abs().log_() - angle.cos().log_() / alpha
        if alpha != 1:
            log_ratio = torch.cos((1 - alpha) * angle).log_() - exponential.log_()
            log_magnitude += (1 - alpha) / alpha * log_ratio
        return scale * sine.sign_() * log_magnitude.exp_()

    return draw


def _signs(source: torch.Generator, size: tuple[int, ...]) -> Tensor:
    """Draw signs, +1 or -1 with equal probability."""
    return 2.0 * torch.randint(2, size, generator=source, dtype=torch.float64) - 1.0


def _exponential(source: torch.Generator, size: tuple[int, ...]) -> Tensor:
    """Draw exponential variates of mean 1, above 0."""
    uniform = torch.rand(size, generator=source, dtype=torch.float64)
    return -torch.log1p(-uniform).clamp_max_(-torch.finfo(torch.float64).tiny)
