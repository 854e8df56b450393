"""The command ``syncline run`` for studies: their pieces side by side, the records in a table, rows and figures."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from syncline.interrupts import is_interrupted
from syncline.runs.folders.folder import RunFolder, environment
from syncline.runs.processes.shared_progress import shared_progress, side_by_side, watched
from syncline.specs import Experiment, study_of


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
        spec: the study.
        out: the folder to write; see ``RunFolder`` for ``exact``.
        jobs: number of processes side by side; the study's own number if None. It changes no number.
        figures: whether the folder gets figures.
        on_progress: called now and then with the completed part of ``total_length``.

    Returns:
        ``rows``, ``folder``, ``interrupted``. After Ctrl-C there are rows of the finished pieces.
    """
    study, pieces = study_of(spec), _pieces(spec)
    own_jobs = study.jobs(spec)

    def report(done: list[int]) -> None:
        if on_progress:
            on_progress(sum(done))

    with RunFolder(out, exact) as folder, shared_progress(len(pieces)) as progress, watched(progress, report):
        folder.spec(spec)
        records: list[dict[str, Any]] = []
        calls = [partial(piece.call, progress.reporter(number)) for number, piece in enumerate(pieces)]
        for new in side_by_side(calls, jobs or own_jobs, progress):
            records += new
            if new:  # rewritten after each piece, so that a crash of the next one loses nothing
                folder.table("metrics", record_columns(records))
        rows = study.rows(spec, records)
        interrupted = progress.stopped
        folder.json("run", environment() | {"interrupted": interrupted, "rows": rows})
        if rows and figures and not is_interrupted():
            from syncline.analysis import save  # only here: matplotlib is slow to load

            for name, figure in study.figures(spec, records, rows):
                save(figure, folder.figure(name))
    return {"rows": rows, "folder": str(folder.path), "interrupted": interrupted}


def total_length(spec: Experiment) -> int:
    """Return the total that the progress of a study counts to."""
    return sum(piece.length for piece in _pieces(spec))


def _pieces(spec: Experiment) -> list[Any]:
    pieces = study_of(spec).pieces
    assert pieces is not None, "a study that answers at once"
    return pieces(spec)


def record_columns(records: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return records as sorted columns, because the order in which they finished means nothing."""
    names = list(records[0])
    ordered = sorted(records, key=lambda record: [_sortable(record[name]) for name in names])
    return {name: [record[name] for record in ordered] for name in names}


def _sortable(value: Any) -> tuple[bool, Any]:
    return value is not None, "" if value is None else value
