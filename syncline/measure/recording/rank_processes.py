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
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from syncline.errors import SynclineError
from syncline.interrupts import end_with_parent, raise_if_interrupted
from syncline.measure.recording.recorder import is_user_file

OMP_PAUSE_HARD = 2
"""A constant of OpenMP 5: its threads end, and are created again when they are needed."""


def fork_process() -> int:
    """Fork this process, and return the child's process id, or 0 in the child, which ends with this process.

    A fork copies no thread but the calling one, and the child must not wait for the others. So OpenMP's threads end
    before the fork, and the child's garbage collector skips the objects of this process, because their finalizers may
    wait for threads. When the child ends, it does not end this process's other children.
    """
    end_openmp_threads = getattr(ctypes.CDLL(None), "omp_pause_resource_all", None)  # OpenMP 5 has it
    if end_openmp_threads is not None:
        end_openmp_threads(OMP_PAUSE_HARD)
    sys.stdout.flush()
    sys.stderr.flush()
    parent_pid = os.getpid()
    pid = os.fork()
    if pid == 0:  # this is the child
        gc.freeze()
        multiprocessing.process._children.clear()  # type: ignore[attr-defined]
        end_with_parent(parent_pid)
    return pid


def set_up_child() -> None:
    """Let a forked child ignore Ctrl-C, end on SIGTERM, and write its output line by line to standard error."""
    atexit._clear()  # the parent's exit functions are not the child's
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)  # what goes to standard output, 1, goes to standard error, 2
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)


def reset_child_state(num_threads: int, seed: int) -> None:
    """Set the threads of a forked child, and reset its random generators, so that they do not depend on the parent.

    Args:
        seed: the seed of Python's and NumPy's generators, which a new process would seed randomly; torch's generator
            gets the state that it has in every new process.
    """
    import numpy as np
    import torch

    torch.set_num_threads(num_threads)
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
    """A rank of a traced script and the process that runs it.

    Attributes:
        folder: the folder in which ranks write why they failed.
    """

    folder: Path
    rank: int
    pid: int


class ThisProcess:
    """The rank that this process is, or that has started this process; None outside a trace."""

    traced_rank: TracedRank | None = None


def write_script_failure(folder: Path, rank: int, text: str = "", reason: str = "", line: str = "") -> None:
    """Write the error of a failed rank to a file, with the time.

    Args:
        text: what the user sees unchanged, such as a traceback.
        reason: the error in one sentence; empty if ``text`` contains it.
        line: the line of the user's script that failed.
    """
    note = {"at_s": time.monotonic(), "text": text, "reason": reason, "line": line}
    (folder / f"failed-{rank}").write_text(json.dumps(note))


def end_trace_if_child() -> None:
    """End the trace with an error if this process is not a rank but was started by one; otherwise return.

    Call this function before a process joins a process group, because a child of a rank would wait for ranks that do
    not exist.
    """
    traced_rank = ThisProcess.traced_rank
    if traced_rank is None or traced_rank.pid == os.getpid():
        return
    from syncline.measure.recording.recorder import user_line

    reason = f"{user_line()}: a process that the script started joins a group; {ADVICE}"
    with suppress(OSError):  # if another child has ended the trace already, the folder and the rank are gone
        write_script_failure(traced_rank.folder, traced_rank.rank, reason=reason)
        os.kill(traced_rank.pid, signal.SIGKILL)
    os._exit(1)


class ChildTarget:
    """A function that a rank runs in a new process by ``multiprocessing``. The trace ends if the process joins a group.

    This is a class and not a closure, because ``multiprocessing`` pickles it.
    """

    def __init__(self, target: Callable[..., Any], rank: TracedRank) -> None:
        self.target, self.rank = target, rank

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function, and end the trace if the function joins a group."""
        ThisProcess.traced_rank = self.rank
        if "torch" in sys.modules:
            from torch.distributed import distributed_c10d

            def check_and_call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
                end_trace_if_child()
                return function(*args, **kwargs)

            for name in ("rendezvous", "_new_process_group_helper"):  # torch calls both to join a group
                setattr(distributed_c10d, name, partial(check_and_call, getattr(distributed_c10d, name)))
        return self.target(*args, **kwargs)


def pass_rank_to_children() -> None:
    """Let each process that this rank starts by ``multiprocessing`` know the rank."""
    original_start = multiprocessing.process.BaseProcess.start

    def start(process: Any) -> None:
        if ThisProcess.traced_rank is not None and process._target is not None:  # None if a subclass overrides ``run``
            process._target = ChildTarget(process._target, ThisProcess.traced_rank)
        original_start(process)

    multiprocessing.process.BaseProcess.start = start  # type: ignore[method-assign,assignment]


GRACE_S = 5.0
"""Seconds that ranks may take to end by themselves after a rank has failed."""

POLL_S = 0.02
"""Seconds between two checks for ranks that have ended."""

CPU_READING_PERIOD_S = 2.0
"""Seconds between two readings of the ranks' CPU time."""

