"""The command ``syncline same``, which tests whether two folders have the same results."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from syncline.cli.results import RUNS, FolderOption, RunArgument, finished_folder
from syncline.cli.shell import JsonOption, app, emit, examples, new_console, say
from syncline.errors import SpecError


@app.command(
    "same",
    rich_help_panel="Results",
    epilog=examples(
        "syncline same runs/digits-ddp runs/digits-ddp-2", "syncline same digits-ddp other --tolerance 1e-6"
    ),
)
def same_command(
    a: RunArgument,
    b: RunArgument,
    tolerance: Annotated[
        float,
        typer.Option("--tolerance", metavar="T", help="The largest |a - b| / max(|a|, |b|) that counts as equal."),
    ] = 0.0,
    folder: FolderOption = RUNS,
    as_json: JsonOption = False,
) -> None:
    """Compare the results in two folders: bit-equal, equal to so much, or different, and where first."""
    from syncline.runs.folders.run_index import run_entry
    from syncline.runs.folders.same import compare_folders, comparison_record, comparison_table

    if not (math.isfinite(tolerance) and tolerance >= 0):
        raise SpecError("--tolerance", tolerance, "a number >= 0")
    first, second = finished_folder(a, folder), finished_folder(b, folder)
    kinds = [entry.kind if (entry := run_entry(path)) else "replication" for path in (first, second)]
    if kinds[0] != kinds[1]:
        raise SpecError("run", b, f"a folder of kind {kinds[0]}, as {a} is; this is one of kind {kinds[1]}")
    comparison = compare_folders(first, second)
    verdict = comparison.verdict(tolerance)
    if as_json:
        emit(comparison_record(comparison, first, second, tolerance))
    elif comparison.differences:
        new_console().print(comparison_table(comparison, tolerance))
    for line in [*comparison.unmatched, *comparison.specs]:
        say(line)
    if comparison.skipped:
        say(f"not compared: {', '.join(comparison.skipped)}")
    counts = f"{comparison.cells:,} cells of {comparison.files:,} files"
    say(f"{verdict}: {counts}" + (f", to {tolerance:g}" if verdict == "within tolerance" else ""))
    if verdict == "different":
        raise typer.Exit(1)
