"""An all-reduce over two binary trees of the same workers, in each of which half of them are leaves.

Half of the bytes goes up and down each tree, not in chunks: all of a half has arrived before it is sent on.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from syncline.costmodel.collectives.algorithms.base import (
    Algorithm,
    Round,
    backwards,
    doublings,
    of_part_twice,
    tree_depth,
)
from syncline.costmodel.numerics.arrays import IntOrArray


def parents(workers: int) -> tuple[dict[int, int], dict[int, int]]:
    """The parent of each worker but the root, in either tree.

    The first tree is in order: the root of a range of workers is the one before the largest power of two that fits into
    it, which all of its left side fills; so every even worker is a leaf. The second is the first with i - 1 for i, so
    every odd worker but the last is inner in the first tree only, and every even one in the second only.
    """
    first: dict[int, int] = {}
    ranges = [(0, workers, -1)]
    while ranges:
        start, length, parent = ranges.pop()
        if length < 1:
            continue
        left = (1 << (length.bit_length() - 1)) - 1
        root = start + left
        if parent >= 0:
            first[root] = parent
        ranges += [(start, left, root), (root + 1, length - left - 1, root)]
    second = {(child - 1) % workers: (parent - 1) % workers for child, parent in first.items()}
    return first, second


@lru_cache(maxsize=64)
def reduce_rounds(workers: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Who sends its sum to its parent in each round of a reduction up both trees, as (child, parent).

    In every round as many send as can: those who have heard from all their children, the deepest first, and nobody
    sends or receives twice.

    Source: the trees are those of P. Sanders, J. Speck, J. L. Traff, "Two-tree algorithms for full bandwidth broadcast,
    reduction and scan", Parallel Computing 35 (2009), the order is ours.
    """
    waiting, children = [], []
    for tree, parent in enumerate(parents(workers)):
        waiting += [(-_depth(child, parent), tree, -child) for child in parent]
        count = dict.fromkeys(range(workers), 0)
        for up in parent.values():
            count[up] += 1
        children.append(count)
    waiting.sort()
    above, told = parents(workers), []
    while waiting:
        sent: dict[int, tuple[int, int]] = {}  # by whom: in which tree, to whom
        got: set[int] = set()
        for _, tree, last in waiting:
            child, to = -last, above[tree][-last]
            if not (children[tree][child] or child in sent or to in got):
                sent[child] = tree, to
                got.add(to)
        for tree, to in sent.values():
            children[tree][to] -= 1
        told.append(tuple((child, to) for child, (_, to) in sent.items()))
        waiting = [each for each in waiting if sent.get(-each[2], (None,))[0] != each[1]]
    return tuple(told)


def _depth(worker: int, parent: dict[int, int]) -> int:
    depth = 0
    while worker in parent:
        worker, depth = parent[worker], depth + 1
    return depth


def _rounds(workers: int, nbytes: float) -> Iterable[Round]:
    pairs = (np.array(each).T for each in reduce_rounds(workers))
    up = tuple(Round(children, above, nbytes / 2) for children, above in pairs)
    return (*up, *backwards(up))


def _levels(workers: IntOrArray) -> IntOrArray:
    """Messages one after another up two trees of all workers: 2 l - 1 + e, of one worker none."""
    full = tree_depth(np.add(workers, 1)) == doublings(np.add(workers, 1))
    return np.where(np.greater(workers, 1), 2 * doublings(workers) - 1 + full, 0)[()]


def _latencies(workers: IntOrArray) -> IntOrArray:
    """Latencies up and down two trees of all workers: 2 (l + 1), for two workers 2, for one none."""
    return 2 * (doublings(workers) + np.greater(workers, 2))


DOUBLE_BINARY_TREE = Algorithm(
    rounds=_rounds,
    messages=lambda workers: 2 * _levels(workers),
    nbytes=lambda workers, nbytes: nbytes * _levels(workers),
    sent=of_part_twice,
    latencies=_latencies,
    directions=None,
    few_messages=True,
)
