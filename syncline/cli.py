"""The commands: parse, call, print. What they do is in ``syncline.experiments``."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from syncline import __version__
from syncline.errors import SpecError, SynclineError, one_of

if TYPE_CHECKING:
    from rich.console import Console

INTERRUPTED = 130
"""Exit code after Ctrl-C, by the shell's convention: 128 + SIGINT."""

app = typer.Typer(
    help="What talking less often, in fewer bits, or later does to the loss and to the clock of distributed training.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

SpecArgument = Annotated[str, typer.Argument(help="A YAML file or a bundled spec; see 'syncline list specs'.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Override a field: --set method.lr=0.01.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object with 'rows' to standard output.")]
OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="FOLDER", help="Where results go; runs/NAME by default.")
]
NetworkOption = Annotated[
    list[str] | None,
    typer.Option("--network", metavar="NET", help="A preset, a YAML file, or latency,bandwidth as in 50us,10Gbit/s."),
]


def _console() -> Console:
    """Progress and tables go to standard error; standard output is for JSON."""
    from rich.console import Console

    console = Console(stderr=True)
    # A pipe or a log has no width, unless somebody says so: leave tables whole instead of folding them at 80 columns.
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(stderr=True, width=160)


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _warn(lines: list[str]) -> None:
    for line in lines:
        _say(f"warning: {line}")


def _networks(overrides: list[str] | None, networks: list[str] | None, field: str) -> list[str]:
    """``--network`` as overrides of the spec."""
    given = list(overrides or [])
    if networks and field == "network" and len(networks) > 1:
        raise SpecError("--network", networks, "one network, as this trains on one; 'syncline compare' takes several")
    if networks:
        given.append(f"{field}={json.dumps(networks if field == 'networks' else networks[0])}")
    return given


def _emit(result: dict[str, Any]) -> None:
    """The JSON object; numbers that JSON does not have become null."""
    from syncline.experiments.plain import plain

    print(json.dumps(plain(result), indent=1))


def _show_files(console: Console, folder: str) -> None:
    """Where things are, one path per line, so that it can be copied."""
    root = Path(folder)
    console.print(f"\nresults in {root}/", highlight=False, soft_wrap=True)
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        note = "  (opens in ui.perfetto.dev)" if path.name == "trace.json" else ""
        console.print(f"  {path}{note}", highlight=False, soft_wrap=True)


