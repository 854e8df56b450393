"""The command that replicates a paper's claims at equal effort."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syncline.checkout import import_replication
from syncline.cli import completion
from syncline.cli.shell import (
    FLAG,
    JsonOption,
    app,
    emit,
    examples,
    new_console,
    print_tables,
    say,
    value_of,
)
from syncline.errors import SpecError
from syncline.interrupts import exit_code

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from syncline.api.replicate import Stage
    from syncline.runs.sweep.listener import Listener


@app.command(
    "replicate",
    rich_help_panel="Train",
    epilog=examples(
        "syncline replicate --list",
        "syncline replicate mt-dao --for 10min --jobs 1",
        "syncline replicate mt-dao --scale gpu --for 8min",
    ),
)
def replicate_command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="A bundled replication, or a YAML file.", autocompletion=completion.replications
        ),
    ] = None,
    scale: Annotated[
        str | None, typer.Option("--scale", metavar="NAME", help="cpu, or another scale that it has: larger, gpu.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="N", help="Of the finals, how many: 5; or which: [3, 4].")
    ] = None,
    max_trainings: Annotated[
        int | None, typer.Option("--most", metavar="N", help="Trainings that are made now; the same again goes on.")
    ] = None,
    time: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="How long trainings are begun now: 10min; the same again goes on."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", metavar="N", min=1, help="Processes side by side; one per core.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Where it is kept; results/replication/NAME by default."),
    ] = None,
    list_bundled: Annotated[bool, typer.Option("--list", metavar=FLAG, help="List the bundled replications.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Test a paper's claims at equal effort: a search for each method, finals on fresh seeds, verdicts."""
    from syncline.api.replicate import replicate
    from syncline.runs.sweep.listener import listening

    console = new_console()
    if list_bundled:
        listed = import_replication("replications.results").known_replications()
        if as_json:
            emit(listed)
        else:
            print_tables(console, listed)
        return
    if name is None:
        raise SpecError("NAME", None, "a replication of 'syncline replicate --list', or a YAML file")

    def on_stage(stage: Stage) -> AbstractContextManager[Listener]:
        say(f"{stage.name}: {stage.trainings:,} training{'s' * (stage.trainings != 1)}")
        return listening(console, say)

    result = replicate(
        name, scale=scale, seeds=value_of("--seeds", seeds), most=max_trainings, time=time, jobs=jobs, out=out,
        on_stage=on_stage, on_expected=lambda left: say(str(left)),
    )  # fmt: skip
    print_tables(console, result)
    console.print(f"results in {result.folder}/", soft_wrap=True)
    if as_json:
        emit(result)
    begin = "interrupted, " if result.interrupted else ""
    if result.told["left"]:
        say(f"{begin}left: {result.told['left']:,} trainings; the same again goes on where this ended")
    elif result.interrupted:
        say("interrupted")
    if result.interrupted:
        raise typer.Exit(exit_code())
