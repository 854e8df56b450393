"""Commands on stored runs: list them, show them again, verify them, compare them, remove them."""

from __future__ import annotations

import math
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import typer

from syncline.api.functions import answer
from syncline.cli.application import Missing
from syncline.cli.shell import emit, new_console, say, show_files, show_tables
from syncline.errors import SpecError
from syncline.files import refuse_changed_files
from syncline.questions.results import Report, Rm, Runs, Same, Show, Verify
from syncline.questions.trainings import Best
from syncline.runs.folders import run_index
from syncline.runs.folders.result_files import MANIFEST, num_files, verify
from syncline.units import format_bytes

RUNS = Path("runs")
"""The folder of results without ``--out``."""


def print_runs(question: Runs) -> None:
    """Print the table of the run folders in a folder."""
    folder = question.folder
    entries = [] if folder == RUNS and not os.path.exists(folder) else run_index.run_entries(folder)
    if question.json:
        emit({"rows": [entry.record() for entry in entries]})
        return
    if not entries:
        say(f"no run folders in {folder}/; 'syncline compare' writes one")
        return
    new_console().print(run_index.runs_table(entries, folder))
    if any(entry.state in run_index.UNFINISHED for entry in entries):
        folder_option = "" if folder == RUNS else f" --folder {shlex.quote(str(folder))}"
        say(f"to remove the remains of killed runs: syncline rm --partial{folder_option}")


def print_show(question: Show) -> None:
    """Print the tables of a stored run again."""
    entry = run_index.finished_run(question.run, question.folder)
    from syncline.api.folders import load  # only here, because it loads much more than the check above

    if entry.kind == "sweep":
        from syncline.cli.trainings import print_best

        print_best(Best(folder=entry.path, columns=question.columns))
        if question.json:
            emit(load(entry.path))
        return
    console = new_console()
    with refuse_changed_files(entry.path):
        result = load(entry.path)
        show_tables(console, result, question.columns)
    show_files(console, entry.path)
    if result.interrupted:
        say("interrupted: these are the results until then")
    if result.failed:
        say(f"failed: {result.failed}")
    if question.json:
        emit(result)


def print_verify(question: Verify) -> None:
    """Print the files of a folder that differ from its manifest."""
    candidates = (Path(question.run), question.folder / question.run)
    path = next((candidate for candidate in candidates if os.path.isfile(candidate / MANIFEST)), None)
    path = path or run_index.finished_folder(question.run, question.folder)
    rows = verify(path)
    for row in rows:
        file = row["file"]
        print(f"{row['state']}: {file if file.isprintable() else repr(file)}")
    if rows:
        files_differ = "1 file differs" if len(rows) == 1 else f"{len(rows):,} files differ"
        say(f"{path}/: {files_differ} from the manifest")
        raise typer.Exit(1)
    say(f"{path}/: {num_files(path):,} files are unchanged since they were written")


def print_rm(question: Rm) -> None:
    """Remove the run folders that the user names, or those of killed runs, and print their paths."""
    if not (question.runs or question.partial):
        raise Missing("run", "run folders, or --partial; see 'syncline runs'")
    folder = question.folder
    entries = [run_index.find_run(name, folder) for name in question.runs or ()]
    if question.partial and os.path.exists(folder):
        entries += [entry for entry in run_index.run_entries(folder) if entry.state in run_index.UNFINISHED]
    entries = list({entry.path: entry for entry in entries}.values())  # each once
    for entry in entries:
        if entry.state == "running":
            raise SpecError("run", str(entry.path), "a folder that no process is writing")
    finished = [entry for entry in entries if entry.state not in run_index.UNFINISHED]
    if finished and not question.yes and not _confirm_removal(finished):
        say("nothing is removed")
        raise typer.Exit(1)
    for entry in entries:
        run_index.remove_run(entry)
        say(f"removed {_entry_text(entry)}")
    if not entries:
        say(f"no remains of killed runs in {folder}/")


def print_same(question: Same) -> None:
    """Print the differences between the results in two folders; end with the exit code 1 if they differ."""
    from syncline.runs.folders.same import compare_folders, comparison_record, comparison_table

    if not (math.isfinite(question.tolerance) and question.tolerance >= 0):
        raise SpecError("--tolerance", question.tolerance, "a number >= 0")
    first, second = run_index.folders_of_one_kind(question)
    comparison = compare_folders(first, second)
    verdict = comparison.verdict(question.tolerance)
    if question.json:
        emit(comparison_record(comparison, first, b=second, tolerance=question.tolerance))
    elif comparison.differences:
        new_console().print(comparison_table(comparison))
    for line in [*comparison.unmatched, *comparison.specs]:
        say(line)
    if comparison.skipped:
        say(f"not compared: {', '.join(comparison.skipped)}")
    limit = f", to {question.tolerance:g}" if verdict == "within tolerance" else ""
    say(f"{verdict}: {comparison.cells:,} cells of {comparison.files:,} files{limit}")
    if verdict == "different":
        raise typer.Exit(1)


def print_report(question: Report) -> None:
    """Write the results in folders on one HTML page, and print its path."""
    page = answer(replace(question, what=[run_index.finished_folder(run, question.folder) for run in question.what]))
    say(f"report in {page.path} ({format_bytes(len(page.html.encode()))}); open it in a browser")


def _confirm_removal(entries: Sequence[run_index.RunEntry]) -> bool:
    """Ask the user whether finished runs may be removed, and return the answer."""
    for entry in entries:
        say(_entry_text(entry))
    if not sys.stdin.isatty():
        raise Missing("--yes", "it, as there is no terminal for the question")
    return typer.confirm("remove?", err=True)


def _entry_text(entry: run_index.RunEntry) -> str:
    """Return a run folder's path, kind, state and size as text."""
    files = "1 file" if entry.files == 1 else f"{entry.files:,} files"
    return f"{entry.path}/ ({entry.kind}, {entry.state}, {files}, {format_bytes(entry.nbytes)})"
