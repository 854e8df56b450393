"""Measured times of collectives: repetitions that start at a time on which all ranks agree.

Before each repetition the ranks agree on a start time by an all-reduce: the largest of their clocks (rank 0's clock, as
far as offsets are known) plus a lead. Each rank sleeps until shortly before that time and then polls the clock. A
repetition lasts from when the last rank has begun until the last rank has finished, so a rank that wakes up late does
not lengthen the measured time but shows as skew. Only the half of the repetitions with the least skew counts, because
with much skew the early ranks have posted their buffers before the last rank comes, so the start is not common. The
ranks exchange their times after all repetitions.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from syncline.costmodel.network.software_costs import GLOO
from syncline.errors import SpecError, require_one_of

TIMED_COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "send")
"""The collectives that are timed by default; ``send`` is a message from rank 0 to the last rank."""

TIMED_BYTES = (4, 1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
"""Bytes of the full tensor; for a gather, of its result."""

TIMING_TURNS = 3
"""Passes over all points, so that a short disturbance of the machine affects only a part of each point's times."""

MOST_WARM_UP_BYTES = 1 << 20
"""Largest size of the collectives that open the connections and their TCP windows before any timing."""

AGREEMENTS = 9
"""Agreements on a start time that are timed, to measure the duration of an agreement."""

LEAD_NS = 500_000
"""Time from an agreement on a start time to the start, besides twice the duration of an agreement."""

POLLING_NS = 300_000
"""Time before the start in which a rank polls the clock, because a sleep is not exact."""


@dataclass(frozen=True)
class Timing:
    """The collectives and sizes to time, and the number of repetitions.

    Args:
        collectives: names from ``TIMED_COLLECTIVES``, or ``gather``.
        sizes: bytes of the full tensor, positive; rounded up to whole blocks of 4 bytes for each rank.
        budget_s: seconds for each collective and size, within the limits ``min_repetitions`` and ``max_repetitions``.
        min_repetitions: minimum number of repetitions; only the half with the least skew between ranks counts.
        max_repetitions: maximum number of repetitions.
        max_repetition_s: seconds of one repetition from which on a size and all larger ones are skipped.
    """

    collectives: tuple[str, ...] = TIMED_COLLECTIVES
    sizes: tuple[int, ...] = TIMED_BYTES
    budget_s: float = 0.15
    min_repetitions: int = 6
    max_repetitions: int = 60
    max_repetition_s: float = 5.0

    def __post_init__(self) -> None:
        for name in self.collectives:
            require_one_of("collectives", name, (*GLOO, "send"))
        if not self.collectives or not self.sizes or min(self.sizes) < 1:
            raise SpecError("sizes", list(self.sizes), "at least one size of 1 byte or more, and a collective")
        if not (self.budget_s > 0 and self.max_repetition_s > 0 and 1 <= self.min_repetitions <= self.max_repetitions):
            raise SpecError("budget", self.budget_s, "a time above 0, and at least one repetition")

    @property
    def points(self) -> list[tuple[str, int]]:
        """Return the pairs of a collective and a size in bytes to time, in order."""
        return [(kind, size) for kind in self.collectives for size in sorted(self.sizes)]


class Work(NamedTuple):
    """A collective to time among ``ranks``: ``run`` runs it once, with ``nbytes`` as the cost model counts them."""

    run: Callable[[], object]
    nbytes: int
    ranks: tuple[int, ...]


