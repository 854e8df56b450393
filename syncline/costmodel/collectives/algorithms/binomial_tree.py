"""Binomial trees: a broadcast from worker 0, a reduce up the same tree to worker 0, and an all-reduce up, then down.

The worker that serves a range of workers sends to the first worker of the upper half, which is the larger half if they
differ, until every worker has received the message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np

from syncline.costmodel.collectives.algorithms.base import (
    Algorithm,
    RankArray,
    Round,
    backwards,
    of_part,
    of_part_twice,
    tree_depth,
)
from syncline.costmodel.numerics.bounded_cache import frozen


@lru_cache(maxsize=64)
def halved(workers: int) -> tuple[tuple[RankArray, RankArray, RankArray], ...]:
    """Return rounds of halved ranges: first workers, first workers of the upper halves, lengths of the upper halves."""
    return tuple(_halved(workers))


def _halved(workers: int) -> Iterator[tuple[RankArray, RankArray, RankArray]]:
    ranges = [(0, workers)]
    while any(length > 1 for _, length in ranges):
        pairs = [(first, first + length // 2, length - length // 2) for first, length in ranges if length > 1]
        senders, receivers, lengths = (frozen(column) for column in np.array(pairs).T)
        yield senders, receivers, lengths
        ranges = [
            half
            for first, length in ranges
            for half in ((first, length // 2), (first + length // 2, length - length // 2))
            if half[1]
        ]


def broadcast_rounds(workers: int, nbytes: float) -> Iterator[Round]:
    """Yield the rounds of a broadcast of n bytes from worker 0."""
    for senders, receivers, _ in halved(workers):
        yield Round(senders, receivers, float(nbytes))


def _up_and_down(workers: int, nbytes: float) -> Iterable[Round]:
    down = tuple(broadcast_rounds(workers, nbytes))
    return (*backwards(down), *down)


BROADCAST = Algorithm(
    rounds=broadcast_rounds,
    messages=tree_depth,
    nbytes=lambda workers, nbytes: nbytes * tree_depth(workers),
    sent=of_part,
    directions=1,
    few_messages=True,
)

REDUCE = replace(BROADCAST, rounds=lambda workers, nbytes: backwards(tuple(broadcast_rounds(workers, nbytes))))

REDUCE_AND_BROADCAST = Algorithm(
    rounds=_up_and_down,
    messages=lambda workers: 2 * tree_depth(workers),
    nbytes=lambda workers, nbytes: nbytes * (2 * tree_depth(workers)),
    sent=of_part_twice,
    directions=1,
    few_messages=True,
)
