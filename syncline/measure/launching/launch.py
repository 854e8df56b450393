"""The command ``syncline launch``: a run on real processes of this machine, measured."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import torch

from syncline.errors import SpecError, SynclineError
from syncline.files import atomic_path
from syncline.measure.launching.process import Launch, rank_process
from syncline.measure.launching.rank_files import MeasuredRun, read_rank_files
from syncline.measure.processes.rendezvous import host_store
from syncline.measure.processes.watchdog import Failure, Progress, run_watched
from syncline.methods.parts.asynchronous import check_synchronous
from syncline.runs.folders.folder import RunFolder, environment, has_results
from syncline.runs.training.clock_bounds import BoundedClock
from syncline.runs.training.figures import run_figures
from syncline.runs.training.limits import check_processes, check_training
from syncline.runs.training.results import clock_record, run_records, write_curves
from syncline.runs.training.tables import timeline_columns, write_measurements
from syncline.runs.training.train_and_time import time_with_bounds
from syncline.runs.training.trained import Trained, with_measured_step
from syncline.sim import Clock, Timeline, chrome_trace
from syncline.specs import PipelineSpec, RunSpec
from syncline.specs.problem import check_available

PRELOAD = ("syncline.measure.launching.process",)
"""Modules that every process would otherwise load."""

MEASURED = "measured"
"""The name of the network in measured rows."""


def launch(
    spec: RunSpec,
    out: Path,
    options: Launch | None = None,
    *,
    exact: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Train on local processes, by default with one worker each, measure, and write the folder of a run.

    Args:
        options: device, backend, timeout; the defaults of `Launch` if None.
        out: the folder to write; see ``RunFolder`` for ``exact``.
        on_progress: called with the number of steps that all processes have completed, of ``steps * len(seeds)``.

    Returns:
        ``rows`` (one per seed, measured), ``simulated`` (the clock's record of the same traffic), ``folder``,
        ``interrupted``, and ``failed``: the line about the process that died or hung, if one did.

    Raises:
        SynclineError: a mistake in the spec, a missing GPU, or a port in use; raised before training.
    """
    options = (options or Launch()).for_spec(spec)
    check_launch(spec)
    processes = options.processes(spec.workers)
    check_processes("workers", processes)
    check_training(spec, spec.method)
    options.devices(processes)  # refuses a missing GPU
    spec, step_s = with_measured_step(spec)
    store = host_store(options.port)
    with RunFolder(out, exact) as folder:
        folder.spec(spec)
        ranks_folder = folder.working / "ranks"
        ranks_folder.mkdir()
        rank_args = cloudpickle.dumps(spec), options, store.port, ranks_folder
        ended = run_local_processes(rank_process, processes, rank_args, options, ranks_folder, on_progress)
        result = write_launch(folder, spec, options, ranks_folder, ended, step_s)
    return result | {"folder": str(folder.path)}


class Ended(NamedTuple):
    """The end of a group of launched processes: a failure, an interruption, and the time until then.

    Attributes:
        failure: the process that died or hung, if one did.
        wall_s: seconds from their start to their end.
    """

    failure: Failure | None
    interrupted: bool
    wall_s: float

    def record(self, spec: RunSpec, options: Launch, processes: int, step_s: float | None) -> dict[str, Any]:
        """Return the fields of ``run.json`` that every launch has, with empty ones for measurements of steps.

        ``step_s``: the measured seconds of a step's gradients; None if the spec does not ask for a measurement.
        """
        return {
            "seeds": spec.seeds, "wall_s": self.wall_s, "interrupted": self.interrupted,
            "failed": None if self.failure is None else str(self.failure), "measured_step_s": step_s,
            "launch": asdict(options) | {"processes": processes}, "rows": [], "simulated": None, "device": None,
            "dtype": spec.dtype,
        }  # fmt: skip


