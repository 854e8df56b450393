"""The messages of gloo, round by round, and the number of rounds that a rank may be ahead of its messages.

| algorithm                | rounds                                                           | ahead               |
|--------------------------|------------------------------------------------------------------|---------------------|
| `gloo-ring` (all-reduce) | a segment each, to the worker before: summed, then handed on     | 2; 1 at the halfway |
| `gloo-all-reduce`        | the same                                                         | the same            |
| `gloo-reduce`            | the first of these rings but its end, then each worker to worker 0 | 2, then all        |
| `gloo-ring` (all-gather) | half a part each, to the worker after                            | 2                   |
| `gloo-posted`            | i to i + 1 + k in round k; of a gather, each worker to the first | all                 |
| `gloo-tree`              | i < 2^k to i + 2^k in round k                                    | 1                   |

Source: as `syncline.costmodel.collectives.gloo.times`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from syncline.costmodel.collectives.algorithms import Round
from syncline.costmodel.collectives.algorithms.pairwise import pairwise_rounds
from syncline.costmodel.collectives.algorithms.ring import ring_rounds
from syncline.costmodel.collectives.gloo.times import segments


def gloo_rounds(kind: str, workers: int, nbytes: float) -> Iterable[Round]:
    """Return the rounds of a collective."""
    return _ROUNDS[kind](workers, nbytes)


def rounds_ahead(kind: str, rounds: int, workers: int) -> list[int]:
    """Return how many rounds a rank may be ahead of its arrived messages, for each round of a collective of gloo."""
    if kind in ("all_reduce", "reduce_scatter"):
        half = rounds // 2
        return [1 if half and index == half else 2 for index in range(rounds)]
    if kind == "all_gather":
        return [2] * rounds
    if kind == "reduce":  # a ring, then messages from all to the root at once
        ring = max(rounds - (workers - 1), 0)
        return [2 if index < ring else index - ring + 1 for index in range(rounds)]
    if kind == "broadcast":
        return [1] * rounds
    return [index + 1 for index in range(rounds)]


def waits_for_sends(kind: str) -> bool:
    """Return whether a rank also waits for its sends, as in rings."""
    return kind in ("all_reduce", "reduce_scatter", "all_gather", "reduce")


def posts_first(kind: str) -> bool:
    """Return whether a rank posts its receives of a round before it issues its sends."""
    return kind in ("all_reduce", "reduce_scatter", "reduce")


def _rings(workers: int, nbytes: float) -> Iterator[Round]:
    """Yield rounds of segments to the worker before, first the summed ones, without empty segments."""
    count, size = (float(value) for value in segments(workers, nbytes))
    worker, per_chunk = np.arange(workers), int(count) // workers
    before = (worker - 1) % workers
    full_round = Round(worker, before, size)
    for first in (1, 0):
        for i in range(per_chunk * (workers - 1)):
            begins = ((worker + first) * per_chunk + i) % count * size
            sizes = np.clip(nbytes - begins, 0.0, size)
            used = sizes > 0
            yield full_round if np.all(sizes == size) else Round(worker[used], before[used], sizes[used])


def _reduce(workers: int, nbytes: float) -> Iterator[Round]:
    """Yield rounds of segments to the worker before, then each worker's chunk to the first."""
    if workers < 2 or not nbytes:
        return
    count, size = (float(value) for value in segments(workers, nbytes))
    worker = np.arange(workers)
    ring = Round(worker, (worker - 1) % workers, size)
    for _ in range(int(count) - 2):
        yield ring
    for sender in range(1, workers):
        yield Round(np.array([sender]), np.array([0]), nbytes / workers)


def _tree(workers: int, nbytes: float) -> Iterator[Round]:
    for k in range((workers - 1).bit_length()):
        senders = np.arange(min(2**k, workers - 2**k))
        yield Round(senders, senders + 2**k, nbytes)


def _gather(workers: int, nbytes: float) -> Iterator[Round]:
    for worker in range(1, workers):
        yield Round(np.array([worker]), np.array([0]), nbytes)


_ROUNDS: dict[str, Callable[[int, float], Iterable[Round]]] = {
    "all_reduce": _rings,
    "reduce_scatter": _rings,
    "all_gather": lambda workers, nbytes: ring_rounds(workers, nbytes / 2, laps=2),
    "all_to_all": pairwise_rounds,
    "broadcast": _tree,
    "gather": _gather,
    "reduce": _reduce,
}
