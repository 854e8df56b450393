"""Number of rounds that a rank of gloo's collectives may be ahead of its messages.

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
