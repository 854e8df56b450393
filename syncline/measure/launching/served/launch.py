"""The command ``syncline launch`` for workers at their own pace: a server's process and one per worker, measured."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle

from syncline.comm.devices import training_device
from syncline.errors import SpecError
from syncline.measure.launching.launch import MEASURED, Ended, check_undisturbed, run_to_end, write_results
from syncline.measure.launching.process import Launch
from syncline.measure.launching.rank_files import tensors_from_json
from syncline.measure.launching.served.events import ServerLines, history_of, measured_result, order_columns
from syncline.measure.launching.served.server import server_process
from syncline.measure.launching.served.worker import worker_process
from syncline.measure.processes.messages import check_encryption, make_keys
from syncline.measure.processes.rejoining import Departure, ServedProcesses
from syncline.measure.processes.rendezvous import open_listener
from syncline.measure.processes.watchdog import DONE, Progress
from syncline.methods.parts.asynchronous import asynchronous_of
from syncline.planner.bounds import Factors
from syncline.problems import Problem, Rows, Task
from syncline.runs.folders.folder import RunFolder, environment
from syncline.runs.training.async_clock import AsyncTrained, async_plan
from syncline.runs.training.async_training import relative_batch_durations
from syncline.runs.training.clock_bounds import BoundedClock
from syncline.runs.training.limits import check_processes, check_training
from syncline.runs.training.results import clock_record, run_records
from syncline.runs.training.tables import write_contributions
from syncline.runs.training.train_and_time import time_with_bounds
from syncline.runs.training.trained import Trained, build_task, undisturbed_step_s, with_measured_step
from syncline.sim import Clock
from syncline.specs import RunSpec

PRELOAD = ("syncline.measure.launching.served.server", "syncline.measure.launching.served.worker")
"""Modules that every process would otherwise load."""


def check_served(spec: RunSpec, options: Launch) -> None:
    """Refuse settings that a server of real workers does not support, and a libzmq that cannot encrypt."""
    check_encryption()
    check_undisturbed(spec)
    asynchronous = asynchronous_of(spec.method)
    assert asynchronous is not None
    if asynchronous.hierarchy is not None:
        expected = "none in a launch, whose workers have one server"
        raise SpecError("method.asynchronous.hierarchy", asynchronous.hierarchy.model_dump(), expected)
    wire_format = spec.method.in_precision(spec.number_format).wire_format
    if asynchronous.reference == "server" and wire_format != "dense":
        expected = "dense with reference: server, as workers send their whole models"
        raise SpecError("method.wire", wire_format, expected)
    if options.workers_per_process != 1:
        expected = "1, as each worker has its own pace"
        raise SpecError("workers_per_process", options.workers_per_process, expected)
    if options.backend == "nccl":
        raise SpecError("backend", options.backend, "auto or gloo, as a server has no collectives")
    if options.reproducible:
        raise SpecError("reproducible", True, "false, as a server adds updates in the order of their arrival")


def launch_served(
    spec: RunSpec,
    out: Path,
    options: Launch | None = None,
    *,
    exact: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Train workers at their own pace on local processes, measure, and write the folder of a run.

    Args:
        options: device, timeout, ``rejoins``; the defaults of `Launch` if None.
        on_progress: called with the number of steps that are completed, of ``steps * len(seeds)``.

    Returns:
        The same as `syncline.measure.launching.launch.launch`, and ``departures`` of workers.

    Raises:
        SynclineError: a mistake in the spec, a missing GPU, or a port in use; raised before training.
    """
    options = (options or Launch()).for_spec(spec)
    check_served(spec, options)
    check_processes("workers", spec.workers)
    check_training(spec, spec.method)
    options.devices(spec.workers + 1)  # with the server; refuses a missing GPU
    spec, step_s = with_measured_step(spec)
    listener = open_listener(options.port)
    with RunFolder(out, exact) as folder, listener:
        folder.spec(spec)
        ranks_folder = folder.working / "ranks"
        ranks_folder.mkdir()
        packed, port = cloudpickle.dumps(spec), listener.getsockname()[1]
        server_keys, worker_keys = make_keys(spec.workers)  # these keys reach the processes only through pipes
        server = spec.workers  # the server's rank
        targets: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
            (worker_process, (packed, options, port, keys, ranks_folder)) for keys in worker_keys
        ]
        targets.append((server_process, (packed, options, listener, server_keys, ranks_folder)))
        processes = ServedProcesses(targets, ranks_folder, options.timeout_s, options.rejoins, PRELOAD)

        def on_poll(progress: Progress) -> None:
            if on_progress:
                on_progress(int(progress.counters[server, DONE]))

        # Once the server's process has started, it has its own copy of the listener.
        ended = run_to_end(partial(processes.run, on_start=listener.close, on_poll=on_poll), ranks_folder)
        on_poll(processes.progress)  # reports the last steps
        result = _write_served(folder, spec, options, ranks_folder, ended, processes.departures, step_s)
    return result | {"folder": str(folder.path)}


