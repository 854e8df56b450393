"""Traffic: what a method sends in a training of T steps, and what that costs in closed form.

A method's communication is a few *exchanges*, each a collective of so many bytes every so many steps, in all steps or
in those of one phase (a warm-up that ends, an interval that grows). Exchanges of the same collective that are due at
the same step travel as one call: their bytes add up and the latency is paid once. So the cost of T steps is a sum over
the distinct *call patterns* of a step, each times the number of steps that have it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.collectives.cost import Rule, collective_s, fastest_s
from syncline.costmodel.collectives.policies import Algorithms, algorithm_for, algorithm_of
from syncline.costmodel.network.link import Link
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray
from syncline.costmodel.traffic.call import Call, Ranks, parts_like
from syncline.errors import SpecError


@dataclass(frozen=True)
class Exchange:
    """A collective that happens after step t (from 0) when ``(t + 1 - offset) % period == 0``.

    Args:
        payload_bytes: n, as `syncline.costmodel.collectives.cost` counts it for this collective; at least 0.
        period: K, the number of steps from one to the next; at least 1. With no offset the first is after step K - 1.
        label: what is sent, for people.
        collective: one of ``COLLECTIVES``.
        offset: by how many steps the exchange is later than one without offset (periodic: offset K is offset 0).
        joins: whether it travels in one call with the others of its collective that are due; else in its own.
        start: the first step in which it may happen: a method's later phase.
        stop: the first step in which it may not happen again; None for never.
        wait_steps: steps until its result is needed; 0: before the next step. A method's own delay.
        in_backward: whether parts of it are ready during the backward pass, as a gradient's are.
        encoded_bytes: fp32 bytes that are encoded into the payload, and decoded at the end; 0 if it travels as it is.
        ready: part of the step's compute time after which it can start, see `Call`.
        needed: part of it that cannot begin without the result.
        part: the first of the parts of the workers that each do this among themselves, all at once, see `parts_like`;
            none: all together. Its calls join no others.

    Raises:
        SpecError: a field that cannot be used.
    """

    payload_bytes: float
    period: int = 1
    label: str = ""
    collective: str = "all_reduce"
    offset: int = 0
    joins: bool = True
    start: int = 0
    stop: int | None = None
    wait_steps: int = 0
    in_backward: bool = False
    encoded_bytes: float = 0.0
    ready: float = 1.0
    needed: float = 1.0
    part: range | None = None

    def __post_init__(self) -> None:
        self.call(0).check("exchange")
        if self.period != int(self.period) or self.period < 1:
            raise SpecError("exchange.period", self.period, "a whole number of steps, at least 1")
        if self.offset != int(self.offset):
            raise SpecError("exchange.offset", self.offset, "a whole number of steps")
        if self.start != int(self.start) or self.start < 0:
            raise SpecError("exchange.start", self.start, "a step, at least 0")
        if self.stop is not None and (self.stop != int(self.stop) or self.stop < self.start):
            raise SpecError("exchange.stop", self.stop, f"a step, at least start ({self.start}), or none")

    def call(self, step: int, group: Ranks | None = None) -> Call:
        """What it sends after this step, alone."""
        return Call(
            step,
            self.collective,
            self.payload_bytes,
            group,
            encoded_bytes=self.encoded_bytes,
            wait_steps=self.wait_steps,
            in_backward=self.in_backward,
            ready=self.ready,
            needed=self.needed,
            label=self.label,
        )

    def is_due(self, step: IntOrArray) -> bool | NDArray[np.bool_]:
        """Whether it happens after step ``step`` (from 0), or after each of an array of steps."""
        due = ((step + 1 - self.offset) % self.period == 0) & (step >= self.start)
        return due if self.stop is None else due & (step < self.stop)

    def times(self, steps: int) -> int:
        """How often it happens in the first T steps: ``floor((end - o) / K) - floor((begin - o) / K)``.

        ``end = min(T, stop)``, ``begin = min(start, end)``.
        """
        end = steps if self.stop is None else min(steps, self.stop)
        begin = min(self.start, end)
        return (end - self.offset) // self.period - (begin - self.offset) // self.period


class CallPattern(NamedTuple):
    """The calls that follow one step, the first of its kind, and the number of steps that they follow."""

    calls: tuple[Call, ...]
    steps: int


def joined(exchanges: Iterable[Exchange], step: int = 0, group: Ranks | None = None) -> tuple[Call, ...]:
    """The calls in which exchanges that are due at the same step travel, in the order of the first of each call.

    Of exchanges among parts those of all parts of the group, or without one those of the first: what one worker sees.
    """
    calls: dict[object, Call] = {}
    for index, exchange in enumerate(exchanges):
        if exchange.part is not None:
            parts = [exchange.part] if group is None else parts_like(exchange.part, len(group))
            calls |= {(index, number): exchange.call(step, part) for number, part in enumerate(parts)}
            continue
        together = exchange.collective, exchange.wait_steps, exchange.in_backward, exchange.ready, exchange.needed
        key = together if exchange.joins else index
        call = exchange.call(step, group)
        calls[key] = _sum(calls[key], call) if key in calls else call
    return tuple(calls.values())


def calls_at(exchanges: Sequence[Exchange], step: int, group: Ranks | None = None) -> tuple[Call, ...]:
    """The calls that follow step ``step`` (from 0), among the ranks of a group; all if none is given."""
    return joined((exchange for exchange in exchanges if exchange.is_due(step)), step, group)


def calls_of(exchanges: Sequence[Exchange], steps: int, group: Ranks | None = None) -> list[Call]:
    """The calls of a training of ``steps`` steps that sends these exchanges: what its ledger holds."""
    due = due_steps(exchanges, 0, _checked(steps))
    return [call for step in due for call in calls_at(exchanges, step, group)]


def due_steps(exchanges: Sequence[Exchange], begin: int, end: int) -> list[int]:
    """Those of the steps ``begin`` to ``end - 1`` after which anything is sent."""
    steps = np.arange(begin, end)
    due = np.zeros(len(steps), dtype=bool)
    for exchange in exchanges:
        due |= exchange.is_due(steps)
    return list(steps[due].tolist())


def calls_by_step(exchanges: Sequence[Exchange], steps: int) -> list[CallPattern]:
    """The distinct call patterns of ``steps`` steps and how many steps have each; the numbers of steps add up to it.

    A step without calls has the empty pattern. Between two steps where an exchange starts or stops, patterns repeat
    after the least common multiple of the periods, so no more than one such cycle is looked at in each phase.

    Args:
        exchanges: what is sent.
        steps: T, at least 0.

    >>> [(len(p.calls), p.steps) for p in calls_by_step([Exchange(4.0, period=32)], 100)]
    [(0, 97), (1, 3)]
    """
    found: dict[tuple[bool, ...], tuple[int, int]] = {}
    for begin, end in _phases(exchanges, _checked(steps)):
        for due, step, count in _patterns_between(exchanges, begin, end):
            first, before = found.get(due, (step, 0))
            found[due] = first, before + count
    return [
        CallPattern(joined((exchange for exchange, on in zip(exchanges, due, strict=True) if on), step), count)
        for due, (step, count) in sorted(found.items())
    ]


def _phases(exchanges: Sequence[Exchange], steps: int) -> list[tuple[int, int]]:
    """The runs of steps in which no exchange starts or stops."""
    bounds = {bound for e in exchanges for bound in (e.start, e.stop) if bound is not None}
    edges = sorted({0, steps} | {bound for bound in bounds if bound < steps})
    return list(itertools.pairwise(edges))


def phase_cycles(exchanges: Sequence[Exchange], steps: int) -> list[tuple[int, int, int]]:
    """The runs of steps in which no exchange starts or stops, and after how many steps the calls repeat in each."""
    return [(begin, end, _cycle(exchanges, begin, end)) for begin, end in _phases(exchanges, _checked(steps))]


def _cycle(exchanges: Sequence[Exchange], begin: int, end: int) -> int:
    going = (e.period for e in exchanges if e.start <= begin and (e.stop is None or end <= e.stop))
    return min(math.lcm(*going), end - begin)


def _patterns_between(exchanges: Sequence[Exchange], begin: int, end: int) -> list[tuple[tuple[bool, ...], int, int]]:
    """Which exchanges are due together, when first, and how often, in steps ``begin`` to ``end - 1`` of one phase."""
    timings = tuple((one.period, one.offset, one.start, one.stop) for one in exchanges)
    return _patterns_of(timings, begin, end, _cycle(exchanges, begin, end))


@lru_cache(maxsize=1024)
def _patterns_of(
    timings: tuple[tuple[int, int, int, int | None], ...], begin: int, end: int, cycle: int
) -> list[tuple[tuple[bool, ...], int, int]]:
    """The same of what decides it alone: periods, offsets, starts and stops."""
    step = np.arange(begin, begin + cycle)
    times = -((step - end) // cycle)  # ceil((end - t) / cycle): how often this step of the cycle comes round
    columns = {timing: _due(step, *timing) for timing in timings}
    due = np.zeros((cycle, len(timings)), dtype=bool)
    for column, timing in enumerate(timings):
        due[:, column] = columns[timing]
    code: NDArray[Any] = np.zeros(cycle, dtype=np.int64)  # equal where the pattern is equal
    for due_now in columns.values():
        code = np.unique(2 * code + due_now, return_inverse=True)[1]
    first = np.unique(code, return_index=True)[1]
    # Whole numbers of steps, that a float of bincount's would round beyond 2^53.
    counts = np.zeros(len(first), dtype=np.int64)
    np.add.at(counts, code, times)
    return [
        (tuple(due[row].tolist()), begin + row, int(count)) for row, count in zip(first.tolist(), counts, strict=True)
    ]


def _due(step: IntOrArray, period: int, offset: int, start: int, stop: int | None) -> NDArray[np.bool_]:
    due = ((step + 1 - offset) % period == 0) & (step >= start)
    return np.asarray(due if stop is None else due & (step < stop))


def communication_s(
    exchanges: Sequence[Exchange], steps: int, workers: IntOrArray, link: Link, algorithm: Algorithms = None
) -> FloatOrArray:
    """Seconds that ``steps`` steps communicate: the sum over call patterns of steps x calls' `collective_s`.

    Args:
        exchanges: what is sent.
        steps: T, at least 0.
        workers: P; broadcasts with the fields of the link.
        link: each worker's link.
        algorithm: see `call_s`.
    """
    total: FloatOrArray = 0.0
    for pattern in calls_by_step(exchanges, steps):
        for call in pattern.calls:
            total = total + pattern.steps * call_s(call.collective, workers, call.payload_bytes, link, algorithm)
    return total


def call_s(
    kind: str,
    workers: IntOrArray,
    nbytes: FloatOrArray,
    link: Link,
    algorithm: Algorithms = None,
    rule: Rule = "eager",
) -> FloatOrArray:
    """`collective_s` by an algorithm, or by the choice of a policy.

    Args:
        kind: one of ``COLLECTIVES``.
        workers: P.
        nbytes: n.
        link: each worker's link.
        algorithm: see `algorithm_for`; ``nccl`` needs a P and a link that are no arrays, ``auto`` only a P.
        rule: when a message starts; ``auto`` chooses as if eager.
    """
    if (
        rule == "eager"
        and np.ndim(getattr(link, "bandwidth_bytes_per_s", 0.0))
        and algorithm_of(algorithm, kind) == "auto"
    ):
        return fastest_s(kind, int(workers), nbytes, link)
    return collective_s(kind, workers, nbytes, link, algorithm_for(algorithm, kind, workers, nbytes, link), rule=rule)


def bytes_per_step(exchanges: Sequence[Exchange], steps: int) -> float:
    """Mean payload bytes per worker and step over ``steps`` steps: ``sum n * times / T``; 0 without steps."""
    return sum(exchange.payload_bytes * exchange.times(_checked(steps)) for exchange in exchanges) / max(steps, 1)


def mean_bytes_per_step(exchanges: Iterable[Exchange]) -> float:
    """Mean payload bytes per worker and step in the long run: ``sum n / K`` over the exchanges that never stop.

    >>> mean_bytes_per_step([Exchange(4.0), Exchange(64.0, period=32)])
    6.0
    """
    return sum((e.payload_bytes / e.period for e in exchanges if e.stop is None), start=0.0)


def communication_factor(periods: Iterable[FloatOrArray]) -> FloatOrArray:
    """By how much the bytes shrink against one such exchange every step, in the long run: ``1 / sum_i 1 / K_i``.

    Args:
        periods: K_i, one per exchanged state, all of the same size (``math.inf``: never).

    Source: MT-DAO, section 4 ("Baselines"): three states every 32 steps give 32 / 3.

    >>> f"{communication_factor([32, 32, 32]):.2f}"
    '10.67'
    """
    return 1 / sum((1 / period for period in periods), start=0.0)


def _sum(call: Call, other: Call) -> Call:
    labels = dict.fromkeys(label for label in (*call.label.split("+"), other.label) if label)
    return call._replace(
        payload_bytes=call.payload_bytes + other.payload_bytes,
        label="+".join(labels),
        encoded_bytes=call.encoded_bytes + other.encoded_bytes,
    )


def _checked(steps: int) -> int:
    if steps < 0:
        raise SpecError("steps", steps, "at least 0")
    return steps
