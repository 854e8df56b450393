"""Types of numbers and arrays in the cost model, and a check of their range."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from syncline.errors import SpecError

FloatOrArray: TypeAlias = float | NDArray[np.floating[Any]]
"""A number, or an array of numbers, which broadcasts by NumPy's rules."""

IntOrArray: TypeAlias = int | NDArray[np.integer[Any]]
"""A whole number, or an array of whole numbers."""


Indices: TypeAlias = NDArray[np.int64]
"""An array of indices or of whole numbers."""


def require(holds: bool | NDArray[np.bool_], path: str, value: FloatOrArray | IntOrArray, expected: str) -> None:
    """Refuse a value, or the first element of an array, for which the condition ``holds`` of equal shape is false.

    Raises:
        SpecError: names the field, the element and the accepted values.
    """
    if not (holds if isinstance(holds, bool | np.bool_) else np.all(holds)):  # a scalar is the frequent case
        raise SpecError(path, np.extract(np.logical_not(holds), value)[0].item(), expected)
