"""The algorithms of each collective: their messages and their costs in closed form.

``base`` defines an algorithm and has the functions that several algorithms use. To add an algorithm, write its rounds
and a line in ``FLAT`` below; every test of closed form, lockstep and events then runs on it.

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
|                  | `pat`                | L                   | n(P - 1)              | n(P - 1)                 |
| `reduce_scatter` | `ring`               | P - 1               | n(P - 1)/P            | n(P - 1)/P               |
|                  | `halving`            | L                   | n(P - 1)/P            | n(P - 1)/P               |
|                  | `pat`                | L                   | n(P - 1)/P            | n(P - 1)/P               |
|                  | `all-reduce`         | 2(P - 1)            | 2n(P - 1)/P           | 2n(P - 1)/P              |
| `all_to_all`     | `pairwise`           | P - 1               | n(P - 1)/P            | n(P - 1)/P               |
| `broadcast`      | `binomial`           | L                   | nL                    | n(P - 1)/P               |
|                  | `scatter-all-gather` | L + P - 1           | n(c + P - 1)/P        | n(P - 1 + H)/P           |
| `gather`         | `binomial`           | L, *                | n(P - 1)              | n O/P                    |
| `send`           | `message`            | 1                   | n                     | n/P                      |

A message waits for the arrival of the message before it, so a collective takes ``messages (alpha + o) + (bytes in
sequence) / R``, except for those with a star if messages are eager: a worker's messages follow each other without
waiting for arrivals, and the number of latencies is ``2(l + 1)`` for the double tree (2 for two workers), 2 for the
naive server, and l for the gather (the root receives its last, smaller subtree right after another one). ``e = 1`` if
P + 1 is a power of two, else 0. H is the mean over workers of the messages that forward a worker's block in the
scatter, O the number of ones that 0, ..., P - 1 have together in binary. If workers send different numbers of bytes,
the table has the mean. Each file describes the senders, receivers and sizes of its messages.

gloo's reduce-scatter is `all-reduce`, of which workers keep a part.

On half-duplex links a transfer has the full bandwidth if workers only send or only receive in a round (trees, gather,
naive server), and half of it if all workers do both. The other algorithms raise `NoClosedForm`: with a fold, or if
rounds of the two types follow each other, workers that are early disturb the others.

Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 19
(2005), without the cost of the additions. For P that is no power of two: the extra workers' values are folded into
others' first and given back last (all-reduce); J. Bruck et al., "Efficient Algorithms for All-to-All Communications
in Multiport Message-Passing Systems", IEEE TPDS 8 (1997) (all-gather, and run backwards reduce-scatter). Two trees:
P. Sanders, J. Speck, J. L. Traff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel
Computing 35 (2009). Servers: Lion Cub, section 3.
"""

from __future__ import annotations

from syncline.costmodel.collectives.algorithms.base import (
    Algorithm,
    NoClosedForm,
    RankArray,
    Round,
    RoundTable,
    tree_depth,
)
from syncline.costmodel.collectives.algorithms.exchanges import (
    DOUBLING_ALL_GATHER,
    EFFICIENT_SERVER,
    HALVING,
    MESSAGE,
    NAIVE_SERVER,
    PAIRWISE,
    RABENSEIFNER,
    RECURSIVE_DOUBLING,
    REDUCE_SCATTER_GATHER,
    RING,
    RING_ALL_GATHER,
    RING_REDUCE_SCATTER,
    SCATTER_ALL_GATHER,
)
from syncline.costmodel.collectives.algorithms.trees import (
    BROADCAST,
    DOUBLE_BINARY_TREE,
    GATHER,
    PAT_ALL_GATHER,
    PAT_REDUCE_SCATTER,
    REDUCE,
    REDUCE_AND_BROADCAST,
)

__all__ = ["FLAT", "Algorithm", "NoClosedForm", "RankArray", "Round", "RoundTable", "tree_depth"]

FLAT: dict[str, dict[str, Algorithm]] = {
    "all_reduce": {
        "ring": RING,
        "recursive-doubling": RECURSIVE_DOUBLING,
        "rabenseifner": RABENSEIFNER,
        "tree": REDUCE_AND_BROADCAST,
        "double-binary-tree": DOUBLE_BINARY_TREE,
        "server-naive": NAIVE_SERVER,
        "server-efficient": EFFICIENT_SERVER,
    },
    "all_gather": {"ring": RING_ALL_GATHER, "recursive-doubling": DOUBLING_ALL_GATHER, "pat": PAT_ALL_GATHER},
    "reduce_scatter": {"ring": RING_REDUCE_SCATTER, "halving": HALVING, "pat": PAT_REDUCE_SCATTER, "all-reduce": RING},
    "all_to_all": {"pairwise": PAIRWISE},
    "broadcast": {"binomial": BROADCAST, "scatter-all-gather": SCATTER_ALL_GATHER},
    "gather": {"binomial": GATHER},
    "reduce": {"binomial": REDUCE, "reduce-scatter-gather": REDUCE_SCATTER_GATHER},
    "send": {"message": MESSAGE},
}
"""The algorithms of each collective on workers with equal links, by name; the first is the default."""
