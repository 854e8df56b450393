"""The algorithms of each collective: what is on the longest way through one, and how much a worker sends in all.

With P equal workers that start together on equal, full-duplex links, ``L = ceil(log2 P)``, ``l = floor(log2 P)``, Q the
largest power of two that is at most P, ``f = 1`` if P is no power of two, else 0, and ``c = sum_k ceil(P / 2^k)`` over
k = 1, ..., L, which is P - 1 for a power of two:

| collective       | algorithm            | messages            | bytes in sequence     | bytes a worker sends     |
|------------------|----------------------|---------------------|-----------------------|--------------------------|
| `all_reduce`     | `ring`               | 2(P - 1)            | 2n(P - 1)/P           | 2n(P - 1)/P              |
|                  | `recursive-doubling` | l + 2f              | n(l + 2f)             | n(Q l + 2(P - Q))/P      |
|                  | `rabenseifner`       | 2l + 2f             | 2n((Q - 1)/Q + f)     | 2n(P - 1)/P              |
|                  | `tree`               | 2L                  | 2nL                   | 2n(P - 1)/P              |
|                  | `double-binary-tree` | 2(2l - 1 + e), *    | n(2l - 1 + e)         | 2n(P - 1)/P              |
|                  | `server-naive`       | 2(P - 1), *         | 2n(P - 1)             | 2n(P - 1)/P              |
|                  | `server-efficient`   | 3L                  | n(c + (c + P - 1)/P)  | n(H + (P - 1 + H)/P)     |
| `all_gather`     | `ring`               | P - 1               | n(P - 1)              | n(P - 1)                 |
|                  | `recursive-doubling` | L                   | n(P - 1)              | n(P - 1)                 |
| `reduce_scatter` | `ring`               | P - 1               | n(P - 1)/P            | n(P - 1)/P               |
|                  | `halving`            | L                   | n(P - 1)/P            | n(P - 1)/P               |
|                  | `all-reduce`         | 2(P - 1)            | 2n(P - 1)/P           | 2n(P - 1)/P              |
| `all_to_all`     | `pairwise`           | P - 1               | n(P - 1)/P            | n(P - 1)/P               |
| `broadcast`      | `binomial`           | L                   | nL                    | n(P - 1)/P               |
|                  | `scatter-all-gather` | L + P - 1           | n(c + P - 1)/P        | n(P - 1 + H)/P           |
| `gather`         | `binomial`           | L, *                | n(P - 1)              | n O/P                    |

A message waits for the arrival of the one before it, so each takes ``messages (alpha + o) + (bytes in sequence) / R``,
but for those with a star if messages are eager: one worker's messages follow each other without waiting for arrivals,
and only so many latencies are on the way: ``2(l + 1)`` of the double tree (2 for two workers), 2 of the naive server, l
of the gather (where the root receives its last, smaller subtree right after another one). ``e = 1`` if P + 1 is a power
of two, else 0. H is the mean over workers of the messages that pass a worker's block on in the scatter, O the number of
ones that 0, ..., P - 1 have together in binary. What a worker sends is the mean over workers where they differ.
`syncline.sim.collectives.rounds` says who sends what to whom.

The double binary tree sends half of the data up and down each of two trees, not in chunks: all of a half has arrived
before it is sent on. The efficient server gathers everybody's n bytes along the scatter's tree, then broadcasts n bytes
by a scatter and an all-gather. `all-reduce` (reduce-scatter) is what gloo does: all get the whole sum, and each keeps
its part.

On half-duplex links a transfer has the link to itself where workers only send or only receive in a round (trees,
gather, naive server), and half of it where all do both. Which has no such form is refused: with a fold, or with a part
of one kind after one of the other, who is early disturbs the others.

Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 19
(2005), without the cost of the additions. For P that is no power of two: the extra workers' values are folded into
others' first and given back last (all-reduce); J. Bruck et al., "Efficient Algorithms for All-to-All Communications
in Multiport Message-Passing Systems", IEEE TPDS 8 (1997) (all-gather, and run backwards reduce-scatter). Two trees:
P. Sanders, J. Speck, J. L. Traff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel
Computing 35 (2009). Servers: Lion Cub, section 3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from syncline.costmodel.arrays import FloatOrArray, IntOrArray
from syncline.errors import SpecError


class NoClosedForm(SpecError):
    """An algorithm of which no formula is known on this network; lockstep or events tell what it takes."""


@dataclass(frozen=True)
class Algorithm:
    """The cost of an algorithm, as functions of P and n.

    Args:
        messages: how many are sent one after another on the longest way.
        nbytes: of these messages, in all.
        sent: bytes that each worker sends, mean over workers; ``nbytes`` unless given.
        latencies: how many of the messages wait for the arrival of the one before, if messages are eager; all unless
            given.
        directions: transfers that a worker's link carries at once in each round, 1 or 2; None if rounds differ in it.
        folds: whether that holds for powers of two only.
    """

    messages: Callable[[IntOrArray], IntOrArray]
    nbytes: Callable[[IntOrArray, FloatOrArray], FloatOrArray]
    sent: Callable[[IntOrArray, FloatOrArray], FloatOrArray] | None = None
    latencies: Callable[[IntOrArray], IntOrArray] | None = None
    directions: int | None = 2
    folds: bool = False


def tree_depth(workers: IntOrArray) -> IntOrArray:
    """ceil(log2 P), exactly: the number of binary digits of P - 1."""
    return np.frexp(np.subtract(workers, 1))[1].astype(np.int64)


def _doublings(workers: IntOrArray) -> IntOrArray:
    """log2 Q, exactly: one less than the number of binary digits of P."""
    return np.frexp(workers)[1].astype(np.int64) - 1  # int32 would overflow in a product with bytes


def _folds(workers: IntOrArray) -> IntOrArray:
    """Rounds that fold the workers beyond Q in and give them the result: 0 for a power of two, else 2."""
    return 2 * (tree_depth(workers) - _doublings(workers))


def _power_of_two(workers: IntOrArray) -> FloatOrArray:
    """Q."""
    return np.exp2(_doublings(workers))


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


def _rabenseifner_bytes(workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    power = _power_of_two(workers)
    return nbytes * (2 * (power - 1) / power + _folds(workers))


def _doubling_sent(workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    power = _power_of_two(workers)
    return nbytes * ((power * _doublings(workers) + 2 * (workers - power)) / workers)


def _levels(workers: IntOrArray) -> IntOrArray:
    """Messages one after another up two trees of all workers: 2 l - 1 + e, of one worker none."""
    full = tree_depth(np.add(workers, 1)) == _doublings(np.add(workers, 1))
    return np.where(np.greater(workers, 1), 2 * _doublings(workers) - 1 + full, 0)[()]


def _tree_latencies(workers: IntOrArray) -> IntOrArray:
    """Latencies up and down two trees of all workers: 2 (l + 1), for two workers 2, for one none."""
    steps = _doublings(workers) + np.greater(workers, 2)
    return 2 * steps


def _twice_less_one_part(workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    return nbytes * (2 * (workers - 1) / workers)


def _scattered(workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    """Bytes in sequence of a scatter and an all-gather of n bytes."""
    return nbytes / workers * (_halves(workers)[0] + workers - 1)


def _scattered_sent(workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    return nbytes / workers * (workers - 1 + _halves(workers)[1] / workers)


def _of_part(workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    return nbytes * ((workers - 1) / workers)


def _of_others(workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    return nbytes * (workers - 1)


_RING = Algorithm(lambda workers: workers - 1, _of_part)
_RINGS = Algorithm(lambda workers: 2 * (workers - 1), _twice_less_one_part)

FLAT: dict[str, dict[str, Algorithm]] = {
    "all_reduce": {
        "ring": _RINGS,
        "recursive-doubling": Algorithm(
            lambda workers: _doublings(workers) + _folds(workers),
            lambda workers, nbytes: nbytes * (_doublings(workers) + _folds(workers)),
            _doubling_sent,
            folds=True,
        ),
        "rabenseifner": Algorithm(
            lambda workers: 2 * _doublings(workers) + _folds(workers),
            _rabenseifner_bytes,
            _twice_less_one_part,
            folds=True,
        ),
        "tree": Algorithm(
            lambda workers: 2 * tree_depth(workers),
            lambda workers, nbytes: nbytes * (2 * tree_depth(workers)),
            _twice_less_one_part,
            directions=1,
        ),
        "double-binary-tree": Algorithm(
            lambda workers: 2 * _levels(workers),
            lambda workers, nbytes: nbytes * _levels(workers),
            _twice_less_one_part,
            latencies=_tree_latencies,
            directions=None,
        ),
        "server-naive": Algorithm(
            lambda workers: 2 * (workers - 1),
            lambda workers, nbytes: 2 * _of_others(workers, nbytes),
            _twice_less_one_part,
            latencies=lambda workers: 2 * np.minimum(np.subtract(workers, 1), 1),
            directions=1,
        ),
        "server-efficient": Algorithm(
            lambda workers: 3 * tree_depth(workers),
            lambda workers, nbytes: nbytes * _halves(workers)[0] + _scattered(workers, nbytes),
            lambda workers, nbytes: nbytes * (_halves(workers)[1] / workers) + _scattered_sent(workers, nbytes),
            directions=None,
        ),
    },
    "all_gather": {
        "ring": Algorithm(lambda workers: workers - 1, _of_others),
        "recursive-doubling": Algorithm(tree_depth, _of_others),
    },
    "reduce_scatter": {"ring": _RING, "halving": Algorithm(tree_depth, _of_part), "all-reduce": _RINGS},
    "all_to_all": {"pairwise": _RING},
    "broadcast": {
        "binomial": Algorithm(tree_depth, lambda workers, nbytes: nbytes * tree_depth(workers), _of_part, directions=1),
        "scatter-all-gather": Algorithm(
            lambda workers: tree_depth(workers) + workers - 1, _scattered, _scattered_sent, directions=None
        ),
    },
    "gather": {
        "binomial": Algorithm(
            tree_depth,
            _of_others,
            lambda workers, nbytes: nbytes * (_binary_ones(workers) / workers),
            latencies=_doublings,
            directions=1,
        ),
    },
}
