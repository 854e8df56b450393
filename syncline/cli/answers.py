"""Printing of answers that nothing is trained for: projections, costs, plans, losses, replays, the papers' numbers."""

from __future__ import annotations

import shlex
from pathlib import Path

from syncline.api.functions import answer
from syncline.api.result import Result
from syncline.cli.shell import emit, new_console, print_each, say, show_files, tables_of, warn
from syncline.cli.usage import Missing
from syncline.planner.projection.projections import write_csv
from syncline.planner.transfer import refuse_transfers, transfers_of
from syncline.questions.declare import Question
from syncline.questions.project import Project
from syncline.questions.reproduce import Reproduce
from syncline.questions.trace import Trace


def print_answer(question: Question) -> None:
    """Print the answer to a question as tables or JSON, and write the files that its options name."""
    options = vars(question)
    if options.get("grid"):
        assert isinstance(question, Project)
        write_grid(question)
        return
    result = answer(question)
    tables = [] if options["json"] else tables_of(result, options.get("columns"))
    written = []
    if options.get("csv"):
        written.append(f"rows in {write_csv(result.rows, options['csv'])}")
    if options.get("parquet"):
        from syncline.planner.projection.parquet import write_rows

        written.append(f"rows in {write_rows(result.record['rows'], options['parquet'])}")
    if options.get("plot"):
        written.append(f"figure in {result.save_plot(options['plot'])}")
    if options["json"]:
        emit(result)
    else:
        print_each(new_console(), tables)
    for line in written:
        say(line)


def write_grid(question: Project) -> None:
    """Write a row per combination of values into a file."""
    from syncline.api.projection import projection_options
    from syncline.planner.projection.grid import grid_of_question
    from syncline.planner.projection.parquet import write_parquet
    from syncline.runs.processes.progress import progress

    grid = grid_of_question(question, *projection_options(question, studies_of="project"))
    if question.strict:
        refuse_transfers(transfers_of(grid.specs()), question.strict)
    warn(grid.left_out())
    name, file = grid.spec.name, question.parquet or Path(f"{grid.spec.name}.parquet")
    with progress(new_console(), [name], grid.rows, "rows") as update:
        parts = grid.parts(question.thresholds or False)
        written = write_parquet(parts, file, {"spec": name}, lambda rows: update([rows]))
    say(f"{written:,} rows in {file}")
    if question.json:
        emit({"spec": name, "file": str(file), "written": written})


def print_reproduce(question: Reproduce) -> None:
    """Print the papers' numbers next to ours, and draw their summaries."""
    from syncline.checkout import import_replication

    figures = import_replication("summaries").save_summaries(question.plot, question.paper) if question.plot else []
    _print_result(answer(question), question.json)
    for file in figures if not question.json else ():
        say(f"figure in {file}")


def print_trace(question: Trace) -> None:
    """Print the traces of scripts, and write them into a folder."""
    if bool(question.script) == bool(question.scripts):
        raise Missing("script", "one script behind --, or --script with what one types, once for each")
    if not all(text.strip() for text in question.scripts or ()):
        raise Missing("--script", "a file, or -m and a module's name; its arguments")
    result = answer(question)
    _print_result(result, question.json)
    if not question.json:
        say(f"on other networks, and what decides: syncline whatif {shlex.quote(str(result.folder))} --network NET")


def print_whatif(question: Question) -> None:
    """Print the replays of records."""
    _print_result(answer(question), vars(question)["json"])


def _print_result(result: Result, as_json: bool) -> None:
    """Print the JSON object, or tables and the paths of files."""
    if as_json:
        emit(result)
        return
    console = new_console()
    print_each(console, result.tables)
    if result.folder is not None:
        show_files(console, result.folder)
