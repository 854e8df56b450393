"""Projections of a grid of settings, which are written into a Parquet file."""

from __future__ import annotations

from pathlib import Path

from syncline.api.projection import projection_options
from syncline.cli.shell import emit, new_console, say, warn
from syncline.planner.projection.grid import grid_of_question
from syncline.planner.projection.parquet import write_parquet
from syncline.planner.projection.transferred import transfers_of
from syncline.planner.transfer import refuse_transfers
from syncline.questions.projections import Project
from syncline.runs.processes.progress import progress


def write_grid(question: Project) -> None:
    """Project every combination of the values of ``--grid``, and write a row for each into a Parquet file."""
    grid = grid_of_question(question, *projection_options(question, studies_of="project"))
    if question.strict:  # else the transfers need not be known
        refuse_transfers(transfers_of(grid.specs()), strict=True)
    warn(grid.left_out())
    name, file = grid.spec.name, question.parquet or Path(f"{grid.spec.name}.parquet")
    with progress(new_console(), [name], steps=grid.rows, unit_name="rows") as update:
        parts = grid.parts(thresholds=bool(question.thresholds))
        num_rows = write_parquet(parts, file, about={"spec": name}, done=lambda rows: update([rows]))
    say(f"{num_rows:,} rows in {file}")
    if question.json:
        emit({"spec": name, "file": str(file), "written": num_rows})
