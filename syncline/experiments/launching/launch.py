"""``syncline launch``: a run on real processes of this machine, measured."""

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

from syncline.backend.meeting import host_store
from syncline.backend.progress import Progress
from syncline.backend.watchdog import Failure, watched
from syncline.errors import SpecError, SynclineError
from syncline.experiments.clock_bounds import bounds_record, clock_bounds
from syncline.experiments.curves import write_curves
from syncline.experiments.figures import run_figures
from syncline.experiments.folder import RunFolder, environment
from syncline.experiments.launching.parts import MeasuredRun, read_parts
from syncline.experiments.launching.process import Launch, rank_process
from syncline.experiments.limits import check_processes, check_training
from syncline.experiments.measured_step import with_measured_step
from syncline.experiments.records import clock_record, run_records
from syncline.experiments.tables import ledger_columns, metrics_tables, timeline_columns
from syncline.experiments.trained import time_method
from syncline.files import whole_file
from syncline.methods.parts.asynchronous import check_synchronous
from syncline.sim import Clock, Timeline, chrome_trace
from syncline.specs import PipelineSpec, RunSpec
from syncline.specs.problem import check_kept

PRELOAD = ("syncline.experiments.launching.process",)
"""What every process would load."""

MEASURED = "measured"
"""What the network of measured rows is called."""


