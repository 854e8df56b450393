"""The collectives of a method in a training of T steps, and their cost in closed form.

A method communicates by a few *exchanges*. An exchange is a collective of a number of bytes with a period in steps; it
runs in all steps or in one phase (a warm-up that ends, an interval that grows). Exchanges of the same collective that
are due at the same step share one call: their bytes add up and the call pays the latency once. The cost of T steps is a
sum over the distinct *call patterns* of a step, each times the number of steps with that pattern.

Steps at which 0/1 Adam's public code refreshes its second moment: multiples of an interval that doubles.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.collectives.cost import Rule, collective_s, fastest_s
from syncline.costmodel.collectives.policies import Algorithms, algorithm_for, algorithm_of
from syncline.costmodel.network.link import Link
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray
from syncline.costmodel.traffic.call import Call, Ranks, Spans, groups_like
from syncline.errors import SpecError


@dataclass(frozen=True)
class Exchange:
    """A periodic collective, which runs after step t (from 0) when ``(t + 1 - offset) % period == 0``.

    Args:
        payload_bytes: n, as `syncline.costmodel.collectives.cost` counts it for this collective; at least 0.
        period: K, steps between two runs; at least 1. Without an offset the first run is after step K - 1.
        label: name of the payload, for display.
        collective: one of ``COLLECTIVES``.
        offset: delay of all runs in steps against an exchange without offset (periodic: offset K is offset 0).
        joins: whether the exchange shares one call with the other due exchanges of its collective.
        start: first step of the phase in which the exchange runs.
        stop: first step after that phase; None if the phase has no end.
        wait_steps: steps until the result is needed, by the method's own delay; 0 means before the next step.
        in_backward: whether parts of the payload are ready during the backward pass, as parts of a gradient are.
        encoded_bytes: fp32 bytes that are encoded into the payload and decoded at the end; 0 without an encoding.
        ready: fraction of the step's compute time after which the call can start, see `Call`.
        needed: fraction of the step's compute time at which the worker waits for the result.
        part: first of the groups of workers that run the collective at the same time, each group by itself, see
            `parts_like`; None means one group of all workers. Calls of groups are not joined with others.
        spans: parts of the gradient that the payload covers if it is sent ``in_backward``, see `Call`.

    Raises:
        SpecError: an invalid field.
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
    spans: Spans = ()

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
        """Return the call of this exchange alone after step ``step``, among the ranks of ``group``."""
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
            spans=self.spans,
        )

    def is_due(self, step: IntOrArray) -> bool | NDArray[np.bool_]:
        """Return whether the exchange runs after step ``step`` (from 0), elementwise for an array of steps."""
        due = ((step + 1 - self.offset) % self.period == 0) & (step >= self.start)
        return due if self.stop is None else due & (step < self.stop)

    def num_runs(self, steps: int) -> int:
        """Return the number of runs in the first T steps: ``floor((end - o) / K) - floor((begin - o) / K)``.

        Here ``end = min(T, stop)`` and ``begin = min(start, end)``.
        """
        end = steps if self.stop is None else min(steps, self.stop)
        begin = min(self.start, end)
        return (end - self.offset) // self.period - (begin - self.offset) // self.period


class CallPattern(NamedTuple):
    """The calls after the first step with a pattern, and the number of steps with that pattern."""

    calls: tuple[Call, ...]
    steps: int


def join_exchanges(exchanges: Iterable[Exchange], step: int = 0, group: Ranks | None = None) -> tuple[Call, ...]:
    """Join the exchanges that are due at one step into calls, in the order of each call's first exchange.

    An exchange with parts gives the calls of all parts of ``group``; without a group, it gives the call of the first
    part, which is the call that one worker makes.
    """
    calls: dict[object, Call] = {}
    for index, exchange in enumerate(exchanges):
        if exchange.part is not None:
            parts = [exchange.part] if group is None else groups_like(exchange.part, len(group))
            calls |= {(index, number): exchange.call(step, part) for number, part in enumerate(parts)}
            continue
        times = exchange.wait_steps, exchange.in_backward, exchange.ready, exchange.needed
        join_key = exchange.collective, times, exchange.spans
        key = join_key if exchange.joins else index
        call = exchange.call(step, group)
        calls[key] = _sum(calls[key], call) if key in calls else call
    return tuple(calls.values())


