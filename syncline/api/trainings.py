"""Answers that need a run: trainings, sweeps, pipelines, measurements on real processes, traces, replications."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.api.arguments import checked
from syncline.api.result import Result, deferred
from syncline.api.spec_arguments import changes_of, spec_of, warn_lines
from syncline.checkout import import_replication
from syncline.errors import SpecError, SynclineError, called_by_command
from syncline.fields import checked_argument
from syncline.methods.parts.asynchronous import asynchronous_of
from syncline.questions.catalogue import Reproduce
from syncline.questions.clock import Pipeline
from syncline.questions.declare import SHELL, Question, flag_of, listed
from syncline.questions.processes import Calibrate, Launch
from syncline.questions.scripts import NETWORKS, Trace, Whatif
from syncline.questions.trainings import Compare, Replicate, Run, Sweep
from syncline.runs.folders.places import result_place
from syncline.runs.processes.progress import Listener
from syncline.runs.sweep.folder import Swept
from syncline.runs.sweep.ranking import ranked
from syncline.specs import CompareSpec, Experiment, PipelineSpec, RunSpec, kind_of
from syncline.units import parse_seconds

if TYPE_CHECKING:
    import pandas as pd

    from syncline.measure.replaying.scenario import ReplayedOn


Watch = Callable[..., AbstractContextManager[Callable[[list[int]], None] | None]]
"""A function that shows the progress of trainings.

Its arguments are the names of the trainings, their number of steps and the unit of the steps. It returns a context
manager that yields a function of the completed steps of each training.
"""

TABLES = {
    "compare": "syncline.planner.tables.display:compare_tables",
    "run": "syncline.planner.tables.display:run_tables",
    "pipeline": "syncline.runs.pipeline:pipeline_tables",
    "launch": "syncline.measure.launching.tables:launch_tables",
}
"""The function that makes each command's tables from rows and spec; for a launch, from the whole answer and spec."""


def training_result(command: str, spec: Any, answer: dict[str, Any], scratch: Path | None = None) -> Result:
    """Return the result of ``compare``, ``run``, ``pipeline`` or ``launch`` from its answer (``rows``, ``folder``)."""
    tables = deferred(TABLES[command], answer if command == "launch" else answer["rows"], spec)
    return Result(command, answer, spec, tables=tables, folder=Path(answer["folder"]), scratch=scratch)


def unwatched(*_: Any) -> AbstractContextManager[None]:
    """Return a context that shows no progress, for functions called from Python."""
    return nullcontext()


def _single_update(update: Callable[[list[int]], None] | None) -> Callable[[int], None] | None:
    """Convert a function that takes the completed steps of several trainings into one for a single training."""
    return None if update is None else lambda steps: update([steps])


def answer_compare(question: Compare, watch: Watch = unwatched) -> Result:
    """Train several methods, time them on several networks, and return the comparison."""
    names = {*CompareSpec.model_fields, "text"}
    spec: CompareSpec = spec_of(question, names, CompareSpec, kind="compare", paths={"text": "problem.path"})
    from syncline.runs.compare import compare
    from syncline.runs.run import check_columns

    check_columns(spec, question.columns)
    methods = [method.name for method in spec.methods]
    with result_place(question, spec.name) as target, watch(methods, spec.steps) as update:
        answer = compare(
            # A temporary folder gets no figures.
            spec, target.path, exact=target.exact, jobs=question.jobs, figures=target.scratch is None,
            on_progress=question.on_progress or update,
        )  # fmt: skip
    return training_result("compare", spec, answer, target.scratch)


def answer_run(question: Run, watch: Watch = unwatched) -> Result:
    """Train and time one method, or run a study, and return its rows in full detail."""
    names = RunSpec.model_fields
    spec: Experiment = spec_of(question, names, RunSpec, kind="run", studies_of="run", scale=question.scale)
    from syncline.runs.run import check_columns, run, steps_of

    check_columns(spec, question.columns)
    subject = spec.method.name if isinstance(spec, RunSpec) else spec.name
    with result_place(question, spec.name) as target, watch([subject], steps_of(spec)) as update:
        answer = run(
            spec, target.path, exact=target.exact, figures=target.scratch is None,
            on_progress=question.on_progress or _single_update(update),
        )  # fmt: skip
    return training_result("run", spec, answer, target.scratch)


