"""Local processes that form one ``torch.distributed`` group, and the values that they return."""

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
from syncline.measure.processes.watchdog import PRELOAD

TIMEOUT_S = 120.0
"""Seconds that a collective may wait for the other ranks before its process gives up."""


def _entry(rank: int, target: Callable[..., Any], processes: int, args: tuple, folder: Path, backend: str) -> None:
    end_with_parent()
    # Each process uses one thread: processes share the machine, and the bits of a sum must not depend on its cores.
    torch.set_num_threads(1)
    # Gloo binds the interface of the host name, which may not resolve on a laptop; local processes use loopback.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        backend, init_method=f"file://{folder}/rendezvous", rank=rank, world_size=processes,
        timeout=timedelta(seconds=TIMEOUT_S),
    )  # fmt: skip
    try:
        torch.save(target(*args), folder / f"{rank}.pt")
        dist.barrier()
    except Exception:
        # Write the error before the group closes: closing makes the other ranks fail, and their errors may come first.
        # The file is renamed when it is complete: the parent ends this process as soon as it sees another failure.
        note = folder / f"{rank}.failing"
        note.write_text(json.dumps([time.monotonic_ns(), rank, os.getpid(), traceback.format_exc()]))
        note.replace(folder / f"{rank}.failed")
        raise
    finally:
        dist.destroy_process_group()


def _first_failure(folder: Path, error: mp.ProcessRaisedException) -> mp.ProcessRaisedException:
    """Return the failure that happened first; the parent sees the failure of the process that ended first."""
    # All processes of a machine share one monotonic clock.
    failures = [json.loads(path.read_text()) for path in folder.glob("*.failed")]
    if not failures:
        return error
    _, rank, pid, text = min(failures)
    return mp.ProcessRaisedException(f"\n\n-- Process {rank} terminated with the following error:\n{text}", rank, pid)


def run_processes(target: Callable[..., Any], processes: int, *args: Any, backend: str = "gloo") -> list[Any]:
    """Run ``target(*args)`` in each of ``processes`` local processes that form one default group.

    Args:
        target: an importable function; ``torch.distributed`` is initialised when it runs.
        processes: number of processes.
        args: arguments of the function, the same in every process.
        backend: the backend of ``torch.distributed``.

    Returns:
        The value that each rank returned, in order of rank.

    Raises:
        SpecError: if ``processes`` is below 1.
        torch.multiprocessing.ProcessRaisedException: if ``target`` raises; the error is that of the rank that failed
            first, and the other processes are ended.
    """
    if processes < 1:
        raise SpecError("processes", processes, "an integer >= 1")
    # The fork server has loaded torch but computed nothing, so processes start at once.
    fork_server(PRELOAD)
    with temporary_folder() as folder:
        try:
            with children_without_signals():
                context = mp.start_processes(
                    _entry, (target, processes, args, folder, backend), processes, join=False, start_method="forkserver"
                )
            while not context.join():
                pass
        except mp.ProcessRaisedException as error:
            raise _first_failure(folder, error) from None
        return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(processes)]