def calls_at(exchanges: Sequence[Exchange], step: int, group: Ranks | None = None) -> tuple[Call, ...]:
    """Return the calls after step ``step`` (from 0) among the ranks of a group; None means all workers."""
    return join_exchanges((exchange for exchange in exchanges if exchange.is_due(step)), step, group)


def calls_of(exchanges: Sequence[Exchange], steps: int, group: Ranks | None = None) -> list[Call]:
    """Return all calls of a training of ``steps`` steps with these exchanges, as its ledger records them."""
    due = due_steps(exchanges, 0, _checked(steps))
    return [call for step in due for call in calls_at(exchanges, step, group)]


def due_steps(exchanges: Sequence[Exchange], begin: int, end: int) -> list[int]:
    """Return the steps from ``begin`` to ``end - 1`` after which at least one exchange is due."""
    steps = np.arange(begin, end)
    due = np.zeros(len(steps), dtype=bool)
    for exchange in exchanges:
        due |= exchange.is_due(steps)
    return list(steps[due].tolist())


def calls_by_step(exchanges: Sequence[Exchange], steps: int) -> list[CallPattern]:
    """Return the distinct call patterns of T steps, each with its number of steps; these numbers add up to T.

    A step without calls has the empty pattern. Between two steps where an exchange starts or stops, patterns repeat
    after the least common multiple of the periods, so the function looks at one such cycle in each phase.

    Args:
        exchanges: exchanges of the method.
        steps: T, at least 0.

    >>> [(len(p.calls), p.steps) for p in calls_by_step([Exchange(4.0, period=32)], 100)]
    [(0, 97), (1, 3)]
    """
    patterns: dict[tuple[bool, ...], tuple[int, int]] = {}
    for begin, end in _phases(exchanges, _checked(steps)):
        for due, step, count in _patterns_between(exchanges, begin, end):
            first, before = patterns.get(due, (step, 0))
            patterns[due] = first, before + count
    return [
        CallPattern(
            join_exchanges((exchange for exchange, is_due in zip(exchanges, due, strict=True) if is_due), step), count
        )
        for due, (step, count) in sorted(patterns.items())
    ]


def _phases(exchanges: Sequence[Exchange], steps: int) -> list[tuple[int, int]]:
    """Return the phases, runs of steps in which no exchange starts or stops, as (begin, end)."""
    bounds = {bound for e in exchanges for bound in (e.start, e.stop) if bound is not None}
    edges = sorted({0, steps} | {bound for bound in bounds if bound < steps})
    return list(itertools.pairwise(edges))


def phase_cycles(exchanges: Sequence[Exchange], steps: int) -> list[tuple[int, int, int]]:
    """Return the phases as (begin, end, steps after which the calls of the phase repeat).

    A phase is a run of steps in which no exchange starts or stops.
    """
    return [(begin, end, _cycle(exchanges, begin, end)) for begin, end in _phases(exchanges, _checked(steps))]


def _cycle(exchanges: Sequence[Exchange], begin: int, end: int) -> int:
    active_periods = (e.period for e in exchanges if e.start <= begin and (e.stop is None or end <= e.stop))
    return min(math.lcm(*active_periods), end - begin)


def _patterns_between(exchanges: Sequence[Exchange], begin: int, end: int) -> list[tuple[tuple[bool, ...], int, int]]:
    """Return the patterns of due exchanges in steps ``begin`` to ``end - 1`` of one phase.

    Each entry is (mask over exchanges, first step, number of steps).
    """
    timings = tuple((exchange.period, exchange.offset, exchange.start, exchange.stop) for exchange in exchanges)
    return _patterns_of(timings, begin, end, _cycle(exchanges, begin, end))