def build_work(kind: str, nbytes: int, ranks: int, rank: int, device: torch.device) -> Work:
    """Return a collective on fp32 tensors whose full tensor, the result of a gather, has ``nbytes`` bytes.

    The bytes are rounded up, so that each rank has the same number of fp32 numbers.
    """

    def zeros(elements: int) -> torch.Tensor:
        return torch.zeros(elements, device=device).fill_(0.0)  # the write allocates the tensor's pages

    all_ranks = tuple(range(ranks))
    if kind == "all_reduce":
        whole_tensor = zeros(max(1, nbytes // 4))
        return Work(lambda: dist.all_reduce(whole_tensor), 4 * whole_tensor.numel(), all_ranks)
    block = max(1, math.ceil(nbytes / (4 * ranks)))  # numbers in each rank's part, of 4 bytes
    whole_tensor, other_tensor, part = zeros(block * ranks), zeros(block * ranks), zeros(block)
    last = ranks - 1  # on another machine, if there is one

    def send() -> None:
        if rank == 0:
            dist.send(whole_tensor, last)
        elif rank == last:
            dist.recv(whole_tensor, 0)

    runs: dict[str, tuple[Callable[[], object], int]] = {  # with the number of elements that the cost model counts
        "broadcast": (lambda: dist.broadcast(whole_tensor, 0), block * ranks),
        "all_gather": (lambda: _all_gather(whole_tensor, part), block),
        "reduce_scatter": (lambda: _reduce_scatter(part, whole_tensor), block * ranks),
        "all_to_all": (lambda: dist.all_to_all_single(other_tensor, whole_tensor), block * ranks),
        "gather": (lambda: dist.gather(part, list(whole_tensor.split(block)) if rank == 0 else None), block),
        "send": (send, block * ranks),
    }
    run, elements = runs[kind]
    return Work(run, nbytes=4 * elements, ranks=(0, last) if kind == "send" else all_ranks)


# Torch 2.13 renamed these functions; older versions have only the old names.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class Gate:
    """A barrier that gives the ranks of a gloo group a common start time.

    Args:
        offset_ns: nanoseconds by which this rank's clock is ahead of rank 0's.
        group: the group; None: the default group.
    """

    def __init__(self, offset_ns: int = 0, group: dist.ProcessGroup | None = None) -> None:
        self._offset_ns, self._group = offset_ns, group
        durations_ns = []
        for _ in range(AGREEMENTS):
            begin_ns = self.now_ns()
            self.wait_for_all()
            durations_ns.append(self.now_ns() - begin_ns)
        # The start time must be after the agreement on it, even if the agreement takes twice the median time.
        self._lead_ns = LEAD_NS + 2 * self.max_over_ranks(int(np.median(durations_ns)))

    def now_ns(self) -> int:
        """Return the time of rank 0's clock in nanoseconds, as this rank estimates it."""
        return time.monotonic_ns() - self._offset_ns

    def max_over_ranks(self, value: int) -> int:
        """Return the largest of the values that all ranks pass, on each rank."""
        largest = torch.tensor([value], dtype=torch.int64)
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=self._group)
        return int(largest)

    def wait_for_all(self) -> None:
        """Wait until all ranks have called this."""
        self.max_over_ranks(0)

    def wait_for_start(self) -> int:
        """Agree with all ranks on a start time, wait for it, and return the time in nanoseconds after the wait."""
        start_ns = self.max_over_ranks(self.now_ns() + self._lead_ns)
        time.sleep(max(0, start_ns - POLLING_NS - self.now_ns()) / 1e9)
        while self.now_ns() < start_ns:
            if hasattr(os, "sched_yield"):
                os.sched_yield()  # another rank may share this core
        return self.now_ns()

    def gather(self, values: Any) -> list[Any]:
        """Return the values of each rank; they travel as JSON, which turns a tuple into a list."""
        content = torch.frombuffer(bytearray(json.dumps(values).encode()), dtype=torch.uint8)
        padded = torch.zeros(self.max_over_ranks(len(content)), dtype=torch.uint8)  # the zeros follow the JSON
        padded[: len(content)] = content
        contents = [torch.empty_like(padded) for _ in range(dist.get_world_size(self._group))]
        dist.all_gather(contents, padded, group=self._group)
        return [json.loads(bytes(content.numpy()).rstrip(b"\0")) for content in contents]


def time_collectives(
    timing: Timing,
    gate: Gate,
    device: torch.device | None = None,
    on_point: Callable[[int], object] = lambda number: None,
) -> list[dict[str, Any]]:
    """Time collectives of the default group, on all its ranks.

    Args:
        device: the device of the tensors; the CPU if None.
        on_point: called before each collective and size with a number from 0, in all
            ``TIMING_TURNS * len(timing.points)`` times.

    Returns:
        The same rows on every rank, one for each collective and size that did not take too long: ``collective``,
        ``workers``, ``nbytes`` (n of the closed forms), ``repetitions`` (those that count), ``median_s``, ``min_s``,
        ``spread`` (see `spread`), ``skew_s`` (median skew of the ranks' start times).
    """
    device = device or torch.device("cpu")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    warm_up_size = min(max(timing.sizes), MOST_WARM_UP_BYTES)
    for kind in timing.collectives:
        for _ in range(2):
            build_work(kind, warm_up_size, ranks, rank, device).run()
    # By collective and size: the start and the end of each repetition on this rank.
    times_ns: dict[tuple[str, int], list[tuple[int, int]]] = {point: [] for point in timing.points}
    repetitions: dict[tuple[str, int], int] = {}  # in each turn; 0 for a size that takes too long
    too_slow: set[str] = set()  # collectives of which a size takes too long, so that larger sizes are skipped
    for turn in range(TIMING_TURNS):
        for number, point in enumerate(timing.points):
            on_point(turn * len(timing.points) + number)
            kind, size = point
            if kind in too_slow and not repetitions.get(point):  # the size is too slow, or larger than one that is
                continue
            run = partial(_timed_run, build_work(kind, size, ranks, rank, device).run, gate, device)
            if point not in repetitions:
                repetitions[point] = _choose_repetitions(run, gate, timing)
            if repetitions[point] == 0:
                too_slow.add(kind)
                continue
            if turn > 0:
                run()  # warms up the new tensors
            times_ns[point] += [run() for _ in range(repetitions[point])]
    rows = []
    for (kind, size), times_of_rank in times_ns.items():
        if times_of_rank:
            workload = build_work(kind, size, ranks, rank, device)
            statistics = time_statistics(gate.gather(times_of_rank), workload)
            rows.append({"collective": kind, "workers": ranks, "nbytes": workload.nbytes} | statistics)
    return rows


def _timed_run(run: Callable[[], object], gate: Gate, device: torch.device) -> tuple[int, int]:
    """Return the start and end times in nanoseconds of one run of a collective on this rank."""
    begin = gate.wait_for_start()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return begin, gate.now_ns()


def _choose_repetitions(run: Callable[[], tuple[int, int]], gate: Gate, timing: Timing) -> int:
    """Run a collective twice, and return the number of its repetitions in each turn; 0 if it takes too long."""
    begin_ns, end_ns = run()
    if gate.max_over_ranks(end_ns - begin_ns) > 1e9 * timing.max_repetition_s:  # the same on all ranks
        return 0
    start_ns = gate.now_ns()
    run()  # the first run has warmed up the tensors
    run_s = gate.max_over_ranks(gate.now_ns() - start_ns) / 1e9  # it includes the agreement on a start time
    repetitions = float(np.clip(timing.budget_s / run_s, timing.min_repetitions, timing.max_repetitions))
    return math.ceil(repetitions / TIMING_TURNS)


def time_statistics(rank_times: Sequence[Sequence[tuple[int, int]]], timed: Work) -> dict[str, Any]:
    """Return statistics of a collective's times, from the half of the repetitions with the least skew, at least three.

    The skew of a repetition is the time from the first rank's start to the last rank's.

    Args:
        rank_times: start and end of each repetition on each rank in nanoseconds, ``(P, repetitions, 2)``.
    """
    different_ranks = dict.fromkeys(timed.ranks)  # a message of a single rank names it twice
    times_ns = np.array([rank_times[rank] for rank in different_ranks])
    begins_ns, ends_ns = times_ns[..., 0], times_ns[..., 1]
    skews_ns = np.ptp(begins_ns, axis=0)
    selected = np.argsort(skews_ns, kind="stable")[: max(3, math.ceil(len(skews_ns) / 2))]
    # A collective takes from the start of the last rank to the end of the last rank.
    durations_s = (ends_ns.max(axis=0) - begins_ns.max(axis=0))[selected] / 1e9
    return {
        "repetitions": len(selected),
        "median_s": float(np.median(durations_s)),
        "min_s": float(durations_s.min()),
        "spread": spread(durations_s),
        "skew_s": float(np.median(skews_ns[selected])) / 1e9,
    }


def spread(values: Sequence[float] | np.ndarray) -> float:
    """Return a relative standard deviation that outliers hardly change: 1.4826 median(|x - median|) / median.

    Of normal values, 1.4826 times the median absolute deviation is the standard deviation.
    """
    median = float(np.median(values))
    if median == 0:
        return 0.0
    return 1.4826 * float(np.median(np.abs(np.asarray(values) - median))) / median
