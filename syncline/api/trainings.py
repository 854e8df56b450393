"""Answers that are written into a folder: trainings, pipelines, measurements on real processes, replications."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from syncline.api.result import Result, later, place
from syncline.api.spec_arguments import spec_of, warn_lines
from syncline.checkout import import_replication
from syncline.errors import SynclineError, names_options
from syncline.methods.parts.asynchronous import asynchronous_of
from syncline.questions.calibrate import Calibrate
from syncline.questions.compare import Compare
from syncline.questions.launch import Launch
from syncline.questions.pipeline import Pipeline
from syncline.questions.replicate import Replicate
from syncline.questions.reproduce import Reproduce
from syncline.questions.run import Run
from syncline.specs import CompareSpec, Experiment, PipelineSpec, RunSpec, kind_of
from syncline.units import parse_seconds

Watch = Callable[..., AbstractContextManager[Callable[[list[int]], None] | None]]
"""The progress of trainings: a context manager of their names, their number of steps and the unit of the steps.

It yields a function that takes the completed steps of each training."""

TABLES = {
    "compare": "syncline.planner.tables.display:compare_tables",
    "run": "syncline.planner.tables.display:run_tables",
    "pipeline": "syncline.runs.pipeline:pipeline_tables",
    "launch": "syncline.measure.launching.tables:launch_tables",
}
"""The function of each command's rows and spec that returns the tables; that of a launch has the whole answer."""


def training_result(command: str, spec: Any, answer: dict[str, Any], scratch: Path | None = None) -> Result:
    """Return the result of a command in `TABLES` from its answer."""
    tables = later(TABLES[command], answer if command == "launch" else answer["rows"], spec)
    return Result(command, answer, spec, tables=tables, folder=Path(answer["folder"]), scratch=scratch)


@contextmanager
def unwatched(*_: Any) -> Iterator[None]:
    """Show nothing of the progress of a training."""
    yield


def _total(update: Callable[[list[int]], None] | None) -> Callable[[int], None] | None:
    """Return the function that takes the completed steps of the only training."""
    return update and (lambda done: update([done]))


def answer_compare(question: Compare, watch: Watch = unwatched) -> Result:
    """Return the comparison of several methods."""
    names = ("problem", "methods", "networks", "workers", "steps", "seeds", "compute")
    paths = {name: name for name in names} | ({} if question.text is None else {"text": "problem.path"})
    spec: CompareSpec = spec_of(question, paths, CompareSpec, kind="compare")
    from syncline.runs.compare import compare
    from syncline.runs.rehearsal import check_columns

    check_columns(spec, question.columns)
    with place(question, spec.name) as target, watch([method.name for method in spec.methods], spec.steps) as update:
        answer = compare(
            spec, target.path, exact=target.exact, jobs=question.jobs, figures=target.scratch is None,
            on_progress=question.on_progress or update,
        )  # fmt: skip
    return training_result("compare", spec, answer, target.scratch)


def answer_run(question: Run, watch: Watch = unwatched) -> Result:
    """Return one training in detail, or a study."""
    names = ("problem", "method", "network", "workers", "steps", "seeds", "compute")
    spec: Experiment = spec_of(
        question, {name: name for name in names}, RunSpec, kind="run", studies_of="run", scale=question.scale
    )
    from syncline.runs.rehearsal import check_columns
    from syncline.runs.run import run, steps_of

    check_columns(spec, question.columns)
    subject = spec.method.name if isinstance(spec, RunSpec) else spec.name
    with place(question, spec.name) as target, watch([subject], steps_of(spec)) as update:
        answer = run(
            spec, target.path, exact=target.exact, figures=target.scratch is None,
            on_progress=question.on_progress or _total(update),
        )  # fmt: skip
    return training_result("run", spec, answer, target.scratch)


def answer_pipeline(question: Pipeline) -> Result:
    """Return the simulated schedules of a pipeline."""
    names = (
        "schedules", "stages", "microbatches", "forward", "backward", "backward_weight", "chunks", "max_in_flight",
        "networks", "activation_bytes", "replicas", "gradient_bytes", "averaging", "flushes", "update", "placement",
        "jitter", "seed",
    )  # fmt: skip
    spec: PipelineSpec = spec_of(question, {name: name for name in names}, PipelineSpec, kind="pipeline")
    from syncline.runs.pipeline import pipeline

    with place(question, spec.name) as target:
        answer = pipeline(spec, target.path, exact=target.exact, figures=target.scratch is None)
    return training_result("pipeline", spec, answer, target.scratch)


