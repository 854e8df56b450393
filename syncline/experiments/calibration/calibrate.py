"""``syncline calibrate``: times of this machine, or of a cluster under torchrun, and the cluster file made of them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import Store

from syncline.backend import machine_times
from syncline.backend.collective_times import Gate, spread, time_collectives
from syncline.backend.meeting import (
    Place,
    agree,
    clock_offset_ns,
    group,
    host_store,
    identity,
    join_store,
    store_of_environment,
)
from syncline.backend.progress import PROGRESS_WORDS, Progress
from syncline.backend.watchdog import Failure, watched
from syncline.errors import SynclineError
from syncline.experiments.calibration.cluster_file import ClusterFile, cluster_of
from syncline.experiments.calibration.plan import PARTS, Calibration, check_process_counts
from syncline.experiments.launching.process import Launch
from syncline.files import temporary_folder
from syncline.problems import Rows

PRELOAD = ("syncline.experiments.calibration.calibrate",)
"""What every process would load."""


def calibrate(
    plan: Calibration,
    workers: Sequence[int],
    out: Path,
    how: Launch | None = None,
    *,
    command: str = "",
    exact: bool = False,
    on_progress: Callable[[int], object] = lambda done: None,
) -> dict[str, Any]:
    """Measure this machine with each number of local processes in turn, and write the cluster file.

    Args:
        plan: what is measured.
        workers: numbers of processes, each at least 2.
        out: the file to write. If it exists, a number is added, or it is refused if ``exact``.
        how: device, backend, timeout; the defaults of `Launch` if none.
        command: that was given, for the file.
        exact: refuse an existing file.
        on_progress: called with the number of parts that are done, of ``len(workers) * len(plan.parts)``.

    Returns:
        ``file``, what is in it, ``rows`` (the collectives), ``residuals`` (of the fit, by collective and number of
        processes), ``constants``; or ``failed`` alone, the line that says who died or hung.

    Raises:
        SynclineError: what is found before anything is measured, or measurements that tell nothing.
    """
    how = how or Launch()
    check_process_counts(workers)
    mine = how.devices(max(workers))
    begun_s, measured = time.perf_counter(), []
    with ClusterFile(out, exact) as file:
        for number, processes in enumerate(sorted(workers)):
            done = number * len(plan.parts)
            told = _on_local_processes(plan, processes, how, lambda parts, done=done: on_progress(done + parts))  # type: ignore[misc]
            if isinstance(told, Failure):
                return {"failed": failure_line(told, plan)}
            measured.append(told)
        facts = {"command": command, "seconds": round(time.perf_counter() - begun_s, 1), "machines": 1}
        result = cluster_of(plan, measured, facts | {"backend": mine.backend, "device": mine.kind})
        return file.write(result)


def calibrate_under_torchrun(
    plan: Calibration, out: Path, how: Launch, *, command: str = "", exact: bool = False
) -> dict[str, Any]:
    """Measure the machines of the processes that torchrun started.

    Returns:
        On rank 0 what `calibrate` does; nothing on the others. Who fails, or loses another, says so in ``failed``.

    Raises:
        SynclineError: what is found before anything is measured; the same on every rank.
    """
    store, place = store_of_environment(how.meeting_s)
    mine, file, mistake = None, None, None
    try:
        mine = how.devices(place.local_processes)
        check_process_counts([place.processes])
        file = ClusterFile(out, exact) if place.rank == 0 else None
    except SynclineError as error:
        mistake = str(error)
    with file or nullcontext():
        same = identity(plan.identity()) | ({"device": mine.kind, "backend": mine.backend} if mine else {})
        machines = agree(store, place, {"device": "", "backend": ""} | same, how.meeting_s, mistake)
        assert mine is not None  # else all have just been told why not
        progress = Progress(np.zeros((place.processes, PROGRESS_WORDS), dtype=np.int64), place.rank)
        begun_s = time.perf_counter()
        try:
            told = measure(plan, how, store, place, machines, progress)
        except RuntimeError as error:
            failure = Failure(place.rank, progress.step_of(place.rank), _torchs_reason(error))
            return {"failed": failure_line(failure, plan)}
        if file is None:
            return {}
        facts = {"command": command, "seconds": round(time.perf_counter() - begun_s, 1)}
        facts |= {"machines": len(set(machines.values())), "backend": mine.backend, "device": mine.kind}
        return file.write(cluster_of(plan, [told], facts))


def _torchs_reason(error: RuntimeError) -> str:
    """How a rank failed, in few words: torch tells a lost peer at length."""
    line = (str(error).splitlines() or [""])[0]
    if any(words in line for words in ("Connection closed", "Connection reset", "Broken pipe")):
        return "lost another process"
    return f"failed ({type(error).__name__}: {line})"


def failure_line(failure: Failure, plan: Calibration) -> str:
    """Who failed, and at what."""
    if failure.step is None or failure.mistake:
        return str(failure).replace("the first step", "the first measurement")
    return f"rank {failure.rank} {failure.reason} during {plan.parts[failure.step]}"


def measure(
    plan: Calibration, how: Launch, store: Store, place: Place, machines: dict[int, str], progress: Progress
) -> dict[str, Any]:
    """Join the others and measure; the same on every rank.

    Returns:
        ``workers``, ``machines``, ``steps`` (each rank's seconds, block by block), ``flops_per_step``,
        ``product_flops_per_s``, ``copy_bytes_per_s``, ``wires`` (each rank's), ``collectives``.

    Raises:
        SynclineError: what only the problem can tell.
    """
    torch.set_num_threads(plan.threads)
    mine = how.devices(place.local_processes)
    device = mine.of(place.local_rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    with group(store, place, mine.backend, 1.5 * how.timeout_s + 10.0), torch.random.fork_rng(devices=[]):
        agreements = None if mine.backend == "gloo" else dist.new_group(backend="gloo")
        gate = Gate(clock_offset_ns(place, machines), agreements)
        task = plan.problem.build(Rows((plan.seed,), (place.rank,), place.processes), device=device)

        def together(number: int, run: Callable[[], Any]) -> Any:
            progress.step(number, number)
            gate.start()
            return run()

        window_s = plan.window_s
        own = {
            "steps": together(0, lambda: machine_times.step_seconds(task, window_s, device).tolist()),
            "product": together(1, lambda: machine_times.product_flops_per_s(window_s, device)),
            "copy": together(2, lambda: machine_times.copy_bytes_per_s(window_s / 2, device)),
            "wires": together(3, lambda: machine_times.wire_seconds(window_s / 20, device)),
        }
        ranks = gate.gather(own)

        def on_point(number: int) -> None:
            progress.step(len(PARTS) + number, len(PARTS) + number)

        rows = time_collectives(plan.timing, gate, device, on_point)
        progress.step(len(plan.parts) - 1, len(plan.parts))
        gate.most(0)  # nobody leaves while others still talk
    return {
        "workers": place.processes,
        "steps": [rank["steps"] for rank in ranks],
        "flops_per_step": task.flops_per_step,
        "product_flops_per_s": float(np.median([rank["product"] for rank in ranks])),
        "copy_bytes_per_s": float(np.median([rank["copy"] for rank in ranks])),
        "wires": [rank["wires"] for rank in ranks],
        "collectives": rows,
        "spread": spread([seconds for rank in ranks for seconds in rank["steps"]]),
    }


def calibration_process(rank: int, plan: Calibration, processes: int, how: Launch, port: int, folder: Path) -> None:
    """A process of ``syncline calibrate``; rank 0 leaves what was measured in the folder."""
    # gloo binds the interface of the host's name, which may not resolve on a laptop; local processes meet on loopback.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = join_store(port, how.meeting_s)
    place = Place(rank, processes, rank, processes)
    machines = agree(store, place, identity(plan.identity()), how.meeting_s)
    told = measure(plan, how, store, place, machines, Progress.shared(folder / "progress", processes, rank))
    if rank == 0:
        (folder / "measured.json").write_text(json.dumps(told))


def _on_local_processes(
    plan: Calibration, processes: int, how: Launch, on_progress: Callable[[int], object]
) -> dict[str, Any] | Failure:
    """What so many local processes measure.

    Raises:
        SynclineError: a mistake that they found.
    """
    store = host_store(how.port)
    with temporary_folder() as folder:
        progress = Progress.shared(folder / "progress", processes)
        failure = watched(
            calibration_process, processes, (plan, processes, how, store.port, folder), progress, folder, how.timeout_s,
            preload=PRELOAD, on_poll=lambda seen: on_progress(seen.steps_done()),
        )  # fmt: skip
        if failure is not None and failure.mistake:
            raise SynclineError(str(failure))
        if failure is not None:
            return failure
        told: dict[str, Any] = json.loads((folder / "measured.json").read_text())
        return told
