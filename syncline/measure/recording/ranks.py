"""Tracing of a script: each rank runs it in a process forked from one that has imported torch, and is recorded.

`traced` forks the ranks from the calling process. `traced_apart` does so from a new process, for callers in which
torch's threads may already run.
"""

from __future__ import annotations

import atexit
import codecs
import json
import logging
import multiprocessing.util
import os
import pickle
import runpy
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from syncline.errors import SpecError, SynclineError, one_of
from syncline.files import temporary_folder
from syncline.interrupts import end_with_parent
from syncline.measure.recording import hooks, operations
from syncline.measure.recording import hooks as cuda
from syncline.measure.recording import hooks as eager
from syncline.measure.recording import recorder as measured
from syncline.measure.recording import streams as clocks
from syncline.measure.recording.rank_processes import (
    Identity,
    TracedRank,
    fork_process,
    register_stack_signal,
    reset_child_state,
    set_up_child,
    watched_ranks,
    write_failure,
)
from syncline.measure.recording.record import RankRecord, print_notes
from syncline.measure.recording.record_files import read_rank, write_rank
from syncline.measure.recording.recorder import RECORDER, Refusal, is_library, share_medians
from syncline.questions.scripts import Trace
from syncline.registry import refuse_code


class ForeignScript(NamedTuple):
    """A program to trace: a script, a module or a function.

    Attributes:
        target: a file, or the name of a module.
        args: the arguments of the program.
        is_module: whether ``target`` is the name of a module.
        function: a function to call instead of a script, pickled by cloudpickle; ``target`` is its name.
    """

    target: str
    args: tuple[str, ...] = ()
    is_module: bool = False
    function: bytes | None = None

    @property
    def name(self) -> str:
        """Return a name for the folder of the trace."""
        if self.function is not None:
            return self.target.strip("<>")
        return (self.target.rpartition(".")[2] if self.is_module else Path(self.target).stem) or "script"

    @property
    def words(self) -> tuple[str, ...]:
        """Return the program's command line as words, from which `script_of` can read the program again."""
        return (*(("-m",) if self.is_module else ()), self.target, *self.args)


@dataclass(frozen=True)
class TraceOptions:
    """The options of the recording of a script.

    Args:
        gpu: ``none``: the script sees no GPU; ``auto``: those of ``CUDA_VISIBLE_DEVICES``, else one for each rank.
        clock: ``refuse``: a script that branches on the clock is refused; ``allow``: the record contains the branches
            that the script took during the recording.
    """

    gpu: str = "auto"
    clock: str = "refuse"

    def __post_init__(self) -> None:
        """Refuse fields of the wrong type, out of range, or in contradiction."""
        for name, value, choices in (
            ("--gpu", self.gpu, ("auto", "none")),
            ("--clock", self.clock, ("refuse", "allow")),
        ):
            if value not in choices:
                raise SpecError(name, value, one_of(choices, str(value)))


DEFAULT_OPTIONS = TraceOptions()


def traced(program: ForeignScript, workers: int, options: TraceOptions = DEFAULT_OPTIONS) -> list[RankRecord]:
    """Run a program on ``workers`` ranks and return their records; what the program prints goes to standard error.

    Raises:
        SynclineError: if a rank fails, with its traceback on standard error, or all ranks wait for ever.
    """
    import_before_forking()
    with temporary_folder() as folder:
        port = free_port()
        ranks: dict[int, int] = {}
        for rank in range(workers):
            pid = fork_process()
            if not pid:
                be_rank(program, rank, workers, port, folder, options)
            ranks[pid] = rank
        watched_ranks(dict(ranks), folder)
        for rank in range(workers):
            if not (folder / f"{rank}").exists():
                raise SynclineError(f"rank {rank} of {workers} {NO_RECORD}")
        records = [read_rank(folder / f"{rank}", rank) for rank in range(workers)]
    share_medians(records)
    return print_notes(records)


def import_before_forking() -> None:
    """Import torch's modules once for all ranks, and remove the environment variables that the import sets."""
    names_before = set(os.environ)
    import torch
    import torch.distributed.fsdp
    import torch.distributed.optim
    import torch.distributed.pipelining
    import torch.distributed.tensor
    import torch.nn.parallel  # noqa: F401

    for name in set(os.environ) - names_before:
        del os.environ[name]


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


