"""Printing that all commands share: lines, JSON, tables, the files of a result."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from syncline.cli.commands import PLAIN
from syncline.errors import SpecError
from syncline.interrupts import exit_code
from syncline.units import format_seconds

if TYPE_CHECKING:
    from rich.console import Console, Group

    from syncline.api.result import Result

MOST_COLUMNS = 1000
"""Largest width of a terminal; drawing a box of a thousand million columns would not end."""


def check_width() -> None:
    """Remove ``COLUMNS`` from the environment unless it is a width in which something can be printed."""
    width = os.environ.get("COLUMNS", "").strip()
    if not (width.isdecimal() and len(width) < 5 and 0 < int(width) <= MOST_COLUMNS):
        os.environ.pop("COLUMNS", None)


def new_console() -> Console:
    """Return a console for progress and tables on standard error; standard output is for JSON."""
    from rich.console import Console

    # A pipe or a log has no width unless COLUMNS gives one: print whole tables instead of folding them at 80 columns.
    piped = not sys.stderr.isatty() and "COLUMNS" not in os.environ
    # Users write paths, names and labels, so "[red]" and ":smile:" in them are plain text.
    return Console(
        stderr=True, width=160 if piped else None, color_system=None if PLAIN else "auto", markup=False, emoji=False,
        highlight=False,
    )  # fmt: skip


def say(line: str) -> None:
    """Print a line for people on standard error."""
    print(line, file=sys.stderr)


def warn(lines: list[str]) -> None:
    """Print each line as a warning."""
    for line in lines:
        say(f"warning: {line}")


def tables_of(result: Result, columns: str | None = None) -> list[Group]:
    """Return the result's tables, with other columns if ``columns`` is given.

    Raises:
        SpecError: there is no such column.
    """
    if columns is None:
        return result.tables
    from syncline.planner.tables.columns import chosen_tables

    return chosen_tables(result.tables, result.rows, columns)


def emit(result: Result | dict[str, Any]) -> None:
    """Print the JSON object; numbers that JSON lacks become null."""
    from syncline.runs.folders.result_files import plain

    print(json.dumps(plain(result) if isinstance(result, dict) else result.json(), indent=1), flush=True)


def print_each(console: Console, tables: Iterable[Group]) -> None:
    """Print the tables one below the other."""
    for table in tables:
        console.print(table)


MOST_FILES = 20
"""Largest number of files of a folder that are listed one by one."""


def show_files(console: Console, folder: str | Path) -> None:
    """Print the paths of the result's files, one per line, so that they can be copied."""
    root = Path(folder)
    console.print(f"\nresults in {root}/", soft_wrap=True)
    for inside in sorted(root.iterdir()):
        files = sorted(path for path in inside.rglob("*") if path.is_file()) if inside.is_dir() else [inside]
        if len(files) > MOST_FILES:
            console.print(f"  {inside}/  ({len(files)} files)", soft_wrap=True)
            continue
        for path in files:
            note = "  (opens in ui.perfetto.dev)" if path.name == "trace.json" else ""
            console.print(f"  {path}{note}", soft_wrap=True)


def show_tables(console: Console, result: Result, columns: str | None = None) -> None:
    """Print the tables and the warnings of a run.

    Raises:
        SpecError: there is no such column; the function still prints the run's tables first.
    """
    try:
        tables, wrong = tables_of(result, columns), None
    except SpecError as error:
        tables, wrong = result.tables, error
    print_each(console, tables)
    if not tables:
        console.print(str(result), soft_wrap=True)
    step_s = result.record.get("measured_step_s")
    if step_s is not None:
        console.print(f"compute: {format_seconds(step_s)} for a worker's step, measured here before the training")
    for row in result.rows:
        if row.get("diverged_at") is not None and row["network"] == result.rows[0]["network"]:
            which = "".join(f", {name} {row[name]}" for name in ("seed", "stages") if name in row)
            warn([f"{row['method']}{which}: diverged at step {row['diverged_at']}"])
    if wrong is not None:
        raise wrong


def show_result(console: Console, result: Result, question: Any) -> None:
    """Print a result with a folder: tables, warnings, the paths of files, and JSON if the question asks for it.

    Raises:
        typer.Exit: with 1 if a process failed; after Ctrl-C with its exit code.
    """
    assert result.folder is not None
    try:
        show_tables(console, result, getattr(question, "columns", None))
    finally:
        show_files(console, result.folder)
        console.print(f"tables again: syncline show {shlex.quote(str(result.folder))}", soft_wrap=True)
    if question.json:
        emit(result)
    if result.interrupted:
        say("interrupted: what was finished until then is in the folder above")
        raise typer.Exit(exit_code())
    if result.failed:
        say(f"error: {result.failed}; what was measured until then is in the folder above")
        raise typer.Exit(1)