def answer_pipeline(question: Pipeline) -> Result:
    """Simulate the schedules of a pipeline, and return their times, delays and memory."""
    spec: PipelineSpec = spec_of(question, PipelineSpec.model_fields, PipelineSpec, kind="pipeline")
    from syncline.runs.pipeline import pipeline

    with result_place(question, spec.name) as target:
        answer = pipeline(spec, target.path, exact=target.exact, figures=target.scratch is None)
    return training_result("pipeline", spec, answer, target.scratch)


def answer_launch(question: Launch, watch: Watch = unwatched) -> Result:
    """Run a spec on real processes of this machine, and return the measured rows.

    If a process fails, `Result.failed` names it; a function called from Python warns, and a command ends with an error.
    """
    names = ("problem", "method", "network", "workers", "steps", "seeds")
    source, set_texts = question.spec, question.fields if isinstance(question.fields, list) else ()  # texts of --set
    fields = dict(source) if isinstance(source, Mapping | Experiment) else {}
    kind = kind_of(source, set_texts) if isinstance(source, str | Path) else fields.get("kind")
    paths = {"network": "networks", "workers": "stages"} if kind == "pipeline" else {}  # a pipeline has stages
    spec: RunSpec | PipelineSpec = spec_of(question, names, RunSpec, PipelineSpec, kind="run", paths=paths)
    from syncline.measure.launching.launch import launch, launch_warnings
    from syncline.measure.launching.pipeline import launch_pipeline
    from syncline.measure.launching.process import Launch as Options
    from syncline.measure.launching.served.launch import launch_served
    from syncline.measure.launching.tables import launched_steps

    options = Options(
        question.device, question.backend, timeout_s=parse_seconds(question.timeout, "timeout"),
        reproducible=question.reproducible,
        port=question.port, workers_per_process=question.workers_per_process, rejoins=question.rejoins,
    )  # fmt: skip
    warn_lines(launch_warnings(spec, options))
    launcher: Any = launch
    if isinstance(spec, PipelineSpec):
        launcher = launch_pipeline
    elif asynchronous_of(spec.method) is not None:
        launcher = launch_served
    with result_place(question, spec.name) as target, watch([spec.name], launched_steps(spec)) as update:
        answer = launcher(
            spec, target.path, options, exact=target.exact, on_progress=question.on_progress or _single_update(update)
        )
    result = training_result("launch", spec, answer, target.scratch)
    if result.failed and not called_by_command.get():
        warn_lines([result.failed])
    return result


