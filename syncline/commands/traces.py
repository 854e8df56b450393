"""Commands that trace foreign scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from syncline.commands import completion
from syncline.commands.shell import (
    AlgorithmOption,
    JsonOption,
    NetworksOption,
    OutOption,
    app,
    each_network,
    emit,
    examples,
    new_console,
    say,
)

PANEL = "A script of your own"

NETWORKS = ["infiniband", "10gbe", "wan"]
"""If none is named."""

ScriptArgument = Annotated[
    list[str], typer.Argument(metavar="-- SCRIPT ...", help="A file, or -m and a module's name; its arguments.")
]
MachineOption = Annotated[
    str,
    typer.Option(
        "--hardware", metavar="NAME", help="See 'syncline list hardware'.", autocompletion=completion.hardware
    ),
]


@app.command(
    "trace",
    rich_help_panel=PANEL,
    epilog=examples(
        "syncline trace --workers 4 -- train.py --epochs 1",
        "syncline trace --network 10gbe --network wan --hardware h100 -- -m my.training",
    ),
)
def trace_command(
    script: ScriptArgument,
    workers: Annotated[int, typer.Option("--workers", metavar="P", help="Ranks, one process each.")] = 4,
    network: NetworksOption = None,
    hardware: MachineOption = "a100",
    algorithm: AlgorithmOption = None,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a torch.distributed script as it is, with its own math, and say what it would take on networks.

    What the script prints goes to standard error. Its operations are counted, and timed on the hardware.
    """
    from syncline.backend.tracing.ranks import script_of
    from syncline.experiments.tracing.trace import ReplayedOn, trace

    program = script_of(script)
    asked = ReplayedOn.of(each_network(network) or NETWORKS, hardware, algorithm)
    target = out or Path("runs") / f"trace-{program.name}"
    told = trace(program, workers, asked, target, exact=out is not None)
    _show(told, as_json)
    if not as_json:
        say(f"record in {told['folder']}/; on other networks: syncline whatif {told['folder']} --network NET")


@app.command(
    "whatif",
    rich_help_panel=PANEL,
    epilog=examples(
        "syncline whatif runs/trace-train --network two-sites", "syncline whatif runs/trace-train --hardware h100"
    ),
)
def whatif_command(
    record: Annotated[Path, typer.Argument(metavar="RECORD", help="The folder of a trace.")],
    network: NetworksOption = None,
    hardware: MachineOption = "a100",
    algorithm: AlgorithmOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replay the record of a trace on other networks, or on other hardware."""
    from syncline.experiments.tracing.kept import read_record
    from syncline.experiments.tracing.trace import ReplayedOn, replayed

    asked = ReplayedOn.of(each_network(network) or NETWORKS, hardware, algorithm)
    told, _ = replayed(read_record(record), asked)
    _show(told, as_json)


def _show(told: dict[str, Any], as_json: bool) -> None:
    """Rows as one object, or tables."""
    from syncline.experiments.tracing.tables import trace_tables

    if as_json:
        emit(told)
        return
    console = new_console()
    for one in trace_tables(told):
        console.print(one)
