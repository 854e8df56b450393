"""Commands that start real processes."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from syncline.cli import completion
from syncline.cli.shell import (
    TIMEOUT,
    BackendOption,
    DeviceOption,
    JsonOption,
    NetworkOption,
    OutOption,
    PerProcessOption,
    ReproducibleOption,
    SetOption,
    TimeoutOption,
    app,
    emit,
    examples,
    new_console,
    overridden,
    print_tables,
    say,
    show_files,
    show_result,
    spec_argument,
    warn,
)
from syncline.errors import SpecError


@app.command(
    "launch",
    rich_help_panel="Real processes",
    epilog=examples(
        "syncline launch rosenbrock-mt-dao --workers 2 --set steps=200",
        "syncline launch pipeline-text --set stages=2",
        "syncline launch my-run.yaml --workers 4 --device cpu --backend gloo",
    ),
)
def launch_command(
    spec: Annotated[str, spec_argument("run", "pipeline")],
    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="P", help="How many workers, or stages of a pipeline; else the spec's."),
    ] = None,
    overrides: SetOption = None,
    network: NetworkOption = None,
    device: DeviceOption = "auto",
    backend: BackendOption = "auto",
    timeout: TimeoutOption = TIMEOUT,
    workers_per_process: PerProcessOption = 1,
    port: Annotated[
        int,
        typer.Option(
            "--port", metavar="PORT", help="Where processes meet; any that is free by default.", show_default=False
        ),
    ] = 0,
    reproducible: ReproducibleOption = False,
    rejoins: Annotated[
        int,
        typer.Option(
            "--rejoins", metavar="N", help="How often a worker of an asynchronous method is started again if it dies."
        ),
    ] = 3,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a spec on real processes of this machine, and measure it: one process per worker, or per stage."""
    from syncline.specs import PipelineSpec, RunSpec, kind_of, load_spec

    of_pipeline = kind_of(spec, overrides or ()) == "pipeline"
    count = {"--workers": ("stages" if of_pipeline else "workers", workers)}
    changes = overridden(overrides, count, **{"networks" if of_pipeline else "network": network})
    loaded = load_spec(spec, changes, RunSpec, PipelineSpec)
    assert isinstance(loaded, RunSpec | PipelineSpec)
    warn(loaded.warnings())
    from syncline.api.processes import on_processes
    from syncline.measure.launching.launch import launch_warnings
    from syncline.measure.launching.process import Launch
    from syncline.measure.launching.tables import launched_steps
    from syncline.runs.processes.progress import progress
    from syncline.units import number_or_text, parse_seconds

    options = Launch(
        device, backend, parse_seconds(number_or_text(timeout), "--timeout"), reproducible, port,
        workers_per_process=workers_per_process, rejoins=rejoins,
    )  # fmt: skip
    warn(launch_warnings(loaded, options))
    console, target = new_console(), out or Path("runs") / loaded.name
    with progress(console, [loaded.name], launched_steps(loaded)) as update:
        result = on_processes(loaded, options, target, exact=out is not None, on_progress=lambda done: update([done]))
    show_result(console, result, as_json)
    if result.failed:
        say(f"error: {result.failed}; what was measured until then is in the folder above")
        raise typer.Exit(1)