def answer_calibrate(question: Calibrate, watch: Watch = unwatched) -> Result:
    """Measure this machine, or read measured logs, and return the calibration with the cluster file.

    Raises:
        SynclineError: a process died or hung, so there is no calibration.
    """
    command = shlex.join(["syncline", *sys.argv[1:]]) if called_by_command.get() else "sl.calibrate"
    if question.logs:  # the user has measured with nccl-tests, for example
        from syncline.measure.calibration.from_logs import calibrate_from_logs

        _refuse_changes(question, ("logs", "algorithm", "out", "json"), "none with --from, which measures nothing")
        with result_place(question, "cluster.yaml", folder="") as target:
            answer = calibrate_from_logs(question.logs, target.path, question.algorithm, command, exact=target.exact)
        tables = deferred("syncline.measure.calibration.tables:log_tables", answer)
        return Result("calibrate", answer, tables=tables, folder=Path(answer["file"]), scratch=target.scratch)
    if question.algorithm is not None:
        raise SpecError("--algorithm", question.algorithm, "none without --from: the backend chooses the algorithms")
    from syncline.measure.calibration.calibrate import calibrate
    from syncline.measure.calibration.plan import calibrate_warnings, check_process_counts, plan_of_options
    from syncline.measure.launching.process import Launch as Options

    plan = plan_of_options(
        None if question.spec is None else str(question.spec), question.fields or (), known_network=question.network,
        sizes=question.sizes, budget=question.budget, window=question.window,
    )  # fmt: skip
    counts = listed(question.workers)
    check_process_counts(counts)
    warn_lines(calibrate_warnings(counts))
    options = Options(question.device, question.backend, parse_seconds(question.timeout, "timeout"))
    parts = len(counts) * len(plan.measurements)
    with result_place(question, "cluster.yaml", folder="") as target, watch(["calibrate"], parts, "parts") as update:
        answer = calibrate(
            plan, counts, out=target.path, options=options, exact=target.exact, command=command,
            on_progress=_single_update(update) or (lambda done: None),
        )  # fmt: skip
    if "failed" in answer:
        raise SynclineError(answer["failed"])
    tables = deferred("syncline.measure.calibration.tables:calibrate_tables", answer)
    return Result("calibrate", answer, tables=tables, folder=Path(answer["file"]), scratch=target.scratch)


def _refuse_changes(question: Question, allowed: Sequence[str], expected: str) -> None:
    """Raise ``SpecError`` for the first field that differs from its default, except those named in ``allowed``."""
    for declared in question.declared(SHELL):
        value = getattr(question, declared.name)
        if declared.name not in allowed and listed(value) != listed(declared.default):
            raise SpecError(flag_of(declared), value, expected)


def answer_reproduce(question: Reproduce) -> Result:
    """Recompute the numbers of the papers, and return them next to the published numbers."""
    board = import_replication("scoreboard.board")
    register = import_replication("scoreboard.claim_register")
    rows = board.board_of(question.paper)
    record = {"rows": rows, "claims": register.claim_fields(question.paper)}
    return Result("reproduce", record, tables=lambda: [*board.tables_of(rows), register.claims_table(question.paper)])


def answer_replicate(question: Replicate) -> Result:
    """Make trainings of a replication, and return the verdicts on its paper's claims so far."""
    result: Result = import_replication("replications.results").replication_result(
        question.name, scale=question.scale, seeds=question.seeds, max_trainings=question.most, time=question.time,
        jobs=question.jobs, out=question.out, on_stage=question.on_stage, on_expected=question.on_expected,
    )  # fmt: skip
    return result


def answer_sweep(question: Sweep, listener: Listener | None = None) -> SweepResult:
    """Train the configurations of a sweep, and return their rows; ``listener`` gets its progress and its warnings."""
    from syncline.runs.sweep.search import Search
    from syncline.runs.sweep.sweep import sweep

    names = ("problem", "method", "network", "workers", "steps", "compute")
    with result_place(question, "sweep", folder=None) as target:  # without --out `sweep` chooses runs/NAME-sweep
        swept = sweep(
            {"kind": "run", "name": "sweep"} if question.spec is None else question.spec, question.grid or {},
            seeds=question.seeds, overrides=changes_of(question, names), out=target.path,
            jobs=question.jobs, dask=question.dask, equal_effort=question.equal_effort,
            search=Search.from_options(question.tune or (), question.trials, question.search),
            listener=_Warner() if listener is None else listener,
        )  # fmt: skip
    return SweepResult(swept, target.scratch)


class SweepResult(Result):
    """The result of `sl.sweep`: a `sl.Result` that can rank its configurations."""

    def __init__(self, swept: Swept, scratch: Path | None = None) -> None:
        """Store the sweep's rows, with a table that ranks the configurations if a run has finished."""
        ranking = "syncline.runs.sweep.ranking:ranking_table"
        tables = deferred(ranking, ranked(swept.rows), "loss", swept.paths, name=swept.name) if swept.rows else None
        super().__init__(
            "sweep", swept.json(), tables=lambda: [tables()] if tables else [], folder=Path(swept.folder),
            scratch=scratch,
        )  # fmt: skip

    @checked
    def best(self, by: str = "loss") -> pd.DataFrame:
        """Return one row per configuration, the best first: median, lowest and highest value over the seeds.

        Args:
            by: name of the number to rank by; less is better.

        Raises:
            SpecError: the rows have no such number.
        """
        import pandas as pd

        return pd.DataFrame(ranked(self.rows, by))


