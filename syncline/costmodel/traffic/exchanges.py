"""The collectives of a method in a training of T steps, and their cost in closed form.

A method communicates by a few *exchanges*. An exchange is a collective of a number of bytes that runs every ``period``
steps, either in the whole training or in one phase (a warm-up that ends, an interval that grows). Exchanges of the same
collective that are due at the same step share one call: their bytes add up and the call pays the latency once. The cost
of T steps is a sum over the distinct *call patterns* of a step, each times the number of steps with that pattern.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.collectives.cost import Rule, collective_s
from syncline.costmodel.collectives.policies import Algorithms, algorithm_for, user_choice
from syncline.costmodel.collectives.prices import link_prices
from syncline.costmodel.network.link import Link
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray, require
from syncline.costmodel.traffic.call import Call, Ranks, Spans, groups_like
from syncline.errors import SpecError

Timing = tuple[int, int, int, int | None]
"""Period, offset, start and stop of an exchange."""


@dataclass(frozen=True)
class Exchange:
    """A periodic collective, which runs after step t (from 0) when ``(t + 1 - offset) % period == 0``.

    In steps before ``start`` and from ``stop`` on it does not run.

    Args:
        payload_bytes: bytes that a worker contributes, see `Call`.
        period: K, steps between two runs; at least 1. Without an offset the first run is after step K - 1.
        label: name of the payload, for display.
        collective: one of ``COLLECTIVES``.
        offset: steps by which all runs are later than those of an exchange without offset.
        shares_call: whether the exchange shares one call with the other due exchanges of its collective.
        start: first step of the phase in which the exchange runs.
        stop: first step after that phase; None if the phase has no end.
        first_group: ranks of the first group, if several groups of workers run the collective at the same time, each
            group by itself, see `groups_like`; None means one group of all workers. Calls of groups are not joined.

    The other arguments are those of `Call`.
    """

    payload_bytes: float
    period: int = 1
    label: str = ""
    collective: str = "all_reduce"
    offset: int = 0
    shares_call: bool = True
    start: int = 0
    stop: int | None = None
    wait_steps: int = 0
    in_backward: bool = False
    encoded_bytes: float = 0.0
    ready: float = 1.0
    needed: float = 1.0
    first_group: range | None = None
    spans: Spans = ()

    def __post_init__(self) -> None:
        """Raise ``SpecError`` for fields of the wrong type, out of range, or in contradiction."""
        self.call(0).check("exchange")  # the fields that a call has, too
        is_period = self.period == int(self.period) and self.period >= 1
        require(is_period, "exchange.period", self.period, "a whole number of steps, at least 1")
        require(self.offset == int(self.offset), "exchange.offset", self.offset, "a whole number of steps")
        require(self.start == int(self.start) and self.start >= 0, "exchange.start", self.start, "a step, at least 0")
        if self.stop is not None and (self.stop != int(self.stop) or self.stop < self.start):
            raise SpecError("exchange.stop", self.stop, f"a step, at least start ({self.start}), or none")

    def at(self, ready: float, needed: float) -> Exchange:
        """Return the exchange between other points of a step, without a check: a step may have 100,000 of them."""
        moved = object.__new__(Exchange)
        moved.__dict__.update(self.__dict__, ready=ready, needed=needed)
        return moved

    def call(self, step: int, group: Ranks | None = None) -> Call:
        """Return the collective of this exchange after a step, among the ranks of a group (None: all workers)."""
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

    @property
    def timing(self) -> Timing:
        """Return the fields that decide after which steps the exchange runs."""
        return self.period, self.offset, self.start, self.stop

    def is_due(self, step: IntOrArray) -> bool | NDArray[np.bool_]:
        """Return whether the exchange runs after step ``step`` (from 0), elementwise for an array of steps."""
        return _is_due(step, *self.timing)

    def num_runs(self, steps: int) -> int:
        """Return the number of runs in the first T steps: ``floor((end - offset) / K) - floor((begin - offset) / K)``.

        Here ``end = min(T, stop)`` and ``begin = min(start, end)``.
        """
        end = steps if self.stop is None else min(steps, self.stop)
        begin = min(self.start, end)
        return (end - self.offset) // self.period - (begin - self.offset) // self.period


def _is_due(step: IntOrArray, period: int, offset: int, start: int, stop: int | None) -> bool | NDArray[np.bool_]:
    """Return whether a periodic exchange runs after a step, elementwise for an array of steps."""
    due = ((step + 1 - offset) % period == 0) & (step >= start)
    return due if stop is None else due & (step < stop)


class CallPattern(NamedTuple):
    """Calls that follow a training step together, and the number of steps after which these calls run.

    Attributes:
        calls: the calls after the first of the steps.
        first_step: this first step, from 0.
    """

    calls: tuple[Call, ...]
    steps: int
    first_step: int


def calls_of_exchanges(exchanges: Iterable[Exchange], step: int = 0, group: Ranks | None = None) -> tuple[Call, ...]:
    """Return the calls of exchanges that are due at the same step, with one call for those that can share a call.

    Exchanges with ``shares_call`` use one call if they have the same collective at the same point of the step. Calls
    come in the order of their first exchange.

    Args:
        step: the step, from 0.
        group: ranks that take part; None means all workers. An exchange with a ``first_group`` has a call for each of
            the groups into which ``group`` is divided. If ``group`` is None, only the call of the first group counts,
            because a worker makes one of these calls.
    """
    call_by_key: dict[object, Call] = {}
    for index, exchange in enumerate(exchanges):
        if exchange.first_group is not None:
            subgroups = [exchange.first_group] if group is None else groups_like(exchange.first_group, len(group))
            for subgroup_index, subgroup in enumerate(subgroups):
                call_by_key[index, subgroup_index] = exchange.call(step, subgroup)
            continue
        point_of_step = exchange.wait_steps, exchange.in_backward, exchange.ready, exchange.needed
        # Exchanges of equal key share a call; no other exchange has the same index.
        key = (exchange.collective, point_of_step, exchange.spans) if exchange.shares_call else index
        call = exchange.call(step, group)
        if key in call_by_key:
            shared_call = call_by_key[key]
            labels = [label for label in (*shared_call.label.split("+"), call.label) if label]
            call = shared_call._replace(
                payload_bytes=shared_call.payload_bytes + call.payload_bytes,
                encoded_bytes=shared_call.encoded_bytes + call.encoded_bytes,
                label="+".join(dict.fromkeys(labels)),  # each label once, in order
            )
        call_by_key[key] = call
    return tuple(call_by_key.values())


def calls_at(exchanges: Sequence[Exchange], step: int, group: Ranks | None = None) -> tuple[Call, ...]:
    """Return the calls of periodic exchanges after a step (from 0), among the ranks of a group (None: all workers)."""
    return calls_of_exchanges((exchange for exchange in exchanges if exchange.is_due(step)), step, group)


def calls_of(exchanges: Sequence[Exchange], steps: int, group: Ranks | None = None) -> list[Call]:
    """Return all calls of a training in the order of steps, among the ranks of a group (None: all workers)."""
    require(steps >= 0, "steps", steps, "at least 0")
    calls: list[Call] = []
    for step in due_steps(exchanges, begin=0, end=steps):
        calls += calls_at(exchanges, step, group)
    return calls


def due_steps(exchanges: Sequence[Exchange], begin: int, end: int) -> list[int]:
    """Return the steps from ``begin`` to ``end - 1`` after which at least one exchange is due."""
    steps = np.arange(begin, end)
    due = np.zeros(len(steps), dtype=bool)
    for exchange in exchanges:
        due |= exchange.is_due(steps)
    return list(steps[due].tolist())


def gaps_between_runs(exchanges: Sequence[Exchange], steps: int) -> Counter[int]:
    """Return how often each number of steps passes from one step in which an exchange runs to the next such step.

    The first gap begins with the training, the last one ends with it.

    >>> gaps_between_runs([Exchange(4.0, period=4), Exchange(4.0, period=6)], 25)
    Counter({2: 4, 4: 4, 1: 1})
    """
    gaps: Counter[int] = Counter()
    last_run = 0  # number of steps done at the last run
    for begin, end, cycle in phase_cycles(exchanges, steps):
        repeats = (end - begin) // cycle
        runs = [step + 1 for step in due_steps(exchanges, begin, begin + cycle)]
        if runs:
            for gap, count in Counter(later - run for run, later in itertools.pairwise(runs)).items():
                gaps[gap] += repeats * count
            gaps[runs[0] + cycle - runs[-1]] += repeats - 1  # from one cycle to the next
            gaps[runs[0] - last_run] += 1
            last_run = runs[-1] + (repeats - 1) * cycle
        for step in due_steps(exchanges, begin + repeats * cycle, end):
            gaps[step + 1 - last_run] += 1
            last_run = step + 1
    gaps[steps - last_run] += 1
    return Counter({gap: count for gap, count in gaps.items() if gap and count})


def awaited_steps(exchanges: Sequence[Exchange], delays: Sequence[int], steps: int) -> tuple[int, ...]:
    """Return for each of T steps the last step whose exchange a worker waits for at its end; -1: none.

    Args:
        exchanges: the exchanges.
        delays: number of steps after which a worker waits for each exchange.
        steps: T.

    >>> awaited_steps([Exchange(4.0, period=3)], [1], 8)
    (-1, -1, -1, 2, -1, -1, 5, -1)
    """
    awaited = np.full(steps, -1)
    for exchange, delay in zip(exchanges, delays, strict=True):
        runs = np.flatnonzero(exchange.is_due(np.arange(max(steps - delay, 0))))
        awaited[runs + delay] = np.maximum(awaited[runs + delay], runs)
    return tuple(awaited.tolist())


def calls_by_step(exchanges: Sequence[Exchange], steps: int) -> list[CallPattern]:
    """Return the patterns of T training steps: each different set of calls, with the number of steps that it follows.

    The empty set of calls is a pattern, too.

    Args:
        steps: T, at least 0.

    >>> [(len(p.calls), p.steps) for p in calls_by_step([Exchange(4.0, period=32)], 100)]
    [(0, 97), (1, 3)]
    """
    timings = tuple(exchange.timing for exchange in exchanges)
    first_steps: dict[tuple[bool, ...], int] = {}  # by a mask over the exchanges, true for those that are due
    num_steps: dict[tuple[bool, ...], int] = {}
    for begin, end, cycle in phase_cycles(exchanges, steps):
        for mask, step, count in _due_masks(timings, begin, end, cycle):
            first_steps.setdefault(mask, step)
            num_steps[mask] = num_steps.get(mask, 0) + count
    patterns = []
    for mask in sorted(first_steps):
        due = [exchange for exchange, is_due in zip(exchanges, mask, strict=True) if is_due]
        patterns.append(CallPattern(calls_of_exchanges(due, first_steps[mask]), num_steps[mask], first_steps[mask]))
    return patterns


def phase_cycles(exchanges: Sequence[Exchange], steps: int) -> list[tuple[int, int, int]]:
    """Return the phases of T training steps in which no periodic exchange starts or stops.

    Returns:
        For each phase its first step, the step after its last, and the number of steps after which its calls repeat:
        the least common multiple of the periods of the exchanges, at most the whole phase.
    """
    require(steps >= 0, "steps", steps, "at least 0")
    starts_and_stops = [step for exchange in exchanges for step in (exchange.start, exchange.stop)]
    boundaries = {0, steps, *(step for step in starts_and_stops if step is not None and step < steps)}
    phases = []
    for begin, end in itertools.pairwise(sorted(boundaries)):
        periods = [
            exchange.period
            for exchange in exchanges
            if exchange.start <= begin and (exchange.stop is None or end <= exchange.stop)
        ]
        phases.append((begin, end, min(math.lcm(*periods), end - begin)))  # math.lcm() is 1
    return phases


@lru_cache(maxsize=1024)
def _due_masks(
    timings: tuple[Timing, ...], begin: int, end: int, cycle: int
) -> list[tuple[tuple[bool, ...], int, int]]:
    """Return the different sets of exchanges that are due together after some step of a phase.

    Args:
        begin: first step of the phase.
        end: step after the last one of the phase.
        cycle: number of steps after which the calls of the phase repeat.

    Returns:
        For each set a mask over the exchanges, its first step and its number of steps in the phase.
    """
    steps = np.arange(begin, begin + cycle)
    recurrences = -((steps - end) // cycle)  # step t of the first cycle recurs ceil((end - t) / cycle) times
    # Exchanges of equal timings are due at the same steps, so each timing is computed once.
    due_by_timing = {timing: np.asarray(_is_due(steps, *timing)) for timing in dict.fromkeys(timings)}
    # Number the different masks, one timing after another: np.unique along rows of masks is slow. Two steps have equal
    # numbers if each timing so far is due at both or at neither.
    mask_numbers: NDArray[Any] = np.zeros(cycle, dtype=np.int64)
    for is_due in due_by_timing.values():
        _, mask_numbers = np.unique(2 * mask_numbers + is_due, return_inverse=True)
    _, first_rows = np.unique(mask_numbers, return_index=True)
    # np.bincount would count in floats, which round numbers of steps beyond 2^53.
    counts = np.zeros(len(first_rows), dtype=np.int64)
    np.add.at(counts, mask_numbers, recurrences)
    masks = []
    for row, count in zip(first_rows.tolist(), counts, strict=True):
        mask = tuple(bool(due_by_timing[timing][row]) for timing in timings)
        masks.append((mask, begin + row, int(count)))
    return masks


def communication_s(
    exchanges: Sequence[Exchange], steps: int, workers: IntOrArray, link: Link, algorithm: Algorithms = None
) -> FloatOrArray:
    """Return the communication seconds of T steps: the sum of the seconds of all calls, without overlap.

    Args:
        steps: T, at least 0.
        workers: P; broadcasts with the fields of ``link``.
        algorithm: see `call_s`.
    """
    total: FloatOrArray = 0.0
    for pattern in calls_by_step(exchanges, steps):
        for call in pattern.calls:
            total = total + pattern.steps * call_s(call.collective, workers, call.payload_bytes, link, algorithm)
    return total


def call_s(
    kind: str, workers: IntOrArray, nbytes: FloatOrArray, link: Link, algorithm: Algorithms = None, rule: Rule = "eager"
) -> FloatOrArray:
    """Return the seconds of a collective on a link by an algorithm, or by the algorithm that a policy chooses.

    Args:
        kind: one of ``COLLECTIVES``.
        workers: P.
        nbytes: n, payload bytes of a worker.
        algorithm: see `algorithm_for`; ``nccl`` needs scalars for P and the link, ``auto`` needs a scalar P.
        rule: start rule of a message; the policy ``auto`` chooses by the seconds under ``eager``, whatever the rule.
    """
    has_many_links = np.ndim(link.bandwidth_bytes_per_s) > 0
    # The fastest algorithm may differ among the links of an array, and `algorithm_for` returns a single name.
    if rule == "eager" and has_many_links and user_choice(algorithm, kind) == "auto":
        return link_prices(kind, int(workers), nbytes, link, algorithms="auto", rule=rule).seconds
    return collective_s(kind, workers, nbytes, link, algorithm_for(algorithm, kind, workers, nbytes, link), rule=rule)


def bytes_per_step(exchanges: Sequence[Exchange], steps: int) -> float:
    """Return the mean payload bytes per worker and step over T steps; 0 if T is 0."""
    require(steps >= 0, "steps", steps, "at least 0")
    total_bytes = sum(exchange.payload_bytes * exchange.num_runs(steps) for exchange in exchanges)
    return total_bytes / max(steps, 1)


def mean_bytes_per_step(exchanges: Iterable[Exchange]) -> float:
    """Return the mean payload bytes per worker and step in the long run, when only exchanges without a stop are left.

    >>> mean_bytes_per_step([Exchange(4.0), Exchange(64.0, period=32)])
    6.0
    """
    return sum((exchange.payload_bytes / exchange.period for exchange in exchanges if exchange.stop is None), start=0.0)


def communication_factor(periods: Iterable[FloatOrArray]) -> FloatOrArray:
    """Return the bytes of one state sent in every step over those of several states sent rarely: ``1 / sum_i 1/K_i``.

    Args:
        periods: K_i, steps between exchanges of each of several states of the same size; ``math.inf`` means never.

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
    """Return the period for averages of a state with decay ``beta``: its rounded half-life, at least ``min_period``.

    A ``beta`` of 0 counts as a half-life of one step.

    Source: MT-DAO, Table 3 (69, 693 and 6931; its caption's "closest power of two" is not what the table has).

    >>> [half_life_period(beta, min_period=32) for beta in (0.95, 0.99, 0.999, 0.9999)]
    [32, 69, 693, 6931]
    """
    half_life_steps = round(float(half_life(beta))) if beta > 0 else 1
    return max(min_period, half_life_steps)


def refresh_intervals(kappa: int) -> Iterator[tuple[int, int, int]]:
    """Yield the intervals between refreshes of 0/1 Adam's second moment, without end.

    DeepSpeed refreshes the second moment after step t (from 0) if ``(t + 1) % interval == 0``. After ``kappa``
    refreshes the interval doubles. Step 0 belongs to no interval, because DeepSpeed prepares buffers in it.

    Yields:
        The interval in steps, its first step, and the step after its last.

    >>> intervals = refresh_intervals(4)
    >>> [t for i, begin, end in (next(intervals) for _ in range(3)) for t in range(begin, end) if (t + 1) % i == 0]
    [1, 2, 3, 4, 5, 7, 9, 11, 15, 19, 23, 27]

    Source: DeepSpeed, ``ZeroOneAdam``, whose steps count from 1.
    """
    interval, begin = 1, 1
    while True:
        refreshes_before = begin // interval  # steps t < begin with (t + 1) % interval == 0
        end = (refreshes_before + kappa) * interval
        yield interval, begin, end
        interval, begin = 2 * interval, end
