"""Tracing of a script: each rank runs it in a process forked from one that has imported torch, and is recorded.

`trace_program` forks the ranks from the calling process. `trace_in_child` does so from a new process, for callers in
which torch's threads may already run.
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
from typing import NamedTuple

from syncline.errors import SpecError, SynclineError, one_of
from syncline.files import temporary_folder
from syncline.interrupts import end_with_parent
from syncline.measure.processes.rendezvous import LOOPBACK, open_listener
from syncline.measure.recording import hooks, operations, rank_processes, streams
from syncline.measure.recording.record import RankRecord, print_notes
from syncline.measure.recording.record_files import read_rank, write_rank
from syncline.measure.recording.recorder import (
    RECORDER,
    Refusal,
    is_user_file,
    measure_counting_s,
    share_medians,
    share_payloads,
)
from syncline.questions.scripts import Trace
from syncline.registry import refuse_code


class ForeignScript(NamedTuple):
    """A program to trace: a script, a module or a function.

    Attributes:
        target: a file, or the name of a module.
        function: a function to call instead of a script, pickled by cloudpickle; ``target`` is its name.
    """

    target: str
    args: tuple[str, ...] = ()
    is_module: bool = False
    function: bytes | None = None

    @property
    def name(self) -> str:
        """Return a name for the folder of the trace: the name of the function, module or file."""
        if self.function is not None:
            return self.target.strip("<>")  # "<lambda>"
        last_part = self.target.rpartition(".")[2] if self.is_module else Path(self.target).stem
        return last_part or "script"

    @property
    def words(self) -> tuple[str, ...]:
        """Return the program's command line as words, from which `parse_script` can read the program again."""
        return ("-m", self.target, *self.args) if self.is_module else (self.target, *self.args)


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
        for name, value, choices in (
            ("--gpu", self.gpu, ("auto", "none")),
            ("--clock", self.clock, ("refuse", "allow")),
        ):
            if value not in choices:
                raise SpecError(name, value, one_of(choices, str(value)))


DEFAULT_OPTIONS = TraceOptions()


def trace_program(program: ForeignScript, workers: int, options: TraceOptions = DEFAULT_OPTIONS) -> list[RankRecord]:
    """Run a program on ``workers`` ranks, forked from this process, and return the record of each rank.

    The output of the program goes to standard error.

    Raises:
        SynclineError: if a rank fails, with its traceback on standard error, or all ranks wait for ever.
    """
    import_before_forking()
    with temporary_folder() as folder:
        with open_listener(port=0) as listener:  # any free port, which the first rank's store opens again
            _, port = listener.getsockname()
        rank_by_pid: dict[int, int] = {}
        for rank in range(workers):
            pid = rank_processes.fork_process()
            if pid == 0:
                run_as_rank(program, rank, workers, port, folder, options)  # this never returns
            rank_by_pid[pid] = rank
        rank_processes.wait_for_ranks(rank_by_pid, folder)
        records = []
        for rank in range(workers):
            if not (folder / f"{rank}").exists():
                raise SynclineError(f"rank {rank} of {workers} {NO_RECORD}")
            records.append(read_rank(folder / f"{rank}", rank))
    share_medians(records)
    share_payloads(records)
    return print_notes(records)


def import_before_forking() -> None:
    """Import torch's modules once for all ranks, and remove the environment variables that the import sets.

    Each rank writes its record by PyArrow, which imports pandas then.
    """
    previous_names = set(os.environ)
    import pandas  # noqa: F401
    import torch
    import torch.distributed.fsdp
    import torch.distributed.optim
    import torch.distributed.pipelining
    import torch.distributed.tensor
    import torch.nn.parallel  # noqa: F401

    for name in set(os.environ) - previous_names:
        del os.environ[name]


NO_RECORD = "left no record: it ended by other means than its last line, sys.exit() or os._exit(), such as os.execv()"
"""The error message for a rank whose process ended with exit code 0 but left no record."""


