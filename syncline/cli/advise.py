"""The command that ranks the plans for a cluster and a model."""

from __future__ import annotations

from typing import Annotated

import typer

from syncline.cli import completion
from syncline.cli.failing import (
    CheckpointOption,
    FailuresOption,
    RecoveryOption,
    RepairOption,
    RestartOption,
    StorageOption,
    failing_fields,
)
from syncline.cli.projected import CsvOption, ExtrapolateOption, PricesOption, SequenceOption, methods_option
from syncline.cli.shell import FLAG, ClusterOption, JsonOption, app, emit, examples, new_console, print_tables, say
from syncline.errors import SpecError


@app.command(
    "advise",
    rich_help_panel="The clock alone",
    epilog=examples(
        "syncline advise --model llama-7b --cluster two-sites-a100 --tokens 140B",
        "syncline advise --model llama-7b --cluster two-sites-a100 --extrapolate",
        "syncline advise --model gpt-160m --network wan --hardware h100 --workers 4",
        "syncline advise --model llama-7b --cluster two-sites-a100 --failures llama-3",
    ),
)
def advise_command(
    model: Annotated[
        str,
        typer.Option(
            "--model",
            metavar="NAME",
            help="See 'syncline list models'; or a config.json, or fields.",
            autocompletion=completion.models,
        ),
    ],
    cluster: ClusterOption = None,
    network: Annotated[
        str | None, typer.Option("--network", metavar="NAME", help="In place of a cluster, beside the next two.")
    ] = None,
    hardware: Annotated[
        str | None,
        typer.Option(
            "--hardware",
            metavar="NAME",
            help="In place of the cluster's; see 'syncline list hardware'.",
            autocompletion=completion.hardware,
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="P", help="How many; all of a cluster by default.")
    ] = None,
    tokens: Annotated[
        str | None,
        typer.Option("--tokens", metavar="D", help="Of data parallelism, as 140B; by default 20 per parameter."),
    ] = None,
    target_loss: Annotated[
        float | None, typer.Option("--target-loss", metavar="L", help="In its place: the loss that all are trained to.")
    ] = None,
    batch_tokens: Annotated[
        str | None,
        typer.Option(
            "--batch-tokens",
            metavar="B",
            help="Tokens of all workers in a step, as 2M; by default between the best batches of published fits.",
        ),
    ] = None,
    sequence: SequenceOption = None,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="MONEY", help="Most that it may cost, as 50k; needs --prices.")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="TIME", help="Most that it may take, as 30d.")
    ] = None,
    prices: PricesOption = None,
    method: Annotated[list[str] | None, methods_option("Between replicas; by default all that are tried.")] = None,
    extrapolate: ExtrapolateOption = False,
    failures: FailuresOption = None,
    recovery: RecoveryOption = None,
    restart: RestartOption = None,
    repair: RepairOption = None,
    checkpoint: CheckpointOption = None,
    bandwidth: StorageOption = None,
    period: Annotated[
        str | None,
        typer.Option(
            "--period",
            metavar="H",
            help="Steps between exchanges; by default 30, 100, 300 and 1000 are tried, and methods by name have 30.",
        ),
    ] = None,
    every_plan: Annotated[
        bool, typer.Option("--all", metavar=FLAG, help="List all plans, what decides, and what nobody knows.")
    ] = False,
    csv: CsvOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say which plans train a model on a cluster, how long each takes, and how sure that is.

    Plans whose loss a published fit says are ranked by time to equal loss, the others by time for the tokens.
    """
    from syncline.api.advice import advise
    from syncline.planner.projection.projections import names_of, write_csv

    failing = failing_fields(
        failures, {"seconds": checkpoint, "bandwidth": bandwidth}, recovery=recovery, restart=restart, repair=repair
    )
    try:
        result = advise(
            model,
            cluster,
            network=network,
            hardware=hardware,
            workers=workers,
            tokens=tokens,
            target_loss=target_loss,
            batch_tokens=batch_tokens,
            sequence=sequence,
            budget=budget,
            deadline=deadline,
            prices=prices,
            extrapolate=extrapolate,
            methods=names_of(method) if method else None,
            period=period,
            failures=failing,
            every_plan=every_plan,
        )
    except SpecError as error:
        first, dot, rest = error.path.partition(".")
        path = f"--{first.replace('_', '-').removeprefix('--')}{dot}{rest}" if first in OPTIONS else error.path
        raise SpecError(path, error.value, error.expected) from None
    written = write_csv(result.rows, csv) if csv else None
    if as_json:
        emit(result)
    else:
        print_tables(new_console(), result)
    if written:
        say(f"rows in {written}")


OPTIONS = (
    "model", "cluster", "network", "hardware", "workers", "tokens", "target_loss", "batch_tokens", "sequence", "budget",
    "deadline", "prices", "method", "failures",
)  # fmt: skip
"""Arguments that an error message names like options."""
