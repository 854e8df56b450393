"""The processes of a traced script: forked as if started from scratch, and watched until they end.

A rank that fails ends all ranks, and so does a deadlock between ranks. A process that a rank starts is not recorded; if
it joins a process group, it would wait for ranks that do not exist, so it ends the trace with an error. Processes that
join no group, such as the workers of a ``DataLoader``, run unchanged.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import gc
import json
import multiprocessing.process
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from syncline.errors import SynclineError
from syncline.interrupts import end_with_parent, raise_if_interrupted
from syncline.measure.recording.recorder import is_library

HARD = 2
"""The constant ``omp_pause_hard`` of OpenMP 5: its threads end, and are created again when they are needed."""


def fork_process() -> int:
    """Fork this process, and return the child's process id, or 0 in the child, which ends with this process.

    OpenMP's threads end before the fork, because the child would wait for them but does not have them. The child's
    garbage collector skips this process's objects, because a finalizer may wait for a thread that the child does not
    have (a client of dask, an executor). When the child ends, it does not end this process's other children.
    """
    end = getattr(ctypes.CDLL(None), "omp_pause_resource_all", None)
    if end is not None:
        end(HARD)
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        gc.freeze()
        multiprocessing.process._children.clear()  # type: ignore[attr-defined]
        end_with_parent(parent)
    return pid


def set_up_child() -> None:
    """Let a forked child ignore Ctrl-C, end on SIGTERM, and write its output line by line to standard error."""
    atexit._clear()  # drops the parent's functions; the caller runs those of the script
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(1, "w", 1, closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)


def reset_child_state(threads: int, seed: int) -> None:
    """Set the threads of a forked child, and reset its random generators, so that they do not depend on the parent.

    Args:
        threads: number of threads of torch.
        seed: the seed of Python's and NumPy's generators, which a new process would seed randomly; torch's generator
            gets the state that it has in every new process.
    """
    import numpy as np
    import torch

    torch.set_num_threads(threads)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - the script's global state
    reset_torch_generator()


def reset_torch_generator() -> None:
    """Reset torch's generator to the state that it has in a new process."""
    import torch

    torch.default_generator.set_state(torch.Generator().get_state())


ADVICE = (
    "a trace runs the script once for each rank, with RANK and WORLD_SIZE in the environment as under torchrun. Call"
    " the training directly and give the number of ranks as --workers, or start it by torch.multiprocessing.spawn"
)


class TracedRank(NamedTuple):
    """The rank of a process, or of its ancestor for a process that a rank has started.

    Attributes:
        folder: the folder in which ranks write why they failed.
        rank: the number of the rank.
        pid: the process id of the rank.
    """

    folder: Path
    rank: int
    pid: int


class Identity:
    """The rank as which this process is recorded, or as a child of which it runs; None outside a trace."""

    rank: TracedRank | None = None


def write_failure(folder: Path, rank: int, words: str = "", reason: str = "", line: str = "") -> None:
    """Write the error of a failed rank to a file, with the time.

    Args:
        folder: the folder in which ranks write why they failed.
        words: text that is shown unchanged, such as a traceback.
        reason: the error in one sentence; empty if ``words`` contain it.
        line: the line of the user's script that failed.
    """
    note = {"at": time.monotonic(), "words": words, "reason": reason, "line": line}
    (folder / f"failed-{rank}").write_text(json.dumps(note))


def end_if_child() -> None:
    """End this process and its rank if the script started this process and it now joins a process group."""
    rank = Identity.rank
    if rank is None or rank.pid == os.getpid():
        return
    from syncline.measure.recording.recorder import user_line

    reason = f"{user_line()}: a process that the script started joins a group; {ADVICE}"
    with suppress(OSError):  # another child has ended the trace already
        write_failure(rank.folder, rank.rank, reason=reason)
        os.kill(rank.pid, signal.SIGKILL)
    os._exit(1)


