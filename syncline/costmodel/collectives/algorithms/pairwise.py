"""Pairwise exchange (all-to-all): worker i sends to i + 1 + k in round k."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from syncline.costmodel.collectives.algorithms.base import Algorithm, Round, of_part


def pairwise_rounds(workers: int, nbytes: float) -> Iterator[Round]:
    """Yield rounds in which worker i sends n/P bytes to i + 1 + k modulo P, in round k."""
    worker = np.arange(workers)
    for k in range(workers - 1):
        yield Round(worker, (worker + 1 + k) % workers, nbytes / workers)


PAIRWISE = Algorithm(rounds=pairwise_rounds, messages=lambda workers: workers - 1, nbytes=of_part)
