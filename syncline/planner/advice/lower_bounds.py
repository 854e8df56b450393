"""The least of many values; lower bounds rule out most values before they are computed."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from typing import Any

from syncline.costmodel.numerics.arrays import FloatOrArray
from syncline.planner.projection.pricing import first_value


def indices_by_value(narrowings: Sequence[Iterator[tuple[Any, bool]]]) -> Iterator[int]:
    """Yield the indices of values, from the least value to the largest; equal values stay in their order.

    Args:
        narrowings: for each value an iterator that yields lower bounds with False and then the value with True. An
            iterator that ends without a value is left out. Iterators advance only as far as needed.

    >>> narrowings = [(1.0, False), (4.0, True)], [(3.0, True)], [(2.0, False), (3.0, True)]
    >>> indices = indices_by_value([iter(bounds) for bounds in narrowings])
    >>> next(indices), next(indices)
    (1, 2)
    """
    bounds: list[tuple[Any, bool, int]] = []

    def narrow(index: int) -> None:
        """Replace the bound of a value by its next one."""
        narrower = next(narrowings[index], None)
        if narrower is not None:
            heapq.heappush(bounds, (*narrower, index))

    for index in range(len(narrowings)):
        narrow(index)
    while bounds:
        # A value that comes out first is the least; an equal bound, whose flag is False, would come out before it.
        _, is_value, index = heapq.heappop(bounds)
        if is_value:
            yield index
        else:
            narrow(index)


def lower_bound_s(seconds: FloatOrArray) -> float:
    """Return a step's seconds without what rounding may have added; infinity if the seconds are unknown (NaN)."""
    least_s = first_value(seconds)
    return math.inf if math.isnan(least_s) else least_s * (1 - ROUNDING)


ROUNDING = 1e-9
"""Relative difference, above that by rounding, from which a lower bound that is longer rules a plan out."""
