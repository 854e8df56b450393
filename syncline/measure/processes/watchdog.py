"""Local processes under watch: whoever dies or hangs ends the others, and is named."""

from __future__ import annotations

import json
import os
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from syncline.errors import SynclineError
from syncline.interrupts import children_without_signals, end_with_parent, fork_server, raise_if_interrupted
from syncline.measure.processes.launch import PRELOAD
from syncline.measure.processes.progress import Progress

START_S = 180.0
"""How long a process may take to come to its first step."""

GRACE_S = 1.0
"""How long to wait for what the other processes say when one has failed: whoever lost its peer fails too."""

POLL_S = 0.05

FAILED_NS = "failed_ns"
"""The attribute of an error that has the time at which it was raised, on the monotonic clock of the machine."""


@dataclass(frozen=True)
class Failure:
    """Why a training ended early.

    Args:
        rank: whose fault it was; None where it cannot be told.
        step: in which it was, from 0; None before the first.
        reason: the end of the sentence "rank 2 ...".
        mistake: whether it is one in the input.
        who: what the rank is called, if not by its number.
    """

    rank: int | None
    step: int | None
    reason: str
    mistake: bool = False
    who: str = ""

    def __str__(self) -> str:
        if self.mistake:
            return self.reason
        where = "before the first step" if self.step is None else f"in step {self.step}"
        who = self.who or ("somebody" if self.rank is None else f"rank {self.rank}")
        return f"{who} {self.reason} {where}"


def tell_failure(folder: Path, rank: int, error: BaseException) -> None:
    """Leave word of a failure for the process that watches; renamed when whole, as this process may be ended soon."""
    mistake = isinstance(error, SynclineError)
    text = str(error) if mistake else f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    note = folder / f"{rank}.failing"
    failed_ns = getattr(error, FAILED_NS, None) or time.monotonic_ns()
    note.write_text(json.dumps([failed_ns, rank, mistake, text, traceback.format_exc()]))
    note.replace(folder / f"{rank}.failed")


def guarded(rank: int, target: Callable[..., Any], args: tuple, folder: Path) -> None:
    """What a process under watch does: ``target(rank, *args)``, and it ends with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a server that somebody else has started does not block it
    end_with_parent()
    try:
        target(rank, *args)
    except BaseException as error:
        tell_failure(folder, rank, error)
        os._exit(1)
    (folder / f"{rank}.through").touch()
    # Torch may abort while the interpreter shuts down; everything is written by now.
    os._exit(0)


def left_early(rank: int, process: BaseProcess, folder: Path) -> bool:
    """Whether a process ended before its work did, with whatever exit code."""
    return process.exitcode is not None and not (folder / f"{rank}.through").exists()


def watched(
    target: Callable[..., Any],
    processes: int,
    args: tuple,
    progress: Progress,
    folder: Path,
    timeout_s: float,
    *,
    preload: Sequence[str] = (),
    on_poll: Callable[[Progress], object] | None = None,
) -> Failure | None:
    """Run ``target(rank, *args)`` in so many local processes, and end them all as soon as one fails or all stand still.

    Args:
        target: an importable function.
        processes: P.
        args: passed to every process.
        progress: which every process updates.
        folder: where processes leave word of a failure.
        timeout_s: for how long nobody may come to a new step or collective, once all have begun.
        preload: modules that are loaded once for all processes.
        on_poll: called a few times per second. It may raise: then the processes are ended.

    Returns:
        What went wrong; None if all ended well.
    """
    # Processes are forked from a server that has loaded torch but computed nothing: they start at once.
    context = fork_server([*PRELOAD, *preload])
    started: list[BaseProcess] = [
        context.Process(target=guarded, args=(rank, target, args, folder), daemon=True) for rank in range(processes)
    ]
    try:
        with children_without_signals():
            for process in started:
                process.start()
        return _watch(started, progress, folder, timeout_s, on_poll)
    finally:
        for process in started:
            if process.is_alive():
                process.kill()  # SIGTERM would wait for ever in a stopped process
        for process in started:
            process.join()


def _watch(
    processes: Sequence[BaseProcess],
    progress: Progress,
    folder: Path,
    timeout_s: float,
    on_poll: Callable[[Progress], object] | None,
) -> Failure | None:
    begun_s = time.monotonic()
    while True:
        running = [process.sentinel for process in processes if process.is_alive()]
        if any(left_early(rank, process, folder) for rank, process in enumerate(processes)):
            return _first_failure(processes, progress, folder)
        raise_if_interrupted()
        if on_poll is not None:
            on_poll(progress)
        if not running:
            return None
        missing = sorted(set(range(len(processes))) - set(progress.started()))
        if missing:
            if time.monotonic() - begun_s > max(START_S, timeout_s):
                return Failure(missing[0], None, f"did not begin within {max(START_S, timeout_s):g} s")
        elif progress.quiet_s() > timeout_s:
            return _hanging(processes, progress, timeout_s)
        connection.wait(running, POLL_S)


def _first_failure(processes: Sequence[BaseProcess], progress: Progress, folder: Path) -> Failure:
    """Whoever died without a word; else who said first that it failed. Those that lost a peer fail after it."""
    until = time.monotonic() + GRACE_S
    while time.monotonic() < until and any(process.is_alive() for process in processes):
        time.sleep(0.02)
    notes = [json.loads(path.read_text()) for path in folder.glob("*.failed")]
    told = {note[1] for note in notes}
    for rank, process in enumerate(processes):
        if rank not in told and left_early(rank, process, folder):
            return Failure(rank, _step(progress, rank), f"died ({how_it_ended(process.exitcode)})")
    _, rank, mistake, text, _ = min(notes)
    return Failure(rank, _step(progress, rank), f"failed ({text})" if not mistake else text, mistake)


def _step(progress: Progress, rank: int) -> int | None:
    return progress.step_of(rank) if rank in progress.started() else None


def how_it_ended(code: int | None) -> str:
    """An exit code in words."""
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


def _hanging(processes: Sequence[BaseProcess], progress: Progress, timeout_s: float) -> Failure:
    stopped = [rank for rank, process in enumerate(processes) if _state(process.pid) == "T"]
    behind = stopped or progress.behind()
    what = f"for {timeout_s:g} s"
    if len(behind) == 1:
        return Failure(behind[0], progress.step_of(behind[0]), f"did nothing {what}, and the others waited for it,")
    ranks = ", ".join(map(str, behind[1:]))
    return Failure(behind[0], progress.step_of(behind[0]), f"and ranks {ranks} did nothing {what}")


def _state(pid: int | None) -> str:
    """A letter that says what the system does with a process; T: it is stopped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