NO_RECORD = "left no record: it ended by other means than its last line, sys.exit() or os._exit(), such as os.execv()"
"""The error message for a rank whose process ended with exit code 0 but left no record."""


def be_rank(program: ForeignScript, rank: int, workers: int, port: int, folder: Path, options: TraceOptions) -> None:
    """Run a program as a rank in this forked process, write the rank's record or error, and end the process."""
    code = 1
    Identity.rank = TracedRank(folder, rank, os.getpid())
    try:
        set_up_child()
        where = register_stack_signal(folder, rank)
        rank_environment(rank, workers, port, options)
        keep_at_exit(lambda: write_rank(folder / f"{rank}", rank, finished_record()))
        run_recorded(program, rank, options)
        write_rank(folder / f"{rank}", rank, finished_record())
        end_as_python_does()
        where.close()
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 1
        write_failure(folder, rank, f"{ending.code}\n" if isinstance(ending.code, str) else "")
    except Refusal as refusal:
        write_failure(folder, rank, reason=str(refusal))
    except BaseException as error:
        error_text = "".join(traceback.format_exception(without_our_frames(error)))
        write_failure(folder, rank, error_text, line=failing_line(error))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        _exit(code)


_exit = os._exit
"""The original ``os._exit``, which ends a process at once; the script's ``os._exit`` writes the record first."""


def keep_at_exit(keep: Callable[[], None]) -> None:
    """Let ``os._exit(0)`` in this process, but not in its children, call ``keep`` before the process ends."""
    pid = os.getpid()

    def exit_at_once(status: int) -> None:
        if status == 0 and os.getpid() == pid:
            keep()
        _exit(status)

    os._exit = exit_at_once  # type: ignore[assignment]


def end_as_python_does() -> None:
    """Do what Python does at its end: join threads, call exit functions, end child processes, flush logs."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    multiprocessing.util._exit_function()  # type: ignore[attr-defined]
    logging.shutdown()


def without_our_frames(error: BaseException) -> BaseException:
    """Return an error with a traceback that begins in the user's script."""
    ours = str(Path(__file__).parent)
    while error.__traceback__ and error.__traceback__.tb_frame.f_code.co_filename.startswith((ours, "<frozen runpy")):
        error.__traceback__ = error.__traceback__.tb_next
    return error


def failing_line(error: BaseException) -> str:
    """Return the innermost line of the user's files in a traceback; empty if there is none."""
    stack = traceback.extract_tb(error.__traceback__)
    lines = [
        f"{frame.filename}:{frame.lineno}"
        for frame in stack
        if not frame.filename.startswith("<") and not is_library(frame.filename)
    ]
    return lines[-1] if lines else ""


def rank_environment(rank: int, workers: int, port: int, options: TraceOptions) -> None:
    """Set the environment variables of a rank as torchrun does on one machine, and hide GPUs if the options say so."""
    if options.gpu == "none":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(workers), "RANK": str(rank),
        "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(workers), "GROUP_RANK": "0", "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(workers), "GROUP_WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "trace",
        "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0",
    }  # fmt: skip
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
    if loopback:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)


def run_recorded(program: ForeignScript, rank: int, options: TraceOptions) -> None:
    """Run a program in this process, as ``python`` would, while it is recorded as a rank."""
    reset_child_state(int(os.environ["OMP_NUM_THREADS"]), seed=rank)
    os.register_at_fork(after_in_child=RECORDER.stop)
    hooks.install()
    eager.install_eager()
    clocks.install_clocks(options.clock == "allow")
    operations.register_attention()
    RECORDER.clock.begin(measured.counting_s())
    counter = operations.OperationCounter(RECORDER.operation, RECORDER.is_counting, RECORDER.host_waits)
    with counter.know_steps(RECORDER.known_operations, RECORDER.num_events), cuda.install_cuda():
        run_script(program)


def finished_record() -> RankRecord:
    """Return the record of this process, with its CPU seconds."""
    RECORDER.flush()
    RECORDER.record.segment_cpu_s = RECORDER.clock.medians_s()
    RECORDER.record.cpu_s = time.process_time()
    return RECORDER.record


