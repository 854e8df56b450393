"""Recursive doubling: i exchanges with i ^ 1, then i ^ 2, i ^ 4, ...; ``i ^ d`` is i with the binary digit d flipped.

In an all-reduce, workers exchange all n bytes each time. If P is above Q, the largest power of two, workers Q + i send
all n bytes to workers i in a first round, and receive the result in a last round from Q - 1 - i, which their part
reaches in the last exchange. In an all-gather, workers exchange all the blocks that they hold if P is a power of two;
otherwise, in round k, i sends to i - 2^k the min(2^k, P - 2^k) blocks that begin with the block of i. Halving, a
reduce-scatter, is the all-gather in reverse.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from syncline.costmodel.collectives.algorithms.base import (
    Algorithm,
    Round,
    doubling_rounds,
    doublings,
    folded_rounds,
    folds,
    largest_power,
    other_parts_bytes,
    other_workers_bytes,
    reversed_rounds,
    tree_depth,
)
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray


def _rounds(workers: int, nbytes: float) -> Iterator[Round]:
    power = largest_power(workers)
    mirror = np.arange(power)[::-1]  # worker i reaches its mirror worker only after every exchange
    return folded_rounds(workers, nbytes, doubling_rounds(power, nbytes, growth=1), mirror)


def _sent_bytes(workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    """Return the bytes that a worker sends in an all-reduce, mean over workers: ``n(Q l + 2(P - Q))/P``."""
    power = np.exp2(doublings(workers))
    return nbytes * ((power * doublings(workers) + 2 * (workers - power)) / workers)


def all_gather_rounds(workers: int, nbytes: float) -> Iterator[Round]:
    """Yield the rounds of an all-gather of n bytes from each worker."""
    if workers == largest_power(workers):
        yield from doubling_rounds(workers, nbytes, growth=2)
        return
    worker = np.arange(workers)
    for step in range(workers.bit_length()):
        blocks = min(2**step, workers - 2**step)
        yield Round(worker, (worker - 2**step) % workers, float(blocks * nbytes))


RECURSIVE_DOUBLING = Algorithm(
    rounds=_rounds,
    messages=lambda workers: doublings(workers) + folds(workers),
    nbytes=lambda workers, nbytes: nbytes * (doublings(workers) + folds(workers)),
    sent=_sent_bytes,
    folds=True,
)

DOUBLING_ALL_GATHER = Algorithm(rounds=all_gather_rounds, messages=tree_depth, nbytes=other_workers_bytes)

HALVING = Algorithm(
    rounds=lambda workers, nbytes: reversed_rounds(all_gather_rounds(workers, nbytes / workers)),
    messages=tree_depth,
    nbytes=other_parts_bytes,
)
