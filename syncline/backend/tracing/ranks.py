"""The processes of a traced script: forked from one that has imported torch, watched until the last has ended."""

from __future__ import annotations

import os
import pickle
import random
import runpy
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from syncline.backend.tracing.record import RankRecord
from syncline.errors import SpecError, SynclineError

GRACE_S = 5.0
"""That ranks have to end by themselves after one has failed."""


class ForeignScript(NamedTuple):
    """What is run.

    Attributes:
        target: a file, or a module's name.
        args: its own.
        is_module: whether it is a module's name.
    """

    target: str
    args: tuple[str, ...] = ()
    is_module: bool = False

    @property
    def name(self) -> str:
        """For a folder."""
        return (self.target.rpartition(".")[2] if self.is_module else Path(self.target).stem) or "script"


def traced(program: ForeignScript, workers: int) -> list[RankRecord]:
    """Run a program on so many ranks and note what each does; what it prints goes to standard error.

    Raises:
        SynclineError: a rank failed, whose traceback is on standard error.
    """
    import_before_forking()
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        ranks: dict[int, int] = {}
        for rank in range(workers):
            pid = os.fork()
            if not pid:
                be_rank(program, rank, workers, port, Path(folder))
            ranks[pid] = rank
        failed = watched_ranks(dict(ranks))
        if failed is not None:
            rank, how = failed
            raise SynclineError(f"rank {rank} of {workers} {how}; its own words are above")
        return [pickle.loads((Path(folder) / f"{rank}").read_bytes()) for rank in range(workers)]


def import_before_forking() -> None:
    """What scripts import of torch, once for all ranks."""
    import torch
    import torch.distributed.fsdp
    import torch.distributed.optim
    import torch.distributed.pipelining
    import torch.distributed.tensor
    import torch.nn.parallel  # noqa: F401


def free_port() -> int:
    """A port of this machine that nobody has."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def watched_ranks(running: dict[int, int]) -> tuple[int, str] | None:
    """Wait for all; if one fails, end the others.

    Returns:
        The first rank that failed, and how; None if none did.
    """
    failed: tuple[int, str] | None = None
    try:
        while running:
            pid, status = os.wait()
            rank = running.pop(pid, None)
            if rank is None or not status or failed:
                continue
            code = os.waitstatus_to_exitcode(status)
            failed = rank, f"exited with code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
            end_ranks(running, signal.SIGTERM)
    except BaseException:
        end_ranks(running, signal.SIGKILL)
        for pid in running:
            os.waitpid(pid, 0)
        raise
    return failed


def end_ranks(running: dict[int, int], how: signal.Signals) -> None:
    """Ask ranks to end, and make those that do not within the grace."""
    for pid in running:
        os.kill(pid, how)
    if how == signal.SIGKILL:
        return
    until_s = time.monotonic() + GRACE_S
    while running and time.monotonic() < until_s:
        for pid in list(running):
            if os.waitpid(pid, os.WNOHANG)[0]:
                running.pop(pid)
        time.sleep(0.01)
    for pid in list(running):
        os.kill(pid, signal.SIGKILL)


def be_rank(program: ForeignScript, rank: int, workers: int, port: int, folder: Path) -> None:
    """The life of a rank, from its birth to its end."""
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(2, 1)
        rank_environment(rank, workers, port)
        record = run_recorded(program, rank)
        (folder / f".{rank}").write_bytes(pickle.dumps(record))
        (folder / f".{rank}").rename(folder / f"{rank}")
        code = 0
    except SystemExit as asked:
        code = asked.code if isinstance(asked.code, int) else 1
        if isinstance(asked.code, str):
            print(asked.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def rank_environment(rank: int, workers: int, port: int) -> None:
    """As torchrun sets it on one machine."""
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(workers), "RANK": str(rank),
        "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(workers), "GROUP_RANK": "0", "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(workers), "GROUP_WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "trace",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }  # fmt: skip
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
    if loopback:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)


def run_recorded(program: ForeignScript, rank: int) -> RankRecord:
    """Run the program as ``python`` would, and listen."""
    import numpy as np
    import torch

    from syncline.backend.tracing import hooks, operations
    from syncline.backend.tracing.recorder import RECORDER

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    random.seed(rank)  # a process of its own has a state of its own; here each has the same in every recording
    np.random.seed(rank)  # noqa: NPY002 - the script's own state
    hooks.install()
    operations.register_attention()
    sys.argv = [program.target, *program.args]
    with operations.OperationCounter(RECORDER.operation, RECORDER.listens):
        if program.is_module:
            sys.path.insert(0, os.getcwd())
            runpy.run_module(program.target, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(program.target).resolve().parent))
            runpy.run_path(program.target, run_name="__main__")
    RECORDER.flush()
    RECORDER.record.cpu_s = time.process_time()
    return RECORDER.record


def script_of(words: Sequence[str]) -> ForeignScript:
    """What stands behind ``--``: a file and its arguments, or ``-m`` and a module and its arguments.

    Raises:
        SpecError: ``-m`` alone.
    """
    if words[0] == "-m":
        if len(words) < 2:
            raise SpecError("script", "-m", "a module's name behind it")
        return ForeignScript(words[1], tuple(words[2:]), True)
    return ForeignScript(words[0], tuple(words[1:]))
