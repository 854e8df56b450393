"""Commands for stored runs: list them, show them again, verify them, remove them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syncline.cli import completion
from syncline.cli.shell import (
    FLAG,
    ColumnsOption,
    JsonOption,
    app,
    emit,
    examples,
    new_console,
    say,
    show_files,
    show_tables,
)
from syncline.cli.usage import Missing
from syncline.errors import SpecError
from syncline.files import refuse_changed_files
from syncline.units import format_bytes

if TYPE_CHECKING:
    from syncline.runs.folders.run_index import RunEntry

RUNS = Path("runs")
"""The folder of results without ``--out``."""

RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="A run's folder, or its name in runs/; see 'syncline runs'.", autocompletion=completion.runs
    ),
]

FolderOption = Annotated[
    Path, typer.Option("--folder", metavar="FOLDER", help="Where run folders are, for a RUN that is a name.")
]


@app.command("runs", rich_help_panel="Results", epilog=examples("syncline runs", "syncline runs results --json"))
def runs_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where run folders are.")] = RUNS,
    as_json: JsonOption = False,
) -> None:
    """List run folders: what was run when, and whether it is whole."""
    from syncline.runs.folders.run_index import LEFT, run_entries
    from syncline.runs.folders.run_index_table import runs_table

    entries = [] if folder == RUNS and not os.path.exists(folder) else run_entries(folder)
    if as_json:
        emit({"rows": [entry.record() for entry in entries]})
        return
    if not entries:
        say(f"no run folders in {folder}/; 'syncline compare' writes one")
        return
    new_console().print(runs_table(entries, folder))
    if any(entry.state in LEFT for entry in entries):
        say(f"what was killed is removed by: syncline rm --partial{_elsewhere(folder)}")


@app.command(
    "show",
    rich_help_panel="Results",
    epilog=examples("syncline show compare-text", "syncline show runs/compare-text --json"),
)
def show_command(
    run: RunArgument,
    folder: FolderOption = RUNS,
    columns: ColumnsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the tables of a run again, as the command did that made it. Nothing is run."""
    from syncline.runs.folders.run_index import find_run

    entry = find_run(run, folder)
    if entry.kind == "sweep":
        from syncline.api.sweeps import read_sweep_result
        from syncline.cli.sweeps import best_command

        best_command(entry.path, columns=columns)
        if as_json:
            emit(read_sweep_result(entry.path))
        return
    _need_finished(run, entry)
    from syncline.api.folders import load

    console = new_console()
    with refuse_changed_files(entry.path):
        result = load(entry.path)
        show_tables(console, result, columns)
    show_files(console, entry.path)
    if result.interrupted:
        say("interrupted: these are the results until then")
    if result.failed:
        say(f"failed: {result.failed}")
    if as_json:
        emit(result)


@app.command(
    "verify",
    rich_help_panel="Results",
    epilog=examples("syncline verify compare-text", "syncline verify runs/compare-text"),
)
def verify_command(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A result folder, or the name of a run in runs/.", autocompletion=completion.runs
        ),
    ],
    folder: FolderOption = RUNS,
) -> None:
    """Compare a result folder with the hashes in its manifest: which files are missing, changed or added.

    Exit code 1 if a file differs, 2 if the folder has no manifest.
    """
    from syncline.runs.folders.manifest import MANIFEST, num_files, verify

    with_manifest = (path for path in (Path(run), folder / run) if os.path.isfile(path / MANIFEST))
    path = next(with_manifest, None) or finished_folder(run, folder)
    rows = verify(path)
    for row in rows:
        print(f"{row['state']}: {row['file'] if row['file'].isprintable() else repr(row['file'])}")
    if rows:
        differ = "file differs" if len(rows) == 1 else "files differ"
        say(f"{path}/: {len(rows):,} {differ} from the manifest")
        raise typer.Exit(1)
    say(f"{path}/: {num_files(path):,} files are as they were written")


@app.command(
    "rm",
    rich_help_panel="Results",
    epilog=examples("syncline rm --partial", "syncline rm compare-text compare-text-2 --yes"),
)
def rm_command(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN", help="Run folders, or their names in runs/.", autocompletion=completion.runs),
    ] = None,
    partial: Annotated[
        bool,
        typer.Option(
            "--partial", metavar=FLAG, help="All that killed processes left in the folder; never of one that lives."
        ),
    ] = False,
    folder: FolderOption = RUNS,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", metavar=FLAG, help="Do not ask about runs that are whole.")
    ] = False,
) -> None:
    """Remove run folders, and what killed runs left."""
    from syncline.runs.folders.run_index import LEFT, find_run, remove_run, run_entries

    if not (runs or partial):
        raise Missing("run", "run folders, or --partial; see 'syncline runs'")
    chosen = {entry.path: entry for entry in (find_run(name, folder) for name in runs or ())}
    if partial and os.path.exists(folder):
        chosen |= {entry.path: entry for entry in run_entries(folder) if entry.state in LEFT}
    for entry in chosen.values():
        if entry.state == "running":
            raise SpecError("run", str(entry.path), "a folder that no process is writing")
    finished = [entry for entry in chosen.values() if entry.state not in LEFT]
    if finished and not yes and not _agreed(finished):
        say("nothing is removed")
        raise typer.Exit(1)
    for entry in chosen.values():
        remove_run(entry)
        say(f"removed {_entry_text(entry)}")
    if not chosen:
        say(f"nothing that killed runs left in {folder}/")


def finished_folder(run: str, folder: Path) -> Path:
    """Return the folder of a finished run, of a sweep, or of a replication.

    Raises:
        SpecError: there is no such folder, or a process is writing it, or the run was killed.
    """
    from syncline.runs.folders.run_index import find_run, is_replication

    if is_replication(Path(run)):
        return Path(run)
    entry = find_run(run, folder)
    if entry.kind != "sweep":
        _need_finished(run, entry)
    return entry.path


def _need_finished(run: str, entry: RunEntry) -> None:
    from syncline.runs.folders.run_index import LEFT

    if entry.state in (*LEFT, "running"):
        expected = {"running": "a run that is finished; this one is being written"}.get(
            entry.state, f"a run that was finished; this one was killed, and what it left is in {entry.path}/"
        )
        raise SpecError("run", run, expected)


def _agreed(entries: list[RunEntry]) -> bool:
    """Return whether the user agrees to remove the runs."""
    for entry in entries:
        say(_entry_text(entry))
    if not sys.stdin.isatty():
        raise Missing("--yes", "it, as there is no terminal to ask at")
    return typer.confirm("remove?", err=True)


def _entry_text(entry: RunEntry) -> str:
    files = "1 file" if entry.files == 1 else f"{entry.files:,} files"
    return f"{entry.path}/ ({entry.kind}, {entry.state}, {files}, {format_bytes(entry.nbytes)})"


def _elsewhere(folder: Path) -> str:
    import shlex

    return "" if folder == RUNS else f" --folder {shlex.quote(str(folder))}"
