"""Commands that train nothing: projections, costs, plans, losses, replays, catalogues, the state of this machine."""

from __future__ import annotations

import shlex
import webbrowser
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from syncline.api.functions import answer
from syncline.api.result import Result
from syncline.cli.application import Missing
from syncline.cli.shell import emit, new_console, print_each, say, show_files, tables_of, warn
from syncline.errors import SynclineError
from syncline.planner.projection.projections import write_csv
from syncline.planner.transfer import refuse_transfers, transfers_of
from syncline.questions.catalogue import Doctor, List, Reproduce
from syncline.questions.declare import Question
from syncline.questions.explore import Explore
from syncline.questions.projections import Project
from syncline.questions.scripts import Chakra, Trace, Whatif


def print_answer(question: Question) -> None:
    """Answer a question, print the result as tables or JSON, and write the files that ``--csv`` and the like name."""
    options = vars(question)
    if isinstance(question, Project) and question.grid:
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


def write_grid(question: Project) -> None:
    """Project every combination of the values of ``--grid``, and write a row for each into a Parquet file."""
    from syncline.api.projection import projection_options
    from syncline.planner.projection.grid import grid_of_question
    from syncline.planner.projection.parquet import write_parquet
    from syncline.runs.processes.progress import progress

    grid = grid_of_question(question, *projection_options(question, studies_of="project"))
    if question.strict:
        refuse_transfers(transfers_of(grid.specs()), question.strict)
    warn(grid.left_out())
    name, file = grid.spec.name, question.parquet or Path(f"{grid.spec.name}.parquet")
    with progress(new_console(), [name], steps=grid.rows, unit_name="rows") as update:
        parts = grid.parts(question.thresholds or False)
        num_rows = write_parquet(parts, file, about={"spec": name}, done=lambda rows: update([rows]))
    say(f"{num_rows:,} rows in {file}")
    if question.json:
        emit({"spec": name, "file": str(file), "written": num_rows})


def print_reproduce(question: Reproduce) -> None:
    """Print published numbers of papers next to Syncline's, and draw a summary of each paper if ``--plot`` is given."""
    from syncline.checkout import import_replication

    figures = import_replication("summaries").save_summaries(question.plot, question.paper) if question.plot else []
    print_replays(question)
    for file in figures if not question.json else ():
        say(f"figure in {file}")


def print_trace(question: Trace) -> None:
    """Record and replay the scripts of ``syncline trace``, print the result, and name the command that goes on."""
    if bool(question.script) == bool(question.scripts):  # exactly one of the two forms is needed
        raise Missing("script", "one script after --, or --script with a command line, once for each script")
    if not all(text.strip() for text in question.scripts or ()):
        raise Missing("--script", "a file, or -m and a module's name; its arguments")
    result = print_replays(question)
    if not question.json:
        say(f"on other networks, and what decides: syncline whatif {shlex.quote(str(result.folder))} --network NET")


def print_replays(question: Reproduce | Trace | Whatif) -> Result:
    """Answer a question, print the result as JSON, or as tables and the paths of its files, and return it."""
    result: Result = answer(question)
    if question.json:
        emit(result)
        return result
    console = new_console()
    print_each(console, result.tables)
    if result.folder is not None:
        show_files(console, result.folder)
    return result


print_whatif = print_replays


def print_list(question: List) -> None:
    """Print the names in one of the catalogues of ``syncline list``, such as networks or methods."""
    from syncline.planner.tables.display import catalogue_table
    from syncline.runs.catalogue import rows_of_catalogue

    rows = rows_of_catalogue(question, report=lambda line: warn([line]))
    if question.json:
        emit({"rows": rows})
    else:
        new_console().print(catalogue_table(question.catalogue, rows))


def print_doctor(question: Doctor) -> None:
    """Print the versions, devices and extras of this machine, and what does not work because a part is missing."""
    from syncline.runs.doctor import finding_tables, findings

    results = findings()
    if question.json:
        emit({"rows": [asdict(finding) for finding in results]})
    else:
        print_each(new_console(), finding_tables(results))


def print_explore(question: Explore) -> None:
    """Serve the local page of ``syncline explore`` until Ctrl-C."""
    if find_spec("nicegui") is None:
        raise SynclineError("explore: needs packages that are not installed; pip install 'syncline[explore]' adds them")
    from syncline.planner.explore import server

    def ready(address: str) -> None:
        say(f"{address}  (Ctrl-C ends it)")
        if question.open:
            webbrowser.open(address)

    server.serve_question(question, ready)


def print_chakra(question: Chakra) -> None:
    """Convert a recorded trace to Chakra execution traces, or back, and print the path of the new folder."""
    from syncline.measure.replaying.chakra.folders import convert

    rows, folder, summary = convert(question)
    if question.json:
        emit({"rows": rows, "folder": str(folder)})
    else:
        say(summary)
