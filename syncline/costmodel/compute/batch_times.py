"""Compute time by batch size, interpolated between measured sizes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from syncline.errors import SpecError


@dataclass(frozen=True)
class BatchTimes:
    """Compute seconds of a worker's step as a piecewise linear function of its batch size.

        t(b) = t_i + (b - b_i) (t_{i+1} - t_i) / (b_{i+1} - b_i)    for b_i <= b <= b_{i+1}

    Args:
        times_s: measured seconds by batch size; sizes are in samples or in tokens per worker.

    Raises:
        SpecError: no size, or a size or a time out of range.

    >>> BatchTimes({1: 0.012, 8: 0.060, 32: 0.210}).seconds(20)
    0.135
    """

    times_s: Mapping[float, float]

    def __post_init__(self) -> None:
        if not self.times_s:
            raise SpecError("batch_times", dict(self.times_s), "seconds for one batch size at least, as in {8: 60 ms}")
        for size, seconds in self.times_s.items():
            if not 0 < size < math.inf:
                raise SpecError("batch_times", size, "batch sizes above 0")
            if not 0 <= seconds < math.inf:
                raise SpecError(f"batch_times.{size:g}", seconds, "a time of at least 0 s")

    @property
    def sizes(self) -> list[float]:
        """Return the measured batch sizes in ascending order."""
        return sorted(self.times_s)

    def seconds(self, batch: float, extrapolate: bool = False) -> float:
        """Return t(b), the compute seconds at a batch size.

        Args:
            batch: b, in the unit of the sizes.
            extrapolate: whether a batch outside the measured sizes lies on the line through the two nearest sizes;
                without extrapolation it is refused.

        Raises:
            SpecError: a batch outside the measured sizes without extrapolation, with only one measured size, or with a
                negative result.
        """
        sizes = self.sizes
        if sizes[0] <= batch <= sizes[-1]:
            return float(np.interp(batch, sizes, [self.times_s[size] for size in sizes]))
        measured = f"{sizes[0]:g}" if len(sizes) == 1 else f"{sizes[0]:g} to {sizes[-1]:g}"
        if not extrapolate or len(sizes) == 1:
            expected = f"batch sizes below and above a worker's {batch:g}" + ", or extrapolate" * (len(sizes) > 1)
            raise SpecError("batch_times", measured, expected)
        near, neighbour = (sizes[0], sizes[1]) if batch < sizes[0] else (sizes[-1], sizes[-2])
        slope = (self.times_s[near] - self.times_s[neighbour]) / (near - neighbour)
        seconds = self.times_s[near] + (batch - near) * slope
        if seconds < 0:
            raise SpecError("batch_times", f"{seconds:g} s at {batch:g}", "a continuation that is not negative")
        return seconds

    @property
    def decreasing_pairs(self) -> list[tuple[float, float]]:
        """Return the pairs of neighbouring sizes where the larger takes less time, surely a measurement error."""
        pairs = itertools.pairwise(self.sizes)
        return [(small, large) for small, large in pairs if self.times_s[large] < self.times_s[small]]
