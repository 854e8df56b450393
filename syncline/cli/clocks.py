"""Commands that compute clocks without a training."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from syncline.cli.projected import (
    CsvOption,
    ExtrapolateOption,
    LayoutOption,
    MachinesOption,
    ModelsOption,
    OverlapOption,
    PrecisionOption,
    PricesOption,
    SequenceOption,
    methods_option,
    tokens_option,
)
from syncline.cli.shell import (
    FLAG,
    AlgorithmOption,
    ClusterOption,
    ColumnsOption,
    JsonOption,
    NetworksOption,
    OutOption,
    SetOption,
    app,
    each_network,
    emit,
    examples,
    new_console,
    overridden,
    print_each,
    say,
    show_result,
    spec_argument,
    tables_of,
    value_of,
    warn,
)
from syncline.errors import SpecError
from syncline.units import parse_count

if TYPE_CHECKING:
    from syncline.planner.projection.projections import Options
    from syncline.specs import Experiment


@app.command(
    "project",
    rich_help_panel="The clock alone",
    epilog=examples(
        "syncline project",
        "syncline project --model mt-dao-1.3b --workers 16 --network wan",
        "syncline project --model llama-7b --cluster two-sites-a100 --method diloco",
        "syncline project --workers 8,64,512 --plot speedup.pdf --csv rows.csv",
        "syncline project --network 10gbe --grid network.latency=50us,1ms",
    ),
)
def project_command(
    spec: Annotated[str, spec_argument("project")] = "project-gpt-160m",
    overrides: SetOption = None,
    network: NetworksOption = None,
    cluster: ClusterOption = None,
    workers: Annotated[
        str | None, typer.Option("--workers", metavar="P,...", help="How many workers: 8,64,512.")
    ] = None,
    model: ModelsOption = None,
    sequence: SequenceOption = None,
    hardware: MachinesOption = None,
    method: Annotated[
        list[str] | None, methods_option("See 'syncline list methods'; the first is the baseline.")
    ] = None,
    overlap: OverlapOption = None,
    algorithm: AlgorithmOption = None,
    precision: PrecisionOption = None,
    layout: LayoutOption = None,
    batch_tokens: Annotated[
        str | None,
        typer.Option(
            "--batch-tokens",
            metavar="B",
            help="Tokens of all workers in a step, as 2M; by default between the best batches of published fits.",
        ),
    ] = None,
    period: Annotated[
        str | None,
        typer.Option(
            "--period",
            metavar="H",
            help="Steps between exchanges of methods that exchange now and then: 30 by default; preset: each "
            "preset's own.",
        ),
    ] = None,
    thresholds: Annotated[
        bool | None,
        typer.Option(
            "--thresholds/--no-thresholds",
            metavar=FLAG,
            help="Say at which bandwidths a method is worth it; by default up to 1,000 rows.",
        ),
    ] = None,
    tokens: Annotated[str | None, tokens_option(": its time, its loss")] = None,
    target_loss: Annotated[
        float | None,
        typer.Option("--target-loss", metavar="L", help="Time and tokens to it, where a published fit covers it."),
    ] = None,
    prices: PricesOption = None,
    extrapolate: ExtrapolateOption = False,
    failures: FailuresOption = None,
    recovery: RecoveryOption = None,
    restart: RestartOption = None,
    repair: RepairOption = None,
    checkpoint: CheckpointOption = None,
    bandwidth: StorageOption = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="FIELD=VALUES",
            help="Values of a field: workers=8,64 or network.latency=50us,1ms, or a YAML list; repeatable.",
        ),
    ] = None,
    csv: CsvOption = None,
    parquet: Annotated[
        Path | None, typer.Option("--parquet", metavar="FILE", help="Likewise; of a grid NAME.parquet by default.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw: speedup against bandwidth, or a paper's figure."),
    ] = None,
    columns: ColumnsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Project the clock in closed form: no training, an answer at once.

    Lists of models, hardware, workers, methods and networks: every combination. With --grid any number of them, in a
    parquet file.
    """
    from syncline.specs import Override, ProjectSpec, load_spec, resolve_cluster_options

    failing = failing_fields(
        failures, {"seconds": checkpoint, "bandwidth": bandwidth}, recovery=recovery, restart=restart, repair=repair
    )
    networks, machines, count = resolve_cluster_options(cluster, each_network(network), hardware, workers)
    changes = [*overridden(overrides), *([Override.option("--network", "networks", networks)] if networks else [])]
    loaded: Experiment = load_spec(spec, changes, ProjectSpec, studies_of="project")
    warn(loaded.warnings())
    from syncline.planner.projection import projections

    options = projections.Options(
        count,
        model or (),
        machines or (),
        method or (),
        overlap,
        algorithm,
        sequence,
        precision,
        layout or (),
        batch_tokens,
        period,
    )
    if grid:
        conflicting = {
            "--csv": csv,
            "--plot": plot,
            "--tokens": tokens,
            "--target-loss": target_loss,
            "--prices": prices,
            "--batch-tokens": batch_tokens,
        }
        conflicting |= {"--columns": columns, "--failures": failures}
        for name, value in conflicting.items():
            if value is not None:
                raise SpecError(name, str(value), "nothing beside --grid, whose rows are in a parquet file")
        _write_grid(loaded, options, grid, thresholds or False, parquet or Path(f"{loaded.name}.parquet"), as_json)
        return
    specs = projections.variants(loaded, options)
    if tokens is not None and not any(change.path == "steps" for change in changes):
        specs = [projections.with_steps_for(projection, parse_count(tokens, "--tokens")) for projection in specs]
    warn(projections.left_out(specs))
    from syncline.api.clocks import project

    result = project(
        specs,
        thresholds=thresholds,
        tokens=tokens,
        target_loss=target_loss,
        prices=prices,
        extrapolate=extrapolate,
        failures=failing,
    )
    rows = result.told["rows"]
    tables = [] if as_json else tables_of(result, columns)
    written = [projections.write_csv(rows, csv)] if csv else []
    if parquet:
        from syncline.planner.projection.parquet import write_rows

        written.append(write_rows(rows, parquet))
    written += [projections.plot_projection(specs, plot, rows)] if plot else []
    if as_json:
        emit(result)
    else:
        print_each(new_console(), tables)
    for file in written:
        say(f"{'figure' if file == plot else 'rows'} in {file}")