@app.command()
def compare(
    spec: SpecArgument = "compare-text",
    overrides: SetOption = None,
    network: NetworkOption = None,
    text: Annotated[Path | None, typer.Option("--text", help="Train on this text file instead.")] = None,
    out: OutOption = None,
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="Trainings side by side; one per core.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Train several methods and time each on several networks: the loss and the clock."""
    from syncline.specs import CompareSpec, load_spec

    given = _networks(overrides, network, "networks")
    if text is not None:
        given.append(f"problem.path={json.dumps(str(text))}")
    loaded = load_spec(spec, given, CompareSpec)
    _warn(loaded.warnings())
    from syncline.experiments import display
    from syncline.experiments.compare import compare as run_compare

    console = _console()
    with display.progress(console, [method.name for method in loaded.methods], loaded.steps) as update:
        result = run_compare(
            loaded, out or Path("runs") / loaded.name, exact=out is not None, jobs=jobs, on_progress=update
        )
    _finish(console, result, as_json, display.compare_tables(result["rows"], loaded))


@app.command()
def run(
    spec: SpecArgument,
    overrides: SetOption = None,
    network: NetworkOption = None,
    scale: Annotated[
        str | None, typer.Option("--scale", metavar="NAME", help="One of the spec's scales: gpu, where it has that.")
    ] = None,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train one method on one network, in full detail; or run a study, which no network times."""
    from syncline.specs import RunSpec, StudySpec, load_spec

    loaded = load_spec(spec, _networks(overrides, network, "network"), RunSpec, *get_args(StudySpec), scale=scale)
    assert isinstance(loaded, RunSpec | StudySpec)
    _warn(loaded.warnings())
    from syncline.experiments import display
    from syncline.experiments.run import run as run_run
    from syncline.experiments.run import steps_of

    console = _console()
    with display.progress(console, [display.subject(loaded)], steps_of(loaded)) as update:
        target = out or Path("runs") / loaded.name
        result = run_run(loaded, target, exact=out is not None, on_progress=lambda done: update([done]))
    _finish(console, result, as_json, display.run_tables(result["rows"], loaded))


@app.command()
def project(
    spec: SpecArgument = "project-gpt-160m",
    overrides: SetOption = None,
    network: NetworkOption = None,
    workers: Annotated[str | None, typer.Option("--workers", metavar="P,...", help="How many: 8,64,512.")] = None,
    model: Annotated[
        list[str] | None, typer.Option("--model", metavar="NAME,...", help="Models; see 'syncline list models'.")
    ] = None,
    hardware: Annotated[
        list[str] | None, typer.Option("--hardware", metavar="NAME,...", help="See 'syncline list hardware'.")
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option("--method", metavar="NAME,...", help="Methods; the first is the baseline.")
    ] = None,
    overlap: Annotated[str | None, typer.Option("--overlap", help="none, ddp or async.")] = None,
    algorithm: Annotated[
        str | None, typer.Option("--algorithm", metavar="NAME", help="Of collectives, or auto, gloo, nccl.")
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the rows there.")] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw: speedup against bandwidth, or a paper's figure."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Project the clock in closed form: no training, an answer at once. All options together: every combination."""
    from syncline.specs import ProjectSpec, TableSpec, load_spec

    given = _networks(overrides, network, "networks")
    loaded = load_spec(spec, given, ProjectSpec, *get_args(TableSpec))
    assert isinstance(loaded, ProjectSpec | TableSpec)
    _warn(loaded.warnings())
    from syncline.experiments import projections

    options = projections.Options(workers, model or (), hardware or (), method or (), overlap, algorithm)
    specs = projections.variants(loaded, options)
    _warn(projections.left_out(specs))
    rows = projections.rows_of(specs)
    written = [projections.write_csv(rows, csv)] if csv else []
    written += [projections.plot(specs, plot)] if plot else []
    if as_json:
        _emit({"spec": loaded.name, "rows": rows})
    else:
        from syncline.experiments.project_tables import project_tables

        console = _console()
        for table in project_tables(rows, *specs):
            console.print(table)
    for file in written:
        _say(f"{'rows' if file == csv else 'figure'} in {file}")


@app.command()
def collectives(
    workers: Annotated[
        int | None, typer.Option("--workers", help="How many; 8 by default, or one per start.", show_default=False)
    ] = None,
    nbytes: Annotated[
        str, typer.Option("--bytes", metavar="SIZE", help="As in 619MiB; of a gather, what each worker gives.")
    ] = "619 MiB",
    network: NetworkOption = None,
    collective: Annotated[
        list[str] | None, typer.Option("--collective", metavar="NAME", help="Only this one; all_reduce, for example.")
    ] = None,
    algorithm: Annotated[
        list[str] | None,
        typer.Option("--algorithm", metavar="NAME", help="Only this one; auto, gloo and nccl for their choice."),
    ] = None,
    rule: Annotated[str, typer.Option("--rule", help="When messages start: eager or rendezvous.")] = "eager",
    starts: Annotated[
        str | None, typer.Option("--starts", metavar="TIMES", help="When each worker enters: 0,0,0,1.0 or 0,0,0,50ms.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw cost against size: a .png, .pdf or .svg.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the algorithms of collectives on a network: closed form, lockstep and events."""
    from syncline.experiments import collectives as experiment

    question = experiment.Question.of(workers, nbytes, network, collective, starts, algorithm, rule)
    drawn = plot and experiment.plot(question, plot)
    result = experiment.collectives(question)
    if as_json:
        _emit(result)
    else:
        from syncline.experiments.collective_tables import collectives_tables

        console = _console()
        for table in collectives_tables(result["rows"], question):
            console.print(table)
    if drawn:
        _say(f"figure in {drawn}")


@app.command()
def pipeline(
    spec: SpecArgument = "pipeline-schedules",
    overrides: SetOption = None,
    schedule: Annotated[
        list[str] | None,
        typer.Option("--schedule", metavar="NAME,...", help="gpipe, 1f1b, interleaved, zb-h1, async-1f1b, greedy."),
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

    lists = {"schedules": schedule and ",".join(schedule), "forward": forward, "backward": backward, "weight": weight,
             "in_flight": in_flight}  # fmt: skip
    options = {field: f"[{text}]" for field, text in lists.items() if text is not None} | {
        "stages": stages, "microbatches": microbatches, "chunks": chunks, "activation_bytes": activation_bytes,
        "replicas": replicas, "jitter": jitter, "seed": seed,
    }  # fmt: skip
    given = _networks(overrides, network, "networks")
    given += [f"{field}={value}" for field, value in options.items() if value is not None]
    loaded = load_spec(spec, given, PipelineSpec)
    _warn(loaded.warnings())
    from syncline.experiments.pipeline import pipeline as run_schedules
    from syncline.experiments.pipeline_tables import pipeline_tables

    result = run_schedules(loaded, out or Path("runs") / loaded.name, exact=out is not None)
    _finish(_console(), result, as_json, pipeline_tables(result["rows"], loaded))


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(help="networks, hardware, models, methods, problems or specs")],
    model: Annotated[
        str | None, typer.Option("--model", help="For whose tensors 'list methods' counts bytes; gpt-160m by default.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="For how many workers 'list methods' counts; 8 by default.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List what a spec can name."""
    from syncline.costmodel import model as model_shape
    from syncline.experiments.catalogue import CATALOGUES

    if what not in CATALOGUES:
        raise SpecError("list", what, one_of(CATALOGUES, what))
    options: dict[str, Any] = {"shape": model and model_shape(model, "--model"), "workers": workers}
    given = {name: value for name, value in options.items() if value is not None}
    if what != "methods":
        for name, value in (("model", model), ("workers", workers)):
            if value is not None:
                raise SpecError(f"--{name}", value, f"no {name}, as a list of {what} depends on none")
    rows = CATALOGUES[what](**given)
    if as_json:
        _emit({"rows": rows})
        return
    from syncline.experiments import display

    _console().print(display.catalogue_table(what, rows))


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit


def _finish(console: Console, result: dict[str, Any], as_json: bool, tables: list[Any]) -> None:
    for table in tables:
        console.print(table)
    for row in result["rows"]:
        if row.get("diverged_at") is not None and row["network"] == result["rows"][0]["network"]:
            which = "".join(f", {name} {row[name]}" for name in ("seed", "stages") if name in row)
            _warn([f"{row['method']}{which}: diverged at step {row['diverged_at']}"])
    _show_files(console, result["folder"])
    if as_json:
        _emit(result)
    if result["interrupted"]:
        _say("interrupted: what was finished until then is in the folder above")
        raise typer.Exit(INTERRUPTED)


def main() -> None:
    """The entry point: a mistake in the input is one line on standard error and exit code 2."""
    # Until a training listens there is nothing to save, and an exception would surface from within half an import.
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    try:
        app()
    except SynclineError as error:
        _say(f"error: {error}")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
