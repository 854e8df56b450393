"""The command that solves a projection for the setting that meets a target."""

from __future__ import annotations

from typing import Annotated

import typer

from syncline.cli import completion
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
    JsonOption,
    NetworksOption,
    SetOption,
    app,
    each_network,
    emit,
    examples,
    new_console,
    overridden,
    print_tables,
    say,
    spec_argument,
    warn,
)

VARIABLES = ("bandwidth", "latency", "period", "delay", "workers", "network")
"""Variables to solve for; a test compares them with the experiments' list."""

TARGETS, WHERE = "Targets", "Where"


@app.command(
    "solve",
    rich_help_panel="The clock alone",
    epilog=examples(
        "syncline solve bandwidth --cluster two-sites-a100 --tokens 9B --deadline 1d",
        "syncline solve latency --model llama-7b --network wan --exposed 80%",
        "syncline solve period --network wan --method diloco --step-time 0.5s",
        "syncline solve delay --network wan --method streaming-diloco --exposed 0",
        "syncline solve workers --cluster two-sites-a100 --tokens 9B --deadline 2h",
        "syncline solve network --among 1gbe=400,10gbe=2k --network wan --speedup 2",
    ),
)
def solve_command(
    variable: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="bandwidth, latency, period, delay, workers or network.",
            autocompletion=completion.among(*VARIABLES),
        ),
    ],
    spec: Annotated[str, spec_argument("project")] = "project-gpt-160m",
    deadline: Annotated[
        str | None,
        typer.Option("--deadline", metavar="TIME", help="Of the whole training: 30d.", rich_help_panel=TARGETS),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option("--budget", metavar="MONEY", help="For it, by --prices: 50k.", rich_help_panel=TARGETS),
    ] = None,
    step_time: Annotated[
        str | None,
        typer.Option("--step-time", metavar="TIME", help="Of a mean step, at most: 2s.", rich_help_panel=TARGETS),
    ] = None,
    utilisation: Annotated[
        str | None,
        typer.Option(
            "--utilisation", metavar="PART", help="Of the hardware's peak, at least: 0.4.", rich_help_panel=TARGETS
        ),
    ] = None,
    compute_utilisation: Annotated[
        str | None,
        typer.Option(
            "--compute-utilisation",
            metavar="PART",
            help="Of a step that is spent computing, at least: 80%.",
            rich_help_panel=TARGETS,
        ),
    ] = None,
    exposed: Annotated[
        str | None,
        typer.Option(
            "--exposed",
            metavar="PART",
            help="Of a step that is spent waiting for the network, at most: 5%.",
            rich_help_panel=TARGETS,
        ),
    ] = None,
    speedup: Annotated[
        str | None,
        typer.Option("--speedup", metavar="TIMES", help="Over a baseline, at least: 2.", rich_help_panel=TARGETS),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--over",
            metavar="METHOD",
            help="The baseline of --speedup; ddp-adam by default.",
            rich_help_panel=TARGETS,
            autocompletion=completion.methods,
        ),
    ] = None,
    loss_penalty: Annotated[
        str | None,
        typer.Option(
            "--loss-penalty",
            metavar="PART",
            help="By which the predicted loss may be above data parallelism's: 1%.",
            rich_help_panel=TARGETS,
        ),
    ] = None,
    tokens: Annotated[str | None, tokens_option("")] = None,
    target_loss: Annotated[
        float | None, typer.Option("--target-loss", metavar="L", help="In place of tokens, by a published fit.")
    ] = None,
    batch_tokens: Annotated[
        str | None,
        typer.Option(
            "--batch-tokens",
            metavar="B",
            help="Of a step of all workers, whatever their number: 2M; by default 32,768 per worker, as what is sought "
            "alone may change; with --best, as of advise, what published fits find best.",
        ),
    ] = None,
    prices: PricesOption = None,
    extrapolate: ExtrapolateOption = False,
    level: Annotated[
        str | None,
        typer.Option(
            "--level",
            metavar="NAME",
            help="Of a network of several: whose link, or units, are sought; the outermost by default.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    among: Annotated[
        list[str] | None,
        typer.Option(
            "--among",
            metavar="NET,...",
            help="Links to choose from; with =PRICE of a month of each.",
            rich_help_panel=WHERE,
            autocompletion=completion.networks,
        ),
    ] = None,
    max_workers: Annotated[
        int | None,
        typer.Option("--most", metavar="P", help="Workers that are tried; 16 times those there are by default."),
    ] = None,
    best: Annotated[
        bool,
        typer.Option(
            "--best", metavar=FLAG, help="By any plan of 'syncline advise': methods, layouts, how steps are held."
        ),
    ] = False,
    fits: Annotated[
        bool | None,
        typer.Option(
            "--fits/--no-fits",
            metavar=FLAG,
            help="What a worker keeps fits into its memory; by default where workers are sought.",
            rich_help_panel=TARGETS,
        ),
    ] = None,
    overrides: SetOption = None,
    network: NetworksOption = None,
    cluster: ClusterOption = None,
    workers: Annotated[str | None, typer.Option("--workers", metavar="P,...", help="How many there are.")] = None,
    model: ModelsOption = None,
    sequence: SequenceOption = None,
    hardware: MachinesOption = None,
    method: Annotated[list[str] | None, methods_option("By default ddp-adam, diloco and streaming-diloco.")] = None,
    overlap: OverlapOption = None,
    algorithm: AlgorithmOption = None,
    precision: PrecisionOption = None,
    layout: LayoutOption = None,
    csv: CsvOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what meets a target: least bandwidth, longest latency or period, fewest workers, cheapest network.

    With the interval that the clock's own bounds leave, and why where nothing does.
    """
    from syncline.api.solve import DEFAULT, solve_result
    from syncline.planner.projection.projections import Options, left_out, write_csv
    from syncline.planner.solving.inputs import InverseInputs
    from syncline.specs import Override, ProjectSpec, load_spec, resolve_cluster_options

    inputs = InverseInputs(
        tokens, target_loss, prices, extrapolate, deadline, budget, step_time, utilisation, compute_utilisation,
        exposed, speedup, loss_penalty, baseline, level, among, max_workers, batch_tokens, best, fits,
    )  # fmt: skip
    inputs.targets()  # refuse wrong targets before anything is read
    networks, machines, count = resolve_cluster_options(cluster, each_network(network), hardware, workers)
    changes = [*overridden(overrides), *([Override.option("--network", "networks", networks)] if networks else [])]
    loaded = load_spec(spec, changes, ProjectSpec)
    warn(loaded.warnings())
    options = Options(
        count, model or (), machines or (), method or (), overlap, algorithm, sequence, precision, layout or ()
    )
    specs = inputs.specs(loaded, options, own_methods=spec != DEFAULT)
    warn(left_out(specs))
    result = solve_result(inputs.question(variable, specs, own_methods=bool(method)))
    written = [write_csv(result.rows, csv)] if csv else []
    if as_json:
        emit(result)
    else:
        print_tables(new_console(), result)
    for file in written:
        say(f"rows in {file}")
