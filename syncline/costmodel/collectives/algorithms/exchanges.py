"""Exchanges: rings, pairwise exchange, a message, recursive doubling, Rabenseifner, scatter and all-gather, servers.

Q is the largest power of two that is at most P, and ``i ^ d`` is i with the binary digit d flipped.

- **Rings**: worker i sends to i + 1 in each round, and each block travels around.
- **Recursive doubling**: i exchanges with i ^ 1, then i ^ 2, i ^ 4, ... In an all-reduce, workers exchange all n bytes
  each time. If P is above Q, workers Q + i send all n bytes to workers i in a first round, and receive the result in a
  last round from Q - 1 - i, which their part reaches in the last exchange. In an all-gather, workers exchange all the
  blocks that they hold if P is a power of two; otherwise, in round k, i sends to i - 2^k the min(2^k, P - 2^k) blocks
  that begin with the block of i. Halving, a reduce-scatter, is the all-gather in reverse.
- **Rabenseifner's** all-reduce: recursive halving, then recursive doubling. Worker i exchanges with i ^ Q/2, then
  i ^ Q/4, ...; each time it sends half of the bytes that it still has to reduce. Then it makes the same exchanges in
  reverse order, with twice the bytes each time. If P is above Q, workers Q + i send all n bytes to workers i in a first
  round, and receive the result from them in a last round.
- **Scatter and all-gather**, a broadcast from worker 0: the worker that holds the blocks of a range of workers sends
  those of the upper half to the first worker of this half, until each worker has a single block. The upper half is the
  larger half if they differ. An all-gather around a ring follows.
- **Servers**: an all-reduce by worker 0. Naive: each worker in turn sends to worker 0, then worker 0 sends to each
  worker. Efficient: workers send a scatter's messages in reverse, each with the n bytes of every worker of the sender's
  range; then they scatter n bytes and gather them by recursive doubling. Source: Lion Cub, section 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from syncline.costmodel.collectives.algorithms.base import (
    Algorithm,
    Round,
    RoundTable,
    doubling_rounds,
    doublings,
    folded_rounds,
    folding_rounds,
    largest_power,
    other_parts_bytes,
    other_parts_bytes_twice,
    other_workers_bytes,
    reversed_rounds,
    tree_depth,
)
from syncline.costmodel.collectives.algorithms.trees import range_halvings
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray


def ring_rounds(workers: int, nbytes: float, laps: int = 1) -> Iterable[Round]:
    """Return ``laps`` times the rounds of a ring: each worker i sends n bytes to i + 1 modulo P."""
    worker = np.arange(workers)
    return (Round(worker, (worker + 1) % workers, float(nbytes)),) * (laps * (workers - 1))


RING = Algorithm(
    rounds=lambda workers, nbytes: ring_rounds(workers, nbytes / workers, laps=2),
    messages=lambda workers: 2 * (workers - 1),
    nbytes=other_parts_bytes_twice,
    repeats_rounds=True,
)
"""The ring of an all-reduce: a reduce-scatter, then an all-gather."""

RING_ALL_GATHER = Algorithm(
    rounds=ring_rounds, messages=lambda workers: workers - 1, nbytes=other_workers_bytes, repeats_rounds=True
)

RING_REDUCE_SCATTER = Algorithm(
    rounds=lambda workers, nbytes: ring_rounds(workers, nbytes / workers),
    messages=lambda workers: workers - 1,
    nbytes=other_parts_bytes,
    repeats_rounds=True,
)


def pairwise_rounds(workers: int, nbytes: float) -> Iterator[Round]:
    """Yield P - 1 rounds; in round k = 1, ... worker i sends n/P bytes to worker i + k modulo P."""
    worker = np.arange(workers)
    for distance in range(1, workers):
        yield Round(worker, (worker + distance) % workers, nbytes / workers)


PAIRWISE = Algorithm(rounds=pairwise_rounds, messages=lambda workers: workers - 1, nbytes=other_parts_bytes)


def _message_rounds(workers: int, nbytes: float) -> Iterator[Round]:
    """Yield the message of n bytes from the first worker of a group to the last; the others neither send nor wait."""
    if workers > 1:
        yield Round(np.array([0]), np.array([workers - 1]), float(nbytes))


def _message_count(workers: IntOrArray) -> IntOrArray:
    """Return the number of messages of a send: 1, or 0 if there is a single worker."""
    return np.minimum(np.subtract(workers, 1), 1)


MESSAGE = Algorithm(
    rounds=_message_rounds,
    messages=_message_count,
    nbytes=lambda workers, nbytes: nbytes * _message_count(workers),
    sent=lambda workers, nbytes: nbytes * (_message_count(workers) / workers),
    directions=1,
    few_messages=True,
)


def _doubling_rounds(workers: int, nbytes: float) -> Iterator[Round]:
    """Return the rounds of an all-reduce of n bytes by recursive doubling."""
    power = largest_power(workers)
    exchanges = doubling_rounds(power, nbytes, growth=1)
    # If worker i waits for worker Q + i, the delay reaches worker Q - 1 - i last; that worker returns the result.
    return folded_rounds(workers, nbytes, among_power=exchanges, result_senders=np.arange(power)[::-1])


def _doubling_sent_bytes(workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    """Return the mean bytes that a worker sends in an all-reduce by recursive doubling: ``n (Q l + 2 (P - Q)) / P``.

    Here Q = 2^l is the largest power of two that is at most P.
    """
    power = np.exp2(doublings(workers))
    return nbytes * ((power * doublings(workers) + 2 * (workers - power)) / workers)


def all_gather_rounds(workers: int, nbytes: float) -> Iterator[Round]:
    """Yield the rounds of an all-gather of n bytes from each worker; each round doubles the blocks that a worker has.

    Workers exchange their blocks in pairs if P is a power of two; otherwise worker i sends to i - 1, i - 2, i - 4, ...
    """
    if workers == largest_power(workers):
        yield from doubling_rounds(workers, nbytes, growth=2)
        return
    worker = np.arange(workers)
    for step in range(workers.bit_length()):
        blocks = min(2**step, workers - 2**step)  # the last round sends only the blocks that are still missing
        yield Round(worker, (worker - 2**step) % workers, float(blocks * nbytes))


RECURSIVE_DOUBLING = Algorithm(
    rounds=_doubling_rounds,
    messages=lambda workers: doublings(workers) + folding_rounds(workers),
    nbytes=lambda workers, nbytes: nbytes * (doublings(workers) + folding_rounds(workers)),
    sent=_doubling_sent_bytes,
    only_powers_of_two=True,
)

DOUBLING_ALL_GATHER = Algorithm(rounds=all_gather_rounds, messages=tree_depth, nbytes=other_workers_bytes)

HALVING = Algorithm(
    rounds=lambda workers, nbytes: reversed_rounds(all_gather_rounds(workers, nbytes / workers)),
    messages=tree_depth,
    nbytes=other_parts_bytes,
)


def _rabenseifner_rounds(workers: int, nbytes: float) -> Iterator[Round]:
    """Return the rounds of Rabenseifner's all-reduce of n bytes."""
    power = largest_power(workers)
    gathering = tuple(doubling_rounds(power, nbytes / power, growth=2))  # backwards, these rounds are a reduce-scatter
    return folded_rounds(workers, nbytes, among_power=(*gathering[::-1], *gathering), result_senders=np.arange(power))


