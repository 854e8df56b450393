"""How long collectives really take: repetitions from starts that all ranks agree on.

Before each repetition the ranks agree on a time by an all-reduce of the largest of their clocks (rank 0's clock, as far
as offsets are known) and a lead on top, sleep until shortly before it, and look at the clock until it has come. A
repetition lasts from when the last rank has begun until the last one is through: whoever wakes up late delays nobody's
measurement but shows as skew. The half of the repetitions with the least skew counts: who comes early has posted its
buffers when the last one comes, which is no common start. Times are exchanged after all repetitions.
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

from syncline.costmodel.collectives.gloo.times import GLOO
from syncline.errors import SpecError, one_of

TIMED_COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "send")
"""What is timed unless said otherwise; ``send`` is a message from rank 0 to the last rank."""

TIMED_BYTES = (4, 1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
"""Bytes in the whole; of a gather, the result."""

TIMING_TURNS = 3
"""How often all is gone through: what disturbs the machine for a while then disturbs a part of each point's times."""

AGREEMENTS = 9
"""Agreements on a start that are timed to know how long one takes."""

LEAD_NS, AWAKE_NS = 500_000, 300_000
"""Beyond what an agreement takes; and from when on the clock is watched, as sleeping is not exact."""


@dataclass(frozen=True)
class Timing:
    """What is timed, and how often.

    Args:
        collectives: names, of ``TIMED_COLLECTIVES`` or ``gather``.
        sizes: bytes in the whole, positive; rounded up to whole blocks of 4 bytes for each rank.
        budget_s: per collective and size, as far as ``fewest`` and ``most`` repetitions allow.
        fewest: repetitions, half of which count.
        most: repetitions.
        longest_s: of one repetition; sizes from the first that takes longer are left out.

    Raises:
        SpecError: nothing to time, an unknown collective, or a number out of range.
    """

    collectives: tuple[str, ...] = TIMED_COLLECTIVES
    sizes: tuple[int, ...] = TIMED_BYTES
    budget_s: float = 0.15
    fewest: int = 6
    most: int = 60
    longest_s: float = 5.0

    def __post_init__(self) -> None:
        for name in self.collectives:
            if name not in (*GLOO, "send"):
                raise SpecError("collectives", name, one_of((*GLOO, "send"), name))
        if not self.collectives or not self.sizes or min(self.sizes) < 1:
            raise SpecError("sizes", list(self.sizes), "at least one size of 1 byte and more, and a collective")
        if not self.budget_s > 0 or not 1 <= self.fewest <= self.most or not self.longest_s > 0:
            raise SpecError("budget", self.budget_s, "a time above 0, and at least one repetition")

    @property
    def points(self) -> list[tuple[str, int]]:
        """What is timed, in order."""
        return [(kind, size) for kind in self.collectives for size in sorted(self.sizes)]


class Work(NamedTuple):
    """A collective to time.

    Attributes:
        run: does it once.
        nbytes: n as the cost model counts it.
        ranks: those that take part.
    """

    run: Callable[[], object]
    nbytes: int
    ranks: tuple[int, ...]


