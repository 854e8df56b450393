"""``syncline calibrate``: measurements of this machine, or of a cluster under torchrun, written to a cluster file."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import Store

from syncline.errors import SynclineError
from syncline.files import temporary_folder
from syncline.measure.calibration import machine_times
from syncline.measure.calibration.cluster_file import ClusterFile, cluster_of
from syncline.measure.calibration.collective_times import Gate, spread, time_collectives
from syncline.measure.calibration.plan import PARTS, Calibration, check_process_counts
from syncline.measure.launching.process import Launch, join_local_processes
from syncline.measure.processes.progress import Progress
from syncline.measure.processes.rendezvous import (
    Place,
    agree,
    clock_offset_ns,
    group,
    host_store,
    identity,
    store_of_environment,
)
from syncline.measure.processes.watchdog import Failure, run_watched
from syncline.problems import Rows

PRELOAD = ("syncline.measure.calibration.calibrate",)
"""Modules to load before forking, because every process needs them."""


def calibrate(
    plan: Calibration,
    workers: Sequence[int],
    out: Path,
    options: Launch | None = None,
    *,
    command: str = "",
    exact: bool = False,
    on_progress: Callable[[int], object] = lambda done: None,
) -> dict[str, Any]:
    """Measure this machine with each number of local processes in turn, and write the cluster file.

    Args:
        workers: numbers of processes, each at least 2.
        out: the file to write. If it exists, a number is added; with ``exact`` it is an error.
        options: device, backend, timeout; the defaults of `Launch` if none.
        command: the user's command, for the file.
        exact: refuse an existing file.
        on_progress: called with the number of parts that are done, of ``len(workers) * len(plan.parts)``.

    Returns:
        ``file``, its contents, ``rows`` (the collectives), ``residuals`` (of the fit, by collective and number of
        processes), ``constants``; or ``failed`` alone, a line with the process that died or hung.

    Raises:
        SynclineError: a mistake found before the measurements, or measurements that determine nothing.
    """
    options = options or Launch()
    check_process_counts(workers)
    devices = options.devices(max(workers))
    start_s, measured = time.perf_counter(), []
    with ClusterFile(out, exact) as file:
        for number, processes in enumerate(sorted(workers)):
            measurement = _on_local_processes(plan, processes, options, on_progress, number * len(plan.parts))
            if isinstance(measurement, Failure):
                return {"failed": failure_line(measurement, plan)}
            measured.append(measurement)
        facts = {"command": command, "seconds": round(time.perf_counter() - start_s, 1), "machines": 1}
        result = cluster_of(plan, measured, facts | {"backend": devices.backend, "device": devices.kind})
        return file.write(result)


def calibrate_under_torchrun(
    plan: Calibration, out: Path, options: Launch, *, command: str = "", exact: bool = False
) -> dict[str, Any]:
    """Measure the machines of the processes that torchrun started.

    Returns:
        On rank 0 the same as `calibrate`; nothing on the others. A rank that fails, or loses another, has ``failed``.

    Raises:
        SynclineError: a mistake found before the measurements; the same on every rank.
    """
    store, place = store_of_environment(options.meeting_s)
    devices, file, mistake = None, None, None
    try:
        devices = options.devices(place.local_processes)
        check_process_counts([place.processes])
        file = ClusterFile(out, exact) if place.rank == 0 else None
    except SynclineError as error:
        mistake = str(error)
    with file or nullcontext():
        same = identity(plan.identity()) | ({"device": devices.kind, "backend": devices.backend} if devices else {})
        machines = agree(store, place, {"device": "", "backend": ""} | same, options.meeting_s, mistake)
        assert devices is not None  # otherwise `agree` has raised the mistake on every rank
        progress = Progress.private(place.processes, place.rank)
        start_s = time.perf_counter()
        try:
            measurement = measure(plan, options, store, place, machines, progress)
        except RuntimeError as error:
            line = (str(error).splitlines() or [""])[0]
            is_lost_peer = any(words in line for words in ("Connection closed", "Connection reset", "Broken pipe"))
            reason = "lost another process" if is_lost_peer else f"failed ({type(error).__name__}: {line})"
            return {"failed": failure_line(Failure(place.rank, progress.step_of(place.rank), reason), plan)}
        if file is None:
            return {}
        facts = {"command": command, "seconds": round(time.perf_counter() - start_s, 1)}
        facts |= {"machines": len(set(machines.values())), "backend": devices.backend, "device": devices.kind}
        return file.write(cluster_of(plan, [measurement], facts))


def failure_line(failure: Failure, plan: Calibration) -> str:
    """Return a line with the rank that failed and the measurement that it was making."""
    if failure.step is None or failure.mistake:
        return str(failure).replace("the first step", "the first measurement")
    return f"rank {failure.rank} {failure.reason} during {plan.parts[failure.step]}"


def measure(
    plan: Calibration, options: Launch, store: Store, place: Place, machines: dict[int, str], progress: Progress
) -> dict[str, Any]:
    """Join the other ranks and measure; every rank returns the same.

    Returns:
        ``workers``, ``machines``, ``steps`` (each rank's seconds, block by block), ``flops_per_step``,
        ``product_flops_per_s``, ``copy_bytes_per_s``, ``wires`` (the measured links of each rank), ``collectives``.

    Raises:
        SynclineError: an error in the problem, which shows only once it is built.
    """
    torch.set_num_threads(plan.threads)
    devices = options.devices(place.local_processes)
    device = options.use_device(place.local_rank, place.local_processes)
    with group(store, place, devices.backend, 1.5 * options.timeout_s + 10.0), torch.random.fork_rng(devices=[]):
        agreements = None if devices.backend == "gloo" else dist.new_group(backend="gloo")
        gate = Gate(clock_offset_ns(place, machines), agreements)
        task = plan.problem.build(Rows((plan.seed,), (place.rank,), place.processes), device=device)

        def together(number: int, run: Callable[[], Any]) -> Any:
            progress.step(number, number)
            gate.start()
            return run()

        window_s = plan.window_s
        rank_measurements = {
            "steps": together(0, lambda: machine_times.step_seconds(task, window_s, device).tolist()),
            "product": together(1, lambda: machine_times.product_flops_per_s(window_s, device)),
            "copy": together(2, lambda: machine_times.copy_bytes_per_s(window_s / 2, device)),
            "wires": together(3, lambda: machine_times.wire_seconds(window_s / 20, device)),
        }
        ranks = gate.gather(rank_measurements)

        def on_point(number: int) -> None:
            progress.step(len(PARTS) + number, len(PARTS) + number)

        rows = time_collectives(plan.timing, gate, device, on_point)
        progress.step(len(plan.parts) - 1, len(plan.parts))
        gate.max_over_ranks(0)  # no rank leaves while others still communicate
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


def calibration_process(rank: int, plan: Calibration, processes: int, options: Launch, port: int, folder: Path) -> None:
    """Run one process of ``syncline calibrate``; rank 0 writes the measurements to the folder."""
    store, place = join_local_processes(rank, processes, port, options)
    machines = agree(store, place, identity(plan.identity()), options.meeting_s)
    measurement = measure(plan, options, store, place, machines, Progress.shared(folder / "progress", processes, rank))
    if rank == 0:
        (folder / "measured.json").write_text(json.dumps(measurement))


def _on_local_processes(
    plan: Calibration, processes: int, options: Launch, on_progress: Callable[[int], object], done: int
) -> dict[str, Any] | Failure:
    """Measure with ``processes`` local processes after ``done`` parts, and return the measurements or the failure.

    Raises:
        SynclineError: a mistake that the processes found.
    """
    store = host_store(options.port)
    with temporary_folder() as folder:
        progress = Progress.shared(folder / "progress", processes)
        failure = run_watched(
            calibration_process, processes, (plan, processes, options, store.port, folder), progress, folder,
            options.timeout_s, preload=PRELOAD, on_poll=lambda seen: on_progress(done + seen.steps_done()),
        )  # fmt: skip
        if failure is not None and failure.mistake:
            raise SynclineError(str(failure))
        if failure is not None:
            return failure
        measurement: dict[str, Any] = json.loads((folder / "measured.json").read_text())
        return measurement
