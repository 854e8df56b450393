"""The command that puts stored results on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncline.cli import completion
from syncline.cli.results import RUNS, FolderOption, finished_folder
from syncline.cli.shell import app, examples, say
from syncline.units import format_bytes


@app.command(
    "report",
    rich_help_panel="Results",
    epilog=examples(
        "syncline report compare-text",
        "syncline report runs/compare-text rates -o both.html",
    ),
)
def report_command(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN",
            help="Folders of runs, sweeps, traces, replications; or names in runs/, see 'syncline runs'.",
            autocompletion=completion.runs,
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="The page; a report that is there is replaced.")
    ] = Path("report.html"),
    title: Annotated[str, typer.Option("--title", metavar="TEXT", help="Above it; its names by default.")] = "",
    folder: FolderOption = RUNS,
) -> None:
    """Put results on one page that needs no network: tables, charts, what to know before they are believed."""
    from syncline.api.report import report

    page = report([finished_folder(run, folder) for run in runs], out, title=title)
    say(f"report in {page.path} ({format_bytes(len(page.html.encode()))}), which any browser opens")