DEADLOCK_LIMIT_S = 120.0
"""Seconds without computation in any rank or its children after which the ranks count as deadlocked."""

IDLE_CPU_SHARE = 0.01
"""CPU seconds per second and rank below which the ranks count as idle; waiting threads poll now and then."""

STACK_SIGNAL = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2
"""The signal that makes a rank write its stacks; scripts rarely use it."""


def wait_for_ranks(rank_by_pid: dict[int, int], folder: Path) -> None:
    """Wait for all ranks to end; if a rank fails or the ranks deadlock, end the others.

    Args:
        rank_by_pid: the rank of each running process by process id; the function removes those that have ended.
        folder: the folder in which ranks write why they failed and where they wait.

    Raises:
        SynclineError: if a rank fails, for the rank that failed first, with its message on standard error; or if the
            ranks deadlock.
    """
    workers = len(rank_by_pid)
    idle_timer = IdleTimer(DEADLOCK_LIMIT_S)
    try:
        while rank_by_pid:
            failed = reap_failed_ranks(rank_by_pid)
            raise_if_interrupted()
            if failed:
                time.sleep(POLL_S)
                raise_if_interrupted()  # the signal that interrupts this process may have ended the rank
                failed |= reap_failed_ranks(rank_by_pid)  # the cause may end after a rank that fails as a consequence
                end_ranks(rank_by_pid)
                rank, failure = find_first_failure(failed, folder)
                sys.stderr.write(failure["text"])
                if failure["reason"]:
                    raise SynclineError(failure["reason"])
                where = f" at {failure['line']}" if failure["line"] else ""
                hint = "; its own error is above" if failure["text"] else ""
                raise SynclineError(f"rank {rank} of {workers} {failed[rank]}{where}{hint}")
            if rank_by_pid and idle_timer.is_over_limit(list(rank_by_pid)):
                waits = describe_waits(rank_by_pid, workers, folder)
                end_ranks(rank_by_pid)
                raise SynclineError(f"no rank has computed anything for {idle_timer.limit_s:g} s: {waits}")
            time.sleep(POLL_S)
    except BaseException:
        for pid in rank_by_pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        raise


def reap_failed_ranks(rank_by_pid: dict[int, int]) -> dict[int, str]:
    """Remove the processes that have ended from ``rank_by_pid``, and return how each failed rank ended, in words."""
    failed = {}
    for pid in list(rank_by_pid):
        ended_pid, status = os.waitpid(pid, os.WNOHANG)
        if ended_pid:
            rank = rank_by_pid.pop(pid)
            if status:
                code = os.waitstatus_to_exitcode(status)
                failed[rank] = f"exited with code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
    return failed


def find_first_failure(failed: dict[int, str], folder: Path) -> tuple[int, dict[str, Any]]:
    """Return the rank that failed first, and the fields of `write_script_failure`: ``text``, ``reason`` and ``line``.

    The other ranks fail as a consequence. A rank that wrote nothing was ended from outside and counts as the first.

    Args:
        failed: the failed ranks, each with its exit code or signal in words.
    """
    failures: dict[int, dict[str, Any]] = {}
    for rank in failed:
        file = folder / f"failed-{rank}"
        nothing_written = {"at_s": 0.0, "text": "", "reason": "", "line": ""}
        failures[rank] = json.loads(file.read_text()) if file.exists() else nothing_written
    first_rank = min(failures, key=lambda rank: (failures[rank]["at_s"], rank))
    return first_rank, failures[first_rank]


def end_ranks(rank_by_pid: dict[int, int]) -> None:
    """Ask processes to end by SIGTERM, kill those that do not within ``GRACE_S``, and remove all from the dict."""
    for pid in rank_by_pid:
        os.kill(pid, signal.SIGTERM)
    deadline_s = time.monotonic() + GRACE_S
    while rank_by_pid:
        is_over = time.monotonic() > deadline_s
        for pid in list(rank_by_pid):
            if is_over:
                os.kill(pid, signal.SIGKILL)
            ended_pid, _ = os.waitpid(pid, 0 if is_over else os.WNOHANG)  # 0: wait until the process has ended
            if ended_pid:
                rank_by_pid.pop(pid)
        time.sleep(POLL_S)


