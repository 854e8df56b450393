"""Commands that train nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncline.commands import completion
from syncline.commands.shell import (
    JsonOption,
    NetworkOption,
    OutOption,
    SetOption,
    app,
    emit,
    new_console,
    overridden,
    print_tables,
    say,
    show_result,
    spec_argument,
    value_of,
    warn,
)


@app.command("project")
def project_command(
    spec: Annotated[str, spec_argument("project")] = "project-gpt-160m",
    overrides: SetOption = None,
    network: NetworkOption = None,
    workers: Annotated[str | None, typer.Option("--workers", metavar="P,...", help="How many: 8,64,512.")] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="NAME,...",
            help="See 'syncline list models'; or a config.json, or module:make_model.",
            autocompletion=completion.models,
        ),
    ] = None,
    sequence: Annotated[
        int | None, typer.Option("--sequence", metavar="T", help="Tokens in a training sequence of the models.")
    ] = None,
    hardware: Annotated[
        list[str] | None,
        typer.Option(
            "--hardware", metavar="NAME,...", help="See 'syncline list hardware'.", autocompletion=completion.hardware
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            metavar="NAME,...",
            help="See 'syncline list methods'; the first is the baseline.",
            autocompletion=completion.methods,
        ),
    ] = None,
    overlap: Annotated[
        str | None,
        typer.Option(
            "--overlap",
            metavar="HOW",
            help="Of computing and communication: none, ddp or async.",
            autocompletion=completion.among("none", "ddp", "async"),
        ),
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(
            "--algorithm",
            metavar="NAME",
            help="Of all collectives: a name, or auto, gloo or nccl for their choice.",
            autocompletion=completion.algorithms,
        ),
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the rows there.")] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw: speedup against bandwidth, or a paper's figure."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Project the clock in closed form: no training, an answer at once. All options together: every combination."""
    from syncline.specs import Experiment, ProjectSpec, load_spec

    loaded: Experiment = load_spec(spec, overridden(overrides, networks=network), ProjectSpec, studies_of="project")
    warn(loaded.warnings())
    from syncline.experiments.projection import projections

    options = projections.Options(workers, model or (), hardware or (), method or (), overlap, algorithm, sequence)
    specs = projections.variants(loaded, options)
    warn(projections.left_out(specs))
    from syncline.api.clocks import project

    result = project(specs)
    rows = result.told["rows"]
    written = [projections.write_csv(rows, csv)] if csv else []
    written += [projections.plot_projection(specs, plot, rows)] if plot else []
    if as_json:
        emit(result)
    else:
        print_tables(new_console(), result)
    for file in written:
        say(f"{'rows' if file == csv else 'figure'} in {file}")


@app.command("collectives")
def collectives_command(
    workers: Annotated[
        int | None, typer.Option("--workers", help="How many; 8 by default, or one per start.", show_default=False)
    ] = None,
    nbytes: Annotated[
        str, typer.Option("--bytes", metavar="SIZE", help="As in 619MiB; of a gather, what each worker gives.")
    ] = "619 MiB",
    network: NetworkOption = None,
    collective: Annotated[
        list[str] | None,
        typer.Option(
            "--collective",
            metavar="NAME",
            help="Only this one, as all_reduce; repeatable.",
            autocompletion=completion.collectives,
        ),
    ] = None,
    algorithm: Annotated[
        list[str] | None,
        typer.Option(
            "--algorithm",
            metavar="NAME",
            help="Only this one; auto, gloo and nccl for their choice; repeatable.",
            autocompletion=completion.algorithms,
        ),
    ] = None,
    rule: Annotated[
        str,
        typer.Option(
            "--rule",
            metavar="RULE",
            help="When messages start: eager or rendezvous.",
            autocompletion=completion.among("eager", "rendezvous"),
        ),
    ] = "eager",
    starts: Annotated[
        str | None, typer.Option("--starts", metavar="TIMES", help="When each worker enters: 0,0,0,1.0 or 0,0,0,50ms.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw cost against size: a .png, .pdf or .svg.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the algorithms of collectives on a network: closed form, lockstep and events."""
    from syncline.api.clocks import priced
    from syncline.experiments import collectives as experiment

    question = experiment.CostQuestion.of(workers, nbytes, network, collective, starts, algorithm, rule)
    drawn = plot and experiment.plot_costs(question, plot)
    result = priced(question)
    if as_json:
        emit(result)
    else:
        print_tables(new_console(), result)
    if drawn:
        say(f"figure in {drawn}")


@app.command("pipeline")
def pipeline_command(
    spec: Annotated[str, spec_argument("pipeline")] = "pipeline-schedules",
    overrides: SetOption = None,
    schedule: Annotated[
        list[str] | None,
        typer.Option(
            "--schedule",
            metavar="NAME,...",
            help="See 'syncline list schedules'.",
            autocompletion=completion.schedules,
        ),
    ] = None,
    stages: Annotated[int | None, typer.Option("--stages", metavar="K", help="How many.")] = None,
    microbatches: Annotated[int | None, typer.Option("--microbatches", metavar="M", help="How many.")] = None,
    forward: Annotated[
        str | None, typer.Option("--forward", metavar="TIME,...", help="Of a micro-batch: 20ms, or one per stage.")
    ] = None,
    backward: Annotated[str | None, typer.Option("--backward", metavar="TIME,...", help="Likewise.")] = None,
    weight: Annotated[
        str | None, typer.Option("--weight", metavar="TIME,...", help="The weights' part of the backward, for zb-h1.")
    ] = None,
    chunks: Annotated[int | None, typer.Option("--chunks", metavar="V", help="Per stage, when interleaved.")] = None,
    in_flight: Annotated[
        str | None, typer.Option("--in-flight", metavar="N,...", help="Most micro-batches at a stage, or at each.")
    ] = None,
    network: NetworkOption = None,
    activation_bytes: Annotated[
        str | None, typer.Option("--activation-bytes", metavar="SIZE", help="That a micro-batch sends on: 8MB.")
    ] = None,
    replicas: Annotated[int | None, typer.Option("--replicas", metavar="D", help="Pipelines side by side.")] = None,
    jitter: Annotated[float | None, typer.Option("--jitter", help="Of the times: sigma of their logarithm.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Of the jitter.")] = None,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Play the schedules of a pipeline: bubbles, delays, memory, with a picture and a trace. Nothing is trained."""
    from syncline.specs import PipelineSpec, load_spec

    lists = {
        "--schedule": ("schedules", ",".join(schedule) if schedule else None), "--forward": ("forward", forward),
        "--backward": ("backward", backward), "--weight": ("weight", weight), "--in-flight": ("in_flight", in_flight),
    }  # fmt: skip
    options = {name: (field, value_of(name, text, several=True)) for name, (field, text) in lists.items()} | {
        "--stages": ("stages", stages), "--microbatches": ("microbatches", microbatches),
        "--chunks": ("chunks", chunks),
        "--activation-bytes": ("activation_bytes", value_of("--activation-bytes", activation_bytes)),
        "--replicas": ("replicas", replicas), "--jitter": ("jitter", jitter), "--seed": ("seed", seed),
    }  # fmt: skip
    given = overridden(overrides, options, networks=network)
    loaded = load_spec(spec, given, PipelineSpec)
    warn(loaded.warnings())
    from syncline.api.clocks import pipeline

    result = pipeline(loaded, out=out or Path("runs") / loaded.name, exact=out is not None)
    show_result(new_console(), result, as_json)
