"""Commands that compute without a training: projections, costs, plans, losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from syncline.api.functions import answer
from syncline.cli.shell import emit, new_console, print_json_or_tables, say, tables_of
from syncline.files import write_csv
from syncline.questions.projections import Project


def print_answer(question: Any) -> None:
    """Answer a question, print the result as tables or JSON, and write the files that ``--csv`` and the like name."""
    options = vars(question)  # which of grid, columns, csv, parquet and plot there are depends on the question
    if options.get("grid"):
        _write_grid(question)
        return
    result = answer(question)
    tables = [] if options["json"] else tables_of(result, options.get("columns"))  # a wrong column writes no file
    file_lines = []
    if options.get("csv"):
        file_lines.append(f"rows in {write_csv(result.rows, options['csv'])}")
    if options.get("parquet"):
        from syncline.planner.projection.parquet import write_rows

        file_lines.append(f"rows in {write_rows(result.record['rows'], options['parquet'])}")
    if options.get("plot"):
        file_lines.append(f"figure in {result.save_plot(options['plot'])}")
    print_json_or_tables(question, result, lambda: tables)
    for line in file_lines:
        say(line)


def _write_grid(question: Project) -> None:
    """Project every combination of the values of ``--grid``, and write a row for each into a Parquet file."""
    from syncline.api.projection import projection_options
    from syncline.api.spec_arguments import warn_lines
    from syncline.planner.projection.grid import grid_of_question
    from syncline.planner.projection.parquet import write_parquet
    from syncline.planner.transfer import refuse_transfers, transfers_of
    from syncline.runs.processes.progress import progress

    grid = grid_of_question(question, *projection_options(question, studies_of="project"))
    if question.strict:  # else the parts that rest on other machines need not be known
        refuse_transfers(transfers_of(grid.specs()), strict=True)
    warn_lines(grid.left_out())
    name, file = grid.spec.name, question.parquet or Path(f"{grid.spec.name}.parquet")
    with progress(new_console(), [name], steps=grid.rows, unit_name="rows") as update:
        parts = grid.parts(thresholds=bool(question.thresholds))
        num_rows = write_parquet(parts, file, about={"spec": name}, done=lambda rows: update([rows]))
    say(f"{num_rows:,} rows in {file}")
    if question.json:
        emit({"spec": name, "file": str(file), "written": num_rows})
