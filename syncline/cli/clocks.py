"""Printing of clocks that are computed without a training."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING

from syncline.cli.readers import grids
from syncline.cli.shell import emit, in_folder, new_console, print_each, say, show_result, tables_of, warn
from syncline.errors import SpecError

if TYPE_CHECKING:
    from syncline.questions.collectives import Collectives
    from syncline.questions.pipeline import Pipeline
    from syncline.questions.project import Project


def print_project(question: Project) -> None:
    """Print projections, and write their rows and their figure."""
    if question.grid:
        write_grid(question)
        return
    from syncline.api.projection import answer_project, projection_specs
    from syncline.planner.projection import projections

    specs = projection_specs(question)
    result = answer_project(question, specs)
    rows = result.told["rows"]
    tables = [] if question.json else tables_of(result, question.columns)
    written = [projections.write_csv(rows, question.csv)] if question.csv else []
    if question.parquet:
        from syncline.planner.projection.parquet import write_rows

        written.append(write_rows(rows, question.parquet))
    figure = projections.plot_projection(specs, question.plot, rows) if question.plot else None
    if question.json:
        emit(result)
    else:
        print_each(new_console(), tables)
    for file in written:
        say(f"rows in {file}")
    if figure:
        say(f"figure in {figure}")


BESIDE_GRID = ("csv", "plot", "tokens", "target_loss", "prices", "batch_tokens", "columns", "failures")
"""Fields that a question with a grid cannot have."""


def write_grid(question: Project) -> None:
    """Write a row per combination of values into a file."""
    from syncline.api.projection import projection_options
    from syncline.planner.projection.grid import ProjectedGrid, grids_of
    from syncline.planner.projection.parquet import write_parquet
    from syncline.runs.processes.progress import progress
    from syncline.specs import ProjectSpec, study_of

    spec, options = projection_options(question, question.batch_tokens, question.period, studies_of="project")
    for name in BESIDE_GRID:
        if (value := getattr(question, name)) is not None:
            flag = f"--{name.replace('_', '-')}"
            raise SpecError(flag, str(value), "nothing beside --grid, whose rows are in a parquet file")
    assert question.grid is not None
    if not isinstance(spec, ProjectSpec):
        expected = f"no such option for a {study_of(spec).kind}; --set changes its fields"
        raise SpecError("--grid", question.grid[0], expected)
    gc.enable()  # this may take minutes
    grid = ProjectedGrid(spec, [*grids_of(options), *grids("--grid", question.grid)])
    warn(grid.left_out())
    file = question.parquet or Path(f"{spec.name}.parquet")
    with progress(new_console(), [spec.name], grid.rows, "rows") as update:
        parts = grid.parts(question.thresholds or False)
        written = write_parquet(parts, file, {"spec": spec.name}, lambda rows: update([rows]))
    say(f"{written:,} rows in {file}")
    if question.json:
        emit({"spec": spec.name, "file": str(file), "written": written})


def print_collectives(question: Collectives) -> None:
    """Print the costs of collectives, and draw them."""
    from syncline.api.collectives import answer_collectives, cost_question
    from syncline.planner.collectives import plot_costs

    result = answer_collectives(question)
    tables = [] if question.json else tables_of(result, question.columns)
    figure = question.plot and plot_costs(cost_question(question), question.plot)
    if question.json:
        emit(result)
    else:
        print_each(new_console(), tables)
    if figure:
        say(f"figure in {figure}")


def print_pipeline(question: Pipeline) -> None:
    """Print the schedules of a pipeline, and write them into a folder."""
    from syncline.api.pipelines import answer_pipeline, pipeline_spec

    spec = pipeline_spec(question)
    show_result(new_console(), answer_pipeline(in_folder(question, spec.name), spec), question.json)
