"""The command that prints papers' numbers beside ours."""

from __future__ import annotations

from typing import Annotated

import typer

from syncline.commands import completion
from syncline.commands.shell import JsonOption, app, emit, examples, new_console, print_tables


@app.command(
    "reproduce",
    rich_help_panel="What there is",
    epilog=examples("syncline reproduce", "syncline reproduce curvadion", "syncline reproduce demo --json"),
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
    as_json: JsonOption = False,
) -> None:
    """Compute the numbers of the papers anew: where they agree, where they differ, and where that is told."""
    from syncline.api.papers import reproduce

    result = reproduce(paper)
    if as_json:
        emit(result)
    else:
        print_tables(new_console(), result)
