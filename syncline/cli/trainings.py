"""Printing of trainings, sweeps, replications, and measurements on real processes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import typer

from syncline.api.functions import answer
from syncline.checkout import import_replication
from syncline.cli.shell import emit, new_console, print_each, print_json_or_tables, say, show_files, show_tables
from syncline.errors import SpecError, SynclineError
from syncline.files import refuse_changed_files
from syncline.interrupts import exit_code
from syncline.questions.processes import Calibrate, Validate
from syncline.questions.trainings import Best, Replicate, Sweep
from syncline.runs.processes.forked import start_server
from syncline.runs.processes.progress import Listener, listening, progress


def print_run(question: Any) -> None:
    """Make a training, a study, a comparison, a launch or a pipeline, and print its tables and the paths of its files.

    Raises:
        typer.Exit: Ctrl-C ended the run, or one of its processes failed (exit code 1).
    """
    if getattr(question, "jobs", 1) != 1:
        start_server()  # the server of parallel trainings imports modules while this process does
    console = new_console()
    is_watched = question.command != "pipeline"  # a simulation is too short for a line on its progress
    result = answer(question, partial(progress, console)) if is_watched else answer(question)
    try:
        show_tables(console, result, getattr(question, "columns", None))
    finally:
        show_files(console, result.folder)
        console.print(f"show the tables again: syncline show {shlex.quote(str(result.folder))}", soft_wrap=True)
    if question.json:
        emit(result)
    if result.interrupted:
        say("interrupted: what was finished until then is in the folder above")
        raise typer.Exit(exit_code())
    if result.failed:
        say(f"error: {result.failed}; what was measured until then is in the folder above")
        raise typer.Exit(1)


print_compare = print_launch = print_pipeline = print_run


def print_calibrate(question: Calibrate) -> None:
    """Measure this machine, write the cluster file, and print the calibration."""
    console = new_console()
    try:
        result = answer(question, partial(progress, console))
    except SpecError:
        raise
    except SynclineError as error:  # a process died or hung
        say(f"error: {error}")
        raise typer.Exit(1) from None
    print_each(console, result.tables)
    console.print(f"\nresults in {result.folder}", soft_wrap=True)
    console.print(f"use it: syncline project --network {shlex.quote(str(result.folder))}", soft_wrap=True)
    if question.json:
        emit(result)


def print_validate(question: Validate) -> None:
    """Compare predictions with measurements, print the errors, and write each validation into a folder."""
    from syncline.measure.validation.validate import validations

    console, results = new_console(), []
    for result, tables in validations(question, say):
        print_each(console, tables)
        show_files(console, result["folder"])
        results.append(result)
    if question.json:
        rows = [{"spec": result.get("spec")} | row for result in results for row in result["rows"]]
        emit(results[0] if len(results) == 1 else {"validations": results, "rows": rows})


def print_sweep(question: Sweep) -> None:
    """Train the configurations of a sweep that are not finished, and print the ranking of all of them."""
    console = new_console()
    with listening(console, say) as listener:
        result = answer(question, listener)
    errors = [row["error"] for row in result.record["rows"] if row["error"] is not None]
    print_each(console, result.tables)
    _say_effort(result.record)
    if errors:
        say(f"warning: {len(errors):,} of {len(result.rows):,} runs failed, the first with: {errors[0]}")
    folder = str(result.folder)
    console.print(f"results in {folder}/: sweep.json, sweep.parquet, runs/", soft_wrap=True)
    console.print(f"more configurations: syncline best {shlex.quote(folder)}", soft_wrap=True)
    if question.json:
        emit(result)
    if result.interrupted:
        say(f"interrupted: continue with the same command and --out {shlex.quote(folder)}")
        raise typer.Exit(exit_code())
    if errors and len(errors) == len(result.rows):
        raise typer.Exit(1)


def print_best(question: Best) -> None:
    """Print the ranking of the configurations in the folder of a sweep."""
    from syncline.planner.tables.table import chosen_tables
    from syncline.runs.sweep.folder import stored_ranking

    with refuse_changed_files(question.folder):
        record, tables = stored_ranking(question)
        if question.columns is not None:
            tables = chosen_tables(tables, record["rows"], question.columns)
    if question.json:
        emit(record)
        return
    if record["rows"]:
        print_each(new_console(), tables)
    _say_effort(record)
    if record["finished"] < record["runs"]:
        say(f"{record['finished']:,} of {record['runs']:,} runs are finished")


def _say_effort(record: Mapping[str, Any]) -> None:
    """Print the line on the trainings that each method of a sweep had, if they were counted."""
    from syncline.runs.sweep.ranking import effort_line

    line = effort_line(record["effort"])
    if line:
        say(line)


def print_replicate(question: Replicate) -> None:
    """Make trainings of a replication, and print the verdicts on its claims; or list the bundled replications."""
    if question.list:
        listed = import_replication("replications.results").known_replications()
        print_json_or_tables(question, listed, lambda: listed.tables)
        return
    if question.name is None:
        raise SpecError("NAME", None, "a replication of 'syncline replicate --list', or a YAML file")

    console = new_console()

    def on_stage(stage: Any) -> AbstractContextManager[Listener]:
        say(f"{stage.name}: {stage.trainings:,} {'training' if stage.trainings == 1 else 'trainings'}")
        return listening(console, say)

    result = answer(replace(question, on_stage=on_stage, on_expected=lambda left: say(str(left))))
    print_each(console, result.tables)
    console.print(f"results in {result.folder}/", soft_wrap=True)
    if question.json:
        emit(result)
    states = ["interrupted"] if result.interrupted else []
    if result.record["left"]:
        states.append(f"left: {result.record['left']:,} trainings; run the same command to continue")
    if states:
        say(", ".join(states))
    if result.interrupted:
        raise typer.Exit(exit_code())
