"""The progress of trainings in other processes, and the flag that asks them to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from joblib import cpu_count

from syncline.errors import SynclineError
from syncline.files import temporary_folder
from syncline.interrupts import confirm, raise_in_main_thread, stopped_by_signal
from syncline.runs.processes.forked import call_results

T = TypeVar("T")


class SharedProgress:
    """One counter per training and one flag for all, in a file that several processes map.

    A file outlives a crash and needs no server; a counter is one aligned word, so a reader never sees half of it.

    Attributes:
        heard: whether a training in this process has seen the flag; it changes under the lock ``hearing``.
    """

    def __init__(self, path: Path, trainings: int) -> None:
        self.path, self.trainings = path, trainings
        self.heard, self.hearing = False, threading.Lock()
        if not path.exists():
            np.zeros(trainings + 1, dtype=np.int64).tofile(path)
        self._words = np.memmap(path, dtype=np.int64, mode="r+", shape=(trainings + 1,))

    def __reduce__(self) -> tuple[type[SharedProgress], tuple[Path, int]]:
        return SharedProgress, (self.path, self.trainings)

    def report(self, training: int, done: int) -> None:
        """Record that a training has completed ``done`` steps.

        Raises:
            KeyboardInterrupt: all trainings were asked to stop; the training keeps its results.
        """
        self._words[training] = done
        if self._words[-1]:
            with self.hearing:
                self.heard = True
            confirm()
            raise KeyboardInterrupt

    def reporter(self, training: int) -> Callable[[int], None]:
        """Return ``report`` for one training; it can be sent to another process."""
        return partial(self.report, training)

    def steps_done(self) -> list[int]:
        """Return the completed steps of each training."""
        return [int(word) for word in self._words[:-1]]

    def stop(self) -> None:
        """Ask every training to stop after its present step."""
        self._words[-1] = 1

    @property
    def stopped(self) -> bool:
        """Return whether the trainings were asked to stop."""
        return bool(self._words[-1])


@contextmanager
def shared_progress(trainings: int) -> Iterator[SharedProgress]:
    """Yield progress in a temporary file; a first signal asks all trainings to stop, a second one ends this process.

    Without signal handlers, the second Ctrl-C is a ``KeyboardInterrupt``.
    """
    with temporary_folder() as folder:
        shared = SharedProgress(folder / "progress", trainings)
        with stopped_by_signal(shared.stop):
            yield shared


def side_by_side(
    calls: Sequence[Callable[[], T]], jobs: int | None, progress: SharedProgress, shared: Sequence[Any] = ()
) -> Iterator[T]:
    """Yield the results of the calls, as they finish, from this number of processes; one per core if None.

    See `stoppable_results`.

    Raises:
        SynclineError: a process was killed from outside.
    """
    try:
        yield from stoppable_results(calls, min(jobs or cpu_count(), len(calls)), progress, shared)
    except BrokenProcessPool:
        progress.stop()
        raise SynclineError(
            "a process that trained was ended from outside, as a system does that is out of memory; "
            "with fewer --jobs less is needed at a time"
        ) from None


def stoppable_results(
    calls: Sequence[Callable[[], T | None]], jobs: int, progress: SharedProgress, shared: Sequence[Any] = ()
) -> Iterator[T]:
    """Yield the results of the calls, as they finish: in this process if ``jobs`` is 1, else in so many others.

    For other processes cloudpickle must be able to send calls and results; objects in ``shared``, which the calls have
    in common, are sent once to each process. Calls that were stopped before they had a result are left out. If a call
    raises, the others are asked to stop.

    Raises:
        BrokenProcessPool: a process was killed from outside.
    """
    stoppable = [partial(run_stoppable, call, progress) for call in calls]
    try:
        if jobs == 1:
            results: Iterable[T | None] = (call() for call in stoppable)
        else:
            results = call_results(stoppable, jobs, progress.path.parent, shared)
        yield from (result for result in results if result is not None)
        confirm()
    except BrokenProcessPool:
        raise
    except BaseException:
        progress.stop()
        raise


@contextmanager
def watched(progress: SharedProgress, call: Callable[[list[int]], None] | None) -> Iterator[None]:
    """Call a function with the completed steps about ten times a second from a thread, and at the end of the block."""
    if call is None:
        yield
        return
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(POLL_S):
            call(progress.steps_done())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        call(progress.steps_done())


POLL_S = 0.1
"""Seconds between two looks at the counts, or at the flag."""

PATIENCE_S = 1.0
"""Seconds that a training may take to its next report after a stop; in a longer step it is interrupted."""


def run_stoppable(call: Callable[[], T | None], progress: SharedProgress) -> T | None:
    """Return the result of a training; None if it was stopped before it had any."""
    if progress.stopped:
        return None
    if threading.current_thread() is not threading.main_thread():  # only the main thread can be interrupted
        return call()
    is_over = threading.Event()
    threading.Thread(target=_interrupt, args=(progress, is_over), daemon=True).start()
    result: T | None = None
    try:
        result = call()
    except KeyboardInterrupt:  # during the set-up; a training that has started returns its results
        if not progress.stopped:
            raise
    finally:
        is_over.set()
    confirm()
    return result


def _interrupt(progress: SharedProgress, is_over: threading.Event) -> None:
    """Interrupt a training that does not report; repeatedly, because a callback from C can lose an exception."""
    while not progress.stopped:
        if is_over.wait(POLL_S):
            return
    patience_s = PATIENCE_S
    while not is_over.wait(patience_s):
        with progress.hearing:
            if not (progress.heard or is_over.is_set()):
                raise_in_main_thread()
        patience_s = 2 * PATIENCE_S  # an interrupted training collects its results
