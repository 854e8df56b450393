"""Ranks that are waited for: one that fails ends all, and so do ranks that wait for each other for ever."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from syncline.errors import SynclineError
from syncline.interrupts import raise_if_interrupted
from syncline.measure.recording.recorder import is_library

GRACE_S = 5.0
"""That ranks have to end by themselves after one has failed."""

POLL_S = 0.02
"""Between two looks at who has ended."""

LOOK_S = 2.0
"""Between two looks at what the ranks have computed."""

STUCK_S = 120.0
"""For which no rank computes anything, and none of its children: all wait, and for nobody."""

IDLE = 0.01
"""CPU seconds per second, of all ranks, below which nothing is computed: waiting threads look around now and then."""

WHERE = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2
"""Asks a rank where it is; scripts use others."""


def watched_ranks(running: dict[int, int], folder: Path, stuck_s: float | None = None) -> None:
    """Wait for all; if one fails, or all wait for ever, end the others.

    Args:
        running: ranks by process.
        folder: where ranks say why they failed and where they are.
        stuck_s: seconds without computing; none: `STUCK_S`.

    Raises:
        SynclineError: what failed first, whose own words are on standard error.
    """
    workers = len(running)
    idle = Idleness(STUCK_S if stuck_s is None else stuck_s)
    try:
        while running:
            failed = ended_badly(running)
            raise_if_interrupted()
            if failed:
                time.sleep(POLL_S)
                raise_if_interrupted()  # the signal that ended the rank
                failed |= ended_badly(running)  # what follows from the first failure may have ended sooner
                end_ranks(running)
                rank, told = first_words(failed, folder)
                sys.stderr.write(told["words"])
                where = f" at {told['line']}" if told["line"] else ""
                above = "; its own words are above" if told["words"] else ""
                raise SynclineError(told["reason"] or f"rank {rank} of {workers} {failed[rank]}{where}{above}")
            if running and idle.long(running):
                where = stuck_at(running, workers, folder)
                end_ranks(running)
                raise SynclineError(f"no rank has computed anything for {idle.limit_s:g} s: {where}")
            time.sleep(POLL_S)
    except BaseException:
        for pid in running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        raise


def ended_badly(running: dict[int, int]) -> dict[int, str]:
    """Ranks that have failed, and how; those that have ended run no more."""
    failed = {}
    for pid in list(running):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            rank = running.pop(pid)
            if status:
                code = os.waitstatus_to_exitcode(status)
                failed[rank] = f"exited with code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
    return failed


def first_words(failed: dict[int, str], folder: Path) -> tuple[int, dict[str, str]]:
    """The rank that failed first, and what `leave_words` has left of it: others fail since it is gone.

    A rank that left no words was ended from outside, which comes before what follows from it.
    """
    told: dict[tuple[float, int], dict[str, str]] = {}
    for rank in failed:
        file = folder / f"failed-{rank}"
        left: dict[str, Any] = (
            json.loads(file.read_text()) if file.exists() else {"at": 0.0, "words": "", "reason": "", "line": ""}
        )
        told[left.pop("at"), rank] = left
    first = min(told)
    return first[1], told[first]


def end_ranks(running: dict[int, int]) -> None:
    """Ask ranks to end, and make those that do not within the grace."""
    for pid in running:
        os.kill(pid, signal.SIGTERM)
    until_s = time.monotonic() + GRACE_S
    while running:
        how = signal.SIGKILL if time.monotonic() > until_s else None
        for pid in list(running):
            if how is not None:
                os.kill(pid, how)
            if os.waitpid(pid, 0 if how is not None else os.WNOHANG)[0]:
                running.pop(pid)
        time.sleep(POLL_S)


class Idleness:
    """How long ranks and their children have computed nothing.

    Args:
        limit_s: from when on it is long.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.looked_s = self.since_s = time.monotonic()
        self.cpu_s = 0.0

    def long(self, running: dict[int, int]) -> bool:
        """Whether the limit is passed; where the system does not tell CPU time, never."""
        now_s = time.monotonic()
        if now_s < self.looked_s + min(LOOK_S, self.limit_s / 4):
            return False
        cpu_s = cpu_of(list(running))
        if cpu_s is None or abs(cpu_s - self.cpu_s) > IDLE * len(running) * (now_s - self.looked_s):
            self.since_s = now_s
        self.looked_s, self.cpu_s = now_s, cpu_s or 0.0
        return now_s - self.since_s > self.limit_s


def cpu_of(pids: list[int]) -> float | None:
    """CPU seconds of processes and their living descendants; None where ``/proc`` does not tell."""
    children: dict[int, list[int]] = {}
    seconds: dict[int, float] = {}
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    for one in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = one.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(one.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        seconds[pid] = (int(fields[11]) + int(fields[12])) * tick_s
    if not seconds:
        return None
    total, left = 0.0, list(pids)
    while left:
        pid = left.pop()
        total += seconds.get(pid, 0.0)
        left += children.get(pid, [])
    return total


def tells_where(folder: Path, rank: int) -> Any:
    """Let this process write its lines when it is asked.

    Returns:
        The file, to be kept open.
    """
    file = (folder / f"where-{rank}").open("w")
    faulthandler.register(WHERE, file, all_threads=False)
    return file


def stuck_at(running: dict[int, int], workers: int, folder: Path) -> str:
    """Where each rank waits, in words."""
    for pid in running:
        os.kill(pid, WHERE)
    time.sleep(0.5)
    lines = {rank: f"waits at {line_in(folder / f'where-{rank}')}" for rank in running.values()}
    return ", ".join(f"rank {rank} {lines.get(rank, 'has ended')}" for rank in range(workers))


def line_in(file: Path) -> str:
    """Return the innermost line of a stack that is the user's, not a library's."""
    try:
        text = file.read_text()
    except OSError:
        text = ""
    for line in text.splitlines():
        name, _, rest = line.strip().removeprefix('File "').partition('", line ')
        if rest and not name.startswith("<") and not is_library(name):
            return f"{name}:{rest.partition(' ')[0]}"
    return "a line unknown"
