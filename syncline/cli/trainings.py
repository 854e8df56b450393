"""Commands that train in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncline.cli.shell import (
    ColumnsOption,
    JsonOption,
    NetworkOption,
    NetworksOption,
    OutOption,
    SetOption,
    app,
    examples,
    new_console,
    overridden,
    show_result,
    spec_argument,
    warn,
)


@app.command(
    "compare",
    rich_help_panel="Train",
    epilog=examples(
        "syncline compare",
        "syncline compare digits-skewed --set steps=100 --network wan",
        "syncline compare my-spec.yaml --out results/first --json > rows.json",
    ),
)
def compare_command(
    spec: Annotated[str, spec_argument("compare")] = "compare-text",
    overrides: SetOption = None,
    network: NetworksOption = None,
    text: Annotated[
        Path | None, typer.Option("--text", metavar="FILE", help="Train on this text, if the problem is one of text.")
    ] = None,
    out: OutOption = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", metavar="N", min=1, help="Trainings side by side; one per core.")
    ] = None,
    columns: ColumnsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train several methods and time each on several networks: the loss and the clock."""
    if jobs != 1:
        from syncline.runs.processes.forked import start_server

        start_server()  # the server imports modules while this process does
    from syncline.specs import CompareSpec, load_spec

    changes = overridden(overrides, {"--text": ("problem.path", text and str(text))}, networks=network)
    loaded = load_spec(spec, changes, CompareSpec)
    warn(loaded.warnings())
    from syncline.api.trainings import compare
    from syncline.runs.processes.progress import progress
    from syncline.runs.rehearsal import check_columns

    check_columns(loaded, columns)
    console, target = new_console(), out or Path("runs") / loaded.name
    with progress(console, [method.name for method in loaded.methods], loaded.steps) as update:
        result = compare(loaded, out=target, exact=out is not None, jobs=jobs, on_progress=update)
    show_result(console, result, as_json, columns)


@app.command(
    "run",
    rich_help_panel="Train",
    epilog=examples(
        "syncline run rosenbrock-mt-dao --set method.period=8 --set steps=200",
        "syncline run rosenbrock-mt-dao --network wan --out results/wan",
        "syncline run staleness-quadratic",
    ),
)
def run_command(
    spec: Annotated[str, spec_argument("run")],
    overrides: SetOption = None,
    network: NetworkOption = None,
    scale: Annotated[
        str | None, typer.Option("--scale", metavar="NAME", help="One of the spec's scales, where it has any: gpu.")
    ] = None,
    out: OutOption = None,
    columns: ColumnsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train one method on one network, in full detail; or run a study, which no network times."""
    from syncline.specs import Experiment, RunSpec, load_spec

    changes = overridden(overrides, network=network)
    loaded: Experiment = load_spec(spec, changes, RunSpec, studies_of="run", scale=scale)
    warn(loaded.warnings())
    from syncline.api.trainings import run
    from syncline.planner.tables.display import subject
    from syncline.runs.processes.progress import progress
    from syncline.runs.rehearsal import check_columns
    from syncline.runs.run import steps_of

    check_columns(loaded, columns)
    console, target = new_console(), out or Path("runs") / loaded.name
    with progress(console, [subject(loaded)], steps_of(loaded)) as update:
        result = run(loaded, out=target, exact=out is not None, on_progress=lambda done: update([done]))
    show_result(console, result, as_json, columns)
