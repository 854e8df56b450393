"""Binomial trees: a broadcast from worker 0, a reduce up the same tree to worker 0, and an all-reduce up, then down.

The worker that serves a range of workers sends to the first worker of the upper half, which is the larger half if they
differ, until every worker has received the message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from syncline.costmodel.collectives.algorithms.base import (
    Algorithm,
    RankArray,
    Round,
    other_parts_bytes,
    other_parts_bytes_twice,
    reversed_rounds,
    tree_depth,
)
from syncline.costmodel.numerics.bounded_cache import frozen


class Halving(NamedTuple):
    """A round in which ranges of workers are cut in two halves, the upper one the larger if they differ."""

    senders: RankArray  # first worker of each range
    receivers: RankArray  # first worker of each upper half
    lengths: RankArray  # number of workers in each upper half


@lru_cache(maxsize=64)
def range_halvings(workers: int) -> tuple[Halving, ...]:
    """Return the rounds in which the range of P workers is halved until each range has one worker."""
    halvings, ranges = [], [(0, workers)]
    while any(length > 1 for _, length in ranges):
        cuts = [(first, first + length // 2, length - length // 2) for first, length in ranges if length > 1]
        halvings.append(Halving(*(frozen(column) for column in np.array(cuts).T)))
        lower = [(first, length // 2) for first, length in ranges]
        upper = [(first + length // 2, length - length // 2) for first, length in ranges]
        halves = [half for pair in zip(lower, upper, strict=True) for half in pair]
        ranges = [(first, length) for first, length in halves if length]
    return tuple(halvings)


def broadcast_rounds(workers: int, nbytes: float) -> Iterator[Round]:
    """Yield the rounds of a broadcast of n bytes from worker 0."""
    for senders, receivers, _ in range_halvings(workers):
        yield Round(senders, receivers, float(nbytes))


def _reduce_and_broadcast_rounds(workers: int, nbytes: float) -> Iterable[Round]:
    down = tuple(broadcast_rounds(workers, nbytes))
    return (*reversed_rounds(down), *down)


BROADCAST = Algorithm(
    rounds=broadcast_rounds,
    messages=tree_depth,
    nbytes=lambda workers, nbytes: nbytes * tree_depth(workers),
    sent=other_parts_bytes,
    directions=1,
    few_messages=True,
)

REDUCE = replace(BROADCAST, rounds=lambda workers, nbytes: reversed_rounds(tuple(broadcast_rounds(workers, nbytes))))

REDUCE_AND_BROADCAST = Algorithm(
    rounds=_reduce_and_broadcast_rounds,
    messages=lambda workers: 2 * tree_depth(workers),
    nbytes=lambda workers, nbytes: nbytes * (2 * tree_depth(workers)),
    sent=other_parts_bytes_twice,
    directions=1,
    few_messages=True,
)
