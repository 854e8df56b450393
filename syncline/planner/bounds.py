"""Bounds of times, projected or simulated: computing and communication vary by measured errors of similar predictions.

Each is taken at each of its bounds while the other stays, and a step is timed again, overlap included. The changes from
both are added as independent errors of factors are:

    log(T / low) = sqrt(log(T / T(k_low, 1))^2 + log(T / T(1, c_low))^2),   log(high / T) = sqrt(...)

A speedup compares two methods on one machine and one network, so that both vary by the same factors in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.paths import Floats
from syncline.costmodel.numerics.arrays import FloatOrArray
from syncline.costmodel.numerics.uncertainty import Uncertainty


class Factors(NamedTuple):
    """Factors on the seconds of computing and of communication.

    Attributes:
        computing: one factor, or one for each of S settings, ``(S,)``.
        communication: factor that broadcasts with the seconds of a call.
    """

    computing: FloatOrArray = 1.0
    communication: FloatOrArray = 1.0


AS_PREDICTED = Factors()


class StepTimesAtBounds(NamedTuple):
    """Step times with computing or communication at a bound: numbers, or ``(S, n)`` for S settings and n links."""

    less_computing: Floats
    more_computing: Floats
    less_communication: Floats
    more_communication: Floats


class FactorBounds(NamedTuple):
    """Uncertainties of several times: the factors between which each time lies, and the measurements behind them.

    Attributes:
        basis: measurements behind each pair of factors, in words.
    """

    low: Floats
    high: Floats
    basis: list[str]

    def select(self, indices: Sequence[int]) -> FactorBounds:
        """Return the bounds of the times with these indices."""
        return FactorBounds(self.low[indices], self.high[indices], [self.basis[index] for index in indices])


Bounded = Uncertainty | FactorBounds


def at_bounds(computing: Bounded, communication: Bounded) -> tuple[Factors, Factors, Factors, Factors]:
    """Return the factors of the variants in `StepTimesAtBounds`: computing or communication at a bound, the other 1."""
    return (
        Factors(computing=computing.low), Factors(computing=computing.high),
        Factors(communication=communication.low), Factors(communication=communication.high),
    )  # fmt: skip


def combined_bounds(value: Floats, variants: Sequence[NDArray[np.float64]]) -> tuple[Floats, Floats]:
    """Return the bounds of a value that errors of computing and communication change independently.

    The logarithms of their deviations add in quadrature.

    Args:
        variants: the value with each cause at its lower and upper bound, in the order of `StepTimesAtBounds`.
    """
    log_square_down, log_square_up = np.zeros_like(value), np.zeros_like(value)
    with np.errstate(divide="ignore", invalid="ignore"):
        # More computing or communication may also lower the value, such as a share.
        for at_low, at_high in (variants[:2], variants[2:]):
            log_square_down += np.log(np.maximum(value / np.minimum(at_low, at_high), 1.0)) ** 2
            log_square_up += np.log(np.maximum(np.maximum(at_low, at_high) / value, 1.0)) ** 2
        low = value * np.exp(-np.sqrt(log_square_down))
        high = value * np.exp(np.sqrt(log_square_up))
    is_zero = value == 0  # a share of the time may be 0, which has no logarithm: its bound is the largest variant
    largest = np.maximum.reduce([np.broadcast_to(variant, value.shape) for variant in variants])
    return np.where(is_zero, 0.0, low), np.where(is_zero, largest, high)


def basis_text(computing: str, communication: str) -> str:
    """Return a line with the bases of the bounds of computing and of communication."""
    return f"computing: {computing}; communication: {communication}"


def bound_ratio(sign: int, *ratios: float | None) -> float | None:
    """Return the ratio of a product's bound to the product, from the bounds of its independent factors.

    The logarithms of independent causes add in quadrature: ``exp(sign sqrt(sum log(ratio)^2))``.

    Args:
        sign: 1 for the upper bound, -1 for the lower.
        ratios: the bound of each factor, divided by its value; if one is None, the result is None: unknown.
    """
    if None in ratios:
        return None
    return float(np.exp(sign * np.linalg.norm(np.log(np.array(ratios, dtype=np.float64)))))
