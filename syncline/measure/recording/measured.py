"""What computing took while it was recorded: CPU seconds of the thread that computes, by segment.

A core that others have for a while counts nothing, and nothing counts that the recording itself does: its clock stands
while a call is noted and made, and what counting an operation takes is measured once and taken off.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from threading import get_ident
from time import thread_time

import torch

from syncline.measure.recording.operations import OperationCounter
from syncline.measure.recording.record import Operations, RankRecord

REPEATS, OPERATIONS = 5, 200


class SegmentClock:
    """CPU seconds of segments, each time that one was computed; it goes once it was told to.

    Time in which nothing was counted belongs to the next segment, but for what comes before the first. Threads
    beside the one that began have their own time, and it is not looked at.
    """

    def __init__(self) -> None:
        self._counting_s = 0.0
        self._taken: dict[int, list[float]] = {}
        self._carried_s = 0.0
        self._since_s: float | None = None
        self._thread = get_ident()

    def begin(self, counting_s: float) -> None:
        """The script begins; counting one of its operations takes so long."""
        self._counting_s, self._since_s, self._thread = counting_s, thread_time(), get_ident()

    def stop(self) -> None:
        """What comes now is none of the script's."""
        if get_ident() != self._thread:
            return
        if self._since_s is not None:
            self._carried_s += thread_time() - self._since_s
        self._since_s = None

    def go(self, anew: bool = False) -> None:
        """What comes now is the script's; anew: what came before was only its beginning."""
        if get_ident() != self._thread:
            return
        if anew:
            self._carried_s = 0.0
        if self._since_s is None:
            self._since_s = thread_time()

    def take(self, segment: int, operations: int) -> None:
        """All since the last time was a segment of so many operations; stands still from now on."""
        self.stop()
        self._taken.setdefault(segment, []).append(max(0.0, self._carried_s - operations * self._counting_s))
        self._carried_s = 0.0

    def medians_s(self) -> list[float]:
        """Of each segment, in their order."""
        return [statistics.median(self._taken[segment]) for segment in range(len(self._taken))]


def counting_s() -> float:
    """What counting an operation takes, of operations on one number, with and without."""
    x, noted = torch.zeros(1), 0

    def note(flops: float, nbytes: float) -> None:
        nonlocal noted
        noted += 1

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
    """Give the same operations the same seconds on all ranks: the median of what each has measured.

    They ran on one machine, and by how much their medians differ is chance. In a replay a rank that is later by that
    much in every step drifts away from the others, further than a latency, which changes how gloo's messages meet.
    """
    of: dict[Operations, list[float]] = {}
    for rank in ranks:
        for operations, seconds in zip(rank.segments, rank.segment_cpu_s, strict=False):
            of.setdefault(operations, []).append(seconds)
    shared = {operations: statistics.median(several) for operations, several in of.items()}
    for rank in ranks:
        if rank.segment_cpu_s:
            rank.segment_cpu_s = [shared[operations] for operations in rank.segments]