def run_local_processes(
    target: Callable[..., Any],
    processes: int,
    args: tuple[Any, ...],
    options: Launch,
    ranks_folder: Path,
    on_progress: Callable[[int], object] | None,
) -> Ended:
    """Run ``target(rank, *args)`` in a number of local processes, and watch them.

    Args:
        ranks_folder: the folder in the run's folder to which the processes write their lines.
        on_progress: function that is called with the number of steps that all processes have completed.

    Raises:
        KeyboardInterrupt: the user ended the processes before their first lines.
    """
    progress = Progress.shared(ranks_folder / "progress", processes)

    def on_poll(progress: Progress) -> None:
        if on_progress:
            on_progress(progress.steps_done())

    run = partial(
        run_watched, target, processes, args, progress, folder=ranks_folder, timeout_s=options.timeout_s,
        preload=PRELOAD, on_poll=on_poll,
    )  # fmt: skip
    ended = run_to_end(run, ranks_folder)
    on_poll(progress)  # reports the last steps
    return ended


def run_to_end(run: Callable[[], Failure | None], ranks_folder: Path) -> Ended:
    """Run processes, and return how they ended.

    Args:
        run: function that runs the processes to their end, and returns the failure if a process died or hung.
        ranks_folder: the folder in the run's folder to which the processes write their lines.

    Raises:
        KeyboardInterrupt: the user ended the processes before their first lines.
        SynclineError: a process found a mistake in the input.
    """
    interrupted, failure, started_s = False, None, time.perf_counter()
    try:
        failure = run()
    except KeyboardInterrupt:
        if not has_results(ranks_folder.parent):
            raise
        interrupted = True
    if failure is not None and failure.mistake:
        raise SynclineError(str(failure))
    return Ended(failure, interrupted, wall_s=time.perf_counter() - started_s)


def check_launch(spec: RunSpec) -> None:
    """Refuse settings that only the simulator supports, such as absent workers, speeds, or an asynchronous method."""
    check_undisturbed(spec)
    check_synchronous(spec.method, "method")
    if spec.pipeline is not None:
        expected = "none in a run: real stages are launched by a spec of kind pipeline"
        raise SpecError("pipeline", spec.pipeline.model_dump(exclude_defaults=True), expected)
    if spec.speeds:
        raise SpecError("speeds", list(spec.speeds), "none, as real processes have their own")


def check_undisturbed(spec: RunSpec) -> None:
    """Refuse failures, absences and a watch, which only a simulation has, and a problem known only by its name."""
    check_available(spec.problem)
    if spec.failures is not None:
        raise SpecError("failures", "given", "none, as real processes have their own")
    spec.watch.refuse("none, as no process sees all workers", SpecError)
    spec.faults.refuse_absences("none, as real processes do not leave and come back", SpecError)


def launch_warnings(spec: RunSpec | PipelineSpec, options: Launch | None = None, cores: int | None = None) -> list[str]:
    """Return a warning line for each setting that makes times unreliable or has no effect on real processes."""
    options = options or Launch()
    processes = options.processes(spec.workers) if isinstance(spec, RunSpec) else spec.stages
    cores = cores or os.cpu_count() or 1
    lines = []
    if processes > cores:
        lines.append(
            f"{processes} processes share {cores} cores: times say little about a process that has a core to itself"
        )
    if isinstance(spec, RunSpec):
        compute = spec.compute
        if compute.jitter or compute.slow_workers or compute.pauses or compute.start_offsets:
            lines.append("compute: jitter, slow_workers, pauses and starts are only simulated")
        if spec.faults != type(spec.faults)():  # the defaults, without faults
            lines.append("faults: only simulated; real processes have their own")
    return lines


