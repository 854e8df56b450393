"""Trees: broadcast, reduce and gather along a binomial tree; all-reduces up and down a tree, or two binary trees.

**Binomial tree** of a broadcast from worker 0: the worker that serves a range of workers sends to the first worker of
the upper half, which is the larger half if they differ, until every worker has received the message.

**Gather** to worker 0: in step k, i sends to i - 2^k for i = 2^k modulo 2^(k+1), with the min(2^k, P - i) blocks that i
holds at this step. At most one worker of a step, the last, holds fewer than 2^k; its message is a separate round.

**Double binary tree** of the same workers, half of which are leaves in each tree: half of the bytes goes up and down
each tree, without chunks; a worker receives all of a half before it forwards it.

**PAT**, NCCL's all-gather and reduce-scatter by parallel aggregated trees. An all-gather has L = ceil(log2 P) rounds
with distances d = 2^(L - 1), ..., 2, 1. In each, worker i sends to i + d modulo P the blocks that it holds and that i +
d lacks: those of the workers i, i - 2d, i - 4d, ... that are at most P - 1 - d behind. So each block goes down a
binomial tree from its worker, all P trees at once, and a message carries the blocks of several trees: ceil((P -
d)/(2d)) of them. In recursive doubling the longest distance carries the most bytes; here it carries one block, so that
lines of far messages carry less. A reduce-scatter reverses an all-gather.

NCCL aggregates blocks as long as they fit into its buffers, and sends larger tensors in pieces; our rounds aggregate
all. NCCL uses PAT among nodes of one GPU each (`syncline.costmodel.collectives.policies`).

Source: S. Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale" (2025); NCCL 2.23,
src/graph/tuning.cc.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np

from syncline.costmodel.collectives.algorithms.base import (
    Algorithm,
    RankArray,
    Round,
    doublings,
    other_parts_bytes,
    other_parts_bytes_twice,
    other_workers_bytes,
    reversed_rounds,
    tree_depth,
)
from syncline.costmodel.numerics.arrays import IntOrArray, frozen


@lru_cache(maxsize=64)
def range_halvings(workers: int) -> tuple[tuple[RankArray, RankArray, RankArray], ...]:
    """Return the rounds of a binomial tree, in which the range of P workers is halved until each range has one worker.

    Each round has three arrays: the senders, the first worker of each range; the receivers, the first worker of each
    upper half; and the numbers of workers in the upper halves. An upper half is at least as large as the lower one.
    """
    halvings: list[tuple[RankArray, RankArray, RankArray]] = []
    ranges = [(0, workers)]  # first worker and length of each range
    while True:
        cuts = [(first, first + length // 2, length - length // 2) for first, length in ranges if length > 1]
        if not cuts:
            return tuple(halvings)
        senders, receivers, lengths = np.array(cuts).T
        halvings.append((frozen(senders), frozen(receivers), frozen(lengths)))
        ranges = []
        for first, middle, upper_length in cuts:
            ranges += [(first, middle - first), (middle, upper_length)]


def broadcast_rounds(workers: int, nbytes: float) -> Iterator[Round]:
    """Yield the rounds of a broadcast of n bytes from worker 0."""
    for senders, receivers, _ in range_halvings(workers):
        yield Round(senders, receivers, float(nbytes))


BROADCAST = Algorithm(
    rounds=broadcast_rounds,
    messages=tree_depth,
    nbytes=lambda workers, nbytes: nbytes * tree_depth(workers),
    sent=other_parts_bytes,
    directions=1,
    few_messages=True,
)

REDUCE = replace(BROADCAST, rounds=lambda workers, nbytes: reversed_rounds(broadcast_rounds(workers, nbytes)))

REDUCE_AND_BROADCAST = Algorithm(
    rounds=lambda workers, nbytes: (*REDUCE.rounds(workers, nbytes), *broadcast_rounds(workers, nbytes)),
    messages=lambda workers: 2 * tree_depth(workers),
    nbytes=lambda workers, nbytes: nbytes * (2 * tree_depth(workers)),
    sent=other_parts_bytes_twice,
    directions=1,
    few_messages=True,
)


def _gather_rounds(workers: int, nbytes: float) -> Iterator[Round]:
    """Yield the rounds of a gather of n bytes from each worker to worker 0."""
    for step in range((workers - 1).bit_length()):
        senders = np.arange(2**step, workers, 2 ** (step + 1))
        block_counts = np.minimum(2**step, workers - senders)  # only the last sender can have fewer
        for blocks in sorted({int(block_counts[0]), int(block_counts[-1])}, reverse=True):
            equal_senders = senders[block_counts == blocks]
            yield Round(equal_senders, equal_senders - 2**step, float(blocks * nbytes))


def _binary_ones(workers: IntOrArray) -> IntOrArray:
    """Return the total number of ones in the binary digits of the numbers 0 to P - 1."""
    total = np.zeros_like(workers)
    for bit in range(int(np.max(workers)).bit_length()):
        half_run = 2**bit  # the bit is 0 in so many numbers, then 1 in as many, and so on
        full_runs, rest = np.divmod(workers, 2 * half_run)
        total = total + full_runs * half_run + np.maximum(rest - half_run, 0)
    return total


GATHER = Algorithm(
    rounds=_gather_rounds,
    messages=tree_depth,
    nbytes=other_workers_bytes,
    sent=lambda workers, nbytes: nbytes * (_binary_ones(workers) / workers),
    latencies=doublings,
    directions=1,
    few_messages=True,
)


def two_tree_parents(workers: int) -> tuple[dict[int, int], dict[int, int]]:
    """Return the parent of each worker except the root, in each of the two trees of a double binary tree.

    The first tree is a search tree of the ranks. A root of w workers has 2^k - 1 workers on its left, where 2^k is the
    largest power of two that is at most w. So every even worker is a leaf. In the second tree worker i - 1, modulo P,
    has the place of worker i. So odd workers but the last are inner nodes in the first tree only, even ones in the
    second.
    """
    first_tree: dict[int, int] = {}
    ranges = [(0, workers, -1)]  # start, length and parent of subtrees; the whole tree has no parent
    while ranges:
        start, length, parent = ranges.pop()
        if length < 1:
            continue
        left_length = 2 ** (length.bit_length() - 1) - 1
        root = start + left_length
        if parent >= 0:
            first_tree[root] = parent
        ranges += [(start, left_length, root), (root + 1, length - left_length - 1, root)]
    second_tree = {(child - 1) % workers: (parent - 1) % workers for child, parent in first_tree.items()}
    return first_tree, second_tree


@lru_cache(maxsize=64)
def two_tree_reduce_rounds(workers: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return the (child, parent) messages of each round of a reduction up both trees of a double binary tree.

    In every round, workers that have received from all their children send to their parents. The deepest workers send
    first. No worker sends or receives twice in a round. The order is ours.
    """
    parent_of = two_tree_parents(workers)

    def depth(tree: int, worker: int) -> int:
        """Return the number of edges from a worker to the root of a tree."""
        return 1 + depth(tree, parent_of[tree][worker]) if worker in parent_of[tree] else 0

    missing_children = [Counter(parents.values()) for parents in parent_of]  # by tree and worker
    messages = [(tree, child) for tree, parents in enumerate(parent_of) for child in parents]
    # The deepest workers send first, then those of the first tree, then the last worker.
    waiting = sorted(messages, key=lambda message: (-depth(*message), message[0], -message[1]))
    rounds = []
    while waiting:
        parent_by_message: dict[tuple[int, int], int] = {}  # the messages of this round
        senders: set[int] = set()
        receivers: set[int] = set()
        for tree, child in waiting:
            parent = parent_of[tree][child]
            is_busy = child in senders or parent in receivers
            if not is_busy and not missing_children[tree][child]:
                parent_by_message[tree, child] = parent
                senders.add(child)
                receivers.add(parent)
        for (tree, _), parent in parent_by_message.items():
            missing_children[tree][parent] -= 1
        rounds.append(tuple((child, parent) for (_, child), parent in parent_by_message.items()))
        waiting = [message for message in waiting if message not in parent_by_message]
    return tuple(rounds)


