"""Statistics of the relative errors of predictions, ``predicted / measured - 1``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def error_of(errors: ArrayLike) -> dict[str, Any]:
    """Return the number of errors, the mean, median and worst of their absolute values, and the signed mean."""
    errors = np.asarray(errors)
    absolute = np.abs(errors)
    return {
        "points": int(errors.size), "mape": float(absolute.mean()), "median": float(np.median(absolute)),
        "worst": float(absolute.max()), "bias": float(errors.mean()),
    }  # fmt: skip


def errors_by_group(
    rows: Sequence[Mapping[str, Any]],
    column: str,
    label: Callable[[Any], str] = str,
    order: Callable[[Any], Any] | None = None,
) -> dict[str, list[float]]:
    """Return the errors of rows by the values of a column, sorted by ``order``, for a panel of a figure."""
    groups = sorted({row[column] for row in rows}, key=order)
    return {label(group): [row["error"] for row in rows if row[column] == group] for group in groups}