def run_as_rank(
    program: ForeignScript, rank: int, workers: int, port: int, folder: Path, options: TraceOptions
) -> None:
    """Run a program as a rank in this forked process, write the rank's record or error, and end the process."""

    def write_record() -> None:
        write_rank(folder / f"{rank}", rank, finish_record())

    code = 1
    rank_processes.ThisProcess.traced_rank = rank_processes.TracedRank(folder, rank, os.getpid())
    try:
        rank_processes.set_up_child()
        stack_file = rank_processes.register_stack_signal(folder, rank)
        set_rank_environment(rank, workers, port, options)
        call_before_exit(write_record)  # a script may end by ``os._exit``
        run_recorded(program, rank, options)
        write_record()
        end_as_python_does()
        stack_file.close()
        code = 0
    except SystemExit as ending:  # a failure, because `run_script` ignores an exit with code 0
        code = ending.code if isinstance(ending.code, int) else 1
        rank_processes.write_script_failure(
            folder, rank, text=f"{ending.code}\n" if isinstance(ending.code, str) else ""
        )
    except Refusal as refusal:
        rank_processes.write_script_failure(folder, rank, reason=str(refusal))
    except BaseException as error:
        error_text = "".join(traceback.format_exception(drop_recorder_frames(error)))
        rank_processes.write_script_failure(folder, rank, text=error_text, line=failing_line(error))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        _exit(code)


_exit = os._exit
"""The original ``os._exit``, which ends a process at once; the script's ``os._exit`` writes the record first."""


def call_before_exit(function: Callable[[], None]) -> None:
    """Let the script's ``os._exit(0)`` call a function before this process ends; its children do not call it."""
    pid = os.getpid()

    def call_and_exit(status: int) -> None:
        if status == 0 and os.getpid() == pid:
            function()
        _exit(status)

    os._exit = call_and_exit  # type: ignore[assignment]


def end_as_python_does() -> None:
    """Do what Python does at its end: join threads, call exit functions, end child processes, flush logs."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    multiprocessing.util._exit_function()  # type: ignore[attr-defined]
    logging.shutdown()


def drop_recorder_frames(error: BaseException) -> BaseException:
    """Shorten an error's traceback so that it begins in the user's script, and return the error."""
    recorder_files = (str(Path(__file__).parent), "<frozen runpy")
    while error.__traceback__ and error.__traceback__.tb_frame.f_code.co_filename.startswith(recorder_files):
        error.__traceback__ = error.__traceback__.tb_next
    return error


def failing_line(error: BaseException) -> str:
    """Return the innermost line of the user's files in a traceback; empty if there is none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if is_user_file(frame.filename):
            return f"{frame.filename}:{frame.lineno}"
    return ""


def set_rank_environment(rank: int, workers: int, port: int, options: TraceOptions) -> None:
    """Set the environment variables of a rank as torchrun does on one machine, and hide GPUs if the options say so."""
    if options.gpu == "none":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ |= {
        "MASTER_ADDR": LOOPBACK, "MASTER_PORT": str(port), "WORLD_SIZE": str(workers), "RANK": str(rank),
        "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(workers), "GROUP_RANK": "0", "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(workers), "GROUP_WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "trace",
        "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0",
    }  # fmt: skip
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    loopback_devices = [name for _, name in socket.if_nameindex() if name.startswith("lo")]
    if loopback_devices:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback_devices[0])


def run_recorded(program: ForeignScript, rank: int, options: TraceOptions) -> None:
    """Run a program in this process, as ``python`` would, while it is recorded as a rank."""
    rank_processes.reset_child_state(num_threads=int(os.environ["OMP_NUM_THREADS"]), seed=rank)
    os.register_at_fork(after_in_child=RECORDER.stop)
    hooks.install()
    hooks.replace_compile_and_spawn()
    streams.install_clocks(comparison_allowed=options.clock == "allow")
    operations.register_attention()
    RECORDER.clock.start(measure_counting_s())
    counter = operations.OperationCounter(RECORDER.add_operation, RECORDER.is_counting, RECORDER.record_host_wait)
    counting = counter.count_steps_once(RECORDER.add_known_operations, RECORDER.num_calls_and_marks)
    with counting, hooks.install_cuda():
        run_script(program)


def finish_record(by_shapes: bool = False) -> RankRecord:
    """End the last segment of this process's record, add the CPU seconds, and return the record.

    A rank that runs ``by_shapes`` computes nothing, so that its segments have no CPU seconds.
    """
    RECORDER.end_segment()
    if not by_shapes:
        RECORDER.record.segment_cpu_s = RECORDER.clock.medians_s()
    RECORDER.record.cpu_s = time.process_time()
    return RECORDER.record