@lru_cache(maxsize=1024)
def _patterns_of(
    timings: tuple[tuple[int, int, int, int | None], ...], begin: int, end: int, cycle: int
) -> list[tuple[tuple[bool, ...], int, int]]:
    """Return the same patterns from the (period, offset, start, stop) of each exchange, which alone decide them."""
    step = np.arange(begin, begin + cycle)
    times = -((step - end) // cycle)  # ceil((end - t) / cycle): times that the step of the cycle recurs
    columns = {timing: _due(step, *timing) for timing in timings}
    due = np.zeros((cycle, len(timings)), dtype=bool)
    for column, timing in enumerate(timings):
        due[:, column] = columns[timing]
    code: NDArray[Any] = np.zeros(cycle, dtype=np.int64)  # steps with equal patterns have equal codes
    for due_now in columns.values():
        code = np.unique(2 * code + due_now, return_inverse=True)[1]
    first = np.unique(code, return_index=True)[1]
    # Integers, because the floats of bincount round numbers of steps beyond 2^53.
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
    """Return the communication seconds of T steps: the sum over call patterns of steps x calls' `collective_s`.

    Args:
        exchanges: exchanges of the method.
        steps: T, at least 0.
        workers: P; broadcasts with the fields of ``link``.
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
    """Return the seconds of a collective, `collective_s`, under an algorithm or the choice of a policy.

    Args:
        kind: one of ``COLLECTIVES``.
        workers: P.
        nbytes: n, payload bytes of a worker.
        link: each worker's link.
        algorithm: see `algorithm_for`; ``nccl`` needs scalars for P and the link, ``auto`` needs a scalar P.
        rule: start rule of a message; ``auto`` chooses as if it were eager.
    """
    if (
        rule == "eager"
        and np.ndim(getattr(link, "bandwidth_bytes_per_s", 0.0))
        and algorithm_of(algorithm, kind) == "auto"
    ):
        return fastest_s(kind, int(workers), nbytes, link)
    return collective_s(kind, workers, nbytes, link, algorithm_for(algorithm, kind, workers, nbytes, link), rule=rule)


def bytes_per_step(exchanges: Sequence[Exchange], steps: int) -> float:
    """Return the mean payload bytes per worker and step over T steps: ``sum n * times / T``; 0 if T is 0."""
    return sum(exchange.payload_bytes * exchange.num_runs(_checked(steps)) for exchange in exchanges) / max(steps, 1)


def mean_bytes_per_step(exchanges: Iterable[Exchange]) -> float:
    """Return the long-run mean payload bytes per worker and step: ``sum n / K`` over exchanges without a stop.

    >>> mean_bytes_per_step([Exchange(4.0), Exchange(64.0, period=32)])
    6.0
    """
    return sum((e.payload_bytes / e.period for e in exchanges if e.stop is None), start=0.0)


def communication_factor(periods: Iterable[FloatOrArray]) -> FloatOrArray:
    """Return the long-run reduction of bytes against one state exchanged every step: ``1 / sum_i 1 / K_i``.

    Args:
        periods: K_i, one per exchanged state, all states of the same size (``math.inf`` for a state without exchange).

    Source: MT-DAO, section 4 ("Baselines"): three states every 32 steps give 32 / 3.

    >>> f"{communication_factor([32, 32, 32]):.2f}"
    '10.67'
    """
    return 1 / sum((1 / period for period in periods), start=0.0)


def half_life(beta: FloatOrArray) -> FloatOrArray:
    """Return the steps after which an exponential average has lost half of a value: ``ln 0.5 / ln beta``.

    It is defined for beta in (0, 1).

    Source: MT-DAO, Appendix E.2.

    >>> [f"{half_life(beta):.2f}" for beta in (0.99, 0.999, 0.9999)]
    ['68.97', '692.80', '6931.13']
    """
    return math.log(0.5) / np.log(beta)


def half_life_period(beta: float, min_period: int = 1) -> int:
    """Return the steps between averages of a state with decay ``beta``: its rounded half-life, at least ``min_period``.

    A ``beta`` of 0 counts as a half-life of one step.

    Source: MT-DAO, Table 3 (69, 693 and 6931; its caption's "closest power of two" is not what the table has).

    >>> [half_life_period(beta, min_period=32) for beta in (0.95, 0.99, 0.999, 0.9999)]
    [32, 69, 693, 6931]
    """
    return max(min_period, round(float(half_life(beta))) if beta > 0 else 1)


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


def refresh_intervals(kappa: int) -> Iterator[tuple[int, int, int]]:
    """Yield each interval, its first step and the step after its last, without end.

    Within them, step t refreshes if ``(t + 1) % interval == 0``. After ``kappa`` refreshes the interval doubles. Step 0
    belongs to no interval, because it prepares buffers.

    >>> intervals = refresh_intervals(4)
    >>> [t for i, begin, end in (next(intervals) for _ in range(3)) for t in range(begin, end) if (t + 1) % i == 0]
    [1, 2, 3, 4, 5, 7, 9, 11, 15, 19, 23, 27]

    Source: DeepSpeed, ``ZeroOneAdam``, whose steps count from 1.
    """
    interval, begin = 1, 1
    while True:
        end = (begin // interval + kappa) * interval
        yield interval, begin, end
        interval, begin = 2 * interval, end
