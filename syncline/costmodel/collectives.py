"""What a collective costs, in closed form.

Every algorithm here is a number of *rounds* in each of which a worker sends one block of bytes to one other worker and
waits for a block of its own, so with P equal workers that start together on equal, full-duplex links

    time = rounds * (alpha + block / B),

with the mean block where rounds differ. Each collective's first algorithm, which is taken if none is named:

| collective       | n: bytes                      | algorithm     | rounds       | block              |
|------------------|-------------------------------|---------------|--------------|--------------------|
| `all_reduce`     | of the tensor, on each worker | ring          | 2(P - 1)     | n / P              |
| `all_gather`     | that each worker contributes  | ring          | P - 1        | n                  |
| `reduce_scatter` | of each worker's full input   | ring          | P - 1        | n / P              |
| `all_to_all`     | that a worker holds for all   | pairwise      | P - 1        | n / P              |
| `broadcast`      | of the tensor                 | binomial tree | ceil(log2 P) | n                  |
| `gather`         | that each worker contributes  | binomial tree | ceil(log2 P) | (P - 1) n / rounds |

`syncline.costmodel.algorithms` has the table of all algorithms. Blocks of n / P bytes are exact, not rounded up. One
worker pays nothing. All arguments broadcast: P, n and the fields of the link may be arrays. The messages of a gather
double from round to round, so

    gather = ceil(log2 P) alpha + (P - 1) n / B.

This one is an upper bound if P is no power of two, for the last subtree is smaller; all others are exact for every P.

Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 19
(2005), sections 4.1 to 4.5, without the cost of the additions.
"""

from __future__ import annotations

import numpy as np

from syncline.costmodel.algorithms import TABLE, Algorithm
from syncline.costmodel.arrays import FloatOrArray, IntOrArray, require
from syncline.costmodel.link import Link
from syncline.errors import SpecError, one_of

ALGORITHMS: dict[str, tuple[str, ...]] = {kind: tuple(of) for kind, of in TABLE.items()}
"""The names of each collective's algorithms; the first is taken if none is named."""

COLLECTIVES = tuple(ALGORITHMS)
"""The names of the collectives, as the traffic ledger writes them."""


def algorithm_name(kind: str, algorithm: str | None = None) -> str:
    """The algorithm's name: of none, the collective's first.

    Raises:
        SpecError: an unknown collective, or an algorithm that it does not have.
    """
    if kind not in TABLE:
        raise SpecError("collective", kind, one_of(TABLE, str(kind)))
    if algorithm is None:
        return ALGORITHMS[kind][0]
    if algorithm not in TABLE[kind]:
        raise SpecError(f"{kind}.algorithm", algorithm, one_of(TABLE[kind], str(algorithm)))
    return algorithm


def _checked(kind: str, workers: IntOrArray, nbytes: FloatOrArray, algorithm: str | None) -> Algorithm:
    """The algorithm, for a P and an n that can be."""
    name = algorithm_name(kind, algorithm)
    require(np.greater_equal(workers, 1), "workers", workers, "at least 1")
    require(np.greater_equal(nbytes, 0), "nbytes", nbytes, "at least 0 bytes")
    return TABLE[kind][name]


def rounds_and_block(
    kind: str, workers: IntOrArray, nbytes: FloatOrArray, algorithm: str | None = None
) -> tuple[IntOrArray, FloatOrArray]:
    """How many rounds a collective has and how many bytes a worker sends in one (mean of rounds), by the tables.

    Args:
        kind: one of ``COLLECTIVES``.
        workers: P, at least 1.
        nbytes: n, at least 0, with the meaning the table gives it.
        algorithm: one of ``ALGORITHMS[kind]``, the first unless given.

    Raises:
        SpecError: an unknown collective or algorithm, no worker, or a negative size.
    """
    of = _checked(kind, workers, nbytes, algorithm)
    return of.rounds(workers), of.block(workers, nbytes)


