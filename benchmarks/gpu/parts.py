"""Running a part: in a process of its own, within a time, with whatever it measured kept if it fails."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.multiprocessing import ProcessRaisedException

from benchmarks.gpu.setting import Setting
from syncline.measure.processes.watchdog import PRELOAD

Row = dict[str, Any]

GRACE_S = 20.0
"""What the last row of a part may take beyond the part's time, before its process is ended."""

LEAST_S = 5.0
"""A part is not begun with less."""


@dataclass(frozen=True)
class Part:
    """Something to measure.

    Args:
        name: for ``--parts`` and in the result.
        rows: yields what it measured, row by row, as soon as it has it.
        at_most_s: after which no further row is begun.
    """

    name: str
    rows: Callable[[Setting], Iterator[Row]]
    at_most_s: float


def run(part: Part, setting: Setting, left_s: float) -> dict[str, Any]:
    """The part's rows and seconds; and why it was ``skipped``, ``stopped`` before its last row, or has ``failed``.

    Args:
        part: to run.
        setting: where.
        left_s: what all remaining parts have together. A part that hangs is ended before.
    """
    limit_s = min(part.at_most_s, left_s - GRACE_S)
    if limit_s < LEAST_S:
        return {"skipped": f"{max(left_s, 0.0):.0f} s were left", "rows": []}
    start_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="syncline-gpu-") as folder:
        lines = Path(folder) / "lines.jsonl"
        ended = _apart(part, setting, limit_s, lines)
        out = read(lines)
    if ended and "failed" not in out:
        out["failed"] = ended
    return {"seconds": time.monotonic() - start_s, **out}


def _apart(part: Part, setting: Setting, limit_s: float, lines: Path) -> str | None:
    """Write the part's lines from a process of its own; why that ended before its time, if it did.

    So a GPU that a part leaves unusable, or out of memory, is not the next part's; and what it has started itself, as
    do those with several ranks, ends with it.
    """
    # Forked from a server that has loaded torch and touched no GPU.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOAD, "benchmarks.gpu.__main__"])
    process = context.Process(target=_write_rows_apart, args=(part.rows, setting, limit_s, lines))
    process.start()
    try:
        process.join(limit_s + GRACE_S)
        if process.is_alive():
            return f"ended, as it took {GRACE_S:.0f} s more than its {limit_s:.0f} s"
        return f"its process ended with exit code {process.exitcode}" if process.exitcode else None
    finally:
        if process.is_alive() and process.pid is not None:
            with suppress(ProcessLookupError):  # it has no group of its own yet
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.join()


def _write_rows_apart(*args: Any) -> None:
    os.setsid()
    write_rows(*args)


def write_rows(rows: Callable[[Setting], Iterator[Row]], setting: Setting, limit_s: float, lines: Path) -> None:
    """Each row as a line when it is there; then how it came to an end, unless it is the last row."""
    start_s = time.monotonic()
    with lines.open("w") as out:
        try:
            for row in rows(setting):
                print(json.dumps({"row": row}), file=out, flush=True)
                if time.monotonic() - start_s > limit_s:
                    print(json.dumps({"stopped": f"after {limit_s:.0f} s"}), file=out, flush=True)
                    break
        except Exception as error:
            print(json.dumps({"failed": one_line(error)}), file=out, flush=True)


def read(lines: Path) -> dict[str, Any]:
    """What ``write_rows`` has written; a line that a killed process left half is not counted."""
    out: dict[str, Any] = {"rows": []}
    for line in lines.read_text().splitlines() if lines.exists() else []:
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if "row" in told:
            out["rows"].append(told["row"])
        else:
            out |= told
    return out


def one_line(error: Exception) -> str:
    """What kind it is and what it says first; of a traceback from another process, its last line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and isinstance(error, ProcessRaisedException):
        return lines[-1]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
