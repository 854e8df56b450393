"""What starts real processes on this machine: a training, measured; the machine itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.api.arguments import checked
from syncline.api.places import Scratch, place
from syncline.api.result import Result
from syncline.api.spec_arguments import Asked, spec_of, told
from syncline.errors import SynclineError
from syncline.specs import PipelineSpec, RunSpec

if TYPE_CHECKING:
    from syncline.measure.launching.process import Launch


@checked
def launch(
    spec: Asked = None,
    *,
    problem: Any = None,
    method: Any = None,
    network: Any = None,
    workers: int | None = None,
    steps: int | None = None,
    seeds: Any = None,
    device: str = "auto",
    backend: str = "auto",
    timeout: str | float = "120 s",
    workers_per_process: int = 1,
    rejoins: int = 3,
    port: int = 0,
    reproducible: bool = False,
    out: str | Path | None = None,
    exact: bool = True,
    on_progress: Callable[[int], None] | None = None,
    **fields: Any,
) -> Result:
    """Run a spec on real processes of this machine, and measure it: one process per worker, or per stage.

    Args:
        spec: see `sl.compare`; of kind ``run`` or ``pipeline``.
        problem: what is trained; an object is packed by cloudpickle for each process.
        method: by which method.
        network: whose simulated clock stands beside the measured one.
        workers: M, processes.
        steps: T.
        seeds: of the repetitions; 3 stands for 0, 1, 2.
        device: ``auto``, ``cpu`` or ``cuda``.
        backend: ``auto``, ``gloo`` or ``nccl``.
        timeout: how long all may stand still before they are ended.
        workers_per_process: that live together in each.
        rejoins: how often a worker of an asynchronous method is started again if it dies.
        port: where processes meet; 0: any that is free.
        reproducible: add up in the simulator's order: its bits, for the same bytes.
        out: see `sl.compare`.
        exact: see `sl.compare`.
        on_progress: called with the steps, or tasks, that all processes have completed.
        **fields: others of the spec, by name or by path.

    Returns:
        The measured rows; beside them ``simulated`` in `Result.json`. If a process died or hung, what was measured
        until then, and a warning; `Result.failed` says which.

    Raises:
        SynclineError: what is found before anything is trained.
    """
    given = {"problem": problem, "method": method, "network": network, "workers": workers, "steps": steps,
             "seeds": seeds}  # fmt: skip
    loaded: RunSpec | PipelineSpec = spec_of(spec, given | fields, RunSpec, PipelineSpec, kind="run")
    from syncline.measure.launching.launch import launch_warnings
    from syncline.measure.launching.process import Launch
    from syncline.units import parse_seconds

    how = Launch(
        device, backend, parse_seconds(timeout, "timeout"), reproducible, port,
        workers_per_process=workers_per_process, rejoins=rejoins,
    )  # fmt: skip
    told(launch_warnings(loaded, how))
    result = on_processes(loaded, how, out, exact=exact, on_progress=on_progress)
    if result.failed:
        told([result.failed])
    return result


def on_processes(
    spec: RunSpec | PipelineSpec,
    how: Launch,
    out: str | Path | None = None,
    *,
    exact: bool = True,
    on_progress: Callable[[int], None] | None = None,
) -> Result:
    """The result of a launch, which says in `Result.failed` if it is one of a failure."""
    from syncline.measure.launching.launch import launch as launch_run
    from syncline.measure.launching.pipeline import launch_pipeline
    from syncline.measure.launching.served.launch import launch_served
    from syncline.methods.parts.asynchronous import asynchronous_of

    run_it: Any = launch_pipeline if isinstance(spec, PipelineSpec) else launch_run
    if not isinstance(spec, PipelineSpec) and asynchronous_of(spec.method) is not None:
        run_it = launch_served
    with place(out, spec.name) as (path, scratch):
        answer = run_it(spec, path, how, exact=exact and out is not None, on_progress=on_progress)
    return launched(spec, answer, scratch)


def launched(spec: RunSpec | PipelineSpec, answer: dict[str, Any], scratch: Scratch | None = None) -> Result:
    """The result of a launch that is over."""
    from syncline.measure.launching.tables import launch_tables

    tables = partial(launch_tables, answer, spec)
    return Result("launch", answer, spec, tables=tables, folder=Path(answer["folder"]), scratch=scratch)


@checked
def calibrate(
    spec: str | Path | None = None,
    *,
    workers: int | Sequence[int] = (2, 4),
    network: Any = None,
    sizes: Sequence[str | float] | None = None,
    budget: str | float | None = None,
    window: str | float | None = None,
    device: str = "auto",
    backend: str = "auto",
    timeout: str | float = "120 s",
    out: str | Path | None = None,
    **fields: Any,
) -> Result:
    """Measure this machine: collectives, training steps, wire formats.

    Args:
        spec: whose problem's training steps are timed; the problem digits by default.
        workers: numbers of processes, one after another.
        network: latency and bandwidth, if known; else fitted.
        sizes: of the collectives; 4 B to 16 MiB by default.
        budget: time for each collective and size; 150 ms by default.
        window: time for training steps, and for products; 1 s by default.
        device: ``auto``, ``cpu`` or ``cuda``.
        backend: ``auto``, ``gloo`` or ``nccl``.
        timeout: how long all may stand still before they are ended.
        out: the cluster file to write; else a temporary one, which goes with the result.
        **fields: others of the spec, by name or by path.

    Returns:
        Its ``json()["file"]`` is what ``networks=`` and ``hardware=`` take; `Result.save` keeps it.

    Raises:
        SynclineError: what is found before anything is measured; a process that died or hung.
    """
    from syncline.measure.calibration import calibrate as experiment
    from syncline.measure.calibration.plan import calibrate_warnings, check_process_counts, planned
    from syncline.measure.launching.process import Launch
    from syncline.units import parse_seconds

    plan = planned(
        None if spec is None else str(spec), fields, known=network,
        sizes=None if sizes is None else list(sizes), budget=budget, window=window,
    )  # fmt: skip
    numbers = [workers] if isinstance(workers, int) else list(workers)
    check_process_counts(numbers)
    told(calibrate_warnings(numbers))
    how = Launch(device, backend, parse_seconds(timeout, "timeout"))
    with place(out, "cluster.yaml") as (path, scratch):
        answer = experiment.calibrate(plan, numbers, path, how, exact=out is not None, command="sl.calibrate")
    return calibrated(answer, scratch)


def calibrated(answer: dict[str, Any], scratch: Scratch | None = None) -> Result:
    """The result of a calibration.

    Raises:
        SynclineError: a process died or hung, so there is none.
    """
    from syncline.measure.calibration.tables import calibrate_tables

    if "failed" in answer:
        raise SynclineError(answer["failed"])
    tables = partial(calibrate_tables, answer)
    return Result("calibrate", answer, tables=tables, folder=Path(answer["file"]), scratch=scratch)
