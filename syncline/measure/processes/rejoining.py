"""A server and its workers under watch: if a worker dies, the parent restarts it or gives it up; the others go on.

The processes share a `Register`: counters of the steps of each worker, and whether the worker is gone.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from syncline.interrupts import children_without_signals, fork_server, raise_if_interrupted
from syncline.measure.processes import watchdog

BEGUN, LOST, GONE, ENDED = range(4)
"""Rows of a register's counters: steps begun, steps lost, whether the worker is gone for good (1 or 0), and ends of its
process."""


class StepNumber(NamedTuple):
    """The number of a step in the order of all workers' steps.

    Attributes:
        begun_before: number of steps that all workers began before this step, lost ones included; it defines the order.
        not_lost_before: the same without steps known to be lost by then; learning-rate schedules use it as the step.
    """

    begun_before: int
    not_lost_before: int


class Register:
    """The counters of ``workers``, in the file ``path`` that all processes map into their memory.

    A worker that begins a step gets the step's number among the steps of all workers, under a lock of the file. If its
    process dies, the operating system releases the lock.
    """

    def __init__(self, path: Path, workers: int) -> None:
        shape = (4, workers)
        if not path.exists():
            np.zeros(shape, dtype=np.int64).tofile(path)
        self.counters = np.memmap(path, dtype=np.int64, mode="r+", shape=shape)
        self._file = path.open("r+b")  # the file that `_locked` locks

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the file in a ``with`` block."""
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    def begin_step(self, worker: int) -> StepNumber:
        """Count a step that a worker begins, and return its number."""
        with self._locked():
            number = self.next_step()
            self.counters[BEGUN, worker] += 1  # the only write, so that a process that dies leaves no partial one
        return number

    def next_step(self) -> StepNumber:
        """Return the number that the next step to begin will have."""
        num_begun = int(self.counters[BEGUN].sum())
        return StepNumber(num_begun, not_lost_before=num_begun - int(self.counters[LOST].sum()))

    def mark_lost(self, worker: int, num_arrived: int) -> int:
        """Mark a failed worker's steps that have not arrived as lost, and return the number of newly lost steps."""
        with self._locked():
            num_lost_before = int(self.counters[LOST, worker])
            num_lost = int(self.counters[BEGUN, worker]) - num_arrived - num_lost_before
            self.counters[LOST, worker] += num_lost
        return num_lost

    def record_end(self, worker: int) -> None:
        """Record that a worker's process has ended; only the watching process calls this."""
        self.counters[ENDED, worker] += 1

    def num_ends(self, worker: int) -> int:
        """Return the number of times that a worker's process has ended."""
        return int(self.counters[ENDED, worker])

    def record_departure(self, worker: int) -> None:
        """Record that a worker will not come back."""
        self.counters[GONE, worker] = 1

    def gone_workers(self) -> set[int]:
        """Return the workers that do not come back."""
        return {int(worker) for worker in np.flatnonzero(self.counters[GONE])}


ENDING_S = 10.0
"""Seconds that workers may take to end after their server has ended."""

SERVER = "the server"


@dataclass(frozen=True)
class Departure:
    """The end of a worker's process before the end of the training.

    Args:
        at_s: seconds from the start of the first process.
        how: the exit code or signal, in words.
        returns: whether the process was started again.
    """

    worker: int
    at_s: float
    how: str
    returns: bool


