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
    other_parts_bytes_twice,
    other_workers_bytes,
    reversed_rounds,
    tree_depth,
)
from syncline.costmodel.collectives.algorithms.recursive_doubling import all_gather_rounds
from syncline.costmodel.collectives.algorithms.scatter_all_gather import (
    scatter_blocks,
    scatter_rounds,
    sent_bytes,
    sequential_bytes,
)


def _naive_rounds(workers: int, nbytes: float) -> Iterable[Round]:
    if workers == 1:
        return ()
    others = np.arange(1, workers)
    server = np.zeros_like(others)
    up, down = np.concatenate([others, server]), np.concatenate([server, others])
    return RoundTable(np.arange(len(up) + 1), up, down, np.full(len(up), float(nbytes)))


def _efficient_rounds(workers: int, nbytes: float) -> Iterable[Round]:
    block = nbytes / workers
    gathering = reversed_rounds(scatter_rounds(workers, nbytes))
    return (*gathering, *scatter_rounds(workers, block), *all_gather_rounds(workers, block))


NAIVE_SERVER = Algorithm(
    rounds=_naive_rounds,
    messages=lambda workers: 2 * (workers - 1),
    nbytes=lambda workers, nbytes: 2 * other_workers_bytes(workers, nbytes),
    sent=other_parts_bytes_twice,
    latencies=lambda workers: 2 * np.minimum(np.subtract(workers, 1), 1),
    directions=1,
    few_messages=True,
)

EFFICIENT_SERVER = Algorithm(
    rounds=_efficient_rounds,
    messages=lambda workers: 3 * tree_depth(workers),
    nbytes=lambda workers, nbytes: nbytes * scatter_blocks(workers).in_sequence + sequential_bytes(workers, nbytes),
    sent=lambda workers, nbytes: nbytes * (scatter_blocks(workers).total / workers) + sent_bytes(workers, nbytes),
    directions=None,
)