_LEFT: list[object] = []
"""The global variables of the script, which this list keeps alive until the process ends. When torch frees a model that
has hooks in Python, it can deadlock: it waits for a thread of the group that waits for Python's lock. At the end of the
process this cannot happen."""


def run_script(program: ForeignScript) -> None:
    """Run a program in this process as ``python`` would; ``SystemExit`` with code 0 counts as success."""
    try:
        if program.function is not None:
            pickle.loads(program.function)()
            return
        sys.argv = [program.target, *program.args]
        if program.is_module:
            sys.path.insert(0, os.getcwd())
            _LEFT.append(runpy.run_module(program.target, run_name="__main__", alter_sys=True))
        else:
            sys.path.insert(0, str(Path(program.target).resolve().parent))
            _LEFT.append(runpy.run_path(program.target, run_name="__main__"))
    except SystemExit as ending:
        if ending.code:
            raise


def scripts_of(question: Trace) -> list[list[str]]:
    """Return the words of each script that a command line names; an empty list for a question from Python.

    Raises:
        SpecError: the words of a script cannot be read.
    """
    try:
        commands = [shlex.split(text) for text in question.scripts or ()]
    except ValueError as error:
        raise SpecError("--script", question.scripts, f"words as one types them ({error})") from None
    return commands or ([list(question.script)] if question.script else [])


def script_of(words: Sequence[str]) -> ForeignScript:
    """Return the script of a command line: a file and its arguments, or ``-m``, a module and its arguments."""
    refuse_code("script", " ".join(words), "no script")
    if words[0] == "-m":
        if len(words) < 2:
            raise SpecError("script", "-m", "a module's name behind it")
        return ForeignScript(words[1], tuple(words[2:]), is_module=True)
    return ForeignScript(words[0], tuple(words[1:]))


def program_of(source: str | Path | Callable[[], object]) -> ForeignScript:
    """Return the program of a script, a command line or a function."""
    if callable(source):
        import cloudpickle

        return ForeignScript(getattr(source, "__name__", "function"), function=cloudpickle.dumps(source))
    if isinstance(source, Path) or (isinstance(source, str) and Path(source).is_file()):
        return script_of([str(source)])
    try:
        words = shlex.split(source)
    except (ValueError, AttributeError):
        words = []
    if not words:
        raise SpecError("script", source, "a Python file, what would be typed to run it, or a function")
    return script_of(words)


START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1));"
    "from syncline.measure.recording.ranks import trace_request; trace_request()"
)
"""The code that the child process runs: it finds the same modules as the parent process."""

ENDING_S = 10.0
"""Seconds that the child process has to end by itself when the parent process is interrupted."""


def traced_apart(program: ForeignScript, workers: int, options: TraceOptions) -> list[RankRecord]:
    """Run `syncline.measure.recording.ranks.traced` in a child that has only imported torch; return its records.

    The output of the ranks goes to ``sys.stderr``, even if that is no file, as in a notebook.
    """
    with temporary_folder() as folder:
        (folder / "request").write_bytes(pickle.dumps((tuple(program), workers, options)))
        command = [sys.executable, "-c", START, json.dumps(sys.path), str(folder), str(os.getpid())]
        sys.stderr.flush()
        straight = sys.stderr is sys.__stderr__
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=None if straight else subprocess.PIPE,
            stderr=None if straight else subprocess.STDOUT, start_new_session=True,
        ) as child:  # fmt: skip
            try:
                if child.stdout is not None:
                    decoder = codecs.getincrementaldecoder("utf-8")("replace")
                    while chunk := os.read(child.stdout.fileno(), 1 << 16):
                        sys.stderr.write(decoder.decode(chunk))
                        sys.stderr.flush()
                    sys.stderr.write(decoder.decode(b"", final=True))
                child.wait()
            except BaseException:
                for signal_number in (signal.SIGTERM, signal.SIGKILL):
                    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                        os.killpg(child.pid, signal_number)
                        child.wait(ENDING_S)
                raise
        try:
            error, ranks = pickle.loads((folder / "result").read_bytes())
        except OSError:
            raise SynclineError(f"the process that traces ended with code {child.returncode}") from None
        if error is not None:
            raise error
        records: list[RankRecord] = ranks
        return records


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
