"""What a collective costs, in closed form.

Every algorithm here is a number of *rounds* in each of which a worker sends one block of bytes to one other worker and
waits for a block of its own, so with P equal workers that start together on equal, full-duplex links

    time = rounds * (alpha + block / B).

| collective       | n: bytes                      | algorithm     | rounds       | block              |
|------------------|-------------------------------|---------------|--------------|--------------------|
| `all_reduce`     | of the tensor, on each worker | ring          | 2(P - 1)     | n / P              |
| `all_gather`     | that each worker contributes  | ring          | P - 1        | n                  |
| `reduce_scatter` | of each worker's full input   | ring          | P - 1        | n / P              |
| `all_to_all`     | that a worker holds for all   | pairwise      | P - 1        | n / P              |
| `broadcast`      | of the tensor                 | binomial tree | ceil(log2 P) | n                  |
| `gather`         | that each worker contributes  | binomial tree | ceil(log2 P) | (P - 1) n / rounds |

Blocks of n / P bytes are exact, not rounded up. One worker pays nothing. All arguments broadcast: P, n and the fields
of the link may be arrays. The messages of a gather double from round to round, so its block is the mean over rounds:

    gather = ceil(log2 P) alpha + (P - 1) n / B.

Both trees are exact for powers of two and an upper bound for other numbers of workers, whose last subtree is smaller.

Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 19
(2005), sections 4.1 to 4.5, without the cost of the additions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from syncline.costmodel.arrays import FloatOrArray, IntOrArray, require
from syncline.costmodel.link import Link
from syncline.errors import SpecError, one_of


def _tree_depth(workers: IntOrArray) -> IntOrArray:
    """ceil(log2 P), exactly: the number of binary digits of P - 1."""
    return np.frexp(np.subtract(workers, 1))[1]


def _binary_ones(workers: IntOrArray) -> IntOrArray:
    """How many ones the numbers 0, ..., P - 1 have together in binary."""
    ones = np.zeros_like(workers)
    for bit in range(int(np.max(workers)).bit_length()):
        whole, rest = np.divmod(workers, 2 << bit)  # the bit is set in the upper half of a run
        ones = ones + (whole << bit) + np.maximum(rest - (1 << bit), 0)
    return ones


_ROUNDS: dict[str, Callable[[IntOrArray], IntOrArray]] = {
    "all_reduce": lambda workers: 2 * (workers - 1),
    "all_gather": lambda workers: workers - 1,
    "reduce_scatter": lambda workers: workers - 1,
    "all_to_all": lambda workers: workers - 1,
    "broadcast": _tree_depth,
    "gather": _tree_depth,
}
_BLOCKS: dict[str, Callable[[IntOrArray, FloatOrArray], FloatOrArray]] = {
    "all_reduce": lambda workers, nbytes: nbytes / workers,
    "all_gather": lambda workers, nbytes: nbytes,
    "reduce_scatter": lambda workers, nbytes: nbytes / workers,
    "all_to_all": lambda workers, nbytes: nbytes / workers,
    "broadcast": lambda workers, nbytes: nbytes,
    "gather": lambda workers, nbytes: nbytes * ((workers - 1) / np.maximum(_tree_depth(workers), 1)),
}

COLLECTIVES = tuple(_ROUNDS)
"""The names of the collectives, as the traffic ledger writes them."""


def rounds_and_block(kind: str, workers: IntOrArray, nbytes: FloatOrArray) -> tuple[IntOrArray, FloatOrArray]:
    """How many rounds a collective has and how many bytes a worker sends in one (mean of rounds), by the table above.

    Args:
        kind: one of ``COLLECTIVES``.
        workers: P, at least 1.
        nbytes: n, at least 0, with the meaning the table gives it.

    Raises:
        SpecError: an unknown collective, no worker, or a negative size.
    """
    if kind not in _ROUNDS:
        raise SpecError("collective", kind, one_of(_ROUNDS, str(kind)))
    require(np.greater_equal(workers, 1), "workers", workers, "at least 1")
    require(np.greater_equal(nbytes, 0), "nbytes", nbytes, "at least 0 bytes")
    return _ROUNDS[kind](workers), _BLOCKS[kind](workers, nbytes)


def collective_s(kind: str, workers: IntOrArray, nbytes: FloatOrArray, link: Link) -> FloatOrArray:
    """Seconds that a collective takes: ``rounds * (alpha + block / B)``. Arguments as in `rounds_and_block`.

    >>> from syncline.costmodel.networks import network
    >>> f"{collective_s('all_reduce', 2, 619 * 2**20, network('wan')):.3f}"
    '5.243'
    """
    rounds, block = rounds_and_block(kind, workers, nbytes)
    return rounds * link.transfer_s(block)


def wire_bytes(kind: str, workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    """Bytes that each worker sends in a collective: ``rounds * block``, for a tree the mean over workers.

    In a broadcast P - 1 workers receive n bytes each, so the mean is n (P - 1) / P (the root sends n ceil(log2 P)). In
    a gather the n bytes of worker i travel once for each binary one of i, so the mean is n times the mean number of
    ones in 0, ..., P - 1 (the root sends nothing). Arguments as in `rounds_and_block`.
    """
    rounds, block = rounds_and_block(kind, workers, nbytes)
    if kind == "broadcast":
        return nbytes * ((workers - 1) / workers)
    if kind == "gather":
        return nbytes * (_binary_ones(workers) / workers)
    return rounds * block


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
