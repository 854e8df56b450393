"""PAT: NCCL's all-gather and reduce-scatter by parallel aggregated trees.

An all-gather has L = ceil(log2 P) rounds with distances d = 2^(L - 1), ..., 2, 1. In each, worker i sends to i + d
modulo P the blocks that it holds and that i + d lacks: those of the workers i, i - 2d, i - 4d, ... that are at most
P - 1 - d behind. So each block goes down a binomial tree from its worker, all P trees at once, and a message carries
the blocks of several trees: ceil((P - d)/(2d)) of them. In recursive doubling the longest distance carries the most
bytes; here it carries one block, so that lines of far messages carry less. A reduce-scatter reverses an all-gather.

NCCL aggregates blocks as long as they fit into its buffers, and sends larger tensors in pieces; our rounds aggregate
all. NCCL uses PAT among nodes of one GPU each (`syncline.costmodel.collectives.policies`).

Source: S. Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale" (2025); NCCL 2.23,
src/graph/tuning.cc.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from syncline.costmodel.collectives.algorithms.base import (
    Algorithm,
    Round,
    other_parts_bytes,
    other_workers_bytes,
    reversed_rounds,
    tree_depth,
)


def pat_rounds(workers: int, nbytes: float) -> Iterator[Round]:
    """Yield the rounds of an all-gather of n bytes from each worker, from the longest distance to the shortest."""
    worker = np.arange(workers)
    for step in reversed(range((workers - 1).bit_length())):
        distance = 2**step
        blocks = -(-(workers - distance) // (2 * distance))  # rounded up
        yield Round(worker, (worker + distance) % workers, float(blocks * nbytes))


PAT_ALL_GATHER = Algorithm(rounds=pat_rounds, messages=tree_depth, nbytes=other_workers_bytes)

PAT_REDUCE_SCATTER = Algorithm(
    rounds=lambda workers, nbytes: reversed_rounds(pat_rounds(workers, nbytes / workers)),
    messages=tree_depth,
    nbytes=other_parts_bytes,
)
