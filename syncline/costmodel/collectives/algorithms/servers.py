"""An all-reduce by a server, worker 0.

Naive: each worker in turn sends to worker 0, then worker 0 sends to each worker. Efficient: workers send a scatter's
messages in reverse, each with the n bytes of every worker of the sender's range; then they scatter n bytes and gather
them by recursive doubling.

Source: Lion Cub, section 3.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from syncline.costmodel.collectives.algorithms.base import (
    Algorithm,
    Round,
    RoundTable,
    backwards,
    of_others,
    of_part_twice,
    tree_depth,
)
from syncline.costmodel.collectives.algorithms.recursive_doubling import all_gather_rounds
from syncline.costmodel.collectives.algorithms.scatter_all_gather import halves, in_sequence, scatter_rounds, sent


def _naive(workers: int, nbytes: float) -> Iterable[Round]:
    if workers == 1:
        return ()
    others = np.arange(1, workers)
    server = np.zeros_like(others)
    up, down = np.concatenate([others, server]), np.concatenate([server, others])
    return RoundTable(np.arange(len(up) + 1), up, down, np.full(len(up), float(nbytes)))


def _efficient(workers: int, nbytes: float) -> Iterable[Round]:
    part = nbytes / workers
    return (
        *backwards(scatter_rounds(workers, nbytes)),
        *scatter_rounds(workers, part),
        *all_gather_rounds(workers, part),
    )


NAIVE_SERVER = Algorithm(
    rounds=_naive,
    messages=lambda workers: 2 * (workers - 1),
    nbytes=lambda workers, nbytes: 2 * of_others(workers, nbytes),
    sent=of_part_twice,
    latencies=lambda workers: 2 * np.minimum(np.subtract(workers, 1), 1),
    directions=1,
    few_messages=True,
)

EFFICIENT_SERVER = Algorithm(
    rounds=_efficient,
    messages=lambda workers: 3 * tree_depth(workers),
    nbytes=lambda workers, nbytes: nbytes * halves(workers)[0] + in_sequence(workers, nbytes),
    sent=lambda workers, nbytes: nbytes * (halves(workers)[1] / workers) + sent(workers, nbytes),
    directions=None,
)
