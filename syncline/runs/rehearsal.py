"""A short training that shows which columns a training's rows have, before hours are spent on it."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from syncline.errors import SynclineError
from syncline.planner.tables.column_selection import ALL, chosen_names
from syncline.runs.folders.result_files import CLOCK, TRAINING
from syncline.specs import CompareSpec, Experiment, RunSpec

ALWAYS = {*TRAINING, *CLOCK, "loss", "diverged_at"}
"""Columns of every timed training; further columns depend on the problem, the method and the clock."""


def check_columns(spec: Experiment, columns: str | None) -> None:
    """Refuse columns that the rows of a training will not have.

    A training of one step with one seed, in a temporary folder, shows their names. It runs only if a name is not one
    that all trainings have. The columns of a study are known only at its end.

    Args:
        spec: the training.
        columns: names with commas between, or ``all``.

    Raises:
        SpecError: a name that no row will have.
    """
    names = set() if columns is None else {name.strip() for name in columns.split(",")}
    if columns is None or names <= ALWAYS or names == {ALL} or not isinstance(spec, RunSpec | CompareSpec):
        return
    short = spec.model_copy(update={"steps": 1, "seeds": spec.seeds[:1], "timeline_steps": 0})
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="syncline-columns-") as folder, suppress(SynclineError):
        out = Path(folder) / "training"
        if isinstance(short, CompareSpec):
            from syncline.runs.compare import compare  # only here: torch is slow to load

            rows = compare(short, out, exact=True, jobs=1, figures=False)["rows"]
        else:
            from syncline.runs.run import run

            rows = run(short, out, exact=True, figures=False)["rows"]
    if rows:  # otherwise the training itself reports the error
        chosen_names(rows, columns)
