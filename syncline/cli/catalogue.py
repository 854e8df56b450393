"""The command that lists the names that specs and options accept."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from syncline.cli import completion
from syncline.cli.shell import JsonOption, app, emit, examples, new_console, warn
from syncline.errors import SpecError, one_of


@app.command(
    "list",
    rich_help_panel="What there is",
    epilog=examples("syncline list specs", "syncline list methods --model olmo-1b --workers 64"),
)
def list_(
    catalogue: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help=f"{', '.join(completion.WHAT[:-1])} or {completion.WHAT[-1]}.",
            autocompletion=completion.among(*completion.WHAT),
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="For whose tensors 'list methods' counts bytes; gpt-160m by default.",
            autocompletion=completion.models,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="P", min=1, help="For how many workers 'list methods' counts; 8 by default."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List what a spec or an option can name: networks, methods, specs, ..."""
    from syncline.runs.catalogue import CATALOGUES
    from syncline.specs import model as model_of

    if catalogue not in CATALOGUES:
        raise SpecError("list", catalogue, one_of(CATALOGUES, catalogue))
    options: dict[str, Any] = {"shape": model and model_of(model, "--model"), "workers": workers}
    arguments = {name: value for name, value in options.items() if value is not None}
    if catalogue != "methods":
        for name, value in (("model", model), ("workers", workers)):
            if value is not None:
                raise SpecError(f"--{name}", value, f"no {name}, as a list of {catalogue} depends on none")
    rows = CATALOGUES[catalogue](**arguments, report=lambda line: warn([line]))
    if as_json:
        emit({"rows": rows})
        return
    from syncline.planner.tables import display

    new_console().print(display.catalogue_table(catalogue, rows))
