"""Commands that compute without a training: projections, costs, plans, losses."""

from __future__ import annotations

from typing import Any

from syncline.api.functions import answer
from syncline.cli.shell import emit, new_console, print_each, say, tables_of
from syncline.planner.csv_rows import write_csv


def print_answer(question: Any) -> None:
    """Answer a question, print the result as tables or JSON, and write the files that ``--csv`` and the like name."""
    options = vars(question)  # which of grid, columns, csv, parquet and plot there are depends on the question
    if options.get("grid"):
        from syncline.cli.grids import write_grid

        write_grid(question)
        return
    result = answer(question)
    tables = [] if options["json"] else tables_of(result, options.get("columns"))
    file_lines = []
    if options.get("csv"):
        file_lines.append(f"rows in {write_csv(result.rows, options['csv'])}")
    if options.get("parquet"):
        from syncline.planner.projection.parquet import write_rows

        file_lines.append(f"rows in {write_rows(result.record['rows'], options['parquet'])}")
    if options.get("plot"):
        file_lines.append(f"figure in {result.save_plot(options['plot'])}")
    if options["json"]:
        emit(result)
    else:
        print_each(new_console(), tables)
    for line in file_lines:
        say(line)