class ChildTarget:
    """The function of a process that a rank starts by ``multiprocessing``, with the rank's identity.

    Args:
        target: the function that the script passed as the target.
    """

    def __init__(self, target: Callable[..., Any], rank: TracedRank) -> None:
        self.target, self.rank = target, rank

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function, and end the trace if the function joins a group."""
        Identity.rank = self.rank
        if "torch" in sys.modules:
            from torch.distributed import distributed_c10d as groups

            for name in ("rendezvous", "_new_process_group_helper"):
                setattr(groups, name, ending_child_first(getattr(groups, name)))
        return self.target(*args, **kwargs)


def ending_child_first(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that first ends a child of a rank and otherwise calls the given function."""

    def called(*args: Any, **kwargs: Any) -> Any:
        end_if_child()
        return call(*args, **kwargs)

    return called


def install_child_ranks() -> None:
    """Let each process that this rank starts know the rank, because a new interpreter has no hooks."""
    start = multiprocessing.process.BaseProcess.start

    def started(process: Any) -> None:
        if Identity.rank is not None and process._target is not None:
            process._target = ChildTarget(process._target, Identity.rank)
        start(process)

    multiprocessing.process.BaseProcess.start = started  # type: ignore[method-assign,assignment]


GRACE_S = 5.0
"""Seconds that ranks may take to end by themselves after a rank has failed."""

POLL_S = 0.02
"""Seconds between two checks for ranks that have ended."""

LOOK_S = 2.0
"""Seconds between two readings of the ranks' CPU time."""

STUCK_S = 120.0
"""Seconds without computation in any rank or its children after which the ranks count as deadlocked."""

IDLE = 0.01
"""CPU seconds per second and rank below which the ranks count as idle; waiting threads poll now and then."""

WHERE = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2
"""The signal that makes a rank write its stacks; scripts rarely use it."""


def watched_ranks(running: dict[int, int], folder: Path) -> None:
    """Wait for all ranks to end; if a rank fails or the ranks deadlock, end the others.

    Args:
        running: the ranks by process id.
        folder: the folder in which ranks write why they failed and where they wait.

    Raises:
        SynclineError: if a rank fails, for the rank that failed first, with its message on standard error; or if the
            ranks deadlock.
    """
    workers = len(running)
    idle = Idleness(STUCK_S)
    try:
        while running:
            failed = reap_failed_ranks(running)
            raise_if_interrupted()
            if failed:
                time.sleep(POLL_S)
                raise_if_interrupted()  # the same signal may have ended the rank
                failed |= reap_failed_ranks(running)  # a rank that fails as a consequence may end first
                end_ranks(running)
                rank, note = first_failure(failed, folder)
                sys.stderr.write(note["words"])
                where = f" at {note['line']}" if note["line"] else ""
                hint = "; its own words are above" if note["words"] else ""
                raise SynclineError(note["reason"] or f"rank {rank} of {workers} {failed[rank]}{where}{hint}")
            if running and idle.is_over_limit(running):
                where = waiting_lines(running, workers, folder)
                end_ranks(running)
                raise SynclineError(f"no rank has computed anything for {idle.limit_s:g} s: {where}")
            time.sleep(POLL_S)
    except BaseException:
        for pid in running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        raise


def reap_failed_ranks(running: dict[int, int]) -> dict[int, str]:
    """Remove ended ranks from ``running``, and return those that failed with the exit code or signal in words."""
    failed = {}
    for pid in list(running):
        ended_pid, status = os.waitpid(pid, os.WNOHANG)
        if ended_pid:
            rank = running.pop(pid)
            if status:
                code = os.waitstatus_to_exitcode(status)
                failed[rank] = f"exited with code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
    return failed


def first_failure(failed: dict[int, str], folder: Path) -> tuple[int, dict[str, str]]:
    """Return the rank that failed first, and its note that `write_failure` wrote: ``words``, ``reason`` and ``line``.

    The other ranks fail as a consequence. A rank without a note was ended from outside and counts as the first.

    Args:
        failed: the failed ranks, each with its exit code or signal in words.
        folder: the folder of the notes.
    """
    notes: dict[tuple[float, int], dict[str, str]] = {}
    for rank in failed:
        file = folder / f"failed-{rank}"
        note: dict[str, Any] = (
            json.loads(file.read_text()) if file.exists() else {"at": 0.0, "words": "", "reason": "", "line": ""}
        )
        notes[note.pop("at"), rank] = note
    first = min(notes)
    return first[1], notes[first]


