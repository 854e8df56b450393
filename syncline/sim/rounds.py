"""Who sends what to whom in a collective: its rounds, told once for every evaluator.

One rule says when: **a worker sends its message of a round as soon as everything it was to receive in earlier rounds
has arrived and its link is free**. Nobody waits for a receiver to be ready. So in a homogeneous group that starts
together a ring or a pairwise exchange takes the textbook's ``rounds * (alpha + block / B)``, and so does a broadcast
among a power of two of workers. A root does not wait out the latency between its messages, so with other numbers of
workers a broadcast can be over sooner than the textbook says. So can a gather,
whose last subtree is then smaller, and done while the root still receives from another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.collectives import rounds_and_block
from syncline.sim.uplinks import Floats


class Round(NamedTuple):
    """Messages of one size: ``senders[i]`` to ``receivers[i]``. No worker sends twice or receives twice in a round."""

    senders: NDArray[np.integer[Any]]
    receivers: NDArray[np.integer[Any]]
    nbytes: float


@lru_cache(maxsize=256)
def rounds(kind: str, workers: int, nbytes: float) -> tuple[Round, ...]:
    """The rounds of a collective.

    Ring (all-reduce, all-gather, reduce-scatter): i to i + 1 in each round. Pairwise (all-to-all): i to i + 1 + k in
    round k. Workers count modulo P. Binomial tree (broadcast from worker 0): i to i + 2^k for i < 2^k. The same tree
    upwards (gather to worker 0): in step k, i to i - 2^k for i = 2^k modulo 2^(k+1), with the min(2^k, P - i) blocks
    that i holds by then. At most one worker of a step, the last, holds fewer than 2^k; its message is a round of its
    own.

    Args:
        kind: one of `syncline.costmodel.collectives.COLLECTIVES`.
        workers: P.
        nbytes: n, with the meaning the closed form gives it.

    Raises:
        SpecError: an unknown collective, no worker, or a negative size.

    Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH" (2005).
    """
    number, block = rounds_and_block(kind, workers, nbytes)
    worker = np.arange(workers)
    match kind:
        case "all_to_all":
            return tuple(Round(worker, (worker + 1 + k) % workers, float(block)) for k in range(int(number)))
        case "broadcast":
            reached = [worker[: min(2**k, workers - 2**k)] for k in range(int(number))]
            return tuple(Round(senders, senders + 2**k, float(block)) for k, senders in enumerate(reached))
        case "gather":
            return tuple(_gathering(workers, int(number), nbytes))
        case _:
            return (Round(worker, (worker + 1) % workers, float(block)),) * int(number)


def _gathering(workers: int, steps: int, nbytes: float) -> Iterator[Round]:
    for k in range(steps):
        senders = np.arange(2**k, workers, 2 ** (k + 1))
        held = np.minimum(2**k, workers - senders)
        for blocks in np.unique(held)[::-1]:
            of_size = senders[held == blocks]
            yield Round(of_size, of_size - 2**k, float(blocks * nbytes))


def sent_bytes(of: tuple[Round, ...], workers: int) -> Floats:
    """Bytes that each worker sends in these rounds, ``(P,)``."""
    total = np.zeros(workers)
    for senders, _, nbytes in of:
        total[senders] += nbytes
    return total
