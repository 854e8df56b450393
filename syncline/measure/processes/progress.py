"""The progress of each process, in memory that it shares with the process that watches."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

COUNT, DONE, STEP, INSIDE, CHANGED_NS = range(5)
"""Indices of a rank's words: number of changes so far, steps completed over all seeds, current step, whether it is in
a collective, time of the last change in nanoseconds."""

PROGRESS_WORDS = 5


class Progress:
    """The progress words of all ranks: each rank writes its steps, its collectives and the time of its last change.

    Args:
        words: ``(P, 5)`` integers, in a file that several processes map or in the memory of one process.
        rank: the rank whose words this process writes.
    """

    def __init__(self, words: NDArray[np.int64], rank: int = 0) -> None:
        self.words = np.asarray(words)
        self._mine = memoryview(self.words[rank])  # writes a word in a tenth of NumPy's time

    @classmethod
    def shared(cls, path: Path, processes: int, rank: int = 0) -> Progress:
        """Return the progress words in a file. The file survives a crash, and a reader never sees half a word."""
        if not path.exists():
            np.zeros((processes, PROGRESS_WORDS), dtype=np.int64).tofile(path)
        return cls(np.memmap(path, dtype=np.int64, mode="r+", shape=(processes, PROGRESS_WORDS)), rank)

    @classmethod
    def private(cls, processes: int, rank: int) -> Progress:
        """Return progress words in the memory of this process."""
        return cls(np.zeros((processes, PROGRESS_WORDS), dtype=np.int64), rank)

    def _changed(self) -> None:
        self._mine[CHANGED_NS] = time.monotonic_ns()
        self._mine[COUNT] += 1

    def step(self, step: int, done: int) -> None:
        """Record that this rank begins a step after it has completed ``done`` steps in total."""
        self._mine[STEP], self._mine[DONE] = step, done
        self._changed()

    def enter(self) -> None:
        """Record that this rank enters a collective."""
        self._mine[INSIDE] = 1
        self._changed()

    def leave(self) -> None:
        """Record that this rank has left the collective."""
        self._mine[INSIDE] = 0
        self._changed()

    def started(self) -> list[int]:
        """Return the ranks that have begun."""
        return np.flatnonzero(self.words[:, COUNT]).tolist()

    def steps_done(self) -> int:
        """Return the number of steps that every rank has completed, over all seeds."""
        return int(self.words[:, DONE].min())

    def step_of(self, rank: int) -> int:
        """Return the current step of a rank, from 0."""
        return int(self.words[rank, STEP])

    def lagging_ranks(self) -> list[int]:
        """Return the ranks with the least progress, for which the other ranks wait."""
        outside = self.words[:, INSIDE] == 0
        fewest_changes = self.words[:, COUNT] == self.words[:, COUNT].min()
        # Among ranks with equally many changes, those inside a collective have reached it; the others have not.
        chosen = fewest_changes & outside if (fewest_changes & outside).any() else fewest_changes
        return np.flatnonzero(chosen).tolist()

    def quiet_s(self, now_ns: int | None = None) -> float:
        """Return the seconds since any rank last recorded a change."""
        now_ns = time.monotonic_ns() if now_ns is None else now_ns
        return (now_ns - int(self.words[:, CHANGED_NS].max())) / 1e9
