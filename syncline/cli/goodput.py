"""The command that computes the cost of failures."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from syncline.cli import completion
from syncline.cli.failing import WHICH, RepairOption, failing_fields
from syncline.cli.shell import JsonOption, app, emit, examples, new_console, print_tables, value_of


@app.command(
    "goodput",
    rich_help_panel="The clock alone",
    epilog=examples(
        "syncline goodput --workers 1024,16384 --checkpoint 30s --restart 10min",
        "syncline goodput --failures 50000h --checkpoint 1min --interval 10min,1h,best",
        "syncline goodput --failures failures.yaml --recovery restart,reform,alone",
    ),
)
def goodput_command(
    failures: Annotated[
        str,
        typer.Option(
            "--failures",
            metavar="WHICH",
            help=WHICH,
            autocompletion=completion.failures,
        ),
    ] = "llama-3",
    workers: Annotated[str, typer.Option("--workers", metavar="P,...", help="How many workers.")] = "1024",
    step_time: Annotated[
        str, typer.Option("--step-time", metavar="TIME", help="Of a step in which nothing fails.")
    ] = "10 s",
    recovery: Annotated[
        str | None,
        typer.Option(
            "--recovery",
            metavar="HOW,...",
            help="restart (all, from a checkpoint), reform (the others go on) or alone (workers at their own pace).",
        ),
    ] = None,
    interval: Annotated[
        str | None, typer.Option("--interval", metavar="TIME,...", help="Between checkpoints; or best, or never.")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", metavar="TIME", help="What writing one takes.")
    ] = None,
    size: Annotated[str | None, typer.Option("--size", metavar="SIZE", help="Of a checkpoint, as 2TB.")] = None,
    bandwidth: Annotated[
        str | None, typer.Option("--bandwidth", metavar="RATE", help="At which all together write it, as 100GB/s.")
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option("--mode", metavar="HOW", help="Of checkpoints: blocking, asynchronous or peer."),
    ] = None,
    restart: Annotated[str | None, typer.Option("--restart", metavar="TIME", help="To start processes again.")] = None,
    timeout: Annotated[str | None, typer.Option("--timeout", metavar="TIME", help="Until others notice.")] = None,
    repair: RepairOption = None,
    spares: Annotated[int | None, typer.Option("--spares", metavar="S", help="Machines that stand by.")] = None,
    duration: Annotated[str, typer.Option("--for", metavar="TIME", help="Of the clock that is played.")] = "30 d",
    steps: Annotated[
        int | None, typer.Option("--steps", metavar="T", help="In its place: until so many are done.")
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", metavar="S", help="Each with failures of its own.")] = 1,
    period: Annotated[
        int, typer.Option("--period", metavar="H", help="Steps from one exchange to the next, without restarts.")
    ] = 1,
    as_json: JsonOption = False,
) -> None:
    """Say what failures leave of a training: goodput, lost work, and how often to save. Nothing is trained."""
    from syncline.api.goodput import goodput

    saved: dict[str, Any] = {"seconds": checkpoint, "size": size, "bandwidth": bandwidth, "mode": mode}
    failure_fields = failing_fields(failures, saved, restart=restart, timeout=timeout, repair=repair, spares=spares)
    result = goodput(
        failure_fields,
        value_of("--workers", workers, several=True),
        step_time,
        recovery=None if recovery is None else [part.strip() for part in recovery.split(",")],
        interval=None if interval is None else [part.strip() for part in interval.split(",")],
        duration=duration,
        steps=steps,
        seeds=seeds,
        period=period,
    )
    if as_json:
        emit(result)
    else:
        print_tables(new_console(), result)
