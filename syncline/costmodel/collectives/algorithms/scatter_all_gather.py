"""A broadcast by a scatter from worker 0, then an all-gather around a ring.

The worker that holds the blocks of a range of workers sends the blocks of the upper half to the first worker of this
half, until each worker has a single block. The upper half is the larger half if they differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from syncline.costmodel.collectives.algorithms.base import Algorithm, Round, reversed_rounds, tree_depth
from syncline.costmodel.collectives.algorithms.binomial_tree import range_halvings
from syncline.costmodel.collectives.algorithms.ring import ring_rounds
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray


class ScatterBlocks(NamedTuple):
    """The blocks of a scatter's messages: one after another, ``c = sum_k ceil(P / 2^k)``, and of all messages, P H."""

    in_sequence: IntOrArray
    total: IntOrArray


def scatter_blocks(workers: IntOrArray) -> ScatterBlocks:
    """Return the number of blocks that a scatter among P workers sends."""
    in_sequence = total = np.zeros_like(workers)
    for level in range(int(np.max(tree_depth(workers)))):
        size, larger = np.divmod(workers, 2**level)  # ``larger`` ranges of size + 1, the others of size
        of_size, of_larger = ((length + 1) // 2 * (length > 1) for length in (size, size + 1))
        total = total + (2**level - larger) * of_size + larger * of_larger
        in_sequence = in_sequence + np.where(larger > 0, of_larger, of_size)
    return ScatterBlocks(in_sequence, total)


def sequential_bytes(workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    """Return the bytes of the messages on the longest path of a scatter and an all-gather of n bytes."""
    return nbytes / workers * (scatter_blocks(workers).in_sequence + workers - 1)


def sent_bytes(workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    """Return the bytes that a worker sends in a scatter and an all-gather of n bytes, mean over workers."""
    return nbytes / workers * (workers - 1 + scatter_blocks(workers).total / workers)


def scatter_rounds(workers: int, nbytes: float) -> Iterator[Round]:
    """Yield the rounds of a scatter of n bytes to each worker from worker 0."""
    for senders, receivers, lengths in range_halvings(workers):
        yield Round(senders, receivers, lengths * np.float64(nbytes))


def _rounds(workers: int, nbytes: float) -> Iterable[Round]:
    return (*scatter_rounds(workers, nbytes / workers), *ring_rounds(workers, nbytes / workers))


SCATTER_ALL_GATHER = Algorithm(
    rounds=_rounds,
    messages=lambda workers: tree_depth(workers) + workers - 1,
    nbytes=sequential_bytes,
    sent=sent_bytes,
    directions=None,
)

REDUCE_SCATTER_GATHER = replace(
    SCATTER_ALL_GATHER,
    rounds=lambda workers, nbytes: reversed_rounds(tuple(SCATTER_ALL_GATHER.rounds(workers, nbytes))),
)
"""A reduce: the broadcast backwards, a reduce-scatter and a gather to worker 0."""
