"""Bounds of times, projected or simulated: computing and communication are off by what was measured of their like.

Either is taken at each of its bounds while the other stays, and a step is timed again, overlap and all. What both
change by is added as independent errors are:

    low = T - sqrt((T - T(k_low, 1))^2 + (T - T(1, c_low))^2),   high = T + sqrt(...)

A speedup compares two methods on one machine and one network, so that both are off by the same factors in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.arrays import FloatOrArray
from syncline.costmodel.network.paths import Floats


class Factors(NamedTuple):
    """By what computing and communication are off.

    Attributes:
        computing: of all settings, or of each ``(S,)``.
        communication: what broadcasts with the seconds of a call.
    """

    computing: FloatOrArray = 1.0
    communication: FloatOrArray = 1.0


AS_PREDICTED = Factors()


class Varied(NamedTuple):
    """Step times with computing and communication at their bounds, one at a time; ``(S, n)`` each, or a number."""

    less_computing: Floats
    more_computing: Floats
    less_communication: Floats
    more_communication: Floats


class LowAndHigh(Protocol):
    """What has factors between which something is: one uncertainty, or several as arrays."""

    @property
    def low(self) -> Any:
        """The least."""

    @property
    def high(self) -> Any:
        """The most."""


def at_bounds(k: LowAndHigh, c: LowAndHigh) -> tuple[Factors, Factors, Factors, Factors]:
    """The factors of each of the four times of `Varied`, for computing k and communication c."""
    return Factors(k.low), Factors(k.high), Factors(1.0, c.low), Factors(1.0, c.high)


def between(value: Floats, of: Sequence[NDArray[np.float64]]) -> tuple[Floats, Floats]:
    """Lower and upper bounds of a value from what it is with each of two causes at each of its bounds."""
    down, up = np.zeros_like(value), np.zeros_like(value)
    for one, other in (of[:2], of[2:]):
        down += np.maximum(value - np.minimum(one, other), 0.0) ** 2
        up += np.maximum(np.maximum(one, other) - value, 0.0) ** 2
    return np.maximum(value - np.sqrt(down), 0.0), value + np.sqrt(up)


def basis_text(computing: str, communication: str) -> str:
    """What both rest on, in one line."""
    return f"computing: {computing}; communication: {communication}"
