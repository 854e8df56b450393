"""Local processes under watch: if a process dies or hangs, the parent ends the others and names it.

Each process writes its progress into memory that it shares with the parent.
"""

from __future__ import annotations

import json
import os
import signal
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.errors import SynclineError
from syncline.interrupts import children_without_signals, end_with_parent, fork_server, raise_if_interrupted

NUM_CHANGES, DONE, STEP, IN_COLLECTIVE, CHANGED_NS = range(5)
"""Indices of a rank's counters: number of changes so far, steps completed over all seeds, current step, whether the
rank is in a collective, time of the last change in nanoseconds."""

NUM_COUNTERS = 5


class Progress:
    """Counters of all ranks in shared memory: a rank writes its steps, its collectives, and when they last changed.

    Args:
        counters: ``(P, 5)`` integers, indexed by ``NUM_CHANGES``, ``DONE``, ``STEP``, ``IN_COLLECTIVE`` and
            ``CHANGED_NS``, in a file that several processes map or in the memory of one process.
        rank: the rank whose counters this process writes.
    """

    def __init__(self, counters: NDArray[np.int64], rank: int = 0) -> None:
        self.counters = np.asarray(counters)
        self._own_counters = memoryview(self.counters[rank])  # writes a number in a tenth of NumPy's time

    @classmethod
    def shared(cls, path: Path, processes: int, rank: int = 0) -> Progress:
        """Return counters in a file that all processes map; it survives a crash, and readers see whole numbers."""
        if not path.exists():
            np.zeros((processes, NUM_COUNTERS), dtype=np.int64).tofile(path)
        return cls(np.memmap(path, dtype=np.int64, mode="r+", shape=(processes, NUM_COUNTERS)), rank)

    @classmethod
    def private(cls, processes: int, rank: int) -> Progress:
        """Return counters in the memory of this process."""
        return cls(np.zeros((processes, NUM_COUNTERS), dtype=np.int64), rank)

    def _record_change(self) -> None:
        """Increase this rank's count of changes, and store the time."""
        self._own_counters[CHANGED_NS] = time.monotonic_ns()
        self._own_counters[NUM_CHANGES] += 1

    def record_step(self, step: int, done: int) -> None:
        """Record that this rank begins a step; ``done`` is the number of completed steps, over all seeds."""
        self._own_counters[STEP], self._own_counters[DONE] = step, done
        self._record_change()

    def enter_collective(self) -> None:
        """Record that this rank waits for others from now on, in a collective or for a message."""
        self._own_counters[IN_COLLECTIVE] = 1
        self._record_change()

    def leave_collective(self) -> None:
        """Record that this rank no longer waits for others."""
        self._own_counters[IN_COLLECTIVE] = 0
        self._record_change()

    def started(self) -> list[int]:
        """Return the ranks that have recorded any progress."""
        return np.flatnonzero(self.counters[:, NUM_CHANGES]).tolist()

    def steps_done(self) -> int:
        """Return the number of steps that every rank has completed, over all seeds."""
        return int(self.counters[:, DONE].min())

    def step_of(self, rank: int) -> int:
        """Return the current step of a rank, from 0."""
        return int(self.counters[rank, STEP])

    def lagging_ranks(self) -> list[int]:
        """Return the ranks with the least progress, for which the other ranks wait."""
        is_lagging = self.counters[:, NUM_CHANGES] == self.counters[:, NUM_CHANGES].min()
        # Entering a collective is a change: of ranks with equally many, those outside have not reached the collective.
        is_lagging_outside = is_lagging & (self.counters[:, IN_COLLECTIVE] == 0)
        if is_lagging_outside.any():
            is_lagging = is_lagging_outside
        return np.flatnonzero(is_lagging).tolist()

    def quiet_s(self, now_ns: int | None = None) -> float:
        """Return the seconds since any rank last recorded a change."""
        now_ns = time.monotonic_ns() if now_ns is None else now_ns
        return (now_ns - int(self.counters[:, CHANGED_NS].max())) / 1e9


PRELOAD = ("__main__", "syncline.training", "torch._dynamo")
"""Modules that the fork server imports once for all processes; optimizers need the last one."""

