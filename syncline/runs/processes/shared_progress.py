"""Trainings in several processes: their progress, and the flag that asks all of them to stop."""

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
from syncline.interrupts import allow_slow_end, raise_in_main_thread, stopped_by_signal
from syncline.runs.processes.forked import call_results

T = TypeVar("T")


class SharedProgress:
    """The completed steps of each training, and one flag that stops all, in a file that several processes map.

    A file outlives a crash and needs no server. A counter is one aligned word, so that a reader never sees half of it.

    Args:
        path: path of the file, which is made if it does not exist.

    Attributes:
        has_seen_stop: whether `report` has raised KeyboardInterrupt in this process; it changes under ``seen_lock``.
    """

    def __init__(self, path: Path, trainings: int) -> None:
        """Map the file, which is created with zeros if it does not exist."""
        self.path, self.trainings = path, trainings
        self.has_seen_stop, self.seen_lock = False, threading.Lock()
        if not path.exists():
            np.zeros(trainings + 1, dtype=np.int64).tofile(path)
        words = np.memmap(path, dtype=np.int64, mode="r+", shape=(trainings + 1,))
        self._steps_done, self._stop_flag = words[:-1], words[-1:]

    def __reduce__(self) -> tuple[type[SharedProgress], tuple[Path, int]]:
        """Return how another process makes this object: it maps the same file."""
        return SharedProgress, (self.path, self.trainings)

    def report(self, training: int, done: int) -> None:
        """Record that a training has completed ``done`` steps.

        Raises:
            KeyboardInterrupt: all trainings were asked to stop; the training keeps its results.
        """
        self._steps_done[training] = done
        if self.stopped:
            with self.seen_lock:
                self.has_seen_stop = True
            allow_slow_end()
            raise KeyboardInterrupt

    def reporter(self, training: int) -> Callable[[int], None]:
        """Return ``report`` for one training, as a function that can be sent to another process."""
        return partial(self.report, training)

    def steps_done(self) -> list[int]:
        """Return the number of completed steps of each training."""
        return self._steps_done.tolist()

    def stop(self) -> None:
        """Ask every training to stop after its present step."""
        self._stop_flag[0] = 1

    @property
    def stopped(self) -> bool:
        """Return whether the trainings were asked to stop."""
        return bool(self._stop_flag[0])


@contextmanager
def shared_progress(trainings: int) -> Iterator[SharedProgress]:
    """Yield the progress of some trainings, and ask them to stop at the first Ctrl-C or signal to end.

    A second signal ends this process. Without signal handlers, the second Ctrl-C is a ``KeyboardInterrupt``.
    """
    with temporary_folder() as folder:
        shared = SharedProgress(folder / "progress", trainings)
        with stopped_by_signal(shared.stop):
            yield shared


def side_by_side(
    calls: Sequence[Callable[[], T]], jobs: int | None, progress: SharedProgress, shared: Sequence[Any] = ()
) -> Iterator[T]:
    """Call the functions of several trainings in several processes, and yield their results as they finish.

    Args:
        jobs: number of processes; one per core if None.

    Raises:
        SynclineError: a process was killed from outside.
    """
    try:
        yield from stoppable_results(calls, min(jobs or cpu_count(), len(calls)), progress, shared)
    except BrokenProcessPool:
        progress.stop()
        raise SynclineError(
            "a training's process was killed, perhaps because memory ran out; fewer --jobs need less memory"
        ) from None


def stoppable_results(
    calls: Sequence[Callable[[], T | None]], jobs: int, progress: SharedProgress, shared: Sequence[Any] = ()
) -> Iterator[T]:
    """Call the functions of several trainings, and yield their results as they finish.

    Trainings that were stopped before they had a result yield nothing. If a function raises an error, the other
    trainings are asked to stop.

    Args:
        jobs: number of processes; with 1 the functions run in this process, otherwise cloudpickle must be able to send
            them and their results.
        progress: the progress of the trainings, with the flag that stops them.
        shared: objects that several functions use; each process gets them once.

    Raises:
        BrokenProcessPool: a process was killed from outside.
    """
    stoppable_calls = [partial(run_stoppable, call, progress) for call in calls]
    try:
        if jobs == 1:
            results: Iterable[T | None] = (call() for call in stoppable_calls)
        else:
            results = call_results(stoppable_calls, jobs, folder=progress.path.parent, shared=shared)
        for result in results:
            if result is not None:
                yield result
        allow_slow_end()
    except BaseException as error:
        if not isinstance(error, BrokenProcessPool):  # a broken pool has no training left to stop
            progress.stop()
        raise


@contextmanager
def watched(progress: SharedProgress, call: Callable[[list[int]], None] | None) -> Iterator[None]:
    """Call a function with each training's completed steps, ten times a second and at the end of the block."""
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
"""Seconds between two reads of the counters, or of the flag."""

PATIENCE_S = 1.0
"""Seconds after a stop until a training that reports no step is interrupted within its step."""


def run_stoppable(call: Callable[[], T | None], progress: SharedProgress) -> T | None:
    """Return the result of a training's function; None if the training was stopped before it had a result."""
    if progress.stopped:
        return None
    if threading.current_thread() is not threading.main_thread():  # only the main thread can be interrupted
        return call()
    is_over = threading.Event()
    threading.Thread(target=_interrupt_after_stop, args=(progress, is_over), daemon=True).start()
    result: T | None = None
    try:
        result = call()
    except KeyboardInterrupt:  # only during the set-up: a started training returns its results
        if not progress.stopped:
            raise
    finally:
        is_over.set()
    allow_slow_end()  # after a signal, because sending a large result can take long
    return result


def _interrupt_after_stop(progress: SharedProgress, is_over: threading.Event) -> None:
    """Raise ``KeyboardInterrupt`` in the main thread if, after a stop, its training reports no step for `PATIENCE_S`.

    This is repeated until the training ends or reports a step, because a callback from C can lose an exception.
    """
    while not progress.stopped:
        if is_over.wait(POLL_S):
            return
    wait_s = PATIENCE_S
    while not is_over.wait(wait_s):
        with progress.seen_lock:
            if not progress.has_seen_stop and not is_over.is_set():
                raise_in_main_thread()
        wait_s = 2 * PATIENCE_S  # longer, because the interrupted training may be collecting its results
