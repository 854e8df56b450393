"""An all-reduce over two binary trees of the same workers; half of the workers are leaves in each tree.

Half of the bytes goes up and down each tree, without chunks: a worker receives all of a half before it forwards it.
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
    """Return the parent of each worker except the root, in each of the two trees.

    The first tree is in order, and the left subtree of a range's root is full: it has 2^k - 1 workers, with 2^k the
    largest power of two that fits into the range. So every even worker is a leaf. The second tree is the first with
    i - 1 for i. So every odd worker but the last is an inner node in the first tree only, every even worker in the
    second only.
    """
    first: dict[int, int] = {}
    ranges = [(0, workers, -1)]
    while ranges:
        start, length, parent = ranges.pop()
        if length < 1:
            continue
        left_length = (1 << (length.bit_length() - 1)) - 1
        root = start + left_length
        if parent >= 0:
            first[root] = parent
        ranges += [(start, left_length, root), (root + 1, length - left_length - 1, root)]
    second = {(child - 1) % workers: (parent - 1) % workers for child, parent in first.items()}
    return first, second


@lru_cache(maxsize=64)
def reduce_rounds(workers: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return the (child, parent) messages of each round of a reduction up both trees.

    In every round, workers that have received from all their children send, the deepest first. No worker sends or
    receives twice in a round.

    Source: the trees are those of P. Sanders, J. Speck, J. L. Traff, "Two-tree algorithms for full bandwidth broadcast,
    reduction and scan", Parallel Computing 35 (2009), the order is ours.
    """
    waiting, children = [], []
    for tree, parent in enumerate(parents(workers)):
        waiting += [(-_depth(child, parent), tree, -child) for child in parent]
        count = dict.fromkeys(range(workers), 0)
        for parent_worker in parent.values():
            count[parent_worker] += 1
        children.append(count)
    waiting.sort()
    parent_of, rounds = parents(workers), []
    while waiting:
        sending: dict[int, tuple[int, int]] = {}  # child: (tree, parent)
        receiving: set[int] = set()
        for _, tree, negative_child in waiting:
            child, receiver = -negative_child, parent_of[tree][-negative_child]
            if not (children[tree][child] or child in sending or receiver in receiving):
                sending[child] = tree, receiver
                receiving.add(receiver)
        for tree, receiver in sending.values():
            children[tree][receiver] -= 1
        rounds.append(tuple((child, receiver) for child, (_, receiver) in sending.items()))
        waiting = [entry for entry in waiting if sending.get(-entry[2], (None,))[0] != entry[1]]
    return tuple(rounds)


def _depth(worker: int, parent: dict[int, int]) -> int:
    """Return the number of edges from a worker to its root."""
    depth = 0
    while worker in parent:
        worker, depth = parent[worker], depth + 1
    return depth


def _rounds(workers: int, nbytes: float) -> Iterable[Round]:
    pairs = (np.array(pairs_of_round).T for pairs_of_round in reduce_rounds(workers))
    up = tuple(Round(children, parents_of_round, nbytes / 2) for children, parents_of_round in pairs)
    return (*up, *backwards(up))


def _levels(workers: IntOrArray) -> IntOrArray:
    """Return the messages one after another up two trees of all workers: 2 l - 1 + e, 0 for a single worker."""
    full = tree_depth(np.add(workers, 1)) == doublings(np.add(workers, 1))
    return np.where(np.greater(workers, 1), 2 * doublings(workers) - 1 + full, 0)[()]


def _latencies(workers: IntOrArray) -> IntOrArray:
    """Return the latencies up and down two trees of all workers: 2 (l + 1), 2 for two workers, 0 for a single one."""
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
