"""A gather to worker 0 along a binomial tree.

In step k, i sends to i - 2^k for i = 2^k modulo 2^(k+1), with the min(2^k, P - i) blocks that i holds at this step. At
most one worker of a step, the last, holds fewer than 2^k; its message is a separate round.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from syncline.costmodel.collectives.algorithms.base import Algorithm, Round, doublings, other_workers_bytes, tree_depth
from syncline.costmodel.numerics.arrays import IntOrArray


def _rounds(workers: int, nbytes: float) -> Iterator[Round]:
    for step in range((workers - 1).bit_length()):
        senders = np.arange(2**step, workers, 2 ** (step + 1))
        block_counts = np.minimum(2**step, workers - senders)
        for blocks in np.unique(block_counts)[::-1]:
            equal_senders = senders[block_counts == blocks]
            yield Round(equal_senders, equal_senders - 2**step, float(blocks * nbytes))


def _binary_ones(workers: IntOrArray) -> IntOrArray:
    """Return O, the number of ones that 0, ..., P - 1 have together in binary."""
    total = np.zeros_like(workers)
    for bit in range(int(np.max(workers)).bit_length()):
        full_runs, rest = np.divmod(workers, 2 << bit)  # the bit is set in the upper half of a run
        total = total + (full_runs << bit) + np.maximum(rest - (1 << bit), 0)
    return total


GATHER = Algorithm(
    rounds=_rounds,
    messages=tree_depth,
    nbytes=other_workers_bytes,
    sent=lambda workers, nbytes: nbytes * (_binary_ones(workers) / workers),
    latencies=doublings,
    directions=1,
    few_messages=True,
)
