"""The messages of gloo, round by round, and the number of rounds that a rank may be ahead of the messages it received.

| algorithm                | rounds: which worker sends to which                                | ahead               |
|--------------------------|--------------------------------------------------------------------|---------------------|
| `gloo-ring` (all-reduce) | a segment from i to i - 1: first partial sums, then results        | 2; 1 at the halfway |
| `gloo-all-reduce`        | the same                                                           | the same            |
| `gloo-reduce`            | the partial sums of this ring, then a chunk from each worker to 0  | 2, then all         |
| `gloo-ring` (all-gather) | half a part from i to i + 1                                        | 2                   |
| `gloo-posted`            | i to i + 1 + k in round k; of a gather, each worker to the first   | all                 |
| `gloo-tree`              | i < 2^k to i + 2^k in round k                                      | 1                   |

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
    """Return the rounds in which gloo runs a collective of ``nbytes`` bytes."""
    return _ROUNDS[kind](workers, nbytes)


def rounds_ahead(kind: str, rounds: int, workers: int) -> list[int]:
    """Return, for each round of a collective, how many rounds a rank may be ahead of the messages it received."""
    if kind in ("all_reduce", "reduce_scatter"):
        half = rounds // 2
        return [1 if half and index == half else 2 for index in range(rounds)]
    if kind == "all_gather":
        return [2] * rounds
    if kind == "reduce":  # a ring, then messages from all to the root at once
        ring_rounds = max(rounds - (workers - 1), 0)
        return [2 if index < ring_rounds else index - ring_rounds + 1 for index in range(rounds)]
    if kind == "broadcast":
        return [1] * rounds
    return [index + 1 for index in range(rounds)]


def waits_for_sends(kind: str) -> bool:
    """Return whether a rank also waits for its sends, as in rings."""
    return kind in ("all_reduce", "reduce_scatter", "all_gather", "reduce")


def posts_first(kind: str) -> bool:
    """Return whether a rank posts its receives of a round before it issues its sends."""
    return kind in ("all_reduce", "reduce_scatter", "reduce")


def _all_reduce(workers: int, nbytes: float) -> Iterator[Round]:
    """Yield rounds of segments from each worker i to i - 1, a lap of partial sums and one of results.

    Empty segments at the end of the tensor are not sent.
    """
    num_segments, segment_bytes = (float(value) for value in segments(workers, nbytes))
    worker, per_chunk = np.arange(workers), int(num_segments) // workers
    receiver = (worker - 1) % workers
    full_round = Round(worker, receiver, segment_bytes)
    for first_chunk in (1, 0):
        for number in range(per_chunk * (workers - 1)):
            offsets = ((worker + first_chunk) * per_chunk + number) % num_segments * segment_bytes
            sizes = np.clip(nbytes - offsets, 0.0, segment_bytes)
            sends = sizes > 0
            yield full_round if np.all(sizes == segment_bytes) else Round(worker[sends], receiver[sends], sizes[sends])


def _reduce(workers: int, nbytes: float) -> Iterator[Round]:
    """Yield rounds of segments from each worker i to i - 1, then the chunk of each worker to worker 0."""
    if workers < 2 or not nbytes:
        return
    num_segments, segment_bytes = (float(value) for value in segments(workers, nbytes))
    worker = np.arange(workers)
    ring_round = Round(worker, (worker - 1) % workers, segment_bytes)
    for _ in range(int(num_segments) - 2):
        yield ring_round
    for sender in range(1, workers):
        yield Round(np.array([sender]), np.array([0]), nbytes / workers)


def _broadcast(workers: int, nbytes: float) -> Iterator[Round]:
    """Yield rounds of a binomial tree: in round k, each worker i below 2^k sends to i + 2^k."""
    for k in range((workers - 1).bit_length()):
        senders = np.arange(min(2**k, workers - 2**k))
        yield Round(senders, senders + 2**k, nbytes)


def _gather(workers: int, nbytes: float) -> Iterator[Round]:
    for worker in range(1, workers):
        yield Round(np.array([worker]), np.array([0]), nbytes)


_ROUNDS: dict[str, Callable[[int, float], Iterable[Round]]] = {
    "all_reduce": _all_reduce,
    "reduce_scatter": _all_reduce,
    "all_gather": lambda workers, nbytes: ring_rounds(workers, nbytes / 2, laps=2),
    "all_to_all": pairwise_rounds,
    "broadcast": _broadcast,
    "gather": _gather,
    "reduce": _reduce,
}
