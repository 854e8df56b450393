"""Start local processes that form one ``torch.distributed`` group, and collect what each returns."""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from syncline.errors import SpecError
from syncline.files import temporary_folder
from syncline.interrupts import children_without_signals, end_with_parent, fork_server

PRELOAD = ("__main__", "syncline.training", "torch._dynamo")
"""What the server that processes are forked from loads once; optimizers begin with the last one."""

TIMEOUT_S = 120.0
"""How long a collective may wait for the others before its process gives up."""


def _tell_failure(folder: Path, rank: int) -> None:
    # Renamed when whole: the parent ends this process as soon as it has heard of another that failed.
    told = folder / f"{rank}.failing"
    told.write_text(json.dumps([time.monotonic_ns(), rank, os.getpid(), traceback.format_exc()]))
    told.replace(folder / f"{rank}.failed")


def _entry(rank: int, target: Callable[..., Any], processes: int, args: tuple, folder: Path, backend: str) -> None:
    end_with_parent()
    # One thread each: several processes share the machine, and the bits of a sum then do not depend on its cores.
    torch.set_num_threads(1)
    # gloo binds the interface of the host name, which may not resolve on a laptop; local processes meet on loopback.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        backend, init_method=f"file://{folder}/rendezvous", rank=rank, world_size=processes,
        timeout=timedelta(seconds=TIMEOUT_S),
    )  # fmt: skip
    try:
        torch.save(target(*args), folder / f"{rank}.pt")
        dist.barrier()
    except Exception:
        # Before the group closes: closing it makes the others fail too, and theirs may reach the parent first.
        _tell_failure(folder, rank)
        raise
    finally:
        dist.destroy_process_group()


def _first_failure(folder: Path, told: mp.ProcessRaisedException) -> mp.ProcessRaisedException:
    """Of all failures, the one that came first: the parent is told of whichever process ended first."""
    # The monotonic clock is one for all processes of a machine.
    failures = [json.loads(path.read_text()) for path in folder.glob("*.failed")]
    if not failures:
        return told
    _, rank, pid, text = min(failures)
    return mp.ProcessRaisedException(f"\n\n-- Process {rank} terminated with the following error:\n{text}", rank, pid)


def run_processes(target: Callable[..., Any], processes: int, *args: Any, backend: str = "gloo") -> list[Any]:
    """Run ``target(*args)`` in each of ``processes`` local processes joined in one default group.

    Args:
        target: an importable function; inside it ``torch.distributed`` is initialised.
        processes: how many.
        args: passed to every process.
        backend: of ``torch.distributed``.

    Returns:
        What each rank returned, in order of rank.

    Raises:
        SpecError: if ``processes`` is below 1.
        torch.multiprocessing.ProcessRaisedException: if ``target`` raises, of the rank that failed first; the other
            processes are ended.
    """
    if processes < 1:
        raise SpecError("processes", processes, "an integer >= 1")
    # Forked from a server that has loaded torch but computed nothing, processes start at once.
    fork_server(PRELOAD)
    with temporary_folder() as folder:
        try:
            with children_without_signals():
                started = mp.start_processes(
                    _entry, (target, processes, args, folder, backend), processes, join=False, start_method="forkserver"
                )
            while not started.join():
                pass
        except mp.ProcessRaisedException as told:
            raise _first_failure(folder, told) from None
        return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(processes)]
