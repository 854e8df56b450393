"""Who sends what to whom in a collective: its rounds, told once for every evaluator.

One rule says when: **a worker sends its message of a round as soon as everything it was to receive in earlier rounds
has arrived and its link is free**. Nobody waits for a receiver to be ready. So a homogeneous group that starts together
takes the closed form's ``rounds * (alpha + block / B)``, with every algorithm and number of workers but one: a gather
among workers that are no power of two can be over sooner, for its last subtree is smaller, and done while the root
still receives from another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.collectives import algorithm_name, rounds_and_block
from syncline.sim.uplinks import Floats

Workers = NDArray[np.integer[Any]]


class Round(NamedTuple):
    """Messages: ``senders[i]`` to ``receivers[i]``. No worker sends twice or receives twice in a round.

    Attributes:
        senders: ``(M,)`` workers.
        receivers: ``(M,)`` workers.
        nbytes: of each message, one size or ``(M,)`` sizes.
    """

    senders: Workers
    receivers: Workers
    nbytes: float | Floats


@lru_cache(maxsize=256)
def rounds(kind: str, workers: int, nbytes: float, algorithm: str | None = None) -> tuple[Round, ...]:
    """The rounds of a collective.

    Workers count modulo P. Q is the largest power of two that is at most P; ``i ^ d`` is i with the binary digit d
    flipped.

    - Ring (all-reduce, all-gather, reduce-scatter): i to i + 1 in each round.
    - Recursive doubling (all-reduce): i with i ^ 1, then i ^ 2, i ^ 4, ..., all n bytes each time.
    - Rabenseifner (all-reduce): i with i ^ Q/2, then i ^ Q/4, ..., half of what is left to reduce each time; then the
      same backwards, twice as much each time. In these two, if P is no power of two, workers Q + i send all they have
      to workers i in a first round, and get the result in a last one: from i again in Rabenseifner's; in recursive
      doubling from Q - 1 - i, whom their part reaches in the last exchange.
    - Recursive doubling (all-gather): i with i ^ 1, then i ^ 2, ..., all it holds, if P is a power of two. Else i to
      i - 2^k in round k, the min(2^k, P - 2^k) blocks from its own on. Halving (reduce-scatter): the same backwards.
    - Pairwise (all-to-all): i to i + 1 + k in round k.
    - Binomial tree (broadcast from worker 0): i to i + 2^k for all i < 2^k in round k; in the last round the last of
      those who know tell the others. Tree (all-reduce): up the same tree to worker 0, then down.
    - Scatter, then all-gather (broadcast from worker 0): who has the blocks of a range of workers sends those of the
      upper half, the larger if they differ, to its first worker, until each has one block; then a ring.
    - Binomial tree (gather to worker 0): in step k, i to i - 2^k for i = 2^k modulo 2^(k+1), with the min(2^k, P - i)
      blocks that i holds by then. At most one worker of a step, the last, holds fewer than 2^k; its message is a round
      of its own.

    Args:
        kind: one of `syncline.costmodel.collectives.COLLECTIVES`.
        workers: P.
        nbytes: n, with the meaning the closed form gives it.
        algorithm: one of ``ALGORITHMS[kind]`` there, the first unless given.

    Raises:
        SpecError: an unknown collective or algorithm, no worker, or a negative size.

    Source: as `syncline.costmodel.algorithms`.
    """
    name = algorithm_name(kind, algorithm)
    rounds_and_block(kind, workers, nbytes, name)  # refuses what cannot be
    return tuple(_ROUNDS[kind][name](workers, nbytes))


def _power_of_two(workers: int) -> int:
    return 1 << (workers.bit_length() - 1)


def _backwards(of: Iterable[Round]) -> Iterator[Round]:
    for senders, receivers, nbytes in tuple(of)[::-1]:
        yield Round(receivers, senders, nbytes)


def _ring(workers: int, nbytes: float, laps: int = 1) -> Iterable[Round]:
    worker = np.arange(workers)
    return (Round(worker, (worker + 1) % workers, float(nbytes)),) * (laps * (workers - 1))


def _pairwise(workers: int, nbytes: float) -> Iterator[Round]:
    worker = np.arange(workers)
    for k in range(workers - 1):
        yield Round(worker, (worker + 1 + k) % workers, nbytes / workers)


def _doubling(power: int, nbytes: float, growth: int) -> Iterator[Round]:
    """Exchanges at distances 1, 2, 4, ... among a power of two of workers; what is sent grows from round to round."""
    worker = np.arange(power)
    for k in range(power.bit_length() - 1):
        yield Round(worker, worker ^ 2**k, float(nbytes * growth**k))


def _folded(workers: int, nbytes: float, among_power: Iterable[Round], back: Workers) -> Iterator[Round]:
    """A round before, Q + i to i, and one after, ``back[i]`` to Q + i: the workers beyond a power of two take part."""
    beyond = np.arange(len(back), workers)
    if len(beyond):
        yield Round(beyond, beyond - len(back), float(nbytes))
    yield from among_power
    if len(beyond):
        yield Round(back[: len(beyond)], beyond, float(nbytes))


def _recursive_doubling(workers: int, nbytes: float) -> Iterator[Round]:
    power = _power_of_two(workers)
    mirror = np.arange(power)[::-1]  # every exchange is on the way from worker i to it
    return _folded(workers, nbytes, _doubling(power, nbytes, growth=1), mirror)


def _rabenseifner(workers: int, nbytes: float) -> Iterator[Round]:
    power = _power_of_two(workers)
    gathering = tuple(_doubling(power, nbytes / power, growth=2))
    return _folded(workers, nbytes, (*gathering[::-1], *gathering), np.arange(power))


def _tree(workers: int, nbytes: float) -> Iterable[Round]:
    down = tuple(_broadcast(workers, nbytes))
    return (*_backwards(down), *down)


def _gathering_all(workers: int, nbytes: float) -> Iterator[Round]:
    if workers == _power_of_two(workers):
        yield from _doubling(workers, nbytes, growth=2)
        return
    worker = np.arange(workers)
    for k in range(workers.bit_length()):
        yield Round(worker, (worker - 2**k) % workers, float(min(2**k, workers - 2**k) * nbytes))


def _broadcast(workers: int, nbytes: float) -> Iterator[Round]:
    """The workers who were told last tell on in the last round, for theirs is the path that latency makes longest."""
    told = 1
    while told < workers:
        receivers = np.arange(told, min(2 * told, workers))
        yield Round(receivers - len(receivers), receivers, float(nbytes))
        told += len(receivers)


def _scatter(workers: int, nbytes: float) -> Iterator[Round]:
    """Ranges of workers, halved until they have length 1."""
    ranges = [(0, workers)]
    while any(length > 1 for _, length in ranges):
        halved = [(first, first + length // 2, length - length // 2) for first, length in ranges if length > 1]
        senders, receivers, blocks = np.array(halved).T
        yield Round(senders, receivers, blocks * nbytes)
        ranges = [
            part
            for first, length in ranges
            for part in ((first, length // 2), (first + length // 2, length - length // 2))
            if part[1]
        ]


def _scatter_all_gather(workers: int, nbytes: float) -> Iterable[Round]:
    return (*_scatter(workers, nbytes / workers), *_ring(workers, nbytes / workers))


def _gather(workers: int, nbytes: float) -> Iterator[Round]:
    for k in range((workers - 1).bit_length()):
        senders = np.arange(2**k, workers, 2 ** (k + 1))
        held = np.minimum(2**k, workers - senders)
        for blocks in np.unique(held)[::-1]:
            of_size = senders[held == blocks]
            yield Round(of_size, of_size - 2**k, float(blocks * nbytes))


_ROUNDS: dict[str, dict[str, Callable[[int, float], Iterable[Round]]]] = {
    "all_reduce": {
        "ring": lambda workers, nbytes: _ring(workers, nbytes / workers, laps=2),
        "recursive-doubling": _recursive_doubling,
        "rabenseifner": _rabenseifner,
        "tree": _tree,
    },
    "all_gather": {"ring": _ring, "recursive-doubling": _gathering_all},
    "reduce_scatter": {
        "ring": lambda workers, nbytes: _ring(workers, nbytes / workers),
        "halving": lambda workers, nbytes: _backwards(_gathering_all(workers, nbytes / workers)),
    },
    "all_to_all": {"pairwise": _pairwise},
    "broadcast": {"binomial": _broadcast, "scatter-all-gather": _scatter_all_gather},
    "gather": {"binomial": _gather},
}


def sent_bytes(of: tuple[Round, ...], workers: int) -> Floats:
    """Bytes that each worker sends in these rounds, ``(P,)``."""
    total = np.zeros(workers)
    for senders, _, nbytes in of:
        total[senders] += nbytes
    return total