@app.command(
    "calibrate",
    rich_help_panel="Real processes",
    epilog=examples(
        "syncline calibrate",
        "syncline calibrate --workers 2,4 --out lab.yaml",
        "syncline project --network cluster.yaml",
    ),
)
def calibrate_command(
    spec: Annotated[
        str | None,
        typer.Argument(
            metavar="SPEC",
            help="Whose problem's training steps are timed; the problem digits by default.",
            autocompletion=completion.specs_of("run", "compare"),
        ),
    ] = None,
    workers: Annotated[
        str, typer.Option("--workers", metavar="P,P", help="Numbers of processes to measure with, one after another.")
    ] = "2,4",
    overrides: SetOption = None,
    known_network: Annotated[
        str | None,
        typer.Option("--network", metavar="NET", help="Its latency and bandwidth, if known; else they are fitted."),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option("--sizes", metavar="SIZE,SIZE", help="Sizes of the collectives; 4 B to 16 MiB by default."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option("--budget", metavar="TIME", help="Time for each collective and size; 150 ms by default."),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option("--window", metavar="TIME", help="Time for training steps, and for products; 1 s by default."),
    ] = None,
    device: DeviceOption = "auto",
    backend: BackendOption = "auto",
    timeout: TimeoutOption = TIMEOUT,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The cluster file; cluster.yaml by default.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure this machine: collectives, training steps, wire formats. Writes a file that specs take as network."""
    from syncline.api.processes import calibration_result
    from syncline.measure.calibration.calibrate import calibrate
    from syncline.measure.calibration.plan import calibrate_warnings, numbers_of, planned
    from syncline.measure.launching.process import Launch
    from syncline.runs.processes.progress import progress
    from syncline.units import number_or_text, parse_seconds

    plan = planned(spec, overrides or (), known_network=known_network, sizes=sizes, budget=budget, window=window)
    numbers = numbers_of(workers)
    warn(calibrate_warnings(numbers))
    options = Launch(device, backend, parse_seconds(number_or_text(timeout), "--timeout"))
    command, console = shlex.join(["syncline", *sys.argv[1:]]), new_console()
    with progress(console, ["calibrate"], len(numbers) * len(plan.parts), "parts") as update:
        measured = calibrate(
            plan, numbers, out or Path("cluster.yaml"), options, command=command, exact=out is not None,
            on_progress=lambda done: update([done]),
        )  # fmt: skip
    if "failed" in measured:
        say(f"error: {measured['failed']}")
        raise typer.Exit(1)
    result = calibration_result(measured)
    print_tables(console, result)
    console.print(f"\nresults in {result.folder}", soft_wrap=True)
    console.print(f"use it: syncline project --network {shlex.quote(str(result.folder))}", soft_wrap=True)
    if as_json:
        emit(result)


@app.command(
    "validate",
    rich_help_panel="Real processes",
    epilog=examples(
        "syncline validate validate-compute",
        "syncline validate validate-compute --workers 2 --cluster cluster.yaml",
        "syncline validate vtrain-a100 --data folder-of-measurements",
        "syncline validate clusters",
        "syncline validate clusters --measurements mine.csv --json",
    ),
)
def validate_command(
    specs: Annotated[
        list[str],
        typer.Argument(
            metavar="SPEC",
            help="YAML files or bundled specs; see 'syncline list specs'.",
            autocompletion=completion.specs_of("run", "compare", "validate"),
        ),
    ],
    overrides: SetOption = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="FOLDER", help="Where published measurements are; else the spec says."),
    ] = None,
    measurements: Annotated[
        list[Path] | None,
        typer.Option(
            "--measurements",
            metavar="FILE",
            help="Of 'clusters': a CSV file with the columns of one that is bundled, predicted row by row; repeatable.",
        ),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option("--workers", metavar="P,...", help="Numbers of processes of trainings: 2,4; else the spec's."),
    ] = None,
    cluster: Annotated[
        Path | None,
        typer.Option("--cluster", metavar="FILE", help="What 'syncline calibrate' wrote; else it runs first."),
    ] = None,
    repeats: Annotated[
        int, typer.Option("--repeats", metavar="N", help="How many trainings of each are measured.")
    ] = 5,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hold predictions against measurements that they were not made from: errors, residuals, a figure.

    Trainings (specs of kind run or compare) are predicted, then run between processes of this machine, all together.
    """
    from syncline.specs import VALIDATIONS, CompareSpec, RunSpec, kind_of, load_spec

    loaded = []
    for name in specs:
        where = None if data is None or kind_of(name) in ("run", "compare") else str(data)
        files = [str(path) for path in measurements or ()] or None
        changes = overridden(overrides, {"--data": ("data", where), "--measurements": ("measurements", files)})
        loaded.append(load_spec(name, changes, *VALIDATIONS, RunSpec, CompareSpec))
    trainings = [spec for spec in loaded if isinstance(spec, RunSpec | CompareSpec)]
    published = [spec for spec in loaded if isinstance(spec, VALIDATIONS)]
    if out is not None and len(published) + bool(trainings) > 1:
        raise SpecError("--out", str(out), "one spec, as this names the folder of one; without it each has its own")
    from syncline.measure.validation.step_times import validate_published
    from syncline.measure.validation.tables import validate_tables, validation_tables

    console, results = new_console(), []
    for spec in published:
        result = validate_published(spec, out or Path("runs") / spec.name, exact=out is not None)
        for table in validate_tables(result, spec):
            console.print(table)
        show_files(console, result["folder"])
        results.append(result)
    for training in trainings:
        warn(training.warnings())
    if trainings:
        from syncline.measure.validation.local import validate_local

        target = out or Path("runs") / "-".join(spec.name for spec in trainings)
        result = validate_local(trainings, workers, cluster, repeats, target, exact=out is not None, on_progress=say)
        for table in validation_tables(result):
            console.print(table)
        show_files(console, result["folder"])
        results.append(result)
    if as_json:
        together = {
            "validations": results,
            "rows": [{"spec": answer.get("spec")} | row for answer in results for row in answer["rows"]],
        }
        emit(results[0] if len(results) == 1 else together)
