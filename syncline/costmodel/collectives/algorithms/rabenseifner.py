"""Rabenseifner's all-reduce: recursive halving, then recursive doubling.

Q is the largest power of two that is at most P. Worker i exchanges with i ^ Q/2, then i ^ Q/4, ...; each time it sends
half of the bytes that it still has to reduce.
Then it makes the same exchanges in reverse order, with twice the bytes each time. If P is no power of two, workers
Q + i send all n bytes to workers i in a first round, and receive the result from them in a last round.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from syncline.costmodel.collectives.algorithms.base import (
    Algorithm,
    Round,
    doubling_rounds,
    doublings,
    folded_rounds,
    folds,
    largest_power,
    other_parts_bytes_twice,
)
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray


def _rounds(workers: int, nbytes: float) -> Iterator[Round]:
    power = largest_power(workers)
    gathering = tuple(doubling_rounds(power, nbytes / power, growth=2))
    return folded_rounds(workers, nbytes, (*gathering[::-1], *gathering), np.arange(power))


def _sequential_bytes(workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    """Return the bytes of the messages on the longest path: ``2n((Q - 1)/Q + f)``."""
    power = np.exp2(doublings(workers))
    return nbytes * (2 * (power - 1) / power + folds(workers))


RABENSEIFNER = Algorithm(
    rounds=_rounds,
    messages=lambda workers: 2 * doublings(workers) + folds(workers),
    nbytes=_sequential_bytes,
    sent=other_parts_bytes_twice,
    folds=True,
)
