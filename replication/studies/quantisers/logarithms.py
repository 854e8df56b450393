"""Quantisers of Lion Cub's Figure 4 that no method sends: logarithmic levels, and levels without zeros."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from syncline.optim.quantisers import at_least_fp32, checked_levels, keep_zeros, power_mean


def without_zeros(quantised: Tensor, x: Tensor) -> Tensor:
    """Return the quantised integers with zeros replaced by the sign of ``x``, so that only zeros of x stay zero.

    Source: Lion Cub, Figure 4 ("w/o zero").
    """
    return torch.where(quantised == 0, x.sign().to(quantised.dtype), quantised)


def log_quantise(x: Tensor, levels: int) -> Tensor:
    """Return the integers ``sign(x) max(0, s + round(log2(|x| / max|x|)))``, a logarithmic quantisation of x.

    The maximum becomes s; entries below ``2^-(s - 1/2)`` of it become zero. ``log_restore`` is the inverse.

    Args:
        x: tensors of the rows, ``(R, *s)``.
        levels: s, the largest integer.

    Raises:
        SpecError: ``levels`` is below 1 or too large for the dtype of ``x``.

    Source: the idea is in Lion Cub's Figure 4, which does not give the base.
    """
    octaves = (at_least_fp32(x).abs() / power_mean(x, math.inf)).log2().round()
    return (x.sign() * keep_zeros(octaves + checked_levels(levels, x), x).clamp(min=0)).to(x.dtype)


def log_restore(quantised: Tensor, levels: int) -> Tensor:
    """Return the numbers that integers q of ``log_quantise`` represent, over the maximum: ``sign(q) 2^(|q| - s)``.

    ``levels`` is s, the largest integer.
    """
    return quantised.sign() * torch.exp2(quantised.abs() - levels)