class _Warner(Listener):
    """A listener that turns a sweep's warnings into Python's warnings."""

    def warns(self, lines: Sequence[str]) -> None:
        warn_lines(list(lines))


def answer_trace(question: Trace) -> Result:
    """Record scripts or functions, replay them on networks, and return the predicted times.

    The scripts of a command line run in processes that this process forks. Functions run in processes of a new Python.
    """
    from syncline.measure.recording import ranks, shapes
    from syncline.measure.replaying.scenario import ReplayedOn
    from syncline.measure.replaying.trace import MAX_WORKERS, MAX_WORKERS_BY_SHAPES, trace

    if question.ranks is not None and not question.shapes:
        raise SpecError("--ranks", question.ranks, "--shapes as well, as all ranks are recorded without it")
    command_lines = ranks.split_command_lines(question)
    programs = [ranks.parse_script(words) for words in command_lines]
    programs = programs or [ranks.parse_program(source) for source in listed(question.what)]
    if not programs:
        raise SpecError("what", None, "a script, or a function that does the same")
    # A command forks a process per rank; a Python program may have threads, which a fork would break.
    run: Any = ranks.trace_program if command_lines else ranks.trace_in_child
    if question.shapes:
        run = partial(shapes.trace_program_by_shapes, ranks=shapes.parse_ranks(question.ranks))
    replay = ReplayedOn.from_options(
        question.networks or NETWORKS, question.hardware, question.algorithm, question.host,
        target_loss=question.target_loss,
    )  # fmt: skip
    names = dict.fromkeys(program.name for program in programs)
    with result_place(question, f"trace-{'-'.join(names)}") as target:
        answer = trace(
            programs, question.workers, question=replay, out=target.path, exact=target.exact, run=run,
            max_workers=MAX_WORKERS_BY_SHAPES if question.shapes else MAX_WORKERS,
            options=ranks.TraceOptions(question.gpu, question.clock),
        )  # fmt: skip
    return replay_result("trace", answer, question=replay, scratch=target.scratch)


def answer_whatif(question: Whatif) -> Result:
    """Replay recorded traces on other networks or hardware, and return the predicted times."""
    from syncline.measure.replaying.scenario import Changes, ReplayedOn
    from syncline.measure.replaying.trace import whatif

    checked_argument("record", question.record, list[str | Path | Result])
    folders = [Path(source.folder or "") if isinstance(source, Result) else Path(source) for source in question.record]
    changes = Changes(
        question.scale_bandwidth, question.scale_latency, question.scale_compute, question.overlap, question.compiled,
        question.async_tp,
    )  # fmt: skip
    replay = ReplayedOn.from_options(
        question.networks or NETWORKS, question.hardware, question.algorithm, question.host, changes,
        question.target_loss,
    )  # fmt: skip
    with result_place(question, "whatif", folder=None) as target:
        answer = whatif(folders, replay, target.path, exact=target.exact)
    return replay_result("whatif", answer, question=replay, scratch=target.scratch)


def replay_result(command: str, answer: Mapping[str, Any], question: ReplayedOn, scratch: Path | None = None) -> Result:
    """Return the result of ``trace`` or ``whatif`` from its answer (``rows``, ``sites``, ``losses``, ``folder``)."""
    tables = deferred("syncline.measure.replaying.tables:trace_tables", answer, question)
    folder = Path(answer["folder"]) if "folder" in answer else None
    return Result(command, answer, tables=tables, folder=folder, scratch=scratch)