START_S = 180.0
"""Seconds that a process may take until its first step."""

GRACE_S = 1.0
"""Seconds to wait for the failures of other processes after a failure; a process that loses a peer fails too."""

POLL_S = 0.05

FAILED_NS = "failed_ns"
"""The attribute of an error that holds the time when it was raised, in nanoseconds of the machine's monotonic clock."""


@dataclass(frozen=True)
class Failure:
    """The reason why a training ended early.

    Args:
        rank: the rank that caused the failure; None if it is unknown.
        step: the step of the failure, from 0; None before the first step.
        reason: what the rank did, as in "rank 2 did not begin".
        mistake: whether the cause is a mistake in the input; then ``reason`` is the whole line.
        name: the rank's name in the line, such as "the server"; empty for "rank" and its number.
    """

    rank: int | None
    step: int | None
    reason: str
    mistake: bool = False
    name: str = ""

    def __str__(self) -> str:
        """Return the failure as the line that a launch prints."""
        if self.mistake:
            return self.reason
        where = "before the first step" if self.step is None else f"in step {self.step}"
        rank_name = "somebody" if self.rank is None else f"rank {self.rank}"
        return f"{self.name or rank_name} {self.reason} {where}"


class ReportedFailure(NamedTuple):
    """The error of a process, as the process writes it into a file before it ends.

    Attributes:
        at_ns: time of the failure on the machine's monotonic clock.
        text: the error in one line.
    """

    at_ns: int
    rank: int
    is_mistake: bool
    text: str
    stack: str


def write_failure(folder: Path, rank: int, error: BaseException) -> None:
    """Write the current error of a process into a file for the process that watches it.

    The file is renamed when it is complete, because this process may be ended soon.
    """
    incomplete_file = folder / f"{rank}.failing"
    failed_ns = getattr(error, FAILED_NS, time.monotonic_ns())
    is_mistake = isinstance(error, SynclineError)
    failure = ReportedFailure(failed_ns, rank, is_mistake, line_of_error(error), stack=traceback.format_exc())
    incomplete_file.write_text(json.dumps(failure))
    incomplete_file.replace(folder / f"{rank}.failed")


def line_of_error(error: BaseException) -> str:
    """Return an error in one line: its message if it is a mistake in the input, else its class and the first line."""
    first_line, _, _ = str(error).partition("\n")
    return str(error) if isinstance(error, SynclineError) else f"{type(error).__name__}: {first_line}"


def read_failures(folder: Path) -> list[ReportedFailure]:
    """Return the failures that processes have written into a folder, the earliest first."""
    return sorted(ReportedFailure(*json.loads(path.read_text())) for path in folder.glob("*.failed"))


