"""Symmetric laws from light to heavy tails, to draw noise from: gaussian, Laplace, log-normal, alpha-stable."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from syncline.errors import SpecError
from syncline.problems.streams import Draw, gaussian

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