class ServedProcesses:
    """The processes of P workers and of their server. The server has the rank P.

    Args:
        targets: an importable function and its arguments for each process, called as ``function(rank, *arguments)``.
        folder: the folder of the files ``progress`` and ``register``, and of files about failures.
        timeout_s: seconds without progress after which a process is ended.
        rejoins: maximum number of restarts of each worker's process.
        preload: modules that are imported once for all processes.

    Attributes:
        departures: the departures of workers, in order.
    """

    def __init__(
        self, targets: Sequence[tuple[Callable[..., Any], tuple]], folder: Path, timeout_s: float, rejoins: int,
        preload: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.targets, self.workers, self.folder = targets, len(targets) - 1, folder
        self.timeout_s, self.rejoins = timeout_s, rejoins
        self.progress = watchdog.Progress.shared(folder / "progress", len(targets), self.workers)
        self.register = Register(folder / "register", self.workers)
        self.context = fork_server([*watchdog.PRELOAD, *preload])
        self.processes: dict[int, BaseProcess] = {}
        self.finished_workers: set[int] = set()  # workers whose process has ended and is not started again
        self.process_starts: dict[int, tuple[float, int]] = {}  # by rank: time of the start, and number of changes then
        self.departures: list[Departure] = []

    def run(
        self, on_start: Callable[[], object], on_poll: Callable[[watchdog.Progress], object]
    ) -> watchdog.Failure | None:
        """Run the processes until the server ends or the training fails; end them all, and return the failure if any.

        Args:
            on_start: called when the server's process has been started.
            on_poll: called a few times per second. If it raises, the processes are ended.
        """
        self.begun_s = time.monotonic()
        try:
            self._start(self.workers)
            on_start()
            for worker in range(self.workers):
                self._start(worker)
            return self._watch(on_poll)
        finally:
            watchdog.end_all(self.processes.values())

    def _start(self, rank: int) -> None:
        """Start the process of a worker or of the server."""
        target, args = self.targets[rank]
        process: BaseProcess = self.context.Process(
            target=watchdog.run_guarded, args=(rank, target, args, self.folder), daemon=True
        )
        num_changes = int(self.progress.counters[rank, watchdog.NUM_CHANGES])  # not 0 for a restarted worker
        with children_without_signals():
            process.start()  # the first start waits until the fork server has imported everything
        self.process_starts[rank] = time.monotonic(), num_changes
        self.processes[rank] = process

    def _watch(self, on_poll: Callable[[watchdog.Progress], object]) -> watchdog.Failure | None:
        """Watch workers and server until the server ends; return the failure of the training, or None."""
        while True:
            raise_if_interrupted()
            on_poll(self.progress)
            server = self.processes[self.workers]
            if server.exitcode is not None:
                if watchdog.ended_early(self.workers, server, self.folder):
                    return self._server_failure()
                # The server has ended as it should, and has told the workers to end.
                deadline_s = time.monotonic() + ENDING_S
                for rank in range(self.workers):
                    self.processes[rank].join(max(0.0, deadline_s - time.monotonic()))
                return None
            for rank in range(self.workers):
                process = self.processes[rank]
                if rank in self.finished_workers or process.exitcode is None:
                    continue
                for reported in watchdog.read_failures(self.folder):
                    if reported.rank == rank:  # an error of the program, which a restarted worker would repeat
                        return self._failure_of_report(reported)
                if watchdog.ended_early(rank, process, self.folder):
                    self._handle_death(rank)
                else:
                    self.finished_workers.add(rank)
            failure = self._stall_failure()
            if failure is not None:
                return failure
            running = [process.sentinel for process in self.processes.values() if process.is_alive()]
            connection.wait(running, watchdog.POLL_S)

    def _handle_death(self, rank: int) -> None:
        """Record a worker's death for the server, and restart the worker unless it has been restarted too often."""
        returns = sum(departure.worker == rank for departure in self.departures) < self.rejoins
        ending = watchdog.exit_description(self.processes[rank].exitcode)
        self.departures.append(Departure(rank, time.monotonic() - self.begun_s, how=ending, returns=returns))
        if not returns:
            self.finished_workers.add(rank)
            self.register.record_departure(rank)
        self.register.record_end(rank)  # the server polls this count to notice the death
        if returns:
            self._start(rank)

    def _stall_failure(self) -> watchdog.Failure | None:
        """Kill workers' processes that stand still; return a failure if the server or all stand still, else None."""
        now_ns, all_begun = time.monotonic_ns(), True
        for rank, process in self.processes.items():
            if rank in self.finished_workers or process.exitcode is not None:
                continue
            start_s, num_changes = self.process_starts[rank]
            if self.progress.counters[rank, watchdog.NUM_CHANGES] == num_changes:  # the process has not begun
                all_begun, allowed_s = False, max(watchdog.START_S, self.timeout_s)
                is_still = time.monotonic() - start_s > allowed_s
            else:
                allowed_s = self.timeout_s
                quiet_s = (now_ns - int(self.progress.counters[rank, watchdog.CHANGED_NS])) / 1e9
                waits_for_others = bool(self.progress.counters[rank, watchdog.IN_COLLECTIVE])
                is_still = quiet_s > allowed_s and not waits_for_others
            if is_still and rank == self.workers:
                return watchdog.Failure(
                    rank, self.progress.step_of(rank), f"did nothing for {allowed_s:g} s", name=SERVER
                )
            if is_still:
                process.kill()  # `_watch` finds it dead, and restarts the worker
                process.join()
        if all_begun and self.progress.quiet_s(now_ns) > self.timeout_s:
            server_step = self.progress.step_of(self.workers)
            return watchdog.Failure(rank=None, step=server_step, reason=f"did nothing for {self.timeout_s:g} s")
        return None

    def _server_failure(self) -> watchdog.Failure:
        """Return the failure of the server, or of the worker whose failure ended the server."""
        reported = watchdog.read_failures(self.folder)
        if reported:
            return self._failure_of_report(reported[0])
        ending = watchdog.exit_description(self.processes[self.workers].exitcode)
        return watchdog.Failure(self.workers, self.progress.step_of(self.workers), f"died ({ending})", name=SERVER)

    def _failure_of_report(self, reported: watchdog.ReportedFailure) -> watchdog.Failure:
        """Return the failure of a training from the report of the process that caused it."""
        rank, text = reported.rank, reported.text
        if reported.is_mistake:  # found before the first step
            return watchdog.Failure(rank, step=None, reason=text, mistake=True)
        name = SERVER if rank == self.workers else ""
        return watchdog.Failure(rank, step=self.progress.step_of(rank), reason=f"failed ({text})", name=name)