class _Measured(NamedTuple):
    """The results of a launch: training, measured clock, simulated training and its clock with bounds."""

    trained: Trained
    clock: Clock
    simulated: Trained
    timing: BoundedClock


def _write_served(
    folder: RunFolder, spec: RunSpec, options: Launch, ranks_folder: Path, ended: Ended,
    departures: Sequence[Departure], step_s: float | None,
) -> dict[str, Any]:  # fmt: skip
    """Write the measurements into the folder, next to the simulator's results; see `write_launch`."""
    lines = ServerLines.from_folder(ranks_folder)
    record = ended.record(spec, options, spec.workers + 1, step_s)  # with the server
    record["device"] = lines.facts.get("device")
    record["failed"] = lines.end.get("stuck") or record["failed"]  # the server knows best why it could not go on
    record["departures"] = [asdict(departure) for departure in departures]
    returns = lines.events_named("join")[spec.workers :]  # the first P joins are the first starts of the workers
    record["joins"] = [{"worker": join["worker"], "at_s": join["at_s"]} for join in returns]
    measured = _measured_and_simulated(
        spec, lines, ended.wall_s, ended_early=ended.interrupted or not lines.end, is_step_measured=step_s is not None
    )
    if measured is not None:
        record |= {"machines": 1, "problem": lines.facts["problem"]} | _measured_and_simulated_rows(spec, measured)
    folder.json("run", environment() | record)
    parameters_file = ranks_folder / "server.pt"
    if parameters_file.exists():
        parameters_file.replace(folder.working / "parameters.pt")
    if lines.facts:
        folder.table("order", order_columns(lines))
    if measured is not None:
        trained = measured.trained
        process_names = [*(f"worker {worker}" for worker in range(spec.workers)), "server"]
        write_contributions(folder, [trained, measured.simulated])
        tracks = [f"{world}: {name}" for world in (MEASURED, "simulated") for name in process_names]
        write_results(folder, spec, trained, measured.clock, measured.timing, track_names=tracks)
    shutil.rmtree(ranks_folder)  # last: after a failed write the files still exist
    names = ("rows", "simulated", "interrupted", "failed", "measured_step_s", "departures", "joins")
    return {name: record[name] for name in names}


def _measured_and_simulated(
    spec: RunSpec, lines: ServerLines, wall_s: float, *, ended_early: bool, is_step_measured: bool
) -> _Measured | None:
    """Return the measured training and the simulated one; None if no step of the training was completed.

    Args:
        ended_early: whether the training ended before its last step.
        is_step_measured: whether the simulation's computing time was measured; then its bounds are narrower.
    """
    if not lines.facts:
        return None
    history = history_of(lines, spec, interrupted=ended_early)
    if not history.steps:
        return None
    facts = lines.facts
    tensors = tensors_from_json(facts["tensors"])
    method = spec.method.in_precision(spec.number_format)
    step_s = undisturbed_step_s(spec, facts["flops_per_step"])

    def build(rows: Rows, problem: Problem) -> Task:
        return build_task(problem, rows, training_device("cpu"), **spec.arithmetic)

    plan = async_plan(
        spec, method, tensors, base_s=step_s, network=spec.network,
        relative_durations=relative_batch_durations(spec, method, step_s, build),
    )  # fmt: skip
    measured_plan = replace(plan, network=replace(spec.network, name=MEASURED))  # results show the network's name
    measured_training = AsyncTrained(measured_plan, measured_result(lines, spec, history.steps), history.steps)
    trained = Trained(
        spec.method.name, history, ledger=[], facts=facts["problem"], flops_per_step=facts["flops_per_step"],
        wall_s=wall_s, tensors=tensors, asynchronous=measured_training,
    )  # fmt: skip
    # The simulation takes as many steps as were measured, so that both can be compared after an early end.
    completed_plan = replace(plan, settings=replace(plan.settings, steps=history.steps * spec.workers))
    simulation = AsyncTrained(completed_plan, completed_plan.simulate(), history.steps)
    simulated = replace(trained, asynchronous=simulation)
    clock = measured_training.time(measured_plan.network, Factors())
    timing = time_with_bounds(spec, simulated, spec.network, measured=is_step_measured)
    assert clock is not None and timing is not None  # both have steps
    return _Measured(trained, clock, simulated, timing)


def _measured_and_simulated_rows(spec: RunSpec, measured: _Measured) -> dict[str, Any]:
    """Return ``rows``, a measured row for each seed, and ``simulated``, the simulator's row with bounds."""
    steps, timeline = measured.trained.history.steps, measured.clock.timeline
    updates = timeline[(timeline.worker < spec.workers) & (timeline.what == "optimizer")]
    measured_columns = {
        "optimizer_s": float(updates.duration_s.sum()) / (steps * spec.workers), "network": MEASURED,
    }  # fmt: skip
    rows = [row | measured_columns for row in run_records(measured.trained, measured.clock, spec.network, spec.workers)]
    simulated_row = {"network": spec.network.name} | clock_record(measured.timing.clock)
    simulation = measured.simulated.asynchronous
    assert simulation is not None
    return {"rows": rows, "simulated": simulated_row | simulation.record() | measured.timing.bounds()}
