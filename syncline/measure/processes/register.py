"""What the processes of a served training share beside their lines: who has made how many steps, and who is gone."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

DRAWN, LOST, GONE, ENDED = range(4)


class StepNumber(NamedTuple):
    """Of a step among all workers'.

    Attributes:
        place: steps that were drawn before it, lost ones too: the order.
        counted: of these, not known to be lost when it was drawn: what schedules go by.
    """

    place: int
    counted: int


class Register:
    """Words of each worker, in a file that all processes map.

    They are steps drawn, steps lost, whether the worker is gone for good, and how often its process has ended.

    A number is drawn under a lock of the file, which the system takes from whoever dies.

    Args:
        path: of the file, which is made if it is not there.
        workers: P.
    """

    def __init__(self, path: Path, workers: int) -> None:
        if not path.exists():
            np.zeros((4, workers), dtype=np.int64).tofile(path)
        self.words = np.memmap(path, dtype=np.int64, mode="r+", shape=(4, workers))
        self._file = path.open("r+b")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    def draw(self, worker: int) -> StepNumber:
        """The number of a worker's step: one word is written, so nobody's end leaves half of it."""
        with self._locked():
            number = self.now()
            self.words[DRAWN, worker] += 1
        return number

    def now(self) -> StepNumber:
        """How many have been drawn: each that is drawn from now on has this place or a later one; and its count."""
        place = int(self.words[DRAWN].sum())
        return StepNumber(place, place - int(self.words[LOST].sum()))

    def lose(self, worker: int, arrived: int) -> int:
        """Of a worker that has failed all steps are lost but those that have arrived; how many are so by this."""
        with self._locked():
            lost = int(self.words[DRAWN, worker]) - arrived - int(self.words[LOST, worker])
            self.words[LOST, worker] += lost
        return lost

    def end(self, worker: int) -> None:
        """Note that a worker's process has ended before the training; nobody but the process that watches does."""
        self.words[ENDED, worker] += 1

    def ends(self, worker: int) -> int:
        """Return how often a worker's process has ended."""
        return int(self.words[ENDED, worker])

    def leave(self, worker: int) -> None:
        """A worker does not come back."""
        self.words[GONE, worker] = 1

    def gone(self) -> set[int]:
        """Who does not."""
        return {int(worker) for worker in np.flatnonzero(self.words[GONE])}
