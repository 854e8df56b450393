"""The questions about stored results: ``runs``, ``show``, ``verify``, ``rm``, ``same``, ``report``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from syncline.questions import shared
from syncline.questions.declare import REQUIRED, SHELL, Question, option


class Runs(Question, panel=shared.RESULTS, examples=("syncline runs", "syncline runs results --json")):
    """List the run folders: command, date, and whether each run is complete."""

    folder: Path = shared.folder(help="Folder of the run folders.", positional=True)
    json: bool = shared.json()


class Show(
    Question, panel=shared.RESULTS, examples=("syncline show compare-text", "syncline show runs/compare-text --json")
):
    """Print the tables of a finished run again. Nothing is run."""

    run: str = shared.run_name(default=REQUIRED)
    folder: Path = shared.folder()
    columns: str | None = shared.columns()
    json: bool = shared.json()


class Verify(
    Question, panel=shared.RESULTS, examples=("syncline verify compare-text", "syncline verify runs/compare-text")
):
    """Compare a result folder with the hashes in its manifest: missing, changed and added files.

    The exit code is 1 if a file differs, and 2 if the folder has no manifest.
    """

    run: str = shared.run_name(help="Result folder, or the name of a run in runs/.", default=REQUIRED)
    folder: Path = shared.folder()


class Rm(
    Question, panel=shared.RESULTS, examples=("syncline rm --partial", "syncline rm compare-text compare-text-2 --yes")
):
    """Remove run folders and the remains of killed runs."""

    runs: Sequence[str] | None = shared.run_name(help="Run folders, or their names in runs/.", repeatable=True)
    partial: bool = option(
        "Remove all remains of killed processes in the folder, but not those of running processes.", False
    )
    folder: Path = shared.folder()
    yes: bool = option("Remove complete runs without confirmation.", False, flag="--yes -y")


class Same(
    Question,
    panel=shared.RESULTS,
    examples=("syncline same runs/digits-ddp runs/digits-ddp-2", "syncline same digits-ddp other --tolerance 1e-6"),
):
    """Compare the results in two folders: bit-equal, equal within a tolerance, or different, with the difference."""

    a: str = shared.run_name(default=REQUIRED)
    b: str = shared.run_name(default=REQUIRED)
    tolerance: float = option("Largest |a - b| / max(|a|, |b|) that counts as equal.", 0.0, metavar="T")
    folder: Path = shared.folder()
    json: bool = shared.json()


class Report(
    Question,
    panel=shared.RESULTS,
    examples=("syncline report compare-text", "syncline report runs/compare-text rates -o both.html"),
):
    """Write results to one HTML page that works offline: tables, charts and caveats.

    Returns:
        The page.

    Raises:
        SynclineError: a folder does not exist, is not a result's, or is incomplete; or the file to replace is no
            report.
    """

    returns = "ReportPage"

    what: Any = option(
        "Folders of runs, sweeps, traces or replications; or names in runs/ (see 'syncline runs').", REQUIRED,
        description="Results, or the folders of results; one or several.", in_order=True, metavar="RUN",
        positional=True, repeatable=True, completion="runs",
    )  # fmt: skip
    out: str | Path | None = option(
        "HTML file to write; an existing report is replaced.",
        description="HTML file to write; an existing report is replaced. By default no file is written.",
        in_order=True, flag="--out -o", metavar="FILE", shell_default=Path("report.html"),
    )  # fmt: skip
    title: str = option("Title of the page; by default the names of the runs.", "", metavar="TEXT")
    folder: Path = shared.folder(place=SHELL)
