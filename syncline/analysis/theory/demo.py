"""DeMo's theory: what k coefficients of a momentum leave out."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from syncline.analysis.curves import FloatArray


def top_k_error_bound(k: ArrayLike, dimension: ArrayLike) -> FloatArray:
    """The largest share of a vector's norm that its k largest entries can miss: ``sqrt(1 - k / d)``.

    Reached by vectors whose entries are equally large, in any orthonormal basis.

    >>> float(top_k_error_bound(48, 64))
    0.5

    Source: DeMo, Lemma 8.1.
    """
    return np.asarray(np.sqrt(1 - np.divide(k, dimension)))
