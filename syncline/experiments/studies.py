"""``syncline run`` for what no network times: calls side by side, their records in a table, rows and figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from syncline.experiments.board import Watched, board, side_by_side
from syncline.experiments.figures import quantiser_figures, tie_figures
from syncline.experiments.folder import RunFolder, environment
from syncline.specs import AlignmentSpec, QuantisersSpec, StalenessSpec, StudySpec, SwingsSpec
from syncline.studies.alignment import study as alignment
from syncline.studies.alignment.figures import alignment_figures
from syncline.studies.quantisers import study as quantisers
from syncline.studies.staleness import study as staleness
from syncline.studies.staleness.figures import staleness_figures
from syncline.studies.staleness.late import check_device
from syncline.studies.swings import study as swings
from syncline.studies.vote_ties import study as vote_ties


def study(
    spec: StudySpec,
    out: Path,
    *,
    exact: bool = False,
    jobs: int | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Run a study and write its folder: spec, records, rows and figures.

    Args:
        spec: what to run.
        out: the folder to write; see ``RunFolder`` for ``exact``.
        jobs: processes side by side; one per core if none, and one alone on a GPU. It does not change any number.
        on_progress: called now and then with how many of ``total`` are done.

    Returns:
        ``rows``, ``folder``, ``interrupted``. After Ctrl-C there are rows of what was finished.
    """
    part = _part(spec)
    if isinstance(spec, StalenessSpec):
        check_device(spec)
        jobs = 1 if jobs is None and spec.device == "cuda" else jobs
    counts = part.lengths(spec)

    def tell(done: list[int]) -> None:
        if on_progress:
            on_progress(sum(done))

    with RunFolder(out, exact) as folder, board(len(counts)) as progress, Watched(progress, tell):
        folder.spec(spec)
        records: list[dict[str, Any]] = []
        for new in side_by_side(part.calls(spec, [progress.reporter(i) for i in range(len(counts))]), jobs, progress):
            records += new
            if new:  # written again each time: a crash of the next one loses nothing
                folder.table("metrics", columns(records))
        rows = part.rows(spec, records)
        interrupted = progress.stopped
        folder.json("run", environment() | {"interrupted": interrupted, "rows": rows})
        if rows and isinstance(spec, StalenessSpec):
            staleness_figures(folder, spec, records, rows)
        elif rows and isinstance(spec, AlignmentSpec):
            alignment_figures(folder, spec, records)
        elif rows and isinstance(spec, SwingsSpec):
            swings.swing_figures(folder, spec, records)
        elif rows:
            (quantiser_figures if isinstance(spec, QuantisersSpec) else tie_figures)(folder, rows)
    return {"rows": rows, "folder": str(folder.path), "interrupted": interrupted}


def total(spec: StudySpec) -> int:
    """What the progress of a study counts to."""
    return sum(_part(spec).lengths(spec))


def _part(spec: StudySpec) -> ModuleType:
    if isinstance(spec, StalenessSpec):
        return staleness
    if isinstance(spec, AlignmentSpec):
        return alignment
    if isinstance(spec, SwingsSpec):
        return swings
    return quantisers if isinstance(spec, QuantisersSpec) else vote_ties


def columns(records: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Records as columns, sorted: in which order they were finished says nothing."""
    names = list(records[0])
    ordered = sorted(records, key=lambda record: [_sortable(record[name]) for name in names])
    return {name: [record[name] for record in ordered] for name in names}


def _sortable(value: Any) -> tuple[bool, Any]:
    return value is not None, "" if value is None else value