def write_launch(
    folder: RunFolder, spec: RunSpec, options: Launch, ranks_folder: Path, ended: Ended, step_s: float | None
) -> dict[str, Any]:
    """Write the measurements of a launch into its folder, next to the simulator's results for the same traffic.

    Args:
        options: the number of workers in each process, and whether to keep the parameters.
        ranks_folder: the folder with the lines of the processes, which is removed.
        ended: how and when the processes ended.
        step_s: the measured seconds of a step's gradients; None if the spec does not ask for a measurement.

    Returns:
        The result of `launch` without the folder, whose name is known only when it is complete.
    """
    processes = options.processes(spec.workers)
    if spec.overlap == "ddp":  # the processes send gradients only after the whole backward pass
        spec = spec.model_copy(update={"overlap": "none"})
    ended_early = ended.interrupted or ended.failure is not None
    measured = read_rank_files(ranks_folder, spec, ended.wall_s, interrupted=ended_early, processes=processes)
    simulated = None
    if measured is not None and measured.clock is not None:
        simulated = time_with_bounds(spec, measured.trained, spec.network, measured=step_s is not None)
    record = ended.record(spec, options, processes, step_s)
    if measured is not None:
        record |= _measured_and_simulated_rows(spec, measured, simulated)
    folder.json("run", environment() | record)
    parameter_files = [ranks_folder / f"{rank}.pt" for rank in range(processes)]
    if options.keep_parameters and all(path.exists() for path in parameter_files):
        parts_of_parameters = [torch.load(path, weights_only=True) for path in parameter_files]
        parameters = {name: torch.cat([part[name] for part in parts_of_parameters]) for name in parts_of_parameters[0]}
        with atomic_path(folder.working / "parameters.pt") as working:
            torch.save(parameters, working)  # (P, *s) each
    if measured is not None:
        row_name = "worker" if options.workers_per_process == 1 else "process"
        if measured.clock is not None:
            steps, ranks = np.indices(measured.steps["step_s"].shape)  # (T, P) each
            columns: dict[str, Any] = {"step": steps, row_name: ranks} | measured.steps
            folder.table("steps", {name: values.ravel() for name, values in columns.items()})
        write_results(folder, spec, measured.trained, measured.clock, simulated, row_name)
    shutil.rmtree(ranks_folder)  # last: after a failed write the files still exist
    return {name: record[name] for name in ("rows", "simulated", "interrupted", "failed", "measured_step_s")}


def _measured_and_simulated_rows(
    spec: RunSpec, measured: MeasuredRun, simulated: BoundedClock | None
) -> dict[str, Any]:
    """Return the fields of a launch's ``run.json``: facts, measured rows by seed, and a simulated row with bounds.

    There is no simulated row if no step was completed; then ``simulated`` is None.
    """
    trained, clock = measured.trained, measured.clock
    rows = [row | {"network": MEASURED} for row in run_records(trained, clock, spec.network, spec.workers)]
    facts = {"device": measured.device, "machines": len(set(measured.machines)), "problem": trained.facts}
    if clock is None or simulated is None:
        return facts | {"rows": rows}
    median_s = float(np.median(measured.steps["step_s"].max(1)))  # a step lasts as long as on the slowest worker
    rows = [row | {"step_time_median_s": median_s} for row in rows]
    simulated_row = {"network": spec.network.name} | clock_record(simulated.clock) | simulated.bounds()
    return facts | {"rows": rows, "simulated": simulated_row}


def write_results(
    folder: RunFolder, spec: RunSpec, trained: Trained, clock: Clock | None, simulated: BoundedClock | None,
    row_name: str = "worker", track_names: list[str] | None = None,
) -> None:  # fmt: skip
    """Write the losses, collectives, curves, timelines, trace and figures of a training.

    Args:
        clock: the measured clock; None if no step was completed. Then only losses and collectives are written.
        simulated: the simulator's clock of the same traffic, with its bounds; None without a measured clock.
        row_name: what a row of the measured timeline stands for, ``worker`` or ``process``.
        track_names: names of the trace's tracks, measured before simulated; None: ``row_name`` and a number.
    """
    write_measurements(folder, [trained])
    if clock is None or simulated is None:
        return
    method, network = trained.method, spec.network
    clocks = {(method, MEASURED): clock, (method, network.name): simulated.clock}
    write_curves(folder, spec, [trained], clocks, {MEASURED: "real processes", network.name: network})
    first_steps = clock.timeline.head(spec.timeline_steps)
    timelines = [(method, MEASURED, first_steps), (method, network.name, simulated.clock.timeline)]
    folder.table("timeline", timeline_columns(timelines))
    timeline_by_key = {f"{MEASURED}: {row_name}": first_steps, "simulated: worker": simulated.clock.timeline}
    joined_timeline, default_names = join_timelines(timeline_by_key)
    folder.trace(chrome_trace(joined_timeline, track_names or default_names))
    run_figures(folder, spec, trained, clock=replace(clock, timeline=first_steps))


def join_timelines(timelines: dict[str, Timeline]) -> tuple[Timeline, list[str]]:
    """Join timelines into one that numbers all workers; return it with the workers' names, such as ``KEY 0``."""
    names = [f"{key} {worker}" for key, timeline in timelines.items() for worker in range(timeline.workers)]
    return Timeline.side_by_side(timelines.values()), names
