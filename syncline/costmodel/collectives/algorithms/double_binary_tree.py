"""An all-reduce over two binary trees of the same workers; half of the workers are leaves in each tree.

Half of the bytes goes up and down each tree, without chunks: a worker receives all of a half before it forwards it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from syncline.costmodel.collectives.algorithms.base import (
    Algorithm,
    Round,
    doublings,
    other_parts_bytes_twice,
    reversed_rounds,
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

    In every round, workers that have received from all their children send to their parents, the deepest first. No
    worker sends or receives twice in a round.

    Source: the trees are those of P. Sanders, J. Speck, J. L. Traff, "Two-tree algorithms for full bandwidth broadcast,
    reduction and scan", Parallel Computing 35 (2009), the order is ours.
    """
    parent_of = parents(workers)
    missing_children = [Counter(parent.values()) for parent in parent_of]  # by tree and worker
    waiting = [(tree, child) for tree, parent in enumerate(parent_of) for child in parent]
    waiting.sort(key=lambda entry: (-_depth(entry[1], parent_of[entry[0]]), entry[0], -entry[1]))
    rounds = []
    while waiting:
        tree_of: dict[int, int] = {}  # of each worker that sends in this round
        receiver_of: dict[int, int] = {}
        busy_receivers: set[int] = set()
        for tree, child in waiting:
            receiver = parent_of[tree][child]
            if not (missing_children[tree][child] or child in tree_of or receiver in busy_receivers):
                tree_of[child], receiver_of[child] = tree, receiver
                busy_receivers.add(receiver)
        for child, receiver in receiver_of.items():
            missing_children[tree_of[child]][receiver] -= 1
        rounds.append(tuple(receiver_of.items()))
        waiting = [(tree, child) for tree, child in waiting if tree_of.get(child) != tree]
    return tuple(rounds)


def _depth(worker: int, parent: dict[int, int]) -> int:
    """Return the number of edges from a worker to its root."""
    depth = 0
    while worker in parent:
        worker, depth = parent[worker], depth + 1
    return depth


def _rounds(workers: int, nbytes: float) -> Iterable[Round]:
    columns = (np.array(messages).T for messages in reduce_rounds(workers))
    up = tuple(Round(children, receivers, nbytes / 2) for children, receivers in columns)
    return (*up, *reversed_rounds(up))


def _messages_up(workers: IntOrArray) -> IntOrArray:
    """Return the messages one after another up two trees of all workers: 2 l - 1 + e, 0 for a single worker.

    Here l = floor(log2 P), and e is 1 if P + 1 is a power of two, else 0.
    """
    full = tree_depth(np.add(workers, 1)) == doublings(np.add(workers, 1))
    return np.where(np.greater(workers, 1), 2 * doublings(workers) - 1 + full, 0)[()]


def _latencies(workers: IntOrArray) -> IntOrArray:
    """Return the latencies up and down two trees of all workers: 2 (l + 1), 2 for two workers, 0 for a single one."""
    return 2 * (doublings(workers) + np.greater(workers, 2))


DOUBLE_BINARY_TREE = Algorithm(
    rounds=_rounds,
    messages=lambda workers: 2 * _messages_up(workers),
    nbytes=lambda workers, nbytes: nbytes * _messages_up(workers),
    sent=other_parts_bytes_twice,
    latencies=_latencies,
    directions=None,
    few_messages=True,
)
