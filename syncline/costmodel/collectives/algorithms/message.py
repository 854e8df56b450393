"""A message of n bytes from the first worker of a group to the last; the others neither send nor wait."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from syncline.costmodel.collectives.algorithms.base import Algorithm, Round
from syncline.costmodel.numerics.arrays import IntOrArray


def _rounds(workers: int, nbytes: float) -> Iterator[Round]:
    if workers > 1:
        yield Round(np.array([0]), np.array([workers - 1]), float(nbytes))


def _message_count(workers: IntOrArray) -> IntOrArray:
    """Return the number of messages: 1, or 0 if there is a single worker."""
    return np.minimum(np.subtract(workers, 1), 1)


MESSAGE = Algorithm(
    rounds=_rounds,
    messages=_message_count,
    nbytes=lambda workers, nbytes: nbytes * _message_count(workers),
    sent=lambda workers, nbytes: nbytes * (_message_count(workers) / workers),
    directions=1,
    few_messages=True,
)
