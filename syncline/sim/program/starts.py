"""The times at which the workers begin."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from syncline.costmodel.network.paths import Floats
from syncline.errors import SpecError

__all__ = ["Floats", "start_times"]


def start_times(starts_s: ArrayLike | None, workers: int) -> Floats:
    """Return the time at which each worker begins, ``(P,)`` seconds, 0 by default.

    Raises:
        SpecError: a time that is negative or not finite, or a wrong number of times.
    """
    try:
        starts = np.broadcast_to(np.asarray(0.0 if starts_s is None else starts_s, dtype=np.float64), (workers,))
    except ValueError:
        raise SpecError("starts_s", starts_s, f"one time, or one for each of the {workers} workers") from None
    if not np.all(np.isfinite(starts) & (starts >= 0)):
        raise SpecError("starts_s", starts_s, "seconds, finite and at least 0")
    return starts
