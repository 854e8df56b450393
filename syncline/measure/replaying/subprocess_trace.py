"""Tracing from Python in a separate process, because torch's threads may already run in the calling process."""

from __future__ import annotations

import codecs
import json
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from syncline.errors import SpecError, SynclineError
from syncline.files import temporary_folder
from syncline.interrupts import end_with_parent
from syncline.measure.recording.ranks import ForeignScript, TraceOptions, traced
from syncline.measure.recording.record import RankRecord

START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1));"
    "from syncline.measure.replaying.subprocess_trace import trace_request; trace_request()"
)
"""The code that the child process runs: it finds the same modules as the parent process."""

ENDING_S = 10.0
"""Seconds that the child process has to end by itself when the parent process is interrupted."""


def traced_apart(program: ForeignScript, workers: int, options: TraceOptions) -> list[RankRecord]:
    """Run `syncline.measure.recording.ranks.traced` in a child that has only imported torch; return its records.

    The output of the ranks goes to ``sys.stderr``, even if that is no file, as in a notebook.

    Raises:
        SynclineError: a rank failed.
    """
    with temporary_folder() as folder:
        (folder / "request").write_bytes(pickle.dumps((tuple(program), workers, options)))
        words = [sys.executable, "-c", START, json.dumps(sys.path), str(folder), str(os.getpid())]
        sys.stderr.flush()
        straight = sys.stderr is sys.__stderr__
        with subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=None if straight else subprocess.PIPE,
            stderr=None if straight else subprocess.STDOUT, start_new_session=True,
        ) as child:  # fmt: skip
            try:
                if child.stdout is not None:
                    _pass_on(child.stdout)
                child.wait()
            except BaseException:
                _end(child)
                raise
        try:
            error, ranks = pickle.loads((folder / "result").read_bytes())
        except OSError:
            raise SynclineError(f"the process that traces ended with code {child.returncode}") from None
        if error is not None:
            raise error
        records: list[RankRecord] = ranks
        return records


def _pass_on(pipe: Any) -> None:
    """Copy all output of a pipe to ``sys.stderr`` of this process."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while chunk := os.read(pipe.fileno(), 1 << 16):
        sys.stderr.write(decoder.decode(chunk))
        sys.stderr.flush()
    sys.stderr.write(decoder.decode(b"", final=True))


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a child process together with its ranks: first with SIGTERM, then with SIGKILL."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, signal_number)
            child.wait(ENDING_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def trace_request() -> None:
    """Trace the program that the parent process stored in a folder, and write the result into the same folder."""
    folder = Path(sys.argv[1])
    end_with_parent(int(sys.argv[2]))
    program, workers, options = pickle.loads((folder / "request").read_bytes())
    try:
        result: Any = None, traced(ForeignScript(*program), workers, options)
    except SpecError as error:
        result = SpecError(error.path, error.value, error.expected), None
    except SynclineError as error:
        result = SynclineError(str(error)), None
    (folder / ".result").write_bytes(pickle.dumps(result))
    (folder / ".result").rename(folder / "result")