def work(kind: str, nbytes: int, ranks: int, rank: int, device: torch.device) -> Work:
    """A collective on fp32 tensors of so many bytes in the whole, of a gather the result."""

    def zeros(elements: int) -> torch.Tensor:
        return torch.zeros(elements, device=device).fill_(0.0)  # written to, so that its pages are there

    everybody = tuple(range(ranks))
    if kind == "all_reduce":
        whole = zeros(max(1, nbytes // 4))
        return Work(lambda: dist.all_reduce(whole), 4 * whole.numel(), everybody)
    block = max(1, -(-nbytes // (4 * ranks)))
    whole, other, part = zeros(block * ranks), zeros(block * ranks), zeros(block)
    last = ranks - 1  # on another machine, if there is one

    def send() -> None:
        if rank == 0:
            dist.send(whole, last)
        elif rank == last:
            dist.recv(whole, 0)

    runs: dict[str, tuple[Callable[[], object], int]] = {
        "broadcast": (lambda: dist.broadcast(whole, 0), block * ranks),
        "all_gather": (lambda: _all_gather(whole, part), block),
        "reduce_scatter": (lambda: _reduce_scatter(part, whole), block * ranks),
        "all_to_all": (lambda: dist.all_to_all_single(other, whole), block * ranks),
        "gather": (lambda: dist.gather(part, list(whole.split(block)) if rank == 0 else None), block),
        "send": (send, block * ranks),
    }
    run, elements = runs[kind]
    return Work(run, 4 * elements, (0, last) if kind == "send" else everybody)


# The names that torch 2.13 gave them; the old ones still serve older versions.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class Gate:
    """Common starts of the ranks of a group, and what they agree on.

    Args:
        offset_ns: how much this rank's clock is ahead of rank 0's.
        group: of gloo, which carries the agreements.
    """

    def __init__(self, offset_ns: int = 0, group: dist.ProcessGroup | None = None) -> None:
        self._offset_ns, self._group = offset_ns, group
        self._lead_ns = 0
        took = []
        for _ in range(AGREEMENTS):
            begin = self.now()
            self.most(0)
            took.append(self.now() - begin)
        self._lead_ns = LEAD_NS + 2 * self.most(int(np.median(took)))

    def now(self) -> int:
        """Nanoseconds of rank 0's clock, as this rank reads it."""
        return time.monotonic_ns() - self._offset_ns

    def most(self, value: int) -> int:
        """The largest of all ranks' values."""
        held = torch.tensor([value], dtype=torch.int64)
        dist.all_reduce(held, dist.ReduceOp.MAX, group=self._group)
        return int(held)

    def start(self) -> int:
        """Wait for the common start; when this rank has begun."""
        start = self.most(self.now() + self._lead_ns)
        time.sleep(max(0, start - AWAKE_NS - self.now()) / 1e9)
        while self.now() < start:
            os.sched_yield() if hasattr(os, "sched_yield") else None  # who shares this core may need it to begin
        return self.now()

    def gather(self, values: Any) -> list[Any]:
        """Return the values of each rank; they travel as JSON, in which a tuple becomes a list."""
        content = torch.frombuffer(bytearray(json.dumps(values).encode()), dtype=torch.uint8)
        padded = torch.zeros(self.most(len(content)), dtype=torch.uint8)  # JSON ends before the zeros
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
        timing: what is timed.
        gate: of all ranks of the group.
        device: of the tensors; the CPU if none.
        on_point: called with the number of what comes next, of ``TIMING_TURNS * len(timing.points)``.

    Returns:
        The same on every rank, a row for each collective and size that did not take too long: ``collective``,
        ``workers``, ``nbytes`` (n of the closed forms), ``repetitions`` (those that count), ``median_s``, ``min_s``,
        ``spread`` (1.48 times the median of absolute deviations, over the median), ``skew_s`` (of the ranks'
        beginnings, median).
    """
    device = device or torch.device("cpu")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for kind in timing.collectives:  # connections are made, and open their windows
        for _ in range(2):
            work(kind, min(max(timing.sizes), 1 << 20), ranks, rank, device).run()
    times: dict[tuple[str, int], list[tuple[int, int]]] = {point: [] for point in timing.points}
    counts = dict.fromkeys(times, -1)
    given_up: set[str] = set()
    for turn in range(TIMING_TURNS):
        for number, (kind, size) in enumerate(timing.points):
            on_point(turn * len(times) + number)
            if kind in given_up and counts[kind, size] < 1:
                continue
            run = partial(_once, work(kind, size, ranks, rank, device).run, gate, device)
            if counts[kind, size] < 0:
                counts[kind, size] = _count(run, gate, timing)
            if counts[kind, size] == 0:
                given_up.add(kind)
                continue
            if turn:
                run()  # its tensors are new
            times[kind, size] += [run() for _ in range(counts[kind, size])]
    rows = []
    for (kind, size), mine in times.items():
        if mine:
            one = work(kind, size, ranks, rank, device)
            rows.append({"collective": kind, "workers": ranks, "nbytes": one.nbytes} | summary(gate.gather(mine), one))
    return rows


def _once(run: Callable[[], object], gate: Gate, device: torch.device) -> tuple[int, int]:
    """When this rank began, and when it was through."""
    begin = gate.start()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return begin, gate.now()


def _count(run: Callable[[], tuple[int, int]], gate: Gate, timing: Timing) -> int:
    """Repetitions in each turn; 0 if one takes too long. Two are made to find out, which also warm things up."""
    begin, end = run()
    if gate.most(end - begin) > 1e9 * timing.longest_s:
        return 0
    before = gate.now()
    run()
    took_s = gate.most(gate.now() - before) / 1e9
    return math.ceil(float(np.clip(timing.budget_s / took_s, timing.fewest, timing.most)) / TIMING_TURNS)


def summary(told: Sequence[Sequence[tuple[int, int]]], one: Work) -> dict[str, Any]:
    """Of beginnings and ends of each rank, ``(P, repetitions, 2)``, of those that take part.

    The half of the repetitions whose ranks began most nearly together counts, three at least.
    """
    times = np.array([told[rank] for rank in dict.fromkeys(one.ranks)])
    skews_ns = np.ptp(times[..., 0], axis=0)
    kept = np.argsort(skews_ns, kind="stable")[: max(3, math.ceil(len(skews_ns) / 2))]
    taken_s = (times[:, kept, 1].max(axis=0) - times[:, kept, 0].max(axis=0)) / 1e9
    return {
        "repetitions": len(kept),
        "median_s": float(np.median(taken_s)),
        "min_s": float(taken_s.min()),
        "spread": spread(taken_s),
        "skew_s": float(np.median(skews_ns[kept])) / 1e9,
    }


def spread(values: Sequence[float] | np.ndarray) -> float:
    """Of a few values, some of which may be far off: 1.4826 times the median absolute deviation, over the median."""
    median = float(np.median(values))
    return 1.4826 * float(np.median(np.abs(np.asarray(values) - median))) / median if median else 0.0
