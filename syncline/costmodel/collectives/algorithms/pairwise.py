"""Pairwise exchange (all-to-all): worker i sends to i + 1 + k in round k."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from syncline.costmodel.collectives.algorithms.base import Algorithm, Round, other_parts_bytes


def pairwise_rounds(workers: int, nbytes: float) -> Iterator[Round]:
    """Yield P - 1 rounds; in round k worker i sends n/P bytes to worker i + 1 + k modulo P."""
    worker = np.arange(workers)
    for step in range(workers - 1):
        yield Round(worker, (worker + 1 + step) % workers, nbytes / workers)


PAIRWISE = Algorithm(rounds=pairwise_rounds, messages=lambda workers: workers - 1, nbytes=other_parts_bytes)
