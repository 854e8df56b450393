"""Counters that the processes of a training with a server share: the steps of each worker, and whether it is gone."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

DRAWN, LOST, GONE, ENDED = range(4)


class StepNumber(NamedTuple):
    """The number of a step in the order of all workers' steps.

    Attributes:
        place: number of steps drawn before this step, including lost steps; it defines the order.
        counted: number of those steps that were not known to be lost when this step was drawn; schedules use it.
    """

    place: int
    counted: int


class Register:
    """Four words of each worker, in a file that all processes map.

    The words are the number of steps drawn, the number of steps lost, whether the worker is gone for good, and the
    number of times that its process has ended.

    A worker draws a number under a lock of the file; if the process dies, the operating system releases the lock.

    Args:
        path: the path of the file, which is created if it does not exist.
        workers: P, the number of workers.
    """

    def __init__(self, path: Path, workers: int) -> None:
        if not path.exists():
            np.zeros((4, workers), dtype=np.int64).tofile(path)
        self.words = np.memmap(path, dtype=np.int64, mode="r+", shape=(4, workers))
        self._file = path.open("r+b")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the file in a ``with`` block."""
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    def draw(self, worker: int) -> StepNumber:
        """Draw and return the number of a worker's next step.

        Drawing writes one word, so a process that dies leaves no partial write.
        """
        with self._locked():
            number = self.now()
            self.words[DRAWN, worker] += 1
        return number

    def now(self) -> StepNumber:
        """Return the number of the next step: each step drawn from now on has this place or a later one."""
        place = int(self.words[DRAWN].sum())
        return StepNumber(place, place - int(self.words[LOST].sum()))

    def mark_lost(self, worker: int, arrived: int) -> int:
        """Mark a failed worker's steps that have not arrived as lost, and return the number of newly lost steps."""
        with self._locked():
            lost = int(self.words[DRAWN, worker]) - arrived - int(self.words[LOST, worker])
            self.words[LOST, worker] += lost
        return lost

    def end(self, worker: int) -> None:
        """Record that a worker's process has ended before the training; only the watching process calls this."""
        self.words[ENDED, worker] += 1

    def ends(self, worker: int) -> int:
        """Return the number of times that a worker's process has ended."""
        return int(self.words[ENDED, worker])

    def leave(self, worker: int) -> None:
        """Record that a worker does not come back."""
        self.words[GONE, worker] = 1

    def gone_workers(self) -> set[int]:
        """Return the workers that do not come back."""
        return {int(worker) for worker in np.flatnonzero(self.words[GONE])}