def _write_grid(
    spec: Experiment, options: Options, grid_options: list[str], thresholds: bool, file: Path, as_json: bool
) -> None:
    """Write a row per combination of values into a file."""
    from syncline.planner.projection.grid import ProjectedGrid, grids_of
    from syncline.planner.projection.parquet import write_parquet
    from syncline.runs.processes.progress import progress
    from syncline.specs import ProjectSpec, study_of
    from syncline.specs.grid import Grid

    if not isinstance(spec, ProjectSpec):
        raise SpecError(
            "--grid", grid_options[0], f"no such option for a {study_of(spec).kind}; --set changes its fields"
        )
    gc.enable()  # this may take minutes
    grid = ProjectedGrid(spec, [*grids_of(options), *map(Grid.parse, grid_options)])
    warn(grid.left_out())
    with progress(new_console(), [spec.name], grid.rows, "rows") as update:
        written = write_parquet(grid.parts(thresholds), file, {"spec": spec.name}, lambda rows: update([rows]))
    say(f"{written:,} rows in {file}")
    if as_json:
        emit({"spec": spec.name, "file": str(file), "written": written})


@app.command(
    "collectives",
    rich_help_panel="The clock alone",
    epilog=examples(
        "syncline collectives --workers 8 --bytes 619MiB --network 10gbe",
        "syncline collectives --collective all_reduce --network wan --plot cost.png",
        "syncline collectives --collective all_reduce --cluster two-sites-a100",
        "syncline collectives --starts 0,0,0,50ms",
    ),
)
def collectives_command(
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers", metavar="P", help="How many workers; all of a cluster, 8 by default, or one per start."
        ),
    ] = None,
    nbytes: Annotated[
        str,
        typer.Option("--bytes", metavar="SIZE", help="Of the tensor, as 619MiB; of a gather, what each worker gives."),
    ] = "619 MiB",
    network: NetworksOption = None,
    cluster: ClusterOption = None,
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
    protocol: Annotated[
        str,
        typer.Option(
            "--protocol",
            metavar="PROTOCOL",
            help="When messages start: eager or rendezvous.",
            autocompletion=completion.among("eager", "rendezvous"),
        ),
    ] = "eager",
    starts: Annotated[
        str | None, typer.Option("--starts", metavar="TIMES", help="When each worker enters: 0,0,0,1.0 or 0,0,0,50ms.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw time against size: a .png, .pdf or .svg.")
    ] = None,
    columns: ColumnsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the algorithms of collectives on a network: closed form, lockstep and events."""
    from syncline.api.clocks import collectives_result
    from syncline.planner import collectives as experiment
    from syncline.specs import resolve_cluster_options

    networks, _, count = resolve_cluster_options(cluster, each_network(network), None, workers)
    question = experiment.CostQuestion.from_options(count, nbytes, networks, collective, starts, algorithm, protocol)
    result = collectives_result(question)
    tables = [] if as_json else tables_of(result, columns)
    drawn = plot and experiment.plot_costs(question, plot)
    if as_json:
        emit(result)
    else:
        print_each(new_console(), tables)
    if drawn:
        say(f"figure in {drawn}")


@app.command(
    "pipeline",
    rich_help_panel="The clock alone",
    epilog=examples(
        "syncline pipeline --stages 4 --microbatches 8 --schedule gpipe,1f1b",
        "syncline pipeline --forward 20ms --network 10gbe --activation-bytes 8MB",
        "syncline pipeline pipeline-gpt-350m",
    ),
)
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
    stages: Annotated[int | None, typer.Option("--stages", metavar="K", help="How many stages.")] = None,
    microbatches: Annotated[int | None, typer.Option("--microbatches", metavar="M", help="Of a step.")] = None,
    forward: Annotated[
        str | None,
        typer.Option("--forward", metavar="TIME,...", help="Time of a micro-batch's forward: 20ms; or one per stage."),
    ] = None,
    backward: Annotated[
        str | None, typer.Option("--backward", metavar="TIME,...", help="Likewise, of its backward.")
    ] = None,
    backward_weight: Annotated[
        str | None,
        typer.Option(
            "--backward-weight", metavar="TIME,...", help="The part of it for the weights' gradient, of zb-h1."
        ),
    ] = None,
    chunks: Annotated[
        int | None, typer.Option("--chunks", metavar="V", help="Chunks of layers per stage, of interleaved.")
    ] = None,
    max_in_flight: Annotated[
        str | None,
        typer.Option(
            "--max-in-flight", metavar="N,...", help="Most micro-batches in a stage at a time; or one per stage."
        ),
    ] = None,
    network: NetworksOption = None,
    activation_bytes: Annotated[
        str | None,
        typer.Option("--activation-bytes", metavar="SIZE", help="What a micro-batch sends to the next stage: 8MB."),
    ] = None,
    replicas: Annotated[
        int | None, typer.Option("--replicas", metavar="D", help="Pipelines side by side, which average gradients.")
    ] = None,
    jitter: Annotated[
        float | None, typer.Option("--jitter", metavar="SIGMA", help="Of the times: deviation of their logarithm.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="Of the jitter.")] = None,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Play the schedules of a pipeline: bubbles, delays, memory, with a picture and a trace. Nothing is trained."""
    from syncline.specs import PipelineSpec, load_spec

    lists = {
        "--schedule": ("schedules", ",".join(schedule) if schedule else None), "--forward": ("forward", forward),
        "--backward": ("backward", backward), "--backward-weight": ("backward_weight", backward_weight),
        "--max-in-flight": ("max_in_flight", max_in_flight),
    }  # fmt: skip
    options = {name: (field, value_of(name, text, several=True)) for name, (field, text) in lists.items()} | {
        "--stages": ("stages", stages), "--microbatches": ("microbatches", microbatches),
        "--chunks": ("chunks", chunks),
        "--activation-bytes": ("activation_bytes", value_of("--activation-bytes", activation_bytes)),
        "--replicas": ("replicas", replicas), "--jitter": ("jitter", jitter), "--seed": ("seed", seed),
    }  # fmt: skip
    changes = overridden(overrides, options, networks=network)
    loaded = load_spec(spec, changes, PipelineSpec)
    warn(loaded.warnings())
    from syncline.api.clocks import pipeline

    result = pipeline(loaded, out=out or Path("runs") / loaded.name, exact=out is not None)
    show_result(new_console(), result, as_json)
