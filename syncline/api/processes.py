"""Functions that start real processes on this machine: a measured training, and the machine's calibration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.api.arguments import checked
from syncline.api.places import Scratch, place
from syncline.api.result import Result
from syncline.api.spec_arguments import Asked, spec_of, warn_lines
from syncline.errors import SynclineError
from syncline.methods.parts.asynchronous import asynchronous_of
from syncline.specs import PipelineSpec, RunSpec
from syncline.units import parse_seconds

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
    """Run a spec on real processes of this machine and measure it, with one process per worker or per pipeline stage.

    Args:
        spec: see `sl.compare`; a spec of kind ``run`` or ``pipeline``.
        problem: the problem to train; cloudpickle packs an object for each process.
        method: the method.
        network: the network whose simulated clock is compared with the measured one.
        workers: M, the number of workers.
        steps: T, the number of steps.
        seeds: seeds of the repetitions; 3 stands for 0, 1, 2.
        device: ``auto``, ``cpu`` or ``cuda``.
        backend: ``auto``, ``gloo`` or ``nccl``.
        timeout: time without progress of any process after which the launch ends all processes.
        workers_per_process: number of workers in each process.
        rejoins: number of times that a dead worker of an asynchronous method is restarted.
        port: port of the rendezvous; 0 takes any free port.
        reproducible: sum in the simulator's order; the bits are then the simulator's, for the same bytes on the
            network.
        out: see `sl.compare`.
        exact: see `sl.compare`.
        on_progress: function called with the number of steps, or tasks, that all processes have completed.
        **fields: other fields of the spec, by name or by path.

    Returns:
        The result with the measured rows; `Result.json` also has ``simulated``. If a process died or hung, the result
        has the rows measured until then, the function warns, and `Result.failed` names the process.

    Raises:
        SynclineError: an argument is wrong; the check runs before the training starts.
    """
    named_fields = {"problem": problem, "method": method, "network": network, "workers": workers, "steps": steps,
             "seeds": seeds}  # fmt: skip
    loaded: RunSpec | PipelineSpec = spec_of(spec, named_fields | fields, RunSpec, PipelineSpec, kind="run")
    from syncline.measure.launching.launch import launch_warnings
    from syncline.measure.launching.process import Launch

    options = Launch(
        device, backend, parse_seconds(timeout, "timeout"), reproducible, port,
        workers_per_process=workers_per_process, rejoins=rejoins,
    )  # fmt: skip
    warn_lines(launch_warnings(loaded, options))
    result = on_processes(loaded, options, out, exact=exact, on_progress=on_progress)
    if result.failed:
        warn_lines([result.failed])
    return result


def on_processes(
    spec: RunSpec | PipelineSpec,
    options: Launch,
    out: str | Path | None = None,
    *,
    exact: bool = True,
    on_progress: Callable[[int], None] | None = None,
) -> Result:
    """Return the result of a launch; `Result.failed` names the process that failed, if any."""
    from syncline.measure.launching.launch import launch as launch_run
    from syncline.measure.launching.pipeline import launch_pipeline
    from syncline.measure.launching.served.launch import launch_served

    run_it: Any = launch_pipeline if isinstance(spec, PipelineSpec) else launch_run
    if not isinstance(spec, PipelineSpec) and asynchronous_of(spec.method) is not None:
        run_it = launch_served
    with place(out, spec.name) as (path, scratch):
        answer = run_it(spec, path, options, exact=exact and out is not None, on_progress=on_progress)
    return launch_result(spec, answer, scratch)


def launch_result(spec: RunSpec | PipelineSpec, answer: dict[str, Any], scratch: Scratch | None = None) -> Result:
    """Return the result of a launch that has ended."""
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
        spec: the spec of the problem whose training steps are timed; the problem digits by default.
        workers: numbers of processes, measured one after another.
        network: latency and bandwidth, if known; by default they are fitted.
        sizes: sizes of the collectives; 4 B to 16 MiB by default.
        budget: time for each collective and size; 150 ms by default.
        window: time for training steps, and for matrix products; 1 s by default.
        device: ``auto``, ``cpu`` or ``cuda``.
        backend: ``auto``, ``gloo`` or ``nccl``.
        timeout: time without progress of any process after which the calibration ends all processes.
        out: the cluster file to write; by default a temporary file that is removed with the result.
        **fields: other fields of the spec, by name or by path.

    Returns:
        The result; ``networks=`` and ``hardware=`` accept its ``json()["file"]``, and `Result.save` keeps that file.

    Raises:
        SynclineError: an argument is wrong, which the function reports before it measures; or a process died or hung.
    """
    from syncline.measure.calibration import calibrate as experiment
    from syncline.measure.calibration.plan import calibrate_warnings, check_process_counts, planned
    from syncline.measure.launching.process import Launch

    plan = planned(
        None if spec is None else str(spec), fields, known_network=network,
        sizes=None if sizes is None else list(sizes), budget=budget, window=window,
    )  # fmt: skip
    numbers = [workers] if isinstance(workers, int) else list(workers)
    check_process_counts(numbers)
    warn_lines(calibrate_warnings(numbers))
    options = Launch(device, backend, parse_seconds(timeout, "timeout"))
    with place(out, "cluster.yaml") as (path, scratch):
        answer = experiment.calibrate(plan, numbers, path, options, exact=out is not None, command="sl.calibrate")
    return calibration_result(answer, scratch)


def calibration_result(answer: dict[str, Any], scratch: Scratch | None = None) -> Result:
    """Return the result of a calibration.

    Raises:
        SynclineError: a process died or hung, so there is no calibration.
    """
    from syncline.measure.calibration.tables import calibrate_tables

    if "failed" in answer:
        raise SynclineError(answer["failed"])
    tables = partial(calibrate_tables, answer)
    return Result("calibrate", answer, tables=tables, folder=Path(answer["file"]), scratch=scratch)