def _two_tree_rounds(workers: int, nbytes: float) -> Iterable[Round]:
    """Return the rounds of an all-reduce of n bytes by a double binary tree, with half of the bytes in each tree."""
    up = []
    for messages in two_tree_reduce_rounds(workers):
        children, parents = np.array(messages).T
        up.append(Round(children, parents, nbytes / 2))
    return (*up, *reversed_rounds(up))


def _two_tree_messages_up(workers: IntOrArray) -> IntOrArray:
    """Return the number of messages on the longest path up a double binary tree: 2 l - 1 + e, or 0 for one worker.

    Here l = floor(log2 P), and e is 1 if P + 1 is a power of two, else 0.
    """
    is_full_tree = tree_depth(np.add(workers, 1)) == doublings(np.add(workers, 1))  # e
    return np.where(np.greater(workers, 1), 2 * doublings(workers) - 1 + is_full_tree, 0)[()]


DOUBLE_BINARY_TREE = Algorithm(
    rounds=_two_tree_rounds,
    messages=lambda workers: 2 * _two_tree_messages_up(workers),
    nbytes=lambda workers, nbytes: nbytes * _two_tree_messages_up(workers),
    sent=other_parts_bytes_twice,
    latencies=lambda workers: 2 * (doublings(workers) + np.greater(workers, 2)),  # the trees of 2 workers have one edge
    directions=None,
    few_messages=True,
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