def end_ranks(running: dict[int, int]) -> None:
    """Ask ranks to end by SIGTERM, and kill those that do not end within ``GRACE_S``."""
    for pid in running:
        os.kill(pid, signal.SIGTERM)
    until_s = time.monotonic() + GRACE_S
    while running:
        kill_signal = signal.SIGKILL if time.monotonic() > until_s else None
        for pid in list(running):
            if kill_signal is not None:
                os.kill(pid, kill_signal)
            if os.waitpid(pid, 0 if kill_signal is not None else os.WNOHANG)[0]:
                running.pop(pid)
        time.sleep(POLL_S)


class Idleness:
    """A timer of the seconds in which ranks and their children have computed nothing.

    A pause of the machine, in which this process does not run either, counts as at most two readings.

    Args:
        limit_s: seconds without computation after which `is_over_limit` returns True.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s, self.look_s = limit_s, min(LOOK_S, limit_s / 4)
        self.looked_s = time.monotonic()
        self.idle_s = self.cpu_s = 0.0

    def is_over_limit(self, running: dict[int, int]) -> bool:
        """Return whether the ranks have been idle for longer than the limit; False if CPU times are unavailable."""
        passed_s = time.monotonic() - self.looked_s
        if passed_s < self.look_s:
            return False
        cpu_s = cpu_of(list(running))
        if cpu_s is None or abs(cpu_s - self.cpu_s) > IDLE * len(running) * passed_s:
            self.idle_s = 0.0
        else:
            self.idle_s += min(passed_s, 2 * self.look_s)
        self.looked_s, self.cpu_s = self.looked_s + passed_s, cpu_s or 0.0
        return self.idle_s > self.limit_s


def cpu_of(pids: list[int]) -> float | None:
    """Return the CPU seconds of processes and their living descendants; None if ``/proc`` is unavailable."""
    children: dict[int, list[int]] = {}
    seconds: dict[int, float] = {}
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    for stat_file in Path("/proc").glob("[0-9]*/stat"):
        try:
            stat_fields = stat_file.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(stat_file.parent.name)
        children.setdefault(int(stat_fields[1]), []).append(pid)
        seconds[pid] = (int(stat_fields[11]) + int(stat_fields[12])) * tick_s
    if not seconds:
        return None
    total, pending = 0.0, list(pids)
    while pending:
        pid = pending.pop()
        total += seconds.get(pid, 0.0)
        pending += children.get(pid, [])
    return total


def register_stack_signal(folder: Path, rank: int) -> Any:
    """Let this process write the stacks of its threads to a file when it receives the signal ``WHERE``.

    Returns:
        The file, which the caller must keep open.
    """
    file = (folder / f"where-{rank}").open("w")
    faulthandler.register(WHERE, file)
    return file


def waiting_lines(running: dict[int, int], workers: int, folder: Path) -> str:
    """Return a sentence with the script line at which each rank waits; write all stacks to standard error.

    Args:
        running: the rank of each running process, by the process's number.
        workers: number of ranks, those that have ended included.
        folder: folder into which a process writes its stack when it receives the signal `WHERE`.
    """
    for pid in running:
        os.kill(pid, WHERE)
    time.sleep(0.5)
    lines = {}
    for rank in running.values():
        stacks = (folder / f"where-{rank}").read_text() if (folder / f"where-{rank}").exists() else ""
        sys.stderr.write(f"rank {rank} of {workers} waits:\n{stacks}")
        lines[rank] = f"waits at {line_in(stacks)}"
    return ", ".join(f"rank {rank} {lines.get(rank, 'has ended')}" for rank in range(workers))


def line_in(stacks: str) -> str:
    """Return the innermost line of the current thread's stack that belongs to the user's files, not to a library."""
    for line in stacks.rpartition("Current thread")[2].splitlines():
        name, _, rest = line.strip().removeprefix('File "').partition('", line ')
        if rest and not name.startswith("<") and not is_library(name):
            return f"{name}:{rest.partition(' ')[0]}"
    return "a line unknown"
