"""Where trainings in other processes say how far they are, and where they are asked to stop."""

from __future__ import annotations

import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path
from types import FrameType

import numpy as np


class Board:
    """One counter per training and one flag for all, in a file that several processes map.

    A file outlives a crash and needs no server; a counter is one aligned word, so a reader never sees half of it.
    """

    def __init__(self, path: Path, trainings: int) -> None:
        self.path, self.trainings = path, trainings
        if not path.exists():
            np.zeros(trainings + 1, dtype=np.int64).tofile(path)
        self._words = np.memmap(path, dtype=np.int64, mode="r+", shape=(trainings + 1,))

    def __reduce__(self) -> tuple[type[Board], tuple[Path, int]]:
        return Board, (self.path, self.trainings)

    def report(self, training: int, done: int) -> None:
        """Note that a training has completed ``done`` steps.

        Raises:
            KeyboardInterrupt: if all were asked to stop; the training keeps what it has.
        """
        self._words[training] = done
        if self._words[-1]:
            raise KeyboardInterrupt

    def reporter(self, training: int) -> Callable[[int], None]:
        """``report`` for one training; it can be sent to another process."""
        return partial(self.report, training)

    def steps_done(self) -> list[int]:
        """Completed steps of each training."""
        return [int(word) for word in self._words[:-1]]

    def stop(self) -> None:
        """Ask every training to stop after its present step."""
        self._words[-1] = 1

    @property
    def stopped(self) -> bool:
        """Whether they were asked to stop."""
        return bool(self._words[-1])


@contextmanager
def board(trainings: int) -> Iterator[Board]:
    """A board in a temporary file; the first Ctrl-C asks all to stop, the second one is a ``KeyboardInterrupt``."""
    with tempfile.TemporaryDirectory(prefix="syncline-") as folder:
        shared = Board(Path(folder) / "board", trainings)

        def on_interrupt(signum: int, frame: FrameType | None) -> None:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            shared.stop()

        # Only the main thread may set handlers; a notebook's worker thread keeps the usual behaviour.
        main = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGINT, on_interrupt) if main else signal.SIG_DFL
        try:
            yield shared
        finally:
            if main:
                signal.signal(signal.SIGINT, before)


@contextmanager
def uninterrupted_children() -> Iterator[None]:
    """Ctrl-C, which a terminal sends to all processes, never reaches those started in the block: the board stops them.

    A blocked signal is inherited from the first instruction on, where a handler would come too late. Here it waits for
    the end of the block.
    """
    resource_tracker.ensure_running()  # started later, with the first child, it would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
