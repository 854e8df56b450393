"""The command that trains many configurations, and the one that ranks them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syncline.cli.shell import (
    FLAG,
    ColumnsOption,
    JsonOption,
    SetOption,
    app,
    emit,
    examples,
    new_console,
    overridden,
    print_each,
    say,
    spec_argument,
    value_of,
    warn,
)
from syncline.files import refuse_changed_files
from syncline.interrupts import exit_code

if TYPE_CHECKING:
    from rich.console import Group

FOLDER_HELP = "Where runs are kept; the same again goes on there. runs/NAME-sweep by default."


@app.command(
    "sweep",
    rich_help_panel="Train",
    epilog=examples(
        "syncline sweep rosenbrock-mt-dao --grid method.lr=1e-3,3e-3 --out rates",
        "syncline sweep rosenbrock-mt-dao --grid network=10gbe,wan --seeds 3",
        "syncline best rates",
    ),
)
def sweep_command(
    spec: Annotated[str, spec_argument("run", "compare")],
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid", metavar="FIELD=VALUES", help="Values of a field: method.lr=1e-3,3e-3, or a YAML list; repeatable."
        ),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="N", help="How many: 5; or which: [3, 4]. The spec's by default.")
    ] = None,
    overrides: SetOption = None,
    tune: Annotated[
        list[str] | None,
        typer.Option(
            "--tune", metavar="FIELD=LOW..HIGH", help="A field to search over: method.lr=1e-4..1e-1; repeatable."
        ),
    ] = None,
    search: Annotated[str | None, typer.Option("--search", metavar="NAME", help="Who searches: optuna.")] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", metavar="N", help="Of the search, for each combination of the grids.")
    ] = None,
    equal_effort: Annotated[
        bool,
        typer.Option(
            "--equal-effort", metavar=FLAG, help="As many configurations of each method as there are of the fewest."
        ),
    ] = False,
    jobs: Annotated[
        int | None, typer.Option("--jobs", metavar="N", min=1, help="Processes side by side; one per core.")
    ] = None,
    dask: Annotated[
        str | None, typer.Option("--dask", metavar="ADDRESS", help="Of a dask scheduler, whose workers train instead.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FOLDER", help=FOLDER_HELP)] = None,
    as_json: JsonOption = False,
) -> None:
    """Train every combination of values, with several seeds each. What is finished is kept and never run twice."""
    from syncline.runs.sweep.listener import listening
    from syncline.runs.sweep.ranking import ranked
    from syncline.runs.sweep.search import Tuned
    from syncline.runs.sweep.sweep import sweep
    from syncline.runs.sweep.tables import effort_line, ranking_table
    from syncline.specs.grid import Grid

    grids = [Grid.parse(text) for text in grid or ()]
    changes, console = overridden(overrides), new_console()
    with listening(console, say) as listener:
        result = sweep(
            spec, grids, seeds=value_of("--seeds", seeds), overrides=changes, out=out, jobs=jobs,
            dask=dask, search=search, tune=[Tuned.parse(text) for text in tune or ()], trials=trials,
            equal_effort=equal_effort, listener=listener,
        )  # fmt: skip
    failed = [row for row in result.rows if row["error"] is not None]
    if result.rows:
        console.print(ranking_table(ranked(result.rows), "loss", result.paths, name=result.name))
    _say_if_any(effort_line(result.effort))
    if failed:
        warn([f"{len(failed):,} of {len(result.rows):,} runs failed, the first with: {failed[0]['error']}"])
    console.print(f"results in {result.folder}/: sweep.json, sweep.parquet, runs/", soft_wrap=True)
    console.print(f"more of the ranking: syncline best {shlex.quote(result.folder)}", soft_wrap=True)
    if as_json:
        emit(result.json())
    if result.interrupted:
        say(f"interrupted: the same again with --out {shlex.quote(result.folder)} goes on where this ended")
        raise typer.Exit(exit_code())
    if failed and len(failed) == len(result.rows):
        raise typer.Exit(1)


@app.command(
    "best", rich_help_panel="Train", epilog=examples("syncline best rates", "syncline best rates --by wall_clock_s")
)
def best_command(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A sweep's folder, also of one that goes on or was killed.")
    ],
    ranking_field: Annotated[
        str, typer.Option("--by", metavar="FIELD", help="A number of the rows; less is better.")
    ] = "loss",
    top: Annotated[int, typer.Option("--top", metavar="N", min=1, help="How many configurations are shown.")] = 20,
    equal_effort: Annotated[
        bool,
        typer.Option(
            "--equal-effort", metavar=FLAG, help="Rank as many configurations of each method as the least tuned has."
        ),
    ] = False,
    columns: ColumnsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rank the configurations of a sweep by the median over their seeds, with the lowest and the highest."""
    from syncline.runs.sweep.folder import read_sweep
    from syncline.runs.sweep.ranking import effort, ranked, with_equal_effort
    from syncline.runs.sweep.tables import effort_line, ranking_table

    with refuse_changed_files(folder):
        stored = read_sweep(folder)
        rows = with_equal_effort(stored.rows, stored.asked) if equal_effort else stored.rows
        names = {row["run"] for row in rows}
        tuned = effort((run["method"], run["training"]) for run in stored.asked if run["run"] in names)
        records = ranked(rows, ranking_field)
        tables: list[Group] = [ranking_table(records, ranking_field, stored.paths, top, name=stored.about["name"])]
        if columns is not None:
            from syncline.planner.tables.column_selection import chosen_tables

            tables = chosen_tables(tables, records, columns)
    if as_json:
        emit({"rows": records, "effort": tuned, "runs": len(stored.asked), "finished": len(stored.rows)})
        return
    if records:
        print_each(new_console(), tables)
    _say_if_any(effort_line(tuned))
    if len(stored.rows) < len(stored.asked):
        say(f"{len(stored.rows):,} of {len(stored.asked):,} runs are finished")


def _say_if_any(line: str) -> None:
    if line:
        say(line)