def launch(
    spec: RunSpec,
    out: Path,
    how: Launch | None = None,
    *,
    exact: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Train on local processes, one per worker unless ``how`` says more, measure, and write the folder of a run.

    Args:
        spec: what to run.
        out: the folder to write; see ``RunFolder`` for ``exact``.
        how: device, backend, timeout; the defaults of `Launch` if none.
        on_progress: called with the number of steps that all processes have completed, of ``steps * len(seeds)``.

    Returns:
        ``rows`` (one per seed, measured), ``simulated`` (the clock's record of the same traffic), ``folder``,
        ``interrupted``, and ``failed``: the line that says who died or hung, if somebody did.

    Raises:
        SynclineError: what is found before training: a mistake in the spec, a missing GPU, a port in use.
    """
    how = (how or Launch()).of(spec)
    check(spec)
    processes = how.processes(spec.workers)
    check_processes("workers", processes)
    check_training(spec, spec.method)
    how.devices(processes)
    spec, step_s = with_measured_step(spec)
    store = host_store(how.port)
    with RunFolder(out, exact) as folder:
        folder.spec(spec)
        parts = folder.working / "ranks"
        parts.mkdir()
        ended = on_local_processes(
            rank_process,
            processes,
            (cloudpickle.dumps(spec), how, store.port, parts),
            how,
            parts,
            on_progress,
        )
        told = write_launch(
            folder, spec, how, parts, ended.wall_s, ended.failure, interrupted=ended.interrupted, measured_step_s=step_s
        )
    return told | {"folder": str(folder.path)}


class Ended(NamedTuple):
    """How processes ended.

    Attributes:
        failure: who died or hung, if somebody did.
        interrupted: whether the user ended them.
        wall_s: seconds from their start to their end.
    """

    failure: Failure | None
    interrupted: bool
    wall_s: float


def on_local_processes(
    target: Callable[..., Any],
    processes: int,
    args: tuple[Any, ...],
    how: Launch,
    parts: Path,
    on_progress: Callable[[int], object] | None,
) -> Ended:
    """Run ``target(rank, *args)`` in so many local processes, under watch.

    Args:
        target: an importable function.
        processes: P.
        args: passed to every process.
        how: timeout.
        parts: the folder where processes leave their lines.
        on_progress: called with the number of steps that all processes have completed.

    Raises:
        SynclineError: a mistake that a process found.
    """
    progress = Progress.shared(parts / "progress", processes)

    def on_poll(seen: Progress) -> None:
        if on_progress:
            on_progress(seen.steps_done())

    interrupted, failure, started_s = False, None, time.perf_counter()
    try:
        failure = watched(target, processes, args, progress, parts, how.timeout_s, preload=PRELOAD, on_poll=on_poll)
    except KeyboardInterrupt:
        interrupted = True
    if failure is not None and failure.mistake:
        raise SynclineError(str(failure))
    on_poll(progress)
    return Ended(failure, interrupted, time.perf_counter() - started_s)


def check(spec: RunSpec) -> None:
    """Refuse what only the simulator has.

    Raises:
        SpecError: absent workers, workers of speeds of their own, a method that needs the simulator to say who comes
            when, or a problem of which a file has kept the name alone.
    """
    check_kept(spec.problem)
    check_synchronous(spec.method, "method")
    if spec.pipeline is not None:
        expected = "none in a run: real stages are launched by a spec of kind pipeline"
        raise SpecError("pipeline", spec.pipeline.model_dump(exclude_defaults=True), expected)
    if spec.speeds:
        raise SpecError("speeds", list(spec.speeds), "none, as real processes have theirs")
    if spec.failures is not None:
        raise SpecError("failures", "given", "none, as real processes have their own")
    spec.watch.refuse("none, as no process sees all workers", SpecError)
    spec.faults.refuse_absences("none, as real processes do not leave and come back", SpecError)


def launch_warnings(spec: RunSpec | PipelineSpec, how: Launch | None = None, cores: int | None = None) -> list[str]:
    """What is allowed but makes times that say little, or has no effect on real processes, a line each."""
    processes = (how or Launch()).processes(spec.workers) if isinstance(spec, RunSpec) else spec.stages
    cores = cores or os.cpu_count() or 1
    lines = []
    if processes > cores:
        lines.append(f"{processes} processes share {cores} cores: times say little about a process by itself")
    if isinstance(spec, RunSpec):
        compute, faults = spec.compute, spec.faults
        if compute.jitter or compute.slow_workers or compute.pauses or compute.starts:
            lines.append("compute: jitter, slow_workers, pauses and starts are the simulator's alone")
        if faults != type(faults)():
            lines.append("faults: the simulator's alone; real processes have their own")
    return lines


def as_launched(spec: RunSpec) -> RunSpec:
    """The spec of a clock that a launch is held against: its processes send gradients once all of them are there."""
    return spec.model_copy(update={"overlap": "none"}) if spec.overlap == "ddp" else spec


def write_launch(
    folder: RunFolder,
    spec: RunSpec,
    how: Launch,
    parts: Path,
    wall_s: float,
    failure: Failure | None,
    *,
    interrupted: bool,
    measured_step_s: float | None = None,
) -> dict[str, Any]:
    """Write what was measured into the folder, beside what the simulator makes of the same traffic.

    Returns:
        What `launch` does, but for the folder, whose name is known once it is whole.
    """
    failed, processes = None if failure is None else str(failure), how.processes(spec.workers)
    spec = as_launched(spec)
    measured = read_parts(parts, spec, wall_s, interrupted or failure is not None, processes)
    clock, simulated = (measured.clock, None) if measured is not None else (None, None)
    if measured is not None and clock is not None:
        simulated = time_method(spec, measured.trained, spec.network)
    told: dict[str, Any] = {"seeds": spec.seeds, "wall_s": wall_s, "interrupted": interrupted, "failed": failed}
    told["measured_step_s"] = measured_step_s
    told |= {"launch": asdict(how) | {"processes": processes}, "rows": [], "simulated": None}
    told |= {"device": measured.device if measured else None, "dtype": spec.dtype}
    if measured is not None:
        told |= _told(spec, measured, simulated, measured_step_s is not None)
    folder.json("run", environment() | told)
    kept = {rank: parts / f"{rank}.pt" for rank in range(processes)}
    if how.keep_parameters and all(path.exists() for path in kept.values()):
        _join_parameters(kept, folder.working / "parameters.pt")
    if measured is not None:
        _write(folder, spec, how, measured, simulated)
    shutil.rmtree(parts)  # last: if anything could not be written, all is still there
    return {name: told[name] for name in ("rows", "simulated", "interrupted", "failed", "measured_step_s")}


def _told(spec: RunSpec, measured: MeasuredRun, simulated: Clock | None, timed: bool) -> dict[str, Any]:
    """Rows, and what is known beside them; ``timed``: whether the simulator's computing was."""
    trained, clock = measured.trained, measured.clock
    rows = run_records(trained, clock, spec.network, spec.workers)
    facts = {"machines": len(set(measured.machines)), "problem": trained.facts}
    if clock is None or simulated is None:
        return {"rows": [row | {"network": MEASURED} for row in rows], **facts}
    split = {"step_time_median_s": float(np.median(measured.steps["step_s"].max(1)))}
    rows = [row | {"network": MEASURED} | split for row in rows]
    again = partial(time_method, spec, trained, spec.network)
    bounds = bounds_record(simulated, *clock_bounds(spec, spec.network, simulated, again, timed))
    return {"rows": rows, "simulated": {"network": spec.network.name} | clock_record(simulated) | bounds, **facts}


def _write(folder: RunFolder, spec: RunSpec, how: Launch, measured: MeasuredRun, simulated: Clock | None) -> None:
    """Tables, trace and, last, figures."""
    trained, clock = measured.trained, measured.clock
    folder.long_table("metrics", metrics_tables([trained]))
    folder.table("ledger", ledger_columns([trained]))
    if clock is None or simulated is None:
        return
    steps, ranks = np.indices(measured.steps["step_s"].shape).reshape(2, -1)
    place = "worker" if how.workers_per_process == 1 else "process"
    columns: dict[str, Any] = {"step": steps, place: ranks}
    folder.table("steps", columns | {name: of.ravel() for name, of in measured.steps.items()})
    clocks = {(trained.method, MEASURED): clock, (trained.method, spec.network.name): simulated}
    write_curves(folder, spec, [trained], clocks, {MEASURED: "real processes", spec.network.name: spec.network})
    kept = clock.timeline.head(spec.timeline_steps)
    named = [(MEASURED, kept), (spec.network.name, simulated.timeline)]
    folder.table("timeline", timeline_columns([(trained.method, name, timeline) for name, timeline in named]))
    worlds = {f"{MEASURED}: {place}": kept, "simulated: worker": simulated.timeline}
    folder.trace(chrome_trace(*worlds_together(worlds)))
    run_figures(folder, spec, trained, replace(clock, timeline=kept))


def worlds_together(timelines: dict[str, Timeline]) -> tuple[Timeline, list[str]]:
    """Several worlds as one timeline, the workers of one after those of another, and what to call each: its number."""
    parts, names, first = [], [], 0
    for world, timeline in timelines.items():
        columns = timeline.to_columns()
        parts.append(columns | {"worker": columns["worker"] + first})
        names += [f"{world} {worker}" for worker in range(timeline.workers)]
        first += timeline.workers
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return Timeline.of_columns(joined, first), names


def _join_parameters(kept: dict[int, Path], target: Path) -> None:
    """Each process's parameters as rows of one tensor each, ``(P, *s)``."""
    import torch

    ranks = [torch.load(path, weights_only=True) for path in kept.values()]
    with whole_file(target) as working:
        torch.save({name: torch.cat([rank[name] for rank in ranks]) for name in ranks[0]}, working)