def _rabenseifner_bytes(workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    """Return the bytes on the longest path of Rabenseifner's all-reduce: ``2 n (Q - 1) / Q``, and 2 n more if P > Q.

    Q is the largest power of two that is at most P.
    """
    power = np.exp2(doublings(workers))
    return nbytes * (2 * (power - 1) / power + folding_rounds(workers))


RABENSEIFNER = Algorithm(
    rounds=_rabenseifner_rounds,
    messages=lambda workers: 2 * doublings(workers) + folding_rounds(workers),
    nbytes=_rabenseifner_bytes,
    sent=other_parts_bytes_twice,
    only_powers_of_two=True,
)


class ScatterBlocks(NamedTuple):
    """Numbers of blocks that a scatter sends along a binomial tree; each of P workers gets a block.

    Attributes:
        in_sequence: blocks of the messages on the longest path, ``sum of ceil(P / 2^k) for k = 1 ... ceil(log2 P)``.
        total: blocks of all messages.
    """

    in_sequence: IntOrArray
    total: IntOrArray


def scatter_blocks(workers: IntOrArray) -> ScatterBlocks:
    """Return the number of blocks that a scatter among P workers sends, on the longest path and in all."""
    in_sequence = total = np.zeros_like(workers)
    for level in range(int(np.max(tree_depth(workers)))):
        size, num_larger = np.divmod(workers, 2**level)  # of the 2^level ranges, num_larger have size + 1 workers
        # A range of several workers sends the blocks of its upper half, which is the larger.
        blocks = (size + 1) // 2 * (size > 1)
        blocks_of_larger = (size + 2) // 2 * (size > 0)
        total = total + (2**level - num_larger) * blocks + num_larger * blocks_of_larger
        in_sequence = in_sequence + np.where(num_larger > 0, blocks_of_larger, blocks)
    return ScatterBlocks(in_sequence, total)


def scatter_gather_bytes(workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    """Return the bytes of the messages on the longest path of a scatter and an all-gather of n bytes."""
    return nbytes / workers * (scatter_blocks(workers).in_sequence + workers - 1)


def scatter_gather_sent_bytes(workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    """Return the mean bytes that a worker sends in a scatter and an all-gather of n bytes."""
    return nbytes / workers * (workers - 1 + scatter_blocks(workers).total / workers)


def scatter_rounds(workers: int, nbytes: float) -> Iterator[Round]:
    """Yield the rounds of a scatter of n bytes to each worker from worker 0."""
    for senders, receivers, lengths in range_halvings(workers):
        yield Round(senders, receivers, lengths * np.float64(nbytes))


SCATTER_ALL_GATHER = Algorithm(
    rounds=lambda workers, nbytes: (
        *scatter_rounds(workers, nbytes / workers),
        *ring_rounds(workers, nbytes / workers),
    ),
    messages=lambda workers: tree_depth(workers) + workers - 1,
    nbytes=scatter_gather_bytes,
    sent=scatter_gather_sent_bytes,
    directions=None,
    repeats_rounds=True,
)

REDUCE_SCATTER_GATHER = replace(
    SCATTER_ALL_GATHER,
    rounds=lambda workers, nbytes: reversed_rounds(SCATTER_ALL_GATHER.rounds(workers, nbytes)),
    repeats_rounds=False,  # each reversed round is an object of its own
)
"""A reduce: the broadcast backwards, a reduce-scatter and a gather to worker 0."""


def _naive_rounds(workers: int, nbytes: float) -> Iterable[Round]:
    """Return the rounds of an all-reduce by a parameter server; each round is a single message."""
    if workers == 1:
        return ()
    clients = np.arange(1, workers)
    server = np.zeros_like(clients)
    senders, receivers = np.concatenate([clients, server]), np.concatenate([server, clients])
    num_rounds = len(senders)
    return RoundTable(np.arange(num_rounds + 1), senders, receivers, nbytes=np.full(num_rounds, float(nbytes)))


def _efficient_rounds(workers: int, nbytes: float) -> Iterable[Round]:
    """Return the rounds of an all-reduce of n bytes by a parameter server that receives and sends along a tree.

    The server gathers n bytes from each worker, sums them, and broadcasts the sum by a scatter and an all-gather.
    """
    block_bytes = nbytes / workers
    gathering = reversed_rounds(scatter_rounds(workers, nbytes))
    return (*gathering, *scatter_rounds(workers, block_bytes), *all_gather_rounds(workers, block_bytes))


NAIVE_SERVER = Algorithm(
    rounds=_naive_rounds,
    messages=lambda workers: 2 * (workers - 1),
    nbytes=lambda workers, nbytes: 2 * other_workers_bytes(workers, nbytes),
    sent=other_parts_bytes_twice,
    latencies=lambda workers: 2 * np.minimum(np.subtract(workers, 1), 1),
    directions=1,
    few_messages=True,
)

EFFICIENT_SERVER = Algorithm(
    rounds=_efficient_rounds,
    messages=lambda workers: 3 * tree_depth(workers),
    nbytes=lambda workers, nbytes: nbytes * scatter_blocks(workers).in_sequence + scatter_gather_bytes(workers, nbytes),
    sent=lambda workers, nbytes: (
        nbytes * (scatter_blocks(workers).total / workers) + scatter_gather_sent_bytes(workers, nbytes)
    ),
    directions=None,
)
