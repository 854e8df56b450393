"""Functions that start real processes on this machine: a measured training, and the machine's calibration."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.api.places import Scratch, place
from syncline.api.result import Result
from syncline.api.spec_arguments import spec_of, warn_lines
from syncline.errors import SynclineError, names_options
from syncline.methods.parts.asynchronous import asynchronous_of
from syncline.questions.calibrate import Calibrate
from syncline.questions.launch import Launch
from syncline.specs import PipelineSpec, RunSpec, kind_of
from syncline.units import parse_seconds

if TYPE_CHECKING:
    from syncline.measure.calibration.plan import Calibration
    from syncline.measure.launching.process import Launch as LaunchOptions


def launch_spec(question: Launch) -> RunSpec | PipelineSpec:
    """Return the spec of a launch, and warn of settings that are probably mistakes."""
    names = {name: name for name in ("problem", "method", "network", "workers", "steps", "seeds")}
    texts = question.fields if isinstance(question.fields, list) else ()
    if isinstance(question.spec, str | Path) and kind_of(question.spec, texts) == "pipeline":
        names |= {"network": "networks", "workers": "stages"}
    spec: RunSpec | PipelineSpec = spec_of(question, names, RunSpec, PipelineSpec, kind="run")
    return spec


def prepared_launch(question: Launch) -> tuple[RunSpec | PipelineSpec, LaunchOptions]:
    """Return the spec and the options of a launch, and warn of what makes its times unreliable."""
    from syncline.measure.launching.launch import launch_warnings
    from syncline.measure.launching.process import Launch as LaunchOptions

    spec = launch_spec(question)
    options = LaunchOptions(
        question.device, question.backend, parse_seconds(question.timeout, "timeout"), question.reproducible,
        question.port, workers_per_process=question.workers_per_process, rejoins=question.rejoins,
    )  # fmt: skip
    warn_lines(launch_warnings(spec, options))
    return spec, options


def answer_launch(question: Launch, prepared: tuple[RunSpec | PipelineSpec, LaunchOptions] | None = None) -> Result:
    """Return the measured run of a question, or of its spec and options if they are made already.

    If a process fails, `Result.failed` names it, and a function of Python warns; the command ends with an error.
    """
    spec, options = prepared_launch(question) if prepared is None else prepared
    from syncline.measure.launching.launch import launch
    from syncline.measure.launching.pipeline import launch_pipeline
    from syncline.measure.launching.served.launch import launch_served

    run_it: Any = launch_pipeline if isinstance(spec, PipelineSpec) else launch
    if not isinstance(spec, PipelineSpec) and asynchronous_of(spec.method) is not None:
        run_it = launch_served
    exact = question.exact and question.out is not None
    with place(question.out, spec.name) as (path, scratch):
        answer = run_it(spec, path, options, exact=exact, on_progress=question.on_progress)
    result = launch_result(spec, answer, scratch)
    if result.failed and not names_options.get():
        warn_lines([result.failed])
    return result


def launch_result(spec: RunSpec | PipelineSpec, answer: dict[str, Any], scratch: Scratch | None = None) -> Result:
    """Return the result of a launch that has ended."""
    from syncline.measure.launching.tables import launch_tables

    tables = partial(launch_tables, answer, spec)
    return Result("launch", answer, spec, tables=tables, folder=Path(answer["folder"]), scratch=scratch)


def prepared_calibration(question: Calibrate) -> tuple[Calibration, list[int]]:
    """Return the measurements to make and the numbers of processes, and warn of what makes times unreliable."""
    from syncline.measure.calibration.plan import calibrate_warnings, check_process_counts, plan_of_options

    plan = plan_of_options(
        None if question.spec is None else str(question.spec), question.fields or (), known_network=question.network,
        sizes=question.sizes, budget=question.budget, window=question.window,
    )  # fmt: skip
    numbers = [question.workers] if isinstance(question.workers, int) else list(question.workers)
    check_process_counts(numbers)
    warn_lines(calibrate_warnings(numbers))
    return plan, numbers


def answer_calibrate(
    question: Calibrate,
    prepared: tuple[Calibration, list[int]] | None = None,
    *,
    out: Path | None = None,
    command: str = "sl.calibrate",
    on_progress: Callable[[int], object] = lambda done: None,
) -> Result:
    """Return the calibration of this machine.

    Args:
        question: the question.
        prepared: the measurements and numbers of processes, if they are made already.
        out: the cluster file, if the question names none.
        command: the command that the cluster file notes.
        on_progress: function called with the number of finished parts.
    """
    from syncline.measure.calibration import calibrate as experiment
    from syncline.measure.launching.process import Launch as LaunchOptions

    plan, numbers = prepared_calibration(question) if prepared is None else prepared
    options = LaunchOptions(question.device, question.backend, parse_seconds(question.timeout, "timeout"))
    exact = question.out is not None
    with place(question.out or out, "cluster.yaml") as (path, scratch):
        answer = experiment.calibrate(
            plan, numbers, path, options, exact=exact, command=command, on_progress=on_progress
        )
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
