"""The command that compares the papers' numbers with those of Syncline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncline.checkout import import_replication
from syncline.cli import completion
from syncline.cli.shell import JsonOption, app, emit, examples, new_console, print_tables, say


@app.command(
    "reproduce",
    rich_help_panel="What there is",
    epilog=examples(
        "syncline reproduce",
        "syncline reproduce curvadion",
        "syncline reproduce demo --json",
        "syncline reproduce --plot docs/figures",
    ),
)
def reproduce_command(
    paper: Annotated[
        str | None,
        typer.Argument(
            metavar="PAPER",
            help="curvadion, demo, mt-dao, basis-rotation or lion-cub; all of them by default.",
            autocompletion=completion.among(*completion.PAPERS),
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FOLDER", help="Draw a summary of each paper: summary_PAPER.png.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compute the numbers of the papers anew: where they agree, where they differ, and where that is told."""
    from syncline.api.papers import reproduce

    drawn = import_replication("summaries").save_summaries(plot, paper) if plot else []
    result = reproduce(paper)
    if as_json:
        emit(result)
    else:
        print_tables(new_console(), result)
        for file in drawn:
            say(f"figure in {file}")