class IdleTimer:
    """A timer of the seconds in which ranks and their children have computed nothing.

    CPU times are read every ``period_s``. A pause of the machine, in which this process does not run either, counts as
    at most two periods.

    Args:
        limit_s: seconds without computation after which `is_over_limit` returns True.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s, self.period_s = limit_s, min(CPU_READING_PERIOD_S, limit_s / 4)
        self.last_reading_s = time.monotonic()
        self.idle_s = self.cpu_s = 0.0  # idle and CPU seconds at the last reading

    def is_over_limit(self, pids: list[int]) -> bool:
        """Read CPU times if a period is over; return whether the processes have been idle for longer than the limit.

        The result is False if CPU times are unavailable.
        """
        elapsed_s = time.monotonic() - self.last_reading_s
        if elapsed_s < self.period_s:
            return False
        cpu_s = total_cpu_s(pids)
        # The sum becomes smaller when a child ends, which is activity too.
        if cpu_s is None or abs(cpu_s - self.cpu_s) > IDLE_CPU_SHARE * len(pids) * elapsed_s:
            self.idle_s = 0.0
        else:
            self.idle_s += min(elapsed_s, 2 * self.period_s)  # a longer gap means that this process was suspended
        self.last_reading_s += elapsed_s
        self.cpu_s = cpu_s or 0.0
        return self.idle_s > self.limit_s


def total_cpu_s(pids: list[int]) -> float | None:
    """Return the CPU seconds of processes and their living descendants; None if ``/proc`` is unavailable."""
    children: dict[int, list[int]] = {}  # process ids, by the parent's process id
    cpu_s: dict[int, float] = {}  # by process id
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    for stat_file in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name of the program, in parentheses, may contain spaces: the fields behind it begin with the state.
            stat_fields = stat_file.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid, parent_pid = int(stat_file.parent.name), int(stat_fields[1])
        user_ticks, system_ticks = int(stat_fields[11]), int(stat_fields[12])
        children.setdefault(parent_pid, []).append(pid)
        cpu_s[pid] = (user_ticks + system_ticks) * tick_s
    if not cpu_s:
        return None
    total_s, pending = 0.0, list(pids)
    while pending:
        pid = pending.pop()
        total_s += cpu_s.get(pid, 0.0)
        pending += children.get(pid, [])
    return total_s


def register_stack_signal(folder: Path, rank: int) -> Any:
    """Let the signal ``STACK_SIGNAL`` write the stacks of all threads to a file, which the caller must keep open."""
    file = (folder / f"stacks-{rank}").open("w")
    faulthandler.register(STACK_SIGNAL, file)
    return file


def describe_waits(rank_by_pid: dict[int, int], workers: int, folder: Path) -> str:
    """Return a sentence with the script line at which each rank waits; write all stacks to standard error.

    Args:
        rank_by_pid: the rank of each running process, by process id.
        workers: number of ranks, those that have ended included.
        folder: folder into which a process writes its stacks when it receives the signal ``STACK_SIGNAL``.
    """
    for pid in rank_by_pid:
        os.kill(pid, STACK_SIGNAL)
    time.sleep(0.5)  # the processes write their stacks
    states = dict.fromkeys(range(workers), "has ended")
    for rank in rank_by_pid.values():
        file = folder / f"stacks-{rank}"
        stacks = file.read_text() if file.exists() else ""
        sys.stderr.write(f"rank {rank} of {workers} waits:\n{stacks}")
        states[rank] = f"waits at {find_user_line(stacks)}"
    return ", ".join(f"rank {rank} {state}" for rank, state in states.items())


def find_user_line(stacks: str) -> str:
    """Return the innermost line of the current thread's stack that belongs to the user's files, not to a library.

    Args:
        stacks: the stacks of all threads as ``faulthandler`` writes them, with lines ``File "NAME", line 7 in ...``.
    """
    _, _, current_stack = stacks.rpartition("Current thread")
    for line in current_stack.splitlines():
        file, _, rest = line.strip().removeprefix('File "').partition('", line ')
        if rest and is_user_file(file):
            line_number = rest.split(" ")[0]
            return f"{file}:{line_number}"
    return "a line unknown"
