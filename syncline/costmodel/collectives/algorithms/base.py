"""The definition of an algorithm by its rounds of messages and their costs, and functions for several algorithms."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray, frozen
from syncline.errors import SpecError

RankArray: TypeAlias = NDArray[np.integer[Any]]
"""Ranks of workers in their group."""


class NoClosedForm(SpecError):
    """The error of an algorithm without a formula on this network; lockstep or events can simulate its time."""


class Round(NamedTuple):
    """A round of messages from ``senders[i]`` to ``receivers[i]``. No worker sends twice or receives twice in a round.

    Attributes:
        senders: ``(M,)`` workers.
        receivers: ``(M,)`` workers.
        nbytes: bytes of each message, the same for all or ``(M,)``.
    """

    senders: RankArray
    receivers: RankArray
    nbytes: float | NDArray[np.float64]


class RoundTable(Sequence[Round]):
    """Many rounds of few messages, stored as arrays; the `Round` objects are built at the first access.

    Args:
        first: ``(R + 1,)`` index of the first message of each of R rounds; the last entry is M, the number of messages.
        senders: ``(M,)`` workers.
        receivers: ``(M,)`` workers.
        nbytes: bytes of each message of a round, ``(R,)``.
    """

    def __init__(self, first: RankArray, senders: RankArray, receivers: RankArray, nbytes: NDArray[np.float64]) -> None:
        self.first, self.senders, self.receivers, self.nbytes = map(frozen, (first, senders, receivers, nbytes))

    @cached_property
    def _rounds(self) -> tuple[Round, ...]:
        return tuple(
            Round(self.senders[begin:end], self.receivers[begin:end], nbytes)
            for (begin, end), nbytes in zip(itertools.pairwise(self.first.tolist()), self.nbytes.tolist(), strict=True)
        )

    def __len__(self) -> int:
        return len(self.nbytes)

    def __getitem__(self, index: Any) -> Any:
        return self._rounds[index]

    def __iter__(self) -> Iterator[Round]:
        return iter(self._rounds)


@dataclass(frozen=True)
class Algorithm:
    """An algorithm with its rounds, and its cost as functions of P and n.

    Args:
        rounds: function that returns the rounds of messages for a single P and n.
        messages: number of messages, one after another, on the longest path.
        nbytes: total bytes of these messages.
        sent: bytes that each worker sends, mean over workers; None: as many as ``nbytes``.
        latencies: number of these messages that wait for the arrival of the one before, under the eager rule
            (`syncline.costmodel.collectives.cost.Rule`); None: all of them.
        directions: transfers that a worker's half-duplex link carries at once, 1 or 2; None if rounds differ.
        only_powers_of_two: whether ``directions`` holds for powers of two only.
        few_messages: whether workers send at most four messages each, on average; else each may send in every round.
        repeats_rounds: whether all but a few rounds are the same object as the round before, as in a ring.
    """

    rounds: Callable[[int, float], Iterable[Round]]
    messages: Callable[[IntOrArray], IntOrArray]
    nbytes: Callable[[IntOrArray, FloatOrArray], FloatOrArray]
    sent: Callable[[IntOrArray, FloatOrArray], FloatOrArray] | None = None
    latencies: Callable[[IntOrArray], IntOrArray] | None = None
    directions: int | None = 2
    only_powers_of_two: bool = False
    few_messages: bool = False
    repeats_rounds: bool = False


def tree_depth(workers: IntOrArray) -> IntOrArray:
    """Return L = ceil(log2 P), the depth of a binomial tree of P workers, exactly: the binary digits of P - 1."""
    return np.frexp(np.subtract(workers, 1))[1].astype(np.int64)


def doublings(workers: IntOrArray) -> IntOrArray:
    """Return l = floor(log2 P), exactly: one less than the number of binary digits of P."""
    return np.frexp(workers)[1].astype(np.int64) - 1  # int32 would overflow in a product with bytes


def folding_rounds(workers: IntOrArray) -> IntOrArray:
    """Return the number of rounds that workers beyond a power of two add: 2, one in and one out; 0 without them."""
    return 2 * (tree_depth(workers) - doublings(workers))


def largest_power(workers: int) -> int:
    """Return Q, the largest power of two that is at most P."""
    return 1 << (workers.bit_length() - 1)


def other_parts_bytes(workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    """Return n (P - 1)/P, the bytes of all but one of P equal parts of n bytes."""
    return nbytes * ((workers - 1) / workers)


def other_parts_bytes_twice(workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    """Return 2 n (P - 1)/P, twice the bytes of all but one of P equal parts of n bytes."""
    return nbytes * (2 * (workers - 1) / workers)


def other_workers_bytes(workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    """Return n (P - 1), the bytes that all other workers contribute, n each."""
    return nbytes * (workers - 1)


def reversed_rounds(rounds: Iterable[Round]) -> Iterator[Round]:
    """Yield the rounds of a collective in reverse order, with senders and receivers exchanged."""
    for senders, receivers, nbytes in tuple(rounds)[::-1]:
        yield Round(receivers, senders, nbytes)


def doubling_rounds(power: int, nbytes: float, growth: int) -> Iterator[Round]:
    """Yield exchanges at distances 1, 2, 4, ... among ``power`` workers, a power of two.

    A message of the first round has ``nbytes``, one of each later round ``growth`` times the bytes of the round before.
    """
    worker = np.arange(power)
    for step in range(power.bit_length() - 1):
        partner = worker ^ 2**step
        yield Round(worker, partner, float(nbytes * growth**step))


def folded_rounds(
    workers: int, nbytes: float, among_power: Iterable[Round], result_senders: RankArray
) -> Iterator[Round]:
    """Yield the rounds of an all-reduce among the first Q of P workers, and a round before and after for the others.

    In the first round worker Q + i sends n bytes to worker i; in the last it receives n from ``result_senders[i]``.

    Args:
        workers: P.
        nbytes: n.
        among_power: rounds among Q workers, a power of two.
        result_senders: ranks of the Q workers, in the order in which they send to the others.
    """
    power = len(result_senders)
    extra_workers = np.arange(power, workers)
    if len(extra_workers):
        yield Round(extra_workers, extra_workers - power, float(nbytes))
    yield from among_power
    if len(extra_workers):
        yield Round(result_senders[: len(extra_workers)], extra_workers, float(nbytes))
