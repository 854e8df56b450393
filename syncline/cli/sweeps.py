"""Printing of sweeps and of their rankings."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import typer

from syncline.cli.shell import emit, new_console, print_each, say, warn
from syncline.files import refuse_changed_files
from syncline.interrupts import exit_code

if TYPE_CHECKING:
    from rich.console import Group

    from syncline.questions.best import Best
    from syncline.questions.sweep import Sweep


def print_sweep(question: Sweep) -> None:
    """Print the ranking of a sweep's configurations, which are trained unless they are finished."""
    from syncline.api.sweeps import answer_sweep
    from syncline.runs.sweep.listener import listening
    from syncline.runs.sweep.ranking import effort_line

    console = new_console()
    with listening(console, say) as listener:
        result = answer_sweep(question, listener)
    failed = [row for row in result.told["rows"] if row["error"] is not None]
    print_each(console, result.tables)
    _say_if_any(effort_line(result.told["effort"]))
    if failed:
        warn([f"{len(failed):,} of {len(result.rows):,} runs failed, the first with: {failed[0]['error']}"])
    folder = str(result.told["folder"])
    console.print(f"results in {folder}/: sweep.json, sweep.parquet, runs/", soft_wrap=True)
    console.print(f"more of the ranking: syncline best {shlex.quote(folder)}", soft_wrap=True)
    if question.json:
        emit(result)
    if result.interrupted:
        say(f"interrupted: the same again with --out {shlex.quote(folder)} goes on where this ended")
        raise typer.Exit(exit_code())
    if failed and len(failed) == len(result.rows):
        raise typer.Exit(1)


def print_best(question: Best) -> None:
    """Print the ranking of the configurations in a sweep's folder."""
    from syncline.runs.sweep.folder import read_sweep
    from syncline.runs.sweep.ranking import effort, effort_line, ranked, ranking_table, with_equal_effort

    with refuse_changed_files(question.folder):
        stored = read_sweep(question.folder)
        rows = with_equal_effort(stored.rows, stored.requests) if question.equal_effort else stored.rows
        names = {row["run"] for row in rows}
        tuned = effort(run for run in stored.requests if run["run"] in names)
        records = ranked(rows, question.by)
        table = ranking_table(records, question.by, stored.paths, question.top, name=stored.name)
        tables: list[Group] = [table]
        if question.columns is not None:
            from syncline.planner.tables.column_selection import chosen_tables

            tables = chosen_tables(tables, records, question.columns)
    if question.json:
        emit({"rows": records, "effort": tuned, "runs": len(stored.requests), "finished": len(stored.rows)})
        return
    if records:
        print_each(new_console(), tables)
    _say_if_any(effort_line(tuned))
    if len(stored.rows) < len(stored.requests):
        say(f"{len(stored.rows):,} of {len(stored.requests):,} runs are finished")


def _say_if_any(line: str) -> None:
    if line:
        say(line)
