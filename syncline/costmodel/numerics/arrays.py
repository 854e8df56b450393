"""Numbers or arrays of them: what the cost model takes and gives."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from syncline.errors import SpecError

FloatOrArray: TypeAlias = float | NDArray[np.floating[Any]]
"""A number, or an array of them: everything in the cost model broadcasts by NumPy's rules."""

IntOrArray: TypeAlias = int | NDArray[np.integer[Any]]
"""A whole number, or an array of them."""


Indices: TypeAlias = NDArray[np.int64]
"""Places in arrays, or whole numbers."""


def require(holds: bool | NDArray[np.bool_], path: str, value: FloatOrArray | IntOrArray, expected: str) -> None:
    """Refuse a value, or an array for its first element, where ``holds`` (of the same shape) is false.

    Raises:
        SpecError: names the field, that element and what would be accepted.
    """
    if not np.all(holds):
        raise SpecError(path, np.extract(np.logical_not(holds), value)[0].item(), expected)
