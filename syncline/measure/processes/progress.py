"""How far each process is, in memory that the one that watches them can see."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

COUNT, DONE, STEP, INSIDE, CHANGED_NS = range(5)
"""Words of a rank: changes so far, steps completed over all seeds, the present step, whether inside a collective,
when the last change was."""

PROGRESS_WORDS = 5


class Progress:
    """Words of all ranks, each of which writes its own: steps, collectives, and when it last came to one of them.

    Args:
        words: ``(P, 5)`` integers, in a file that several processes map, or a process's own.
        rank: whose words this one writes.
    """

    def __init__(self, words: NDArray[np.int64], rank: int = 0) -> None:
        self.words = np.asarray(words)
        self._mine = memoryview(self.words[rank])  # a word is written in a tenth of the time that NumPy takes

    @classmethod
    def shared(cls, path: Path, processes: int, rank: int = 0) -> Progress:
        """Words in a file. It outlives a crash, and a reader never sees half a word."""
        if not path.exists():
            np.zeros((processes, PROGRESS_WORDS), dtype=np.int64).tofile(path)
        return cls(np.memmap(path, dtype=np.int64, mode="r+", shape=(processes, PROGRESS_WORDS)), rank)

    def _changed(self) -> None:
        self._mine[CHANGED_NS] = time.monotonic_ns()
        self._mine[COUNT] += 1

    def step(self, step: int, done: int) -> None:
        """This rank begins a step, having completed so many in all."""
        self._mine[STEP], self._mine[DONE] = step, done
        self._changed()

    def enter(self) -> None:
        """This rank comes to a collective."""
        self._mine[INSIDE] = 1
        self._changed()

    def leave(self) -> None:
        """This rank has left it."""
        self._mine[INSIDE] = 0
        self._changed()

    def started(self) -> list[int]:
        """The ranks that have begun."""
        return np.flatnonzero(self.words[:, COUNT]).tolist()

    def steps_done(self) -> int:
        """Steps that every rank has completed, over all seeds."""
        return int(self.words[:, DONE].min())

    def step_of(self, rank: int) -> int:
        """The step that a rank is in, from 0."""
        return int(self.words[rank, STEP])

    def behind(self) -> list[int]:
        """The ranks that came least far: those that the others wait for."""
        outside = self.words[:, INSIDE] == 0
        least = self.words[:, COUNT] == self.words[:, COUNT].min()
        # Of equally many changes, whoever is inside a collective came to it, and whoever is not is still on its way.
        chosen = least & outside if (least & outside).any() else least
        return np.flatnonzero(chosen).tolist()

    def quiet_s(self, now_ns: int | None = None) -> float:
        """Seconds since any rank changed anything: for so long nobody has gone on."""
        now_ns = time.monotonic_ns() if now_ns is None else now_ns
        return (now_ns - int(self.words[:, CHANGED_NS].max())) / 1e9
