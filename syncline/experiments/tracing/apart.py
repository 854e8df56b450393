"""Traces from Python: in a process of their own, as torch's threads may have run in the one that asks."""

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

from syncline.backend.tracing.ranks import ForeignScript, TraceOptions, traced
from syncline.backend.tracing.record import RankRecord
from syncline.errors import SpecError, SynclineError
from syncline.files import temporary_folder
from syncline.interrupts import end_with_parent

START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1));"
    "from syncline.experiments.tracing.apart import trace_asked; trace_asked()"
)
"""What the process runs: it finds the modules that the asking one finds."""

ENDING_S = 10.0
"""That the process has to end by itself when the asking one is interrupted."""


def traced_apart(program: ForeignScript, workers: int, options: TraceOptions) -> list[RankRecord]:
    """As `syncline.backend.tracing.ranks.traced`, from a process that has imported torch and done nothing else.

    What the ranks print goes to ``sys.stderr``, also where that is no file, as in a notebook.

    Raises:
        SynclineError: a rank failed.
    """
    with temporary_folder() as folder:
        (folder / "asked").write_bytes(pickle.dumps((tuple(program), workers, options)))
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
            error, ranks = pickle.loads((folder / "told").read_bytes())
        except OSError:
            raise SynclineError(f"the process that traces ended with code {child.returncode}") from None
        if error is not None:
            raise error
        found: list[RankRecord] = ranks
        return found


def _pass_on(pipe: Any) -> None:
    """Everything from a pipe to where this process writes."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while chunk := os.read(pipe.fileno(), 1 << 16):
        sys.stderr.write(decoder.decode(chunk))
        sys.stderr.flush()
    sys.stderr.write(decoder.decode(b"", final=True))


def _end(child: subprocess.Popen[bytes]) -> None:
    """End it with its ranks."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, how)
            child.wait(ENDING_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def trace_asked() -> None:
    """Trace what is asked for in a folder, and leave there what was found."""
    folder = Path(sys.argv[1])
    end_with_parent(int(sys.argv[2]))
    asked, workers, options = pickle.loads((folder / "asked").read_bytes())
    try:
        told: Any = None, traced(ForeignScript(*asked), workers, options)
    except SpecError as error:
        told = SpecError(error.path, error.value, error.expected), None
    except SynclineError as error:
        told = SynclineError(str(error)), None
    (folder / ".told").write_bytes(pickle.dumps(told))
    (folder / ".told").rename(folder / "told")
