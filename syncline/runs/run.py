"""The command ``syncline run``: one method on one network in full detail, or a study."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from syncline.analysis import save
from syncline.errors import SynclineError
from syncline.interrupts import is_interrupted
from syncline.planner.tables.table import ALL, chosen_names
from syncline.runs.folders.folder import RunFolder, environment
from syncline.runs.folders.result_files import CLOCK, TRAINING
from syncline.runs.folders.streams import TrainingStream
from syncline.runs.processes.shared_progress import run_stoppable, shared_progress, side_by_side, watched
from syncline.runs.training.figures import run_figures
from syncline.runs.training.limits import check_training
from syncline.runs.training.results import run_records, write_curves
from syncline.runs.training.tables import names_of_workers, timeline_columns, write_contributions, write_measurements
from syncline.runs.training.train_and_time import time_with_bounds, train_method, where_trained
from syncline.runs.training.trained import with_measured_step
from syncline.sim import chrome_trace
from syncline.specs import CompareSpec, Experiment, RunSpec, study_of


def run(
    spec: Experiment,
    out: Path,
    *,
    exact: bool = False,
    figures: bool = True,
    on_progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Train and time one method, or run a study, and write its folder.

    Args:
        on_progress: function that is called now and then with the number of completed steps of those in `steps_of`.

    Returns:
        ``rows`` (one per seed of a training), ``folder``, ``interrupted`` (whether Ctrl-C ended it) and, for a
        training, ``measured_step_s``.
    """
    if not isinstance(spec, RunSpec):
        return run_study(spec, out, exact=exact, figures=figures, on_progress=on_progress)
    check_training(spec, spec.method)
    spec, step_s = with_measured_step(spec)
    with RunFolder(out, exact) as folder, shared_progress(trainings=1) as progress:
        folder.spec(spec)

        def on_step(done: int) -> None:
            """Report the completed steps; raise KeyboardInterrupt if the user has asked the training to stop."""
            if on_progress:
                on_progress(done)
            progress.report(training=0, done=done)

        stream = TrainingStream(folder.working, number=0, method=spec.method.name)
        trained = run_stoppable(partial(train_method, spec, spec.method, on_step, stream), progress)
        if trained is None:
            raise KeyboardInterrupt  # the user stopped the training before it had a result
        write_measurements(folder, [trained])
        network = spec.network
        timing = time_with_bounds(spec, trained, network, measured=step_s is not None)
        clock = None if timing is None else timing.clock
        bounds = {} if timing is None else timing.bounds()
        rows = [record | bounds for record in run_records(trained, clock, network, spec.workers)]
        facts = {
            "seeds": spec.seeds, "wall_s": trained.wall_s, "interrupted": trained.history.interrupted,
            "problem": trained.facts, **where_trained(spec), "measured_step_s": step_s, "rows": rows,
        }  # fmt: skip
        folder.json("run", environment() | facts)
        if clock is not None:
            key = trained.method, network.name
            write_curves(folder, spec, [trained], {key: clock}, {network.name: network}, bounds={key: bounds})
            folder.table("timeline", timeline_columns([(trained.method, network.name, clock.timeline)]))
            folder.trace(chrome_trace(clock.timeline, names_of_workers(clock.timeline, spec.num_endpoints)))
            write_contributions(folder, [trained])
            if figures:
                run_figures(folder, spec, trained, clock)
    return {
        "rows": rows, "folder": str(folder.path), "interrupted": trained.history.interrupted,
        "measured_step_s": step_s,
    }  # fmt: skip


def steps_of(spec: Experiment) -> int:
    """Return the number of steps that an experiment will make, as counted by the progress of `run`.

    A run makes the steps of its spec. A study makes the steps of all its trainings; a study of votes counts votes.
    """
    return spec.steps if isinstance(spec, RunSpec) else sum(piece.length for piece in _pieces_of_study(spec))


def run_study(
    spec: Experiment,
    out: Path,
    *,
    exact: bool = False,
    jobs: int | None = None,
    figures: bool = True,
    on_progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Run a study and write its folder: spec, records, rows and figures.

    Args:
        jobs: number of parallel processes; the study's own number if None. Results do not depend on it.
        on_progress: function that is called now and then with the number of completed steps of those in `steps_of`.

    Returns:
        ``rows``, ``folder``, ``interrupted``. After Ctrl-C there are rows of the finished pieces.
    """
    study, pieces = study_of(spec), _pieces_of_study(spec)
    if jobs is None:
        jobs = study.jobs(spec)

    def report(steps_by_piece: list[int]) -> None:
        if on_progress:
            on_progress(sum(steps_by_piece))

    def sort_key(record: dict[str, Any]) -> list[tuple[bool, Any]]:
        """Return a record's values for sorting; None, which has no order among numbers and texts, comes first."""
        return [(value is not None, value) for value in record.values()]

    with RunFolder(out, exact) as folder, shared_progress(len(pieces)) as progress, watched(progress, report):
        folder.spec(spec)
        records: list[dict[str, Any]] = []
        calls = [partial(piece.call, progress.reporter(index)) for index, piece in enumerate(pieces)]
        for piece_records in side_by_side(calls, jobs, progress):
            records += piece_records
            if piece_records:  # rewritten after each piece, so that a crash of the next one loses nothing
                sorted_records = sorted(records, key=sort_key)  # because pieces finish in a random order
                folder.table("metrics", {name: [record[name] for record in sorted_records] for name in records[0]})
        rows = study.rows(spec, records)
        interrupted = progress.stopped
        folder.json("run", environment() | {"interrupted": interrupted, "rows": rows})
        if rows and figures and not is_interrupted():
            for name, figure in study.figures(spec, records, rows):
                save(figure, folder.figure(name))
    return {"rows": rows, "folder": str(folder.path), "interrupted": interrupted}


def _pieces_of_study(spec: Experiment) -> list[Any]:
    """Return the parts of a study's work, which can run in parallel; see `syncline.specs.study.Piece`."""
    pieces = study_of(spec).pieces
    assert pieces is not None, "a study without pieces is projected and never run"
    return pieces(spec)


COMMON_COLUMNS = {*TRAINING, *CLOCK, "loss", "diverged_at"}
"""Columns of every timed training; further columns depend on the problem, the method and the clock."""


def check_columns(spec: Experiment, columns: str | None) -> None:
    """Refuse names of columns that the rows of a training will not have, before hours are spent on the training.

    If a name is not a column of all trainings, a training of one step with one seed shows which columns there are. The
    columns of a study are known only at its end.

    Args:
        columns: names separated by commas, or ``all``.
    """
    if columns is None or not isinstance(spec, RunSpec | CompareSpec):
        return
    names = {name.strip() for name in columns.split(",")}
    if names <= COMMON_COLUMNS or names == {ALL}:
        return
    one_step_spec = spec.model_copy(update={"steps": 1, "seeds": spec.seeds[:1], "timeline_steps": 0})
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="syncline-columns-") as folder, suppress(SynclineError):
        training_folder = Path(folder) / "training"
        if isinstance(one_step_spec, CompareSpec):
            from syncline.runs.compare import compare  # only here: torch is slow to load

            rows = compare(one_step_spec, training_folder, exact=True, jobs=1, figures=False)["rows"]
        else:
            rows = run(one_step_spec, training_folder, exact=True, figures=False)["rows"]
    if rows:  # otherwise the training itself reports the error
        chosen_names(rows, columns)
