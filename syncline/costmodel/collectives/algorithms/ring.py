"""Rings: worker i sends to i + 1 in each round, and each block travels around."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from syncline.costmodel.collectives.algorithms.base import (
    Algorithm,
    Round,
    other_parts_bytes,
    other_parts_bytes_twice,
    other_workers_bytes,
)


def ring_rounds(workers: int, nbytes: float, laps: int = 1) -> Iterable[Round]:
    """Return ``laps`` times the rounds of a ring: each worker i sends n bytes to i + 1 modulo P."""
    worker = np.arange(workers)
    return (Round(worker, (worker + 1) % workers, float(nbytes)),) * (laps * (workers - 1))


RING = Algorithm(
    rounds=lambda workers, nbytes: ring_rounds(workers, nbytes / workers, laps=2),
    messages=lambda workers: 2 * (workers - 1),
    nbytes=other_parts_bytes_twice,
)
"""The ring of an all-reduce: a reduce-scatter, then an all-gather."""

RING_ALL_GATHER = Algorithm(rounds=ring_rounds, messages=lambda workers: workers - 1, nbytes=other_workers_bytes)

RING_REDUCE_SCATTER = Algorithm(
    rounds=lambda workers, nbytes: ring_rounds(workers, nbytes / workers),
    messages=lambda workers: workers - 1,
    nbytes=other_parts_bytes,
)
