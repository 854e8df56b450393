"""Output that all commands share: lines and tables on standard error, JSON on standard output, paths of files."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.cli.commands import WITHOUT_COLORS
from syncline.errors import SpecError
from syncline.units import format_seconds

if TYPE_CHECKING:
    from rich.console import Console, Group

    from syncline.api.result import Result

MOST_COLUMNS = 1000
"""Largest accepted width of a terminal in characters; drawing a table of 10^9 columns would not end."""


def check_width() -> None:
    """Remove the variable ``COLUMNS`` from the environment unless it is a usable width of a terminal."""
    width = os.environ.get("COLUMNS", "").strip()
    if not (width.isdecimal() and len(width) < 5 and 0 < int(width) <= MOST_COLUMNS):
        os.environ.pop("COLUMNS", None)


def new_console() -> Console:
    """Return a console that prints progress and tables to standard error; standard output is for JSON."""
    from rich.console import Console

    # A pipe or a log has no width unless COLUMNS gives one: print whole tables instead of folding them at 80 columns.
    piped = not sys.stderr.isatty() and "COLUMNS" not in os.environ
    # Users write paths, names and labels, so "[red]" and ":smile:" in them are plain text.
    return Console(
        stderr=True, width=160 if piped else None, color_system=None if WITHOUT_COLORS else "auto", markup=False,
        emoji=False, highlight=False,
    )  # fmt: skip


def say(line: str) -> None:
    """Print a line for people on standard error."""
    print(line, file=sys.stderr)


def tables_of(result: Result, columns: str | None = None) -> list[Group]:
    """Return the result's tables, with other columns if ``columns`` is given."""
    if columns is None:
        return result.tables
    from syncline.planner.tables.table import chosen_tables

    return chosen_tables(result.tables, result.rows, columns)


def emit(result: Result | dict[str, Any]) -> None:
    """Print a result as one JSON object to standard output; infinite numbers and NaN become null."""
    from syncline.runs.folders.result_files import json_value

    print(json.dumps(json_value(result) if isinstance(result, dict) else result.json(), indent=1), flush=True)


def print_each(console: Console, tables: Iterable[Group]) -> None:
    """Print tables one below another on the console."""
    for table in tables:
        console.print(table)


def print_json_or_tables(question: Any, record: Result | dict[str, Any], tables: Callable[[], Iterable[Group]]) -> None:
    """Print a result as JSON if the question asks for it, else as the tables that a function makes."""
    if question.json:
        emit(record)
    else:
        print_each(new_console(), tables())


MOST_FILES = 20
"""Largest number of files of a folder that are listed one by one."""


def show_files(console: Console, folder: str | Path) -> None:
    """Print the path of each file in a result's folder on a line, so that users can copy it."""
    root = Path(folder)
    console.print(f"\nresults in {root}/", soft_wrap=True)
    for child in sorted(root.iterdir()):
        files = sorted(path for path in child.rglob("*") if path.is_file()) if child.is_dir() else [child]
        if len(files) > MOST_FILES:
            console.print(f"  {child}/  ({len(files)} files)", soft_wrap=True)
            continue
        for path in files:
            note = "  (opens in ui.perfetto.dev)" if path.name == "trace.json" else ""
            console.print(f"  {path}{note}", soft_wrap=True)


def show_tables(console: Console, result: Result, columns: str | None = None) -> None:
    """Print the tables of a run, the seconds of a step if they were measured, and a warning for each divergence.

    Args:
        result: the run's result.
        columns: names of columns of ``--columns``; None for the command's own columns.

    Raises:
        SpecError: there is no such column. The command's own columns are printed first.
    """
    column_error = None
    try:
        tables = tables_of(result, columns)
    except SpecError as error:
        tables, column_error = result.tables, error
    print_each(console, tables)
    if not tables:
        console.print(str(result), soft_wrap=True)
    step_s = result.record.get("measured_step_s")
    if step_s is not None:
        console.print(f"compute: {format_seconds(step_s)} for a worker's step, measured here before the training")
    for row in result.rows:
        # The network does not change a training, so the rows of one network have all warnings.
        if row.get("diverged_at") is not None and row["network"] == result.rows[0]["network"]:
            labels = "".join(f", {name} {row[name]}" for name in ("seed", "stages") if name in row)
            say(f"warning: {row['method']}{labels}: diverged at step {row['diverged_at']}")
    if column_error is not None:  # raised last: a wrong column must not hide the results of a long run
        raise column_error
