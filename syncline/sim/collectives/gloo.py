"""How far ahead of its messages a rank of gloo's collectives may be.

| algorithm                | rounds                                                           | ahead               |
|--------------------------|------------------------------------------------------------------|---------------------|
| `gloo-ring` (all-reduce) | a segment each, to the worker before: summed, then handed on     | 2; 1 at the halfway |
| `gloo-all-reduce`        | the same                                                         | the same            |
| `gloo-ring` (all-gather) | half a part each, to the worker after                            | 2                   |
| `gloo-posted`            | i to i + 1 + k in round k; of a gather, each worker to the first | all                 |
| `gloo-tree`              | i < 2^k to i + 2^k in round k                                    | 1                   |

Source: as `syncline.costmodel.collectives.gloo.times`.
"""

from __future__ import annotations


def rounds_ahead(kind: str, rounds: int) -> list[int]:
    """In each round of a collective of gloo, the number of rounds before it up to which all must have arrived."""
    if kind in ("all_reduce", "reduce_scatter"):
        half = rounds // 2
        return [1 if half and at == half else 2 for at in range(rounds)]
    if kind == "all_gather":
        return [2] * rounds
    if kind == "broadcast":
        return [1] * rounds
    return [at + 1 for at in range(rounds)]


def waits_for_sends(kind: str) -> bool:
    """Whether a rank also waits for what it sends: in rings."""
    return kind in ("all_reduce", "reduce_scatter", "all_gather")


def posts_first(kind: str) -> bool:
    """Whether a rank posts its receives of a round before it issues its sends."""
    return kind in ("all_reduce", "reduce_scatter")