def collective_s(
    kind: str, workers: IntOrArray, nbytes: FloatOrArray, link: Link, algorithm: str | None = None
) -> FloatOrArray:
    """Seconds that a collective takes: ``rounds * (alpha + block / B)``. Arguments as in `rounds_and_block`.

    >>> from syncline.costmodel.networks import network
    >>> f"{collective_s('all_reduce', 2, 619 * 2**20, network('wan')):.3f}"
    '5.243'
    >>> f"{collective_s('all_reduce', 8, 1000, network('wan'), 'recursive-doubling'):.3f}"
    '0.075'
    """
    rounds, block = rounds_and_block(kind, workers, nbytes, algorithm)
    return rounds * link.transfer_s(block)


def best_algorithm(kind: str, workers: int, nbytes: float, link: Link) -> str:
    """The algorithm with the least `collective_s`; of several, the first in ``ALGORITHMS[kind]``.

    >>> from syncline.costmodel.networks import network
    >>> [best_algorithm("all_reduce", 8, nbytes, network("10gbe")) for nbytes in (1e3, 1e9)]
    ['recursive-doubling', 'rabenseifner']
    """
    algorithm_name(kind)
    return min(ALGORITHMS[kind], key=lambda name: float(collective_s(kind, workers, nbytes, link, name)))


def wire_bytes(kind: str, workers: IntOrArray, nbytes: FloatOrArray, algorithm: str | None = None) -> FloatOrArray:
    """Bytes that each worker sends in a collective, the mean over workers where they differ.

    In a ring or a pairwise exchange ``rounds * block``. In a broadcast along a tree P - 1 workers receive n bytes each,
    so the mean is n (P - 1) / P (the root sends n ceil(log2 P)). In a gather the n bytes of worker i travel once for
    each binary one of i, so the mean is n times the mean number of ones in 0, ..., P - 1 (the root sends nothing).
    Arguments as in `rounds_and_block`.
    """
    of = _checked(kind, workers, nbytes, algorithm)
    return of.rounds(workers) * of.block(workers, nbytes) if of.sent is None else of.sent(workers, nbytes)


def ring_all_reduce_s(workers: IntOrArray, nbytes: FloatOrArray, link: Link) -> FloatOrArray:
    """Seconds of a ring all-reduce of n bytes: ``2 (P - 1) (alpha + n / (P B))``."""
    return collective_s("all_reduce", workers, nbytes, link)


def ring_all_gather_s(workers: IntOrArray, nbytes: FloatOrArray, link: Link) -> FloatOrArray:
    """Seconds of a ring all-gather to which each worker contributes n bytes: ``(P - 1) (alpha + n / B)``."""
    return collective_s("all_gather", workers, nbytes, link)


def ring_reduce_scatter_s(workers: IntOrArray, nbytes: FloatOrArray, link: Link) -> FloatOrArray:
    """Seconds of a ring reduce-scatter, n bytes into each worker: ``(P - 1) (alpha + n / (P B))``."""
    return collective_s("reduce_scatter", workers, nbytes, link)


def all_to_all_s(workers: IntOrArray, nbytes: FloatOrArray, link: Link) -> FloatOrArray:
    """Seconds of a pairwise all-to-all, n bytes held by each worker: ``(P - 1) (alpha + n / (P B))``."""
    return collective_s("all_to_all", workers, nbytes, link)


def broadcast_s(workers: IntOrArray, nbytes: FloatOrArray, link: Link) -> FloatOrArray:
    """Seconds of a binomial-tree broadcast of n bytes: ``ceil(log2 P) (alpha + n / B)``."""
    return collective_s("broadcast", workers, nbytes, link)


def gather_s(workers: IntOrArray, nbytes: FloatOrArray, link: Link) -> FloatOrArray:
    """Seconds of a binomial-tree gather of n bytes from each worker: ``ceil(log2 P) alpha + (P - 1) n / B``."""
    return collective_s("gather", workers, nbytes, link)
