"""The algorithms of each collective: how many rounds, how much a worker sends in one, and how much in all.

With P equal workers that start together on equal, full-duplex links, ``L = ceil(log2 P)``, Q the largest power of two
that is at most P, and ``f = 1`` if P is no power of two, else 0:

| collective       | algorithm            | rounds        | bytes in sequence              | bytes a worker sends     |
|------------------|----------------------|---------------|--------------------------------|--------------------------|
| `all_reduce`     | `ring`               | 2(P - 1)      | 2n(P - 1)/P                    | 2n(P - 1)/P              |
|                  | `recursive-doubling` | log2 Q + 2f   | n(log2 Q + 2f)                 | n(Q log2 Q + 2(P - Q))/P |
|                  | `rabenseifner`       | 2 log2 Q + 2f | 2n((Q - 1)/Q + f)              | 2n(P - 1)/P              |
|                  | `tree`               | 2L            | 2nL                            | 2n(P - 1)/P              |
| `all_gather`     | `ring`               | P - 1         | n(P - 1)                       | n(P - 1)                 |
|                  | `recursive-doubling` | L             | n(P - 1)                       | n(P - 1)                 |
| `reduce_scatter` | `ring`               | P - 1         | n(P - 1)/P                     | n(P - 1)/P               |
|                  | `halving`            | L             | n(P - 1)/P                     | n(P - 1)/P               |
| `all_to_all`     | `pairwise`           | P - 1         | n(P - 1)/P                     | n(P - 1)/P               |
| `broadcast`      | `binomial`           | L             | nL                             | n(P - 1)/P               |
|                  | `scatter-all-gather` | L + P - 1     | n(P - 1 + sum_k ceil(P/2^k))/P | n(P - 1 + H)/P           |
| `gather`         | `binomial`           | L             | n(P - 1)                       | n O/P                    |

Each takes ``rounds alpha + (bytes in sequence) / B``; the sum over k is from 1 to L, and P - 1 for a power of two. H is
the mean over workers of the messages that pass a worker's block on in the scatter, O the number of ones that 0, ...,
P - 1 have together in binary. What a worker sends is the mean over workers where they differ. `syncline.sim.rounds`
says who sends what to whom.

Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 19
(2005), without the cost of the additions. For P that is no power of two: the extra workers' values are folded into
others' first and given back last (all-reduce); J. Bruck et al., "Efficient Algorithms for All-to-All Communications
in Multiport Message-Passing Systems", IEEE TPDS 8 (1997) (all-gather, and run backwards reduce-scatter).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from syncline.costmodel.arrays import FloatOrArray, IntOrArray


@dataclass(frozen=True)
class Algorithm:
    """The cost of an algorithm.

    Args:
        rounds: how many there are, of P.
        block: bytes that the worker on the critical path sends in one, mean over rounds, of P and n.
        sent: bytes that each worker sends in all, mean over workers, of P and n; ``rounds * block`` unless given.
    """

    rounds: Callable[[IntOrArray], IntOrArray]
    block: Callable[[IntOrArray, FloatOrArray], FloatOrArray]
    sent: Callable[[IntOrArray, FloatOrArray], FloatOrArray] | None = None


def tree_depth(workers: IntOrArray) -> IntOrArray:
    """ceil(log2 P), exactly: the number of binary digits of P - 1."""
    return np.frexp(np.subtract(workers, 1))[1]


def _doublings(workers: IntOrArray) -> IntOrArray:
    """log2 Q, exactly: one less than the number of binary digits of P."""
    return np.frexp(workers)[1] - 1


def _folds(workers: IntOrArray) -> IntOrArray:
    """Rounds that fold the workers beyond Q in and give them the result: 0 for a power of two, else 2."""
    return 2 * (tree_depth(workers) - _doublings(workers))


def _power_of_two(workers: IntOrArray) -> FloatOrArray:
    """Q."""
    return np.exp2(_doublings(workers))


def _mean(sequence: FloatOrArray | IntOrArray, rounds: IntOrArray) -> FloatOrArray:
    """A round's part; of no rounds nothing."""
    return sequence / np.maximum(rounds, 1)


