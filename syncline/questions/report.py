"""The question of ``syncline report``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from syncline.questions import shared
from syncline.questions.declare import REQUIRED, SHELL, Question, option


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
