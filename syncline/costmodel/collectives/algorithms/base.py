"""What an algorithm is: its messages, round by round, and what they cost; and what several of them count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray
from syncline.costmodel.numerics.bounded_cache import frozen
from syncline.errors import SpecError

RankArray: TypeAlias = NDArray[np.integer[Any]]
"""Numbers of workers in their group."""


class NoClosedForm(SpecError):
    """An algorithm of which no formula is known on this network; lockstep or events tell what it takes."""


class Round(NamedTuple):
    """Messages: ``senders[i]`` to ``receivers[i]``. No worker sends twice or receives twice in a round.

    Attributes:
        senders: ``(M,)`` workers.
        receivers: ``(M,)`` workers.
        nbytes: of each message, one size or ``(M,)`` sizes.
    """

    senders: RankArray
    receivers: RankArray
    nbytes: float | NDArray[np.float64]


class RoundTable(Sequence[Round]):
    """Many rounds of few messages, as arrays: who asks for a round has it made.

    Args:
        first: ``(R + 1,)`` where the messages of each round begin, and where the last end.
        senders: ``(M,)`` workers.
        receivers: ``(M,)`` workers.
        nbytes: of each message of a round, ``(R,)``.
    """

    def __init__(self, first: RankArray, senders: RankArray, receivers: RankArray, nbytes: NDArray[np.float64]) -> None:
        self.first, self.senders, self.receivers, self.nbytes = map(frozen, (first, senders, receivers, nbytes))

    @cached_property
    def _rounds(self) -> tuple[Round, ...]:
        ends = self.first.tolist()
        return tuple(
            Round(self.senders[begin:end], self.receivers[begin:end], nbytes)
            for begin, end, nbytes in zip(ends[:-1], ends[1:], self.nbytes.tolist(), strict=True)
        )

    def __len__(self) -> int:
        return len(self.nbytes)

    def __getitem__(self, at: Any) -> Any:
        return self._rounds[at]

    def __iter__(self) -> Iterator[Round]:
        return iter(self._rounds)


@dataclass(frozen=True)
class Algorithm:
    """An algorithm: its rounds, and its cost as functions of P and n.

    Args:
        rounds: who sends what to whom, for one P and n.
        messages: how many are sent one after another on the longest way.
        nbytes: of these messages, in all.
        sent: bytes that each worker sends, mean over workers; ``nbytes`` unless given.
        latencies: how many of the messages wait for the arrival of the one before, if messages are eager; all unless
            given.
        directions: transfers that a worker's link carries at once in each round, 1 or 2; None if rounds differ in it.
        folds: whether that holds for powers of two only.
        few_messages: whether there are at most four per worker in all; else each may send one in each round.
    """

    rounds: Callable[[int, float], Iterable[Round]]
    messages: Callable[[IntOrArray], IntOrArray]
    nbytes: Callable[[IntOrArray, FloatOrArray], FloatOrArray]
    sent: Callable[[IntOrArray, FloatOrArray], FloatOrArray] | None = None
    latencies: Callable[[IntOrArray], IntOrArray] | None = None
    directions: int | None = 2
    folds: bool = False
    few_messages: bool = False


def tree_depth(workers: IntOrArray) -> IntOrArray:
    """L = ceil(log2 P), exactly: the number of binary digits of P - 1."""
    return np.frexp(np.subtract(workers, 1))[1].astype(np.int64)


def doublings(workers: IntOrArray) -> IntOrArray:
    """l = log2 Q, exactly: one less than the number of binary digits of P."""
    return np.frexp(workers)[1].astype(np.int64) - 1  # int32 would overflow in a product with bytes


def folds(workers: IntOrArray) -> IntOrArray:
    """2 f: rounds that fold the workers beyond Q in and give them the result: 0 for a power of two, else 2."""
    return 2 * (tree_depth(workers) - doublings(workers))


def largest_power(workers: int) -> int:
    """Q of one P."""
    return 1 << (workers.bit_length() - 1)


def of_part(workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    """n (P - 1)/P: all parts but one's own."""
    return nbytes * ((workers - 1) / workers)


def of_part_twice(workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    """2 n (P - 1)/P."""
    return nbytes * (2 * (workers - 1) / workers)


def of_others(workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    """n (P - 1): everything of all others."""
    return nbytes * (workers - 1)


def backwards(of: Iterable[Round]) -> Iterator[Round]:
    """The same messages the other way, last round first."""
    for senders, receivers, nbytes in tuple(of)[::-1]:
        yield Round(receivers, senders, nbytes)


def doubling_rounds(power: int, nbytes: float, growth: int) -> Iterator[Round]:
    """Exchanges at distances 1, 2, 4, ... among a power of two of workers; what is sent grows from round to round."""
    worker = np.arange(power)
    for k in range(power.bit_length() - 1):
        yield Round(worker, worker ^ 2**k, float(nbytes * growth**k))


def folded_rounds(workers: int, nbytes: float, among_power: Iterable[Round], back: RankArray) -> Iterator[Round]:
    """A round before, Q + i to i, and one after, ``back[i]`` to Q + i: the workers beyond a power of two take part."""
    beyond = np.arange(len(back), workers)
    if len(beyond):
        yield Round(beyond, beyond - len(back), float(nbytes))
    yield from among_power
    if len(beyond):
        yield Round(back[: len(beyond)], beyond, float(nbytes))
