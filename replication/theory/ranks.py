"""Spearman's rank correlation, a measure of whether two quantities rise together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def ranks(values: ArrayLike) -> NDArray[np.floating[Any]]:
    """Return the ranks from 1 up, ``(n,)``; equal values share their mean rank. Infinite values rank last, all equal.

    >>> ranks([3.0, 1.0, 3.0, float("inf")]).tolist()
    [2.5, 1.0, 2.5, 4.0]
    """
    _, inverse, counts = np.unique(np.asarray(values, dtype=float), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    places: NDArray[np.floating[Any]] = (last - (counts - 1) / 2)[inverse]
    return places


def rank_correlation(x: ArrayLike, y: ArrayLike) -> float:
    """Return Spearman's correlation of two samples ``(n,)``; NaN where one of the two is constant.

    >>> rank_correlation([1, 2, 3, 4], [1, 10, 100, 99])
    0.8
    """
    a, b = ranks(x), ranks(y)
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a @ a) * (b @ b)))
    return round(float(a @ b) / size, 12) if size else float("nan")