def run_guarded(rank: int, target: Callable[..., Any], args: tuple, folder: Path) -> None:
    """Run ``target(rank, *args)`` in this watched process, and exit; the process also ends if its parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process if the user interrupts it
    end_with_parent()
    try:
        target(rank, *args)
    except BaseException as error:
        write_failure(folder, rank, error)
        os._exit(1)
    (folder / f"{rank}.done").touch()  # `ended_early` looks for this file
    # Torch may abort while the interpreter shuts down, so exit at once; all files are written.
    os._exit(0)


def ended_early(rank: int, process: BaseProcess, folder: Path) -> bool:
    """Return whether a process ended before its work was done, whatever its exit code."""
    return process.exitcode is not None and not (folder / f"{rank}.done").exists()


def run_watched(
    target: Callable[..., Any],
    processes: int,
    args: tuple,
    progress: Progress,
    folder: Path,
    timeout_s: float,
    *,
    preload: Sequence[str] = (),
    on_poll: Callable[[Progress], object] = lambda progress: None,
) -> Failure | None:
    """Run ``target(rank, *args)`` in local processes; return the failure, or None if all processes succeeded.

    If a process fails or all stand still, all are ended.

    Args:
        target: an importable function.
        progress: the counters that every process updates.
        folder: the folder in which processes write files about failures.
        timeout_s: seconds in which at least one process must reach a new step or collective, after all have begun.
        preload: modules that are imported once for all processes, besides ``PRELOAD``.
        on_poll: called with ``progress`` a few times per second. If it raises, the processes are ended.
    """
    # Processes are forked from a server that has imported the modules, so that they start at once.
    context = fork_server([*PRELOAD, *preload])
    children: list[BaseProcess] = [
        context.Process(target=run_guarded, args=(rank, target, args, folder), daemon=True) for rank in range(processes)
    ]
    try:
        with children_without_signals():
            for child in children:
                child.start()
        return _watch(children, progress, folder, timeout_s, on_poll)
    finally:
        end_all(children)


def end_all(processes: Collection[BaseProcess]) -> None:
    """End the processes that are still alive."""
    for process in processes:
        if process.is_alive():
            process.kill()  # a stopped process does not react to SIGTERM
    for process in processes:
        process.join()


def _watch(
    processes: Sequence[BaseProcess],
    progress: Progress,
    folder: Path,
    timeout_s: float,
    on_poll: Callable[[Progress], object],
) -> Failure | None:
    """Watch the processes until all have ended, one has failed, or all stand still; return the failure or None."""
    begun_s = time.monotonic()
    while True:
        # The list precedes the check for failures: a process that fails after the check keeps the loop going once more.
        running = [process.sentinel for process in processes if process.is_alive()]
        if any(ended_early(rank, process, folder) for rank, process in enumerate(processes)):
            return _first_failure(processes, progress, folder)
        raise_if_interrupted()
        on_poll(progress)
        if not running:
            return None
        missing_ranks = sorted(set(range(len(processes))) - set(progress.started()))
        if missing_ranks:
            limit_s = max(START_S, timeout_s)
            if time.monotonic() - begun_s > limit_s:
                return Failure(missing_ranks[0], step=None, reason=f"did not begin within {limit_s:g} s")
        elif progress.quiet_s() > timeout_s:
            return _stall_failure(processes, progress, timeout_s)
        connection.wait(running, POLL_S)


def _first_failure(processes: Sequence[BaseProcess], progress: Progress, folder: Path) -> Failure:
    """Return the failure of a process that died without a report, else the earliest report, which caused the others."""
    deadline_s = time.monotonic() + GRACE_S
    while time.monotonic() < deadline_s and any(process.is_alive() for process in processes):
        time.sleep(0.02)
    reported = read_failures(folder)
    reported_ranks = {failure.rank for failure in reported}

    def step_if_begun(rank: int) -> int | None:
        return progress.step_of(rank) if rank in progress.started() else None

    for rank, process in enumerate(processes):
        if rank not in reported_ranks and ended_early(rank, process, folder):
            return Failure(rank, step_if_begun(rank), f"died ({exit_description(process.exitcode)})")
    first = reported[0]
    reason = first.text if first.is_mistake else f"failed ({first.text})"
    return Failure(first.rank, step_if_begun(first.rank), reason, mistake=first.is_mistake)


def exit_description(code: int | None) -> str:
    """Return an exit code or a signal in words."""
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


def _stall_failure(processes: Sequence[BaseProcess], progress: Progress, timeout_s: float) -> Failure:
    """Return the failure of ranks that stand still: stopped processes, else those with the least progress."""
    stopped = [rank for rank, process in enumerate(processes) if _is_stopped(process.pid)]
    first_rank, *other_ranks = stopped or progress.lagging_ranks()
    # `Failure` puts "rank 2" before the reason, and "in step 5" behind it.
    reason = f"did nothing for {timeout_s:g} s, and the others waited for it,"
    if other_ranks:
        reason = f"and ranks {', '.join(map(str, other_ranks))} did nothing for {timeout_s:g} s"
    return Failure(first_rank, progress.step_of(first_rank), reason)


def _is_stopped(pid: int | None) -> bool:
    """Return whether a process is stopped by a signal, from its state in Linux; False if that is unavailable."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        return stat.rpartition(")")[2].split()[0] == "T"  # the program's name, in parentheses, may contain spaces
    except (OSError, IndexError):
        return False
