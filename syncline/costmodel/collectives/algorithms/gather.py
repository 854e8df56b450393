"""A gather to worker 0 along a binomial tree.

In step k, i sends to i - 2^k for i = 2^k modulo 2^(k+1), with the min(2^k, P - i) blocks that i holds at this step. At
most one worker of a step, the last, holds fewer than 2^k; its message is a separate round.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from syncline.costmodel.collectives.algorithms.base import Algorithm, Round, doublings, of_others, tree_depth
from syncline.costmodel.numerics.arrays import IntOrArray


def _rounds(workers: int, nbytes: float) -> Iterator[Round]:
    for k in range((workers - 1).bit_length()):
        senders = np.arange(2**k, workers, 2 ** (k + 1))
        block_counts = np.minimum(2**k, workers - senders)
        for blocks in np.unique(block_counts)[::-1]:
            group = senders[block_counts == blocks]
            yield Round(group, group - 2**k, float(blocks * nbytes))


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
    nbytes=of_others,
    sent=lambda workers, nbytes: nbytes * (_binary_ones(workers) / workers),
    latencies=doublings,
    directions=1,
    few_messages=True,
)