def answer_launch(question: Launch, watch: Watch = unwatched) -> Result:
    """Return the measured run of a spec on real processes.

    If a process fails, `Result.failed` names it, and a function of Python warns; the command ends with an error.
    """
    names = {name: name for name in ("problem", "method", "network", "workers", "steps", "seeds")}
    texts = question.fields if isinstance(question.fields, list) else ()
    if isinstance(question.spec, str | Path) and kind_of(question.spec, texts) == "pipeline":
        names |= {"network": "networks", "workers": "stages"}
    spec: RunSpec | PipelineSpec = spec_of(question, names, RunSpec, PipelineSpec, kind="run")
    from syncline.measure.launching.launch import launch, launch_warnings
    from syncline.measure.launching.pipeline import launch_pipeline
    from syncline.measure.launching.process import Launch as Options
    from syncline.measure.launching.served.launch import launch_served
    from syncline.measure.launching.tables import launched_steps

    options = Options(
        question.device, question.backend, parse_seconds(question.timeout, "timeout"), question.reproducible,
        question.port, workers_per_process=question.workers_per_process, rejoins=question.rejoins,
    )  # fmt: skip
    warn_lines(launch_warnings(spec, options))
    run_it: Any = launch_pipeline if isinstance(spec, PipelineSpec) else launch
    if not isinstance(spec, PipelineSpec) and asynchronous_of(spec.method) is not None:
        run_it = launch_served
    with place(question, spec.name) as target, watch([spec.name], launched_steps(spec)) as update:
        answer = run_it(
            spec, target.path, options, exact=target.exact, on_progress=question.on_progress or _total(update)
        )
    result = training_result("launch", spec, answer, target.scratch)
    if result.failed and not names_options.get():
        warn_lines([result.failed])
    return result


def answer_calibrate(question: Calibrate, watch: Watch = unwatched) -> Result:
    """Return the calibration of this machine.

    Raises:
        SynclineError: a process died or hung, so there is no calibration.
    """
    command = shlex.join(["syncline", *sys.argv[1:]]) if names_options.get() else "sl.calibrate"
    if question.logs:
        from syncline.measure.calibration.from_logs import calibrate_from_logs

        with place(question, "cluster.yaml", folder="") as target:
            answer = calibrate_from_logs(question.logs, target.path, command=command, exact=target.exact)
        tables = later("syncline.measure.calibration.log_tables:log_tables", answer)
        return Result("calibrate", answer, tables=tables, folder=Path(answer["file"]), scratch=target.scratch)
    from syncline.measure.calibration.calibrate import calibrate
    from syncline.measure.calibration.plan import calibrate_warnings, check_process_counts, plan_of_options
    from syncline.measure.launching.process import Launch as Options

    plan = plan_of_options(
        None if question.spec is None else str(question.spec), question.fields or (), known_network=question.network,
        sizes=question.sizes, budget=question.budget, window=question.window,
    )  # fmt: skip
    counts = [question.workers] if isinstance(question.workers, int) else list(question.workers)
    check_process_counts(counts)
    warn_lines(calibrate_warnings(counts))
    options = Options(question.device, question.backend, parse_seconds(question.timeout, "timeout"))
    parts = len(counts) * len(plan.parts)
    with place(question, "cluster.yaml", folder="") as target, watch(["calibrate"], parts, "parts") as update:
        answer = calibrate(
            plan, counts, target.path, options, exact=target.exact, command=command,
            on_progress=_total(update) or (lambda done: None),
        )  # fmt: skip
    if "failed" in answer:
        raise SynclineError(answer["failed"])
    tables = later("syncline.measure.calibration.tables:calibrate_tables", answer)
    return Result("calibrate", answer, tables=tables, folder=Path(answer["file"]), scratch=target.scratch)


def answer_reproduce(question: Reproduce) -> Result:
    """Return the numbers of the papers, computed anew."""
    board = import_replication("scoreboard.board")
    register = import_replication("scoreboard.claim_register")
    rows = board.board_of(question.paper)
    return Result(
        "reproduce",
        {"rows": rows, "claims": register.claim_fields(question.paper)},
        tables=lambda: [*board.tables_of(rows), register.claims_table(question.paper)],
    )


def answer_replicate(question: Replicate) -> Result:
    """Return the replication of a paper's claims, as far as this call trains it."""
    result: Result = import_replication("replications.results").replication_result(
        question.name, scale=question.scale, seeds=question.seeds, max_trainings=question.most, time=question.time,
        jobs=question.jobs, out=question.out, on_stage=question.on_stage, on_expected=question.on_expected,
    )  # fmt: skip
    return result