_KEPT_ALIVE: list[object] = []
"""The global variables of the script: this list keeps them until the process ends. When torch frees a model that
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
            _KEPT_ALIVE.append(runpy.run_module(program.target, run_name="__main__", alter_sys=True))
        else:
            sys.path.insert(0, str(Path(program.target).resolve().parent))
            _KEPT_ALIVE.append(runpy.run_path(program.target, run_name="__main__"))
    except SystemExit as ending:
        if ending.code:
            raise


def split_command_lines(question: Trace) -> list[list[str]]:
    """Return the command line of each script of a question as a list of words, split as the shell does.

    ``scripts`` has command lines of any number of scripts; ``script`` has the words of a single one, split already.

    Raises:
        SpecError: a command line that cannot be split.
    """
    try:
        commands = [shlex.split(text) for text in question.scripts or ()]
    except ValueError as error:
        raise SpecError("--script", question.scripts, f"a command line ({error})") from None
    if not commands and question.script:
        return [list(question.script)]
    return commands


def parse_script(words: Sequence[str]) -> ForeignScript:
    """Return the script of a command line: a file and its arguments, or ``-m``, a module and its arguments."""
    refuse_code("script", " ".join(words), "no script")  # raises an error if the user has forbidden foreign code
    if words[0] == "-m":
        if len(words) < 2:
            raise SpecError("script", "-m", "a module's name after it")
        return ForeignScript(words[1], tuple(words[2:]), is_module=True)
    return ForeignScript(words[0], tuple(words[1:]))


def parse_program(source: str | Path | Callable[[], object]) -> ForeignScript:
    """Return the program to trace: a function, a Python file, or, for a text that names no file, a command line."""
    if callable(source):
        import cloudpickle

        return ForeignScript(target=getattr(source, "__name__", "function"), function=cloudpickle.dumps(source))
    if isinstance(source, Path) or (isinstance(source, str) and Path(source).is_file()):
        return parse_script([str(source)])
    try:
        words = shlex.split(source)
    except (ValueError, AttributeError):  # a quote without its end, or a value that is no text
        words = []
    if not words:
        raise SpecError("script", source, "a Python file, a command line, or a function")
    return parse_script(words)


CHILD_CODE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1));"
    "from syncline.measure.recording.ranks import trace_request; trace_request()"
)
"""The code that the child process runs: it finds the same modules as the parent process."""

GRACE_S = 10.0
"""Seconds that the child process has to end by itself when the parent process is interrupted."""


def trace_in_child(program: ForeignScript, workers: int, options: TraceOptions) -> list[RankRecord]:
    """Run `trace_program` in a child process that has only imported torch, and return its records.

    The output of the ranks goes to ``sys.stderr``, even if that is no file, as in a notebook.
    """
    with temporary_folder() as folder:
        (folder / "request").write_bytes(pickle.dumps((program, workers, options)))
        command = [sys.executable, "-c", CHILD_CODE, json.dumps(sys.path), str(folder), str(os.getpid())]
        sys.stderr.flush()
        is_redirected = sys.stderr is not sys.__stderr__  # then this process copies what the child prints
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if is_redirected else None,
            stderr=subprocess.STDOUT if is_redirected else None, start_new_session=True,
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
                        os.killpg(child.pid, signal_number)  # the child and its ranks
                        child.wait(GRACE_S)
                raise
        try:
            result: list[RankRecord] | SynclineError = pickle.loads((folder / "result").read_bytes())
        except OSError:
            raise SynclineError(f"the process that traces ended with code {child.returncode}") from None
        if isinstance(result, SynclineError):
            raise result
        return result


def trace_request() -> None:
    """Trace the program that `trace_in_child` stored in a folder, and write the result into the same folder."""
    folder, parent_pid = Path(sys.argv[1]), int(sys.argv[2])  # the arguments behind `CHILD_CODE`
    end_with_parent(parent_pid)
    program, workers, options = pickle.loads((folder / "request").read_bytes())
    result: list[RankRecord] | SynclineError
    try:
        result = trace_program(program, workers, options)
    except SpecError as error:  # a new error, because pickle cannot restore subclasses with other arguments
        result = SpecError(error.path, error.value, error.expected)
    except SynclineError as error:
        result = SynclineError(str(error))
    (folder / ".result").write_bytes(pickle.dumps(result))
    (folder / ".result").rename(folder / "result")  # a reader finds a complete file or none
