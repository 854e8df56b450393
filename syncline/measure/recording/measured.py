"""Measured compute times of a recording: CPU seconds of the computing thread, for each segment.

CPU time excludes the time in which other processes use the core. It also excludes the work of the recorder: the clock
stops while a call is recorded and made, and the time to count an operation is measured once and subtracted.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from threading import get_ident
from time import thread_time

import torch

from syncline.measure.recording.operations import OperationCounter
from syncline.measure.recording.record import Counted, Operations, RankRecord

REPEATS, OPERATIONS = 5, 200


class SegmentClock:
    """A clock that measures the CPU seconds of each run of each segment, after `begin` has started it.

    Time in which no operation was counted belongs to the next segment, except the time before the first segment. The
    clock measures only the thread that called `begin`.
    """

    def __init__(self) -> None:
        self._counting_s = 0.0
        self._taken: dict[int, list[float]] = {}
        self._carried_s = 0.0
        self._since_s: float | None = None
        self._thread = get_ident()

    def begin(self, counting_s: float) -> None:
        """Start the clock for the script; counting one operation takes ``counting_s`` seconds."""
        self._counting_s, self._since_s, self._thread = counting_s, thread_time(), get_ident()

    def stop(self) -> None:
        """Stop the clock, because the following work is not the script's."""
        if get_ident() != self._thread:
            return
        if self._since_s is not None:
            self._carried_s += thread_time() - self._since_s
        self._since_s = None

    def go(self, anew: bool = False) -> None:
        """Start the clock again for the script's work; ``anew`` drops the time measured since the last segment."""
        if get_ident() != self._thread:
            return
        if anew:
            self._carried_s = 0.0
        if self._since_s is None:
            self._since_s = thread_time()

    def take(self, segment: int, operations: int) -> None:
        """Stop the clock, and assign the time since the last call to a run of a segment with so many operations."""
        self.stop()
        self._taken.setdefault(segment, []).append(max(0.0, self._carried_s - operations * self._counting_s))
        self._carried_s = 0.0

    def medians_s(self) -> list[float]:
        """Return the median CPU seconds of each segment, in order."""
        return [statistics.median(self._taken[segment]) for segment in range(len(self._taken))]


def counting_s() -> float:
    """Return the seconds to count an operation: the difference between counted and plain operations on one number."""
    x, num_counted = torch.zeros(1), 0

    def note(operation: Counted) -> None:
        nonlocal num_counted
        num_counted += 1

    def taken_s() -> float:
        begin_s = thread_time()
        for _ in range(OPERATIONS):
            x.add_(1.0)
        return thread_time() - begin_s

    with_s, without_s = [], []
    for _ in range(REPEATS):
        without_s.append(taken_s())
        with OperationCounter(note, lambda: True):
            with_s.append(taken_s())
    return max(0.0, min(with_s) - min(without_s)) / OPERATIONS


def share_medians(ranks: Sequence[RankRecord]) -> None:
    """Set the seconds of equal segments to the same value on all ranks: the median of the ranks' medians.

    All ranks ran on one machine, so differences between their medians are noise. In a replay, a rank that is slower by
    this noise in every step would fall behind the others by more than a latency, which changes the order of gloo's
    messages.
    """
    seconds_by_segment: dict[Operations, list[float]] = {}
    for rank in ranks:
        for operations, seconds in zip(rank.segments, rank.segment_cpu_s, strict=False):
            seconds_by_segment.setdefault(operations, []).append(seconds)
    shared = {operations: statistics.median(several) for operations, several in seconds_by_segment.items()}
    for rank in ranks:
        if rank.segment_cpu_s:
            rank.segment_cpu_s = [shared[operations] for operations in rank.segments]