def _binary_ones(workers: IntOrArray) -> IntOrArray:
    """How many ones the numbers 0, ..., P - 1 have together in binary."""
    ones = np.zeros_like(workers)
    for bit in range(int(np.max(workers)).bit_length()):
        whole, rest = np.divmod(workers, 2 << bit)  # the bit is set in the upper half of a run
        ones = ones + (whole << bit) + np.maximum(rest - (1 << bit), 0)
    return ones


def _halves(workers: IntOrArray) -> tuple[IntOrArray, IntOrArray]:
    """Blocks that a scatter by halves sends one after another, and in all: ``sum_k ceil(P / 2^k)``, and P H."""
    in_sequence = in_all = np.zeros_like(workers)
    for level in range(int(np.max(tree_depth(workers)))):
        size, larger = np.divmod(workers, 2**level)  # so many ranges of size + 1, the rest of size
        of_size, of_larger = ((length + 1) // 2 * (length > 1) for length in (size, size + 1))
        in_all = in_all + (2**level - larger) * of_size + larger * of_larger
        in_sequence = in_sequence + np.where(larger > 0, of_larger, of_size)
    return in_sequence, in_all


def _rabenseifner_block(workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    doublings, folds, power = _doublings(workers), _folds(workers), _power_of_two(workers)
    return nbytes * _mean(2 * (power - 1) / power + folds, 2 * doublings + folds)


def _doubling_sent(workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    power = _power_of_two(workers)
    return nbytes * ((power * _doublings(workers) + 2 * (workers - power)) / workers)


def _scatter_all_gather_block(workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    rounds = tree_depth(workers) + workers - 1
    return nbytes / workers * _mean(_halves(workers)[0] + workers - 1, rounds)


_RING = Algorithm(lambda workers: workers - 1, lambda workers, nbytes: nbytes / workers)

TABLE: dict[str, dict[str, Algorithm]] = {
    "all_reduce": {
        "ring": Algorithm(lambda workers: 2 * (workers - 1), lambda workers, nbytes: nbytes / workers),
        "recursive-doubling": Algorithm(
            lambda workers: _doublings(workers) + _folds(workers),
            lambda workers, nbytes: nbytes,
            _doubling_sent,
        ),
        "rabenseifner": Algorithm(
            lambda workers: 2 * _doublings(workers) + _folds(workers),
            _rabenseifner_block,
            lambda workers, nbytes: nbytes * (2 * (workers - 1) / workers),
        ),
        "tree": Algorithm(
            lambda workers: 2 * tree_depth(workers),
            lambda workers, nbytes: nbytes,
            lambda workers, nbytes: nbytes * (2 * (workers - 1) / workers),
        ),
    },
    "all_gather": {
        "ring": Algorithm(lambda workers: workers - 1, lambda workers, nbytes: nbytes),
        "recursive-doubling": Algorithm(
            tree_depth, lambda workers, nbytes: nbytes * _mean(workers - 1, tree_depth(workers))
        ),
    },
    "reduce_scatter": {
        "ring": _RING,
        "halving": Algorithm(
            tree_depth, lambda workers, nbytes: nbytes / workers * _mean(workers - 1, tree_depth(workers))
        ),
    },
    "all_to_all": {"pairwise": _RING},
    "broadcast": {
        "binomial": Algorithm(
            tree_depth,
            lambda workers, nbytes: nbytes,
            lambda workers, nbytes: nbytes * ((workers - 1) / workers),
        ),
        "scatter-all-gather": Algorithm(
            lambda workers: tree_depth(workers) + workers - 1,
            _scatter_all_gather_block,
            lambda workers, nbytes: nbytes / workers * (workers - 1 + _halves(workers)[1] / workers),
        ),
    },
    "gather": {
        "binomial": Algorithm(
            tree_depth,
            lambda workers, nbytes: nbytes * ((workers - 1) / np.maximum(tree_depth(workers), 1)),
            lambda workers, nbytes: nbytes * (_binary_ones(workers) / workers),
        ),
    },
}
