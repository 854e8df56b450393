"""The command that predicts losses by published fits."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from syncline.cli.projected import ExtrapolateOption
from syncline.cli.shell import JsonOption, app, emit, examples, new_console, print_tables, value_of


@app.command(
    "loss",
    rich_help_panel="The clock alone",
    epilog=examples(
        "syncline loss 1.3B --replicas 2,4,8",
        "syncline loss 7B --tokens 280B --method diloco --period 100 --extrapolate",
        "syncline loss --target-loss 2.4 --method diloco",
    ),
)
def loss_command(
    parameters: Annotated[
        str | None, typer.Argument(metavar="[N,...]", help="Parameters of the model: 1.3B; none: a target's model.")
    ] = None,
    method: Annotated[
        str | None, typer.Option("--method", metavar="NAME,...", help="By default ddp-adam and diloco.")
    ] = None,
    tokens: Annotated[
        str | None, typer.Option("--tokens", metavar="D", help="Of the whole training; by default 20 per parameter.")
    ] = None,
    replicas: Annotated[str, typer.Option("--replicas", metavar="M,...", help="Of a method that has them.")] = "2",
    period: Annotated[
        str | None, typer.Option("--period", metavar="H,...", help="Steps; by default what the fit has seen.")
    ] = None,
    batch_tokens: Annotated[
        str | None, typer.Option("--batch-tokens", metavar="B", help="Of a step of all replicas; by default the best.")
    ] = None,
    fit: Annotated[str | None, typer.Option("--fit", metavar="NAME", help="Only this one; all: every one.")] = None,
    target_loss: Annotated[
        float | None, typer.Option("--target-loss", metavar="L", help="What it takes: tokens, or a model.")
    ] = None,
    extrapolate: ExtrapolateOption = False,
    as_json: JsonOption = False,
) -> None:
    """Say the loss of a training by published fits, with bounds; beyond what they have seen only if asked to."""
    from syncline.api.losses import loss

    chosen_methods: dict[str, Any] = {} if method is None else {"method": [name.strip() for name in method.split(",")]}
    result = loss(
        parameters=None if parameters is None else parameters.split(","),
        tokens=tokens,
        replicas=value_of("--replicas", replicas, several=True),
        period=value_of("--period", period, several=True),
        batch_tokens=batch_tokens,
        fit=None if fit == "all" else fit,
        target_loss=target_loss,
        extrapolate=extrapolate,
        every_fit=fit == "all",
        **chosen_methods,
    )
    if as_json:
        emit(result)
    else:
        print_tables(new_console(), result)
